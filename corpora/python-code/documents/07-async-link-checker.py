import asyncio
import logging
from dataclasses import dataclass, field
from typing import Awaitable, Callable

log = logging.getLogger(__name__)
Fetch = Callable[[str], Awaitable[tuple[int, list[str]]]]


@dataclass
class Report:
    ok: set[str] = field(default_factory=set)
    broken: dict[str, str] = field(default_factory=dict)


async def crawl(start: str, fetch: Fetch, *, workers: int = 8, timeout: float = 10.0) -> Report:
    """Visit every page reachable from ``start`` and note what fails."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    seen = {start}
    report = Report()
    queue.put_nowait(start)

    async def worker(number: int) -> None:
        while True:
            url = await queue.get()
            try:
                async with asyncio.timeout(timeout):
                    status, links = await fetch(url)
                if status >= 400:
                    report.broken[url] = f"status {status}"
                    continue
                report.ok.add(url)
                for link in links:
                    if link not in seen:
                        seen.add(link)
                        queue.put_nowait(link)
            except TimeoutError:
                report.broken[url] = "timed out"
            except OSError as exc:
                log.warning("worker %d: %s: %s", number, url, exc)
                report.broken[url] = str(exc)
            finally:
                queue.task_done()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(worker(n)) for n in range(workers)]
        await queue.join()
        for task in tasks:
            task.cancel()
    return report
