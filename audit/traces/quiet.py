"""What transformers must be kept from: writing to the terminal, reading a file thrice."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import gguf
from transformers.utils import logging as hf_logging


@contextmanager
def hushed() -> Iterator[None]:
    """No messages, bars or warnings of transformers; what others write is not touched."""
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity(hf_logging.CRITICAL)
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing at all is written meanwhile; stdout belongs to `--json`."""
    # The GGUF reader's bar ignores every setting, so the streams are caught too.
    nowhere = io.StringIO()
    with hushed(), redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


@contextmanager
def one_gguf_reader() -> Iterator[None]:
    """Let transformers parse a GGUF file once, not once for each of config, weights, tokenizer."""
    # One pass over Gemma's 262,144 tokens takes about 14 s of processor time.
    original = gguf.GGUFReader
    gguf.GGUFReader = functools.cache(original)
    try:
        yield
    finally:
        gguf.GGUFReader = original
