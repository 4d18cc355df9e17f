"""What text an id stands for, and which class of text that is.

Pieces are stored in one of three spellings: byte-level BPE writes every byte as one printable
character, SentencePiece writes spaces as U+2581 and lone bytes as <0xNN>, WordPiece marks what
continues a word. The classes are those of `catalogue.TOKEN_CLASSES`; "code" is a guess from the
characters, since a tokenizer does not tell. Never runs a tokenizer, and knows no files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Style = Literal["byte_level", "sentencepiece", "wordpiece"]

_SCRIPTS = {
    "LATIN": "latin",
    "CYRILLIC": "cyrillic",
    "GREEK": "greek",
    "CJK": "han",
    "IDEOGRAPHIC": "han",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "KATAKANA-HIRAGANA": "kana",
    "HANGUL": "hangul",
    "HEBREW": "hebrew",
    "ARABIC": "arabic",
    "DEVANAGARI": "devanagari",
    "THAI": "thai",
}
"""First word of a letter's Unicode name -> class. It is the script's name."""
_CODE_MARKS = frozenset("_{}[]()<>=\\|&$#@^~`*/+;")
_CODE_WORD = re.compile(r"[a-z][A-Z]|\.[A-Za-z]")
"""camelCase, or a name after a dot."""
_MARKER = re.compile(r"<\|.*\|>", re.DOTALL)
_SPACE = "\u2581"


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The stored spelling of every id."""

    words: Mapping[int, str]
    style: Style
    literal: frozenset[int] = frozenset()
    """Added tokens, which are written as they are whatever the style."""
    unused: frozenset[int] = frozenset()
    """Ids that stand for no text: padding, `<unk>`."""

    def text(self, index: int) -> tuple[str, bool]:
        """The text of an id, and whether bytes of an incomplete character were left out of it."""
        word = self.words[index]
        if index in self.literal:
            return word.replace(_SPACE, " "), False
        if self.style == "byte_level":
            raw = bytes(_BYTES[c] for c in word) if _BYTES.keys() >= set(word) else word.encode()
            text = raw.decode("utf-8", errors="ignore")
            return text, text.encode() != raw
        if self.style == "wordpiece":
            return word.removeprefix("##").replace(_SPACE, " "), False
        return word.replace(_SPACE, " "), False

    def lone_bytes(self) -> frozenset[int]:
        """Ids of byte-level BPE that stand for one byte: what any text can be written with."""
        if self.style != "byte_level":
            return frozenset()
        words = self.words.items()
        return frozenset(i for i, word in words if word in _BYTES and i not in self.literal)

    def class_of(self, index: int) -> str:
        """The class of an id by its text alone."""
        if index in self.unused or _MARKER.fullmatch(self.words[index]):
            return "special"
        text, broken = self.text(index)
        return "byte" if broken and not any(map(str.isalnum, text)) else class_of_text(text)


def class_of_text(text: str) -> str:
    """The class of one token's text.

    Letters decide by the script of most of them, Latin ones beside marks of code are "code"; then
    digits, then white space, then punctuation and symbols. "ab_c" is code, "3.14" digit, "é" latin.
    """
    plain = unicodedata.normalize("NFKC", text)
    scripts = [script for c in plain if (script := _script(c)) is not None]
    if scripts:
        # Of scripts with as many letters the first one.
        most = max(dict.fromkeys(scripts), key=scripts.count)
        return "code" if most == "latin" and _looks_like_code(plain) else most
    kinds = {unicodedata.category(c)[0] for c in plain}
    if "N" in kinds:
        return "digit"
    if plain.isspace():
        return "whitespace"
    if not kinds & {"P", "S"}:
        return "other"
    marks = plain.strip()
    if len(marks) > 1 and _CODE_MARKS & set(marks):
        return "code"
    symbols = any(not c.isascii() and unicodedata.category(c)[0] == "S" for c in plain)
    return "symbol" if symbols else "punctuation"


@lru_cache(maxsize=1 << 16)
def _script(char: str) -> str | None:
    """The class of a letter or of a mark that belongs to a script; None for all else."""
    category = unicodedata.category(char)[0]
    if category not in "LM":
        return None
    name = unicodedata.name(char, "").partition(" ")[0]
    # A mark without a script of its own, such as a combining accent, decides nothing.
    return _SCRIPTS.get(name, "other" if category == "L" else None)


def _looks_like_code(text: str) -> bool:
    return bool(_CODE_MARKS & set(text) or _CODE_WORD.search(text))


def _printable_bytes() -> dict[str, int]:
    """Character -> byte of byte-level BPE: printable bytes stand for themselves, the others for
    the characters from U+0100 on, in order."""

    def ranges() -> Iterable[int]:
        yield from range(ord("!"), ord("~") + 1)
        yield from range(ord("¡"), ord("¬") + 1)
        yield from range(ord("®"), ord("ÿ") + 1)

    kept = set(ranges())
    others = (byte for byte in range(256) if byte not in kept)
    moved = {chr(0x100 + i): byte for i, byte in enumerate(others)}
    return {chr(byte): byte for byte in kept} | moved


_BYTES = _printable_bytes()
