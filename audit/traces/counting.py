"""How many tokens a text has, by a tokenizer that stands alone or inside a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from audit.errors import NotFoundError, UnreadableError, first_line

_FILE = "tokenizer.json"


def token_counter(path: Path) -> Callable[[str], int]:
    """A function that counts the tokens of a text, without any that mark its beginning or end.

    Args:
        path: a `tokenizer.json`, a folder that holds one, or a GGUF file (whose tokenizer
            transformers rebuilds, which takes half a minute for a large vocabulary).

    Raises:
        NotFoundError: there is no tokenizer.
        UnreadableError: it cannot be opened.
    """
    if path.suffix == ".gguf":
        from audit.traces.verifier import load_tokenizer

        tokenizer = load_tokenizer(path)
        return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])
    file = path / _FILE if path.is_dir() else path
    if not file.is_file():
        raise NotFoundError(
            f"there is no tokenizer at {file}",
            hint=f"give a {_FILE}, a folder that holds one, or a GGUF file",
            where=file,
        )
    from tokenizers import Tokenizer

    try:
        fast = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing more special
        raise UnreadableError(
            f"{file} is not a readable tokenizer: {first_line(error)}",
            hint=f"give a {_FILE} as transformers writes it",
            where=file,
        ) from error
    return lambda text: len(fast.encode(text, add_special_tokens=False).ids)
