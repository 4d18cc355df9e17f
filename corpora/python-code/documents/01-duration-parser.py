"""Parse durations such as ``1h30m`` or ``2d 4h`` into seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PIECE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)


@dataclass(frozen=True)
class Duration:
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Duration:
        position, total, seen = 0, 0.0, set()
        while position < len(text.rstrip()):
            match = _PIECE.match(text, position)
            if match is None:
                raise ValueError(f"unexpected {text[position:]!r} at {position}")
            amount, unit = float(match[1]), match[2].lower()
            if unit in seen:
                raise ValueError(f"unit {unit!r} given twice")
            seen.add(unit)
            total += amount * UNITS[unit]
            position = match.end()
        if not seen:
            raise ValueError("empty duration")
        return cls(total)

    def __str__(self) -> str:
        rest, parts = int(self.seconds), []
        for unit in "wdhms":
            count, rest = divmod(rest, UNITS[unit])
            if count:
                parts.append(f"{count}{unit}")
        return "".join(parts) or "0s"
