"""Dumps that must not become a trace: exit 2, one sentence, no file."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.dumps import writers
from tests.dumps.conftest import MODEL
from tests.dumps.writers import Real

Refused = Callable[..., dict[str, str]]
Imported = Callable[..., tuple[Any, dict[str, str]]]
KNOWN = ("--stage", "post_norm")


def edit(path: Path, **tensors: torch.Tensor | None) -> None:
    content = {**load_file(path), **tensors}
    save_file({name: t.contiguous() for name, t in content.items() if t is not None}, path)


def edit_pt(path: Path, **values: object) -> None:
    torch.save({**torch.load(path, weights_only=True), **values}, path)


# --- the norm stage -------------------------------------------------------------------------------


def test_a_stage_that_is_not_so(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.vllm(place / "d", real)
    error = refused(dump, "--model", MODEL, "--stage", "post_norm")
    assert error["message"].startswith("STAGE_CONTRADICTED") and error["kind"] == "mismatch"
    error = refused(writers.eagle(place / "e", real), "--model", MODEL, "--stage", "pre_norm")
    assert error["message"].startswith("STAGE_CONTRADICTED")


def test_an_unknown_stage_is_asked_for(place: Path, real: Real, refused: Refused) -> None:
    error = refused(writers.vllm(place / "d", real))
    assert "STAGE_UNKNOWN" in error["message"] and "--model" in error["hint"]
    assert "documents pre_norm" in error["message"]
    bare = place / "bare.safetensors"
    save_file({"lm_head.weight": torch.randn(8192, 192)}, bare)
    error = refused(place / "d", "--model", bare)
    assert "STAGE_UNKNOWN" in error["message"]
    error = refused(place / "d", "--model", bare, "--stage", "pre_norm")
    assert "holds no norm" in error["message"]


def test_documentation_that_is_wrong_is_told(place: Path, real: Real, imported: Imported) -> None:
    """Post-norm states in vLLM's file, and a ModelOpt file that states the wrong stage."""
    trace, found = imported(
        writers.vllm(place / "d", replace(real, pre=real.post)), "--model", MODEL
    )
    assert (
        trace.info.stage == "post_norm" and "vllm documents pre_norm" in found["STAGE_NOT_AS_SAID"]
    )
    dump = writers.modelopt(place / "e", real)
    for path in dump.iterdir():
        edit_pt(path, hidden_states_prenorm=True)
    trace, found = imported(dump, "--model", MODEL)
    assert trace.info.stage == "post_norm" and "files state pre_norm" in found["STAGE_NOT_AS_SAID"]


def test_a_dump_of_both_stages(place: Path, real: Real, refused: Refused) -> None:
    mixed = replace(real, post=[real.post[0], *real.pre[1:]])
    error = refused(writers.eagle(place / "d", mixed), "--model", MODEL)
    assert error["message"].startswith("STAGE_UNCLEAR: 4")


# --- normalised states ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (lambda s: s / s.norm(dim=1, keepdim=True), "euclidean"),
        (lambda s: s / s.abs().sum(dim=1, keepdim=True), "sum of absolute"),
        (lambda s: (s / s.abs().amax(dim=1, keepdim=True) * 32760).round(), "32760"),
    ],
)
@pytest.mark.parametrize("how", [("--model", MODEL), KNOWN])
def test_normalised_embeddings(
    place: Path, real: Real, refused: Refused, scale: object, words: str, how: tuple[object, ...]
) -> None:
    dump = writers.llama_json(place / "d.json", real.with_states(scale))
    error = refused(dump, *how)
    assert error["message"].startswith("NORMALISED") and words in error["message"]
    assert "--embd-normalize -1" in error["hint"]


def test_one_state_of_length_one_is_no_proof(place: Path, real: Real, imported: Imported) -> None:
    states = [s.clone() for s in real.post]
    states[0][3] /= states[0][3].norm()
    dump = writers.llama_json(place / "d.json", replace(real, post=states))
    trace, _ = imported(dump, *KNOWN)
    assert trace.positions == 446


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--corpus", "../../x"), "not a plain name"),
        (("--corpus", "a b"), "not a plain name"),
        (("--language", "x y;z"), "no language tag"),
        (("--language", "de\n"), "no language tag"),
    ],
)
def test_names_that_are_none(
    place: Path, real: Real, refused: Refused, option: tuple[str, str], words: str
) -> None:
    assert words in refused(writers.eagle(place / "d", real), *KNOWN, *option)["message"]


# --- alignment ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [-2, -1, 1, 2])
@pytest.mark.parametrize("writer", [writers.eagle, writers.vllm])
def test_shifted_states(place: Path, real: Real, refused: Refused, shift: int, writer: Any) -> None:
    """A training loop's pairing: row t holds the state of row t + shift."""
    dump = writer(place / "d", real.with_states(lambda s: s.roll(-shift, 0)))
    for force in ((), ("--force",)):
        error = refused(dump, "--model", MODEL, *force)
        assert error["message"].startswith(
            f"ALIGNMENT: the states fit the text better shifted by {shift:+d}"
        )


def test_states_of_other_texts_or_of_none(place: Path, real: Real, refused: Refused) -> None:
    rng = torch.Generator().manual_seed(3)
    mixed = real.with_states(lambda s: s[torch.randperm(len(s), generator=rng)])
    error = refused(writers.eagle(place / "d", mixed), "--model", MODEL)
    assert error["message"].startswith("ALIGNMENT_UNSHOWN") and "--force" in error["hint"]
    noise = real.with_states(lambda s: torch.randn(s.shape, generator=rng))
    error = refused(writers.vllm(place / "e", noise), "--model", MODEL)
    assert error["message"].startswith("ALIGNMENT_UNSHOWN")


def several(real: Real, length: int = 60) -> Real:
    """The three texts cut into six of one length."""
    cuts = [(i, start) for i, start in ((0, 0), (0, 60), (0, 120), (1, 0), (2, 0), (2, 60))]
    return Real(
        *(
            [part[i][start : start + length] for i, start in cuts]
            for part in (real.tokens, real.post, real.pre)
        ),
        [[state[start : start + length] for state in real.entering[i]] for i, start in cuts],
        [real.greedy[i][start : start + length] for i, start in cuts],
        [real.masks[i][start : start + length] for i, start in cuts],
    )


@pytest.mark.parametrize("bad", [(3,), (0, 5)])
@pytest.mark.parametrize("shift", [-1, 1])
def test_some_files_are_shifted(
    place: Path, real: Real, refused: Refused, bad: tuple[int, ...], shift: int
) -> None:
    six = several(real)
    pre = [s.roll(-shift, 0) if i in bad else s for i, s in enumerate(six.pre)]
    dump = writers.vllm(place / "d", replace(six, pre=pre))
    for force in ((), ("--force",)):
        error = refused(dump, "--model", MODEL, *force)
        assert error["message"].startswith("ALIGNMENT: the states of ")
        assert f"shifted by {shift:+d}" in error["message"]
        assert error["where"].endswith(f"cmpl-{bad[0]:02d}-0.safetensors")
        assert (f"{len(bad)} texts" in error["message"]) == (len(bad) > 1)


@pytest.mark.parametrize(("cut", "bad"), [(False, (1,)), (True, (0, 5))])
def test_some_files_have_their_rows_in_random_order(
    place: Path, real: Real, refused: Refused, imported: Imported, cut: bool, bad: tuple[int, ...]
) -> None:
    rng = torch.Generator().manual_seed(4)
    six = several(real) if cut else real
    pre = [s[torch.randperm(len(s), generator=rng)] if i in bad else s
           for i, s in enumerate(six.pre)]  # fmt: skip
    dump = writers.vllm(place / "d", replace(six, pre=pre))
    error = refused(dump, "--model", MODEL)
    assert error["message"].startswith("MISALIGNED: ") and "--force" in error["hint"]
    assert error["where"].endswith(f"cmpl-{bad[0]:02d}-0.safetensors")
    trace, found = imported(dump, "--model", MODEL, "--force")
    assert trace.info.settings["alignment"]["status"] == "forced" and "ALIGNMENT_FORCED" in found
    assert trace.info.settings["alignment"]["texts"]["astray"] == len(bad)


def test_honest_files_pass_and_short_ones_are_told(
    place: Path, real: Real, imported: Imported
) -> None:
    trace, found = imported(writers.vllm(place / "d", several(real)), "--model", MODEL)
    texts = trace.info.settings["alignment"]["texts"]
    assert texts == {"shown": 6, "untold": 0, "astray": 0} and "ALIGNMENT_UNTOLD" not in found
    short = several(real, 7)
    whole = [replace(real, tokens=real.tokens[:1]), short]
    merged = Real(*(
        [*getattr(whole[0], name)[:1], *getattr(whole[1], name)]
        for name in ("tokens", "post", "pre", "entering", "greedy", "masks")
    ))  # fmt: skip
    trace, found = imported(writers.vllm(place / "e", merged), "--model", MODEL)
    assert found["ALIGNMENT_UNTOLD"].startswith("6 of 7 texts are too short")
    assert trace.info.settings["alignment"]["status"] == "shown"


def test_a_forced_alignment_is_marked(place: Path, real: Real, imported: Imported) -> None:
    dump = writers.eagle(place / "d", real)
    trace, found = imported(dump, "--model", MODEL, "--max-positions", 3, "--force")
    assert trace.info.settings["alignment"]["status"] == "forced" and "ALIGNMENT_FORCED" in found


# --- lengths, tokens, widths ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "code"), [(96, "TOO_FEW_ROWS"), (199, "INCLUDE_OUTPUT_TOKENS"), (0, "TOO_FEW_ROWS")]
)
def test_too_few_rows(place: Path, real: Real, refused: Refused, rows: int, code: str) -> None:
    dump = writers.vllm(place / "d", real)
    path = dump / "cmpl-00-0.safetensors"
    edit(path, hidden_states=load_file(path)["hidden_states"][200 - rows :])
    error = refused(dump, "--model", MODEL)
    assert error["message"].startswith(f"{code}: ") and "00-0" in error["where"]


def test_too_many_rows(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.eagle(place / "d", real)
    edit_pt(dump / "0" / "data_1.ckpt", input_ids=real.tokens[1][:50])
    assert "LENGTHS: " in refused(dump, *KNOWN)["message"]


def test_generated_tokens_beyond_the_data_set(
    place: Path, real: Real, refused: Refused, imported: Imported
) -> None:
    dump = writers.speculators(place / "d", real)
    shorter = replace(
        real, tokens=[t[:-7] for t in real.tokens], masks=[m[:-7] for m in real.masks]
    )
    writers.arrow(dump, shorter)
    error = refused(dump, "--model", MODEL)
    assert error["message"].startswith("INCLUDE_OUTPUT_TOKENS") and "--format vllm" in error["hint"]
    trace, _ = imported(dump, "--model", MODEL, "--format", "vllm")
    assert trace.positions == 446


def test_states_of_another_data_set(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.speculators(place / "d", real)
    writers.arrow(dump, replace(real, tokens=[t.flip(0) for t in real.tokens]))
    assert "TOKENS_DIFFER" in refused(dump, "--model", MODEL)["message"]
    cut = replace(real, tokens=real.tokens[:1], masks=real.masks[:1])
    writers.arrow(dump, cut)
    assert "has 1 rows" in refused(dump, "--model", MODEL)["message"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{not json", "does not name its Arrow files"),
        ('{"_data_files": [{"filename": "../x"}]}', "outside its folder"),
        ('{"_data_files": [{"filename": "gone.arrow"}]}', "can not be read"),
        ('{"_data_files": [{"filename": "state.json"}]}', "can not be read"),
        ('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_data_files": [1]}',
         "reordered"),
    ],
)  # fmt: skip
def test_damaged_data_sets(
    place: Path, real: Real, refused: Refused, content: str, words: str
) -> None:
    dump = writers.speculators(place / "d", real)
    (dump / "state.json").write_text(content)
    assert words in refused(dump, "--model", MODEL)["message"]


def test_no_data_set_is_told(place: Path, real: Real, imported: Imported, refused: Refused) -> None:
    dump = writers.speculators(place / "d", real)
    trace, found = imported(dump / "hidden_states", "--model", MODEL)
    assert trace.info.settings["loss_mask"] is not None and "NO_DATA_SET" not in found
    (dump / "state.json").unlink()
    trace, found = imported(dump, "--model", MODEL)
    assert trace.info.settings["loss_mask"] is None and "NO_DATA_SET" in found
    assert "no loss mask" in refused(dump, "--model", MODEL, "--only-loss-mask")["message"]


def test_tokens_outside_the_vocabulary(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.eagle(place / "d", real)
    for token in (8192, -100):
        edit_pt(dump / "0" / "data_0.ckpt", input_ids=real.tokens[0].clone().fill_(token))
        error = refused(dump, "--model", MODEL)
        assert error["message"].startswith("TOKENS_OUTSIDE") and str(token) in error["message"]


def test_states_that_are_not_finite(place: Path, real: Real, refused: Refused) -> None:
    for value in (float("nan"), float("inf")):
        states = [s.clone() for s in real.post]
        states[1][7, 3] = value
        dump = writers.eagle(place / f"d{value}", replace(real, post=states))
        error = refused(dump, "--model", MODEL)
        assert error["message"].startswith("NON_FINITE: 1/96") and "rows 7" in error["message"]


def test_mixed_widths_types_and_masks(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.eagle(place / "d", real)
    path = dump / "0" / "data_1.ckpt"
    edit_pt(path, hidden_state=real.post[1][:, :64].half())
    message = refused(dump, *KNOWN)["message"]
    assert message.startswith("MIXED_WIDTHS") and "192 x float16 against 64 x float16" in message
    edit_pt(path, hidden_state=real.post[1])
    assert "192 x float16 against 192 x float32" in refused(dump, *KNOWN)["message"]
    torch.save({"input_ids": real.tokens[1], "hidden_state": real.post[1].half()}, path)
    assert "MIXED_DUMP" in refused(dump, *KNOWN)["message"]


def test_another_models_width(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.eagle(place / "d", real.with_states(lambda s: s[:, :64]))
    assert refused(dump, "--model", MODEL)["message"].startswith("WIDTH: ")


def test_codes_are_not_states(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.eagle(place / "d", real)
    edit_pt(dump / "0" / "data_0.ckpt", hidden_state=torch.ones(200, 192, dtype=torch.int8))
    assert "is int8" in refused(dump, *KNOWN)["message"]


# --- layers ---------------------------------------------------------------------------------------


def test_layers_that_can_not_be(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.vllm(place / "d", real)
    for layers, words in (
        ("1,2,4", "layer 4 does not exist"),
        ("1,2", "names 2 layers"),
        ("1,2,3,3", "enters layer 3 of 4"),
        ("1,x,3", "needs numbers"),
    ):
        assert words in refused(dump, "--model", MODEL, "--layers", layers)["message"]


def test_the_last_layer_may_be_named_too(place: Path, real: Real, imported: Imported) -> None:
    trace, _ = imported(
        writers.vllm(place / "d", real), "--model", MODEL, "--layers", "0,1,2,3",
        "--layer-numbering", "leaving",
    )  # fmt: skip
    assert sorted(trace.states) == ["layer_1", "layer_2", "layer_3"]


def test_defaults_and_unknown_layers(place: Path, real: Real, imported: Imported) -> None:
    """speculators documents [2, L/2, L-3]; of four layers that is 2, 2 and 1. vLLM has none."""
    trace, _ = imported(writers.speculators(place / "d", real, (2, 2, 1)), "--model", MODEL)
    assert sorted(trace.states) == ["layer_1", "layer_2"]
    wanted = torch.cat([states[1] for states in real.entering]).bfloat16()
    assert torch.equal(trace.states["layer_1"], wanted)
    assert "documented default" in trace.info.settings["layers"]["source"]
    trace, found = imported(writers.vllm(place / "e", real), "--model", MODEL)
    assert not trace.states and "3 further states were left out" in found["LAYERS_UNKNOWN"]


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_cut_training_files(place: Path, real: Real, refused: Refused, packed: bool) -> None:
    dump = writers.specforge(place / "d", real, packed=packed)
    path = next(dump.rglob("data_1.ckpt*"))
    path.write_bytes(path.read_bytes()[:-100])
    assert "can not be read as a file of torch.save" in refused(dump, *KNOWN)["message"]


def test_a_cut_connector_file(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.vllm(place / "d", real)
    path = dump / "cmpl-02-0.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "FILE_CUT" in refused(dump, "--model", MODEL)["message"]


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_pickle_with_code_in_it(place: Path, real: Real, refused: Refused, as_zip: bool) -> None:
    path = place / "d.pt"
    content = {"input_ids": real.tokens[0], "hidden_states": Evil()}
    torch.save(content, path, _use_new_zipfile_serialization=as_zip)
    error = refused(path, *KNOWN)
    assert error["message"].startswith("PICKLE_REFUSED") and "system" in error["message"]
    assert error["kind"] == "unsupported_format" and not (place / "ran").exists()


def test_a_gzip_bomb(
    place: Path, real: Real, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    torch.save({"input_ids": torch.ones(9), "hidden_state": torch.zeros(1, 9, 1 << 20)}, buffer)
    path = place / "data_0.ckpt.gz"
    path.write_bytes(gzip.compress(buffer.getvalue()))
    assert path.stat().st_size < 1 << 18
    monkeypatch.setattr("audit.dumps.torch_file._ALWAYS_ALLOWED", 1 << 20)
    assert refused(path, *KNOWN)["message"].startswith("GZIP_BOMB")
    assert not list(place.glob("**/audit-*"))


def test_records_that_claim_more_than_there_is(place: Path, refused: Refused) -> None:
    path = place / "d.pt"
    states = torch.ones(1, 8).expand(10**9, 8)
    torch.save({"input_ids": torch.ones(1, dtype=torch.int64).expand(10**9),
                "hidden_states": states}, path)  # fmt: skip
    assert path.stat().st_size < 4096
    assert "claims more than the file holds" in refused(path, *KNOWN)["message"]
    with (
        zipfile.ZipFile(path) as stored,
        zipfile.ZipFile(place / "z.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    assert "records are compressed" in refused(place / "z.pt", *KNOWN)["message"]


def test_nothing_there(place: Path, refused: Refused) -> None:
    (place / "empty").mkdir()
    (place / "empty" / "README.md").write_text("x")
    for dump, words in (("empty", "no file of a hidden-state dump"), ("gone", "there is no gone")):
        error = refused(Path(dump), *KNOWN)
        assert words in error["message"] and error["kind"] == "not_found"
    (place / "empty" / "hs_0.safetensors.zst").write_bytes(b"x")
    assert "zstd -d" in refused(place / "empty", *KNOWN)["hint"]


def test_no_tool_or_several(place: Path, real: Real, refused: Refused, imported: Imported) -> None:
    save_file({"lm_head.weight": torch.ones(4, 4)}, place / "weights.safetensors")
    error = refused(place / "weights.safetensors", *KNOWN)
    assert "lm_head.weight [4, 4]" in error["message"]
    assert all(name in error["hint"] for name in ("speculators", "modelopt", "llamacpp"))
    dump = writers.eagle(place / "d", real)
    writers.vllm(dump, real)
    error = refused(dump, *KNOWN)
    assert error["message"].startswith("AMBIGUOUS") and "--format eagle or vllm" in error["hint"]
    trace, _ = imported(dump, "--model", MODEL, "--format", "eagle")
    assert trace.info.settings["source"] == "eagle"
    error = refused(dump, *KNOWN, "--format", "modelopt")
    assert "is not a dump of modelopt" in error["message"]


def test_one_file_of_another_kind(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.vllm(place / "d", real)
    save_file({"other": torch.ones(4)}, dump / "zz.safetensors")
    error = refused(dump, "--model", MODEL)
    assert "is not a file of vllm" in error["message"] and "other [4]" in error["message"]


# --- llama.cpp ------------------------------------------------------------------------------------


def test_states_without_tokens(
    place: Path, real: Real, refused: Refused, imported: Imported
) -> None:
    path = writers.llama_json(place / "d.json", real)
    (place / "d-tokens.txt").rename(place / "ids.txt")
    error = refused(path, *KNOWN)
    assert "TOKENS_MISSING" in error["message"] and "--tokens" in error["hint"]
    trace, _ = imported(path, *KNOWN, "--tokens", "ids.txt")
    assert torch.equal(trace.token, torch.cat(real.tokens))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.txt", "1 2 x\n", "not a list of whole numbers"),
        ("t.txt", "", "it is empty"),
        ("t.json", "[1, 2.5]", "2.5 is not a token id"),
        ("t.json", "[[1], null]", "mixes lists"),
        ("t.json", '{"ids": [1]}', "no list `tokens`"),
        ("t.json", "{", "not a list of token ids"),
        ("t.bin", "abc", "no whole number of int32"),
        ("t.txt", "1 2 3\n", "446 states for 3 tokens"),
        ("gone.txt", None, "there is no token file"),
    ],
)
def test_token_files_that_can_not_be(
    place: Path, real: Real, refused: Refused, name: str, text: str | None, words: str
) -> None:
    path = writers.llama_json(place / "d.json", real)
    if text is not None:
        (place / name).write_text(text)
    assert words in refused(path, *KNOWN, "--tokens", name)["message"]


@pytest.mark.parametrize("tokens", ["[[1, 2], [3, 4]]", '{"tokens": [1, 2, 3, 4]}',
                                    '[{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]'])  # fmt: skip
def test_token_lists_in_json(place: Path, imported: Imported, tokens: str) -> None:
    (place / "d.json").write_text("[[1.5, 2.0], [0.1, 0.2], [3.0, 1.0], [2.0, 9.0]]")
    (place / "t.json").write_text(tokens)
    trace, _ = imported(place / "d.json", *KNOWN, "--tokens", "t.json")
    assert trace.token.tolist() == [1, 2, 3, 4] and trace.hidden.shape == (4, 2)


def test_pooled_embeddings(place: Path, real: Real, refused: Refused) -> None:
    path = writers.llama_server(place / "d.json", real)
    pooled = [{"index": i, "embedding": [s.mean(0).tolist()]} for i, s in enumerate(real.post)]
    path.write_text(json.dumps(pooled))
    error = refused(path, *KNOWN)
    assert error["message"].startswith("TOO_FEW_ROWS") and "--pooling none" in error["hint"]


@pytest.mark.parametrize(
    "text",
    ['{"data": [{"embedding": [1.0, NaN]}]}', '[[1.0, 2.0], [1.0]]', '{"data": []}',
     '[{"embedding": null}]', '[[1.0, "x"], [1.0, 2.0]]', '[{"embedding": [[[1.0]]]}]',
     '[[1.0, 2.0], [1.0, 2.0]'],
)  # fmt: skip
def test_json_that_is_no_embedding(place: Path, refused: Refused, text: str) -> None:
    (place / "d.json").write_text(text)
    (place / "t.txt").write_text("1 2")
    refused(place / "d.json", *KNOWN, "--tokens", "t.txt", "--format", "llamacpp")


def test_a_cut_binary(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.llama_debug(place / "d", real)
    path = next(dump.glob("*-embeddings.bin"))
    path.write_bytes(path.read_bytes()[:-2])
    assert "LENGTHS" in refused(dump, *KNOWN)["message"]


def test_options_that_would_be_ignored(place: Path, real: Real, refused: Refused) -> None:
    (place / "ids.txt").write_text("1 2")
    dump = writers.vllm(place / "d", real)
    error = refused(dump, *KNOWN, "--tokens", "ids.txt")
    assert "dump of vllm has its own tokens" in error["message"]
    error = refused(dump, *KNOWN, "--layer-numbering", "leaving")
    assert "there is no --layers" in error["message"]
    (place / "e").mkdir()
    for name in ("a.json", "b.json"):
        writers.llama_json(place / "e" / name, real)
    assert "has several files" in refused(place / "e", *KNOWN, "--tokens", "ids.txt")["message"]


# --- what is left behind --------------------------------------------------------------------------


def test_nothing_is_overwritten(place: Path, real: Real, refused: Refused) -> None:
    dump = writers.vllm(place / "d", real)
    before = {path: path.read_bytes() for path in dump.iterdir()}
    from tests.dumps.conftest import audit

    for output in ("d/cmpl-00-0.safetensors", "d/new.safetensors", "d"):
        assert audit("import", "d", "--model", str(MODEL), "-o", output) == 2
    assert audit("import", "d/cmpl-00-0.safetensors", "--model", str(MODEL), "-o",
                 "d/cmpl-00-0.safetensors") == 2  # fmt: skip
    assert before == {path: path.read_bytes() for path in dump.iterdir()}
    assert audit("import", "d", "--model", str(MODEL), "-o", "d/n.trace.safetensors", "-qq") == 0
    assert audit("import", "d", "--model", str(MODEL), "-o", "d/n.trace.safetensors", "-qq") == 0


def test_an_interrupt_leaves_nothing(
    place: Path, real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.dumps.conftest import audit

    def stop(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    dump = writers.specforge(place / "d", real, packed=True)
    monkeypatch.setattr("audit.traces.trace.save_file", stop)
    assert audit("import", str(dump), "--model", str(MODEL), "-o", "t.trace.safetensors") == 130
    assert [path.name for path in place.iterdir()] == ["d"]


def test_memory_is_bounded(
    place: Path, real: Real, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = writers.vllm(place / "d", real)
    pages = 2 * 250 * 192 * 2 // 4096  # half of them hold 250 of the 446 positions
    monkeypatch.setattr("audit.dumps.collect.os.sysconf",
                        lambda name: 4096 if "SIZE" in name else pages)  # fmt: skip
    error = refused(dump, *KNOWN)
    assert (
        "half of this machine's memory" in error["message"] and "--max-positions" in error["hint"]
    )
