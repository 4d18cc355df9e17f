from __future__ import annotations

import inspect
import weakref
from typing import Any, Callable, Generic, Protocol, TypeVar

E = TypeVar("E", contravariant=True)


class Listener(Protocol[E]):
    def __call__(self, event: E) -> None: ...


class Signal(Generic[E]):
    """Calls its listeners in order of priority, highest first.

    Bound methods are held weakly, so a signal never keeps an object alive.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._entries: list[tuple[int, Callable[[], Listener[E] | None]]] = []

    def connect(self, listener: Listener[E], priority: int = 0) -> Listener[E]:
        if inspect.ismethod(listener):
            reference: Callable[[], Any] = weakref.WeakMethod(listener)
        else:
            reference = lambda: listener
        self._entries.append((priority, reference))
        self._entries.sort(key=lambda entry: -entry[0])
        return listener

    def emit(self, event: E) -> int:
        alive, called = [], 0
        for priority, reference in self._entries:
            listener = reference()
            if listener is None:
                continue
            alive.append((priority, reference))
            listener(event)
            called += 1
        self._entries = alive
        return called

    def __repr__(self) -> str:
        return f"<Signal {self.name!r} with {len(self._entries)} listeners>"
