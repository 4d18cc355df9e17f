"""Each tool's dump written anew from its own description, by none of the code that reads it."""

from __future__ import annotations

import gzip
import io
import json
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import save_file
from torch import Tensor


@dataclass(frozen=True)
class Real:
    """What a model computed: per text, [S] and [S, d] float32."""

    tokens: list[Tensor]
    post: list[Tensor]
    pre: list[Tensor]
    entering: list[list[Tensor]]
    """Per text, the states entering layers 0, 1, 2, 3."""
    greedy: list[Tensor]
    masks: list[Tensor]

    def with_states(self, change: object) -> Real:
        """The same with `change` applied to every last state."""
        assert callable(change)
        return replace(self, post=[change(s) for s in self.post], pre=[change(s) for s in self.pre])


def vllm(
    folder: Path,
    real: Real,
    layers: tuple[int, ...] = (1, 2, 3),
    dtype: torch.dtype = torch.bfloat16,
) -> Path:
    """{request}.safetensors: hidden_states [T, layers, d], the last before the norm; a lock."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, tokens in enumerate(real.tokens):
        states = [*(real.entering[i][layer] for layer in layers), real.pre[i]]
        name = folder / f"cmpl-{i:02d}-0.safetensors"
        save_file(
            {"hidden_states": torch.stack(states, dim=1).to(dtype), "token_ids": tokens.clone()},
            name,
        )
        (folder / f"{name.name}.lock").touch()
    return folder


def speculators(folder: Path, real: Real, layers: tuple[int, ...] = (1, 2, 3)) -> Path:
    """hidden_states/hs_{i}.safetensors, and the data set as datasets' save_to_disk leaves it."""
    vllm(folder / "hidden_states", real, layers)
    for i in range(len(real.tokens)):
        made = folder / "hidden_states" / f"cmpl-{i:02d}-0.safetensors"
        made.rename(made.with_name(f"hs_{i}.safetensors"))
        made.with_name(f"{made.name}.lock").unlink()
    arrow(folder, real)
    return folder


def arrow(folder: Path, real: Real) -> None:
    columns = {
        "input_ids": pa.array([t.tolist() for t in real.tokens], pa.list_(pa.int64())),
        "loss_mask": pa.array([m.tolist() for m in real.masks], pa.list_(pa.int64())),
        "seq_len": pa.array([len(t) for t in real.tokens]),
        "text": pa.array(["unused"] * len(real.tokens)),
    }
    table = pa.table(columns)
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=2)
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": name}], "_split": None, "_format_type": "torch"})
    )
    (folder / "dataset_info.json").write_text("{}")


def speculators_pt(folder: Path, real: Real, layers: tuple[int, ...] = (1, 2, 3)) -> Path:
    folder.mkdir()
    for i, tokens in enumerate(real.tokens):
        states = [*(real.entering[i][layer] for layer in layers), real.pre[i]]
        torch.save(
            {"input_ids": tokens, "hidden_states": states, "loss_mask": real.masks[i]},
            folder / f"data_{i}.pt",
        )
    (folder / "sample_lengths.json").write_text("{}")
    return folder


def specforge(
    folder: Path, real: Real, layers: tuple[int, ...] = (1, 2, 3), packed: bool = False
) -> Path:
    """rows_0-5000/data_{i}.ckpt[.gz] with a batch dimension, the aux states side by side."""
    rows = folder / "rows_0-5000"
    rows.mkdir(parents=True)
    (folder / "vocab_mapping").mkdir()
    torch.save({"d2t": torch.zeros(4)}, folder / "vocab_mapping" / "vocab_mapping.pt")
    for i, tokens in enumerate(real.tokens):
        content = {"input_ids": tokens, "loss_mask": real.masks[i]}
        content["hidden_state"] = real.post[i].unsqueeze(0)
        if layers:
            aux = torch.cat([real.entering[i][layer] for layer in layers], dim=-1)
            content["aux_hidden_state"] = aux.unsqueeze(0)
        buffer = io.BytesIO()
        torch.save(content, buffer)
        if packed:
            with gzip.open(rows / f"data_{i}.ckpt.gz", "wb") as stream:
                stream.write(buffer.getvalue())
        else:
            (rows / f"data_{i}.ckpt").write_bytes(buffer.getvalue())
    return folder


def eagle(folder: Path, real: Real) -> Path:
    """{outdir}/{gpu}/data_{n}.ckpt in float16."""
    for i, tokens in enumerate(real.tokens):
        place = folder / str(i // 2)
        place.mkdir(parents=True, exist_ok=True)
        content = {
            "input_ids": tokens, "hidden_state": real.post[i].half(), "loss_mask": real.masks[i],
        }  # fmt: skip
        torch.save(content, place / f"data_{i}.ckpt")
    return folder


def modelopt(
    folder: Path, real: Real, layers: tuple[int, ...] = (1, 2, 3), prenorm: bool = False
) -> Path:
    """{conversation}.pt: post-norm from the Hugging Face script, pre-norm bfloat16 from vLLM's."""
    folder.mkdir()
    for i, tokens in enumerate(real.tokens):
        aux = torch.cat([real.entering[i][layer] for layer in layers], dim=-1)
        states = real.pre[i].bfloat16() if prenorm else real.post[i]
        content = {
            "input_ids": tokens, "hidden_states": states,
            "aux_hidden_states": aux.to(states.dtype), "conversation_id": f"c{i}",
        }  # fmt: skip
        torch.save(content, folder / f"c{i}.pt")
    return folder


def numbers(row: Tensor) -> str:
    return ",".join(f"{value:1.7f}" for value in row.tolist())


def llama_json(path: Path, real: Real) -> Path:
    """llama-embedding --embd-output-format json: one entry per token, all texts in one list."""
    rows = torch.cat(real.post)
    entries = [
        f'    {{\n      "object": "embedding",\n      "index": {i},\n      "embedding": '
        f"[{numbers(r)}]\n    }}"
        for i, r in enumerate(rows)
    ]
    path.write_text('{\n  "object": "list",\n  "data": [\n' + ",\n".join(entries) + "\n  ]\n}\n\n")
    return token_lists(path, real)


def llama_array(path: Path, real: Real) -> Path:
    path.write_text("[" + ",".join(f"[{numbers(r)}]" for r in torch.cat(real.post)) + "]\n\n")
    return token_lists(path, real)


def llama_raw(path: Path, real: Real) -> Path:
    lines = (numbers(row).replace(",", " ") for row in torch.cat(real.post))
    path.write_text("\n".join(lines) + "\n")
    return token_lists(path, real)


def llama_server(path: Path, real: Real) -> Path:
    """/embeddings with pooling none: one entry per text with the vectors of its tokens."""
    entries = [
        {"index": i, "embedding": [[float(v) for v in row] for row in states.tolist()]}
        for i, states in enumerate(real.post)
    ]
    path.write_text(json.dumps(entries[::-1]))
    lists = json.dumps([{"tokens": tokens.tolist()} for tokens in real.tokens])
    path.with_name(f"{path.stem}-tokens.json").write_text(lists)
    return path


def token_lists(path: Path, real: Real) -> Path:
    """As `llama-tokenize --ids` prints them, a line per text, beside the states."""
    lines = "".join(f"{tokens.tolist()}\n" for tokens in real.tokens)
    path.with_name(f"{path.stem}-tokens.txt").write_text(lines)
    return path


def llama_debug(folder: Path, real: Real, text: int = 0) -> Path:
    """data/llamacpp-NAME-embeddings.bin with its tokens, text copy and prompt."""
    folder.mkdir()
    stem = folder / "llamacpp-sample-embeddings"
    states, tokens = real.post[text], real.tokens[text].tolist()
    flat = states.flatten().tolist()
    stem.with_name(f"{stem.name}.bin").write_bytes(struct.pack(f"<{len(flat)}f", *flat))
    lines = "\n".join(f"{i}: {value:g}" for i, value in enumerate(flat))
    stem.with_name(f"{stem.name}.txt").write_text(lines)
    stem.with_name(f"{stem.name}-tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}i", *tokens))
    ids = ", ".join(map(str, tokens))
    prompt = f"prompt: x\nn_tokens: {len(tokens)}\ntoken ids: {ids}\n"
    stem.with_name(f"{stem.name}-prompt.txt").write_text(prompt)
    return folder


def logits_file(path: Path, tokens: list[list[int]], logits: list[np.ndarray]) -> Path:
    """llama-perplexity --kl-divergence-base: chunks of one context, logits [context, ids]."""
    context, vocabulary = logits[0].shape
    out = [b"_logits_", struct.pack("<3i", context, vocabulary, len(tokens))]
    out += [struct.pack(f"<{context}i", *chunk) for chunk in tokens]
    for chunk in logits:
        for position in range(context // 2, context - 1):
            out.append(_row(chunk[position].astype(np.float32)))
    path.write_bytes(b"".join(out))
    return path


def _row(logits: np.ndarray) -> bytes:
    one = np.float32
    top, bottom = logits.max(), max(logits.min(), logits.max() - one(16))
    log_sum = one(np.log(np.exp((logits - top).astype(np.float64)).sum()))
    scale = one(top - bottom) / one(65535)
    codes = np.zeros(len(logits) + len(logits) % 2, "<u2")
    if scale:
        exact = (one(1) / scale) * (logits - bottom)
        codes[: len(logits)] = np.where(logits > bottom, np.rint(exact), 0)
    return struct.pack("<2f", scale, bottom - top - log_sum) + codes.tobytes()
