"""Rows of a data set become plain text: strings, lists of strings, and chats.

A chat is a list of messages. Each becomes `Role: content`, with a blank line between; a
call of a tool is a line `call NAME ARGUMENTS`. No chat template is applied: templates belong to
one model, and text with its template's marks is another register, which a user renders and gives
as text. Hidden reasoning beside the content is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

CHAT_FIELDS = ("messages", "conversations")
"""Where chats stand in a row by custom: the first is OpenAI's name, the second ShareGPT's."""
DEFAULT_FIELD = "text"
_ROLES = {"human": "User", "gpt": "Assistant", "model": "Assistant", "bot": "Assistant"}


def row_text(row: object, field: str | None) -> str:
    """The text of one row.

    Args:
        row: an object of JSON, or a row of a table.
        field: dotted path; None takes `text`, else `messages` or `conversations`.

    Returns:
        The text, empty where the field is null.

    Raises:
        ValueError: the field is missing, or holds what is neither text nor a chat.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"this is {_kind(row)}, not an object with fields")
    named = field or next((name for name in (DEFAULT_FIELD, *CHAT_FIELDS) if name in row), None)
    if named is None:
        raise ValueError(f"there is no field 'text' or 'messages', only {_names(row)}")
    text = _plain(_at(row, named), named)
    # A lone surrogate is legal in JSON, but no tokenizer takes it.
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError(f"{named!r} holds half of a surrogate pair, which is no character")
    return text


def render_chat(messages: Sequence[Any]) -> str:
    """A chat as plain text; see the module's docstring. Raises ValueError for no chat."""
    return "\n\n".join(_turn(message, n) for n, message in enumerate(messages, start=1))


def _at(row: Mapping[str, Any], field: str) -> Any:
    """The value at a dotted path; a field whose very name has dots comes first."""
    if field in row:
        return row[field]
    value: Any = row
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            there = _names(value) if isinstance(value, Mapping) else _kind(value)
            raise ValueError(f"there is no field {field!r}: at {part!r} there is {there}")
        value = value[part]
    return value


def _plain(value: Any, named: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Sequence) and not isinstance(value, bytes) and value:
        if all(isinstance(item, str) for item in value):
            return "\n\n".join(value)
        if all(isinstance(item, Mapping) for item in value):
            return render_chat(value)
    raise ValueError(f"{named!r} is {_kind(value)}, neither text nor a list of messages")


def _turn(message: Mapping[str, Any], number: int) -> str:
    role = message.get("role", message.get("from"))
    if not isinstance(role, str) or not role:
        raise ValueError(f"message {number} has no role")
    content = _content(message.get("content", message.get("value")), number)
    lines = [content] if content else []
    lines += [_call(call, number) for call in _calls(message, number)]
    if not lines:
        raise ValueError(f"message {number} ({role}) has no content")
    return f"{_ROLES.get(role, role.capitalize())}: " + "\n".join(lines)


def _content(value: Any, number: int) -> str:
    """A message's content: text, nothing, or a list of parts that are all text."""
    if value is None or isinstance(value, str):
        return value or ""
    parts = value if isinstance(value, list) else [value]
    found = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    texts = [text for text in found if isinstance(text, str)]
    if len(texts) != len(found):
        raise ValueError(f"message {number} holds something that is no text")
    return "\n".join(texts)


def _calls(message: Mapping[str, Any], number: int) -> list[Any]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ValueError(f"message {number} has tool_calls that are no list")
    return calls


def _call(call: Any, number: int) -> str:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str):
        raise ValueError(f"message {number} calls a tool without a name")
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return f"call {name} {arguments}"


def _names(row: Mapping[str, Any]) -> str:
    shown = [repr(str(name)) for name in list(row)[:8]]
    return ", ".join(shown) + (", ..." if len(row) > 8 else "") if shown else "nothing"


def _kind(value: object) -> str:
    """What a value is, in words of JSON."""
    if value is None:
        return "null"
    known: tuple[tuple[Any, str], ...] = (
        (bool, "true or false"), (str, "text"), (bytes, "bytes"), (int | float, "a number"),
        (Mapping, "an object"), (Sequence, "a list"),
    )  # fmt: skip
    return next((words for kind, words in known if isinstance(value, kind)), type(value).__name__)
