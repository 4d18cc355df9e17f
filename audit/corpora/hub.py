"""The Hugging Face hub, through the optional library `datasets`: reached quickly or not at all."""

from __future__ import annotations

import logging
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from audit.corpora.manifest import HubSource
from audit.errors import AuditError, MissingExtraError, UnreadableError, first_line

TIMEOUT = 10
"""Seconds for the first answer. Who gets none has no network, and should not wait for retries."""


def datasets_library() -> ModuleType:
    """`datasets`, told to give up soon and to keep its bars and its own messages to itself.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError(
            f"a corpus with a [source] table needs the library datasets: {first_line(error)}",
            hint="pip install 'head-audit[corpora]'",
        ) from error
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    # The hub's client beneath tries six times by itself; twenty times that takes many minutes.
    datasets.config.STREAMING_READ_MAX_RETRIES = 1
    library: ModuleType = datasets
    return library


def commit_of(source: HubSource) -> str:
    """The commit that the source's revision names at the hub now.

    Raises:
        UnreadableError: the hub is out of reach, or knows no such data set or revision.
        MissingExtraError: the library `datasets` is not installed.
    """
    library = datasets_library()
    from huggingface_hub import HfApi

    if library.config.HF_HUB_OFFLINE:
        raise _offline(source)
    try:
        found = HfApi(endpoint=library.config.HF_ENDPOINT).dataset_info(
            source.id, revision=source.revision, timeout=TIMEOUT
        )
    except Exception as error:
        raise reach_error(source, error) from error
    return str(found.sha)


def open_hub(source: HubSource) -> Any:
    """A stream of the rows of a pinned source.

    Raises:
        UnreadableError: the hub is out of reach or lacks it.
        MissingExtraError: the library `datasets` is not installed.
    """
    # One quick question first: what follows would try again for minutes.
    commit_of(source)
    # With the scheme, no folder of that name in the working directory is taken for it.
    return open_stream(
        f"hf://datasets/{source.id}",
        name=source.config,
        split=source.split,
        revision=source.revision,
    )


def open_stream(path: str, **options: Any) -> Any:
    """`datasets.load_dataset` as a stream, without leaving anything in the user's cache."""
    with TemporaryDirectory(prefix="head-audit-") as cache:
        return datasets_library().load_dataset(path, streaming=True, cache_dir=cache, **options)


def reach_error(source: HubSource, error: Exception) -> AuditError:
    """What a failure of the hub's libraries means for the user."""
    from huggingface_hub import errors

    for kind, sentence, hint in (
        (errors.OfflineModeIsEnabled, "", ""),
        (errors.GatedRepoError, "is given only to those who accepted its terms",
         "accept them on its page and log in with: hf auth login"),
        (errors.RepositoryNotFoundError, "is not on the hub, or is private",
         "check [source] id; for a private one log in with: hf auth login"),
        (errors.RevisionNotFoundError, f"has no revision {source.revision!r}",
         "check [source] revision"),
    ):  # fmt: skip
        if isinstance(error, kind):
            if not sentence:
                return _offline(source)
            return UnreadableError(f"the data set {source.id} {sentence}", hint=hint)
    if isinstance(error, errors.HfHubHTTPError | OSError) or "httpx" in type(error).__module__:
        return UnreadableError(
            f"the Hugging Face hub can not be reached for {source.id}: {first_line(error)}",
            hint="check the network; the bundled corpora (audit corpora) and your own files "
            "(--text) need none",
        )
    return UnreadableError(
        f"the data set {source.id} can not be read: {first_line(error)}",
        hint="check config, split and column in [source]; data sets that need code of their own "
        "can not be used",
    )


def _offline(source: HubSource) -> AuditError:
    return UnreadableError(
        f"{source.id} lies on the Hugging Face hub, and HF_HUB_OFFLINE forbids to go there",
        hint="unset HF_HUB_OFFLINE, or use text that lies here (audit corpora, --text)",
    )
