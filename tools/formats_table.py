"""Write docs/formats.md from the registry of packed formats, or check that it is current.

python tools/formats_table.py            # write
python tools/formats_table.py --check    # exit 1 if the file would change
"""

from __future__ import annotations

import sys
from pathlib import Path

from audit.files.encodings import GGML_TYPES
from audit.files.ggml_blocks import DECODERS
from audit.heads.packed import FORMATS

TARGET = Path(__file__).resolve().parents[1] / "docs" / "formats.md"

_HEAD = """# Formats that are read

Written by `tools/formats_table.py` from the registry in `audit/heads/packed`; do not edit.

## Packed matrices in safetensors

A format is recognised by what is stored, and compared with what the configuration says
(`quantization_config` in config.json, `hf_quant_config.json`, `quantize_config.json`,
`quant_config.json`). Contradictions are errors (`DECLARED_VS_STORED`), as are missing scales
(`SCALE_MISSING`), scales of another shape (`SCALE_SHAPE`), scales that the format has no place for
(`SCALE_UNUSED`) and a matrix that is there twice (`STORED_TWICE`).

"""

_GGUF = """
## GGUF

Plain F32, F16, BF16 and F64. A type that is not known is refused when its tensor is needed, not
before: one such tensor does not make a file unreadable.

"""

_SPEED = """
## Speed

`benchmarks/decode.py` times each format against a bare copy of its float32 result, one thread.
Most take up to three times the copy. Above that lie compressed-tensors' 3, 5 and 6 bits (3.4 to 5
times), Q5_K and Q6_K (4 to 5 times): their fields straddle bytes, or the parts of one code lie in
several places of a block. torch has no unaligned loads, so such words are first copied to
overlapping pairs, and each further step is a pass over the codes. Larger pieces do not help, since
a call of torch's then leaves its thread; other ways to cut the bytes gained a fifth at most.
"""


def table() -> str:
    """The whole document."""
    rows = [("format", "", "variants", "how verified")]
    for form in FORMATS:
        read = "refused" if form.verified == "named refusal" else "read"
        rows.append((form.name, read, form.variants, form.verified))
    ours, theirs = [], []
    for name, _ in GGML_TYPES.values():
        if name in DECODERS:
            ours.append(name)
        elif not name.startswith(("F", "BF", "I8", "I16", "I32", "I64")):
            theirs.append(name)
    ggml = [
        ("types", "decoded by", "how verified"),
        (", ".join(ours), "own arithmetic", "the gguf package on any bytes; bit-equal"),
        (", ".join(theirs), "the gguf package, where it can", "ggml's own values"),
    ]  # fmt: skip
    return _HEAD + _markdown(rows) + _GGUF + _markdown(ggml) + _SPEED


def _markdown(rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        return int(not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != table())
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(table(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
