"""Which head is meant: the same options in every command, and what a forged file says itself."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from audit.cli import main
from audit.cli.blocks import pair_options
from audit.cli.main import group
from audit.errors import BadUsageError
from audit.forge import forge_head, parse_cut
from audit.heads import HeadOptions, trim_reference
from audit.pair import PairOptions, choose_head, load_ref
from tests.audit_files import head_weight
from tests.forge.real_heads import SAMPLE

TRACE = SAMPLE.parent / "traces" / "python-code.trace.safetensors"
FLAGS = (
    "--head", "--verifier", "--borrow-target-head", "--concat", "--stage", "--position-offset",
    "--aux-layers", "--head-tensor",
)  # fmt: skip


def audit(*args: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_TRACES", "AUDIT_LEDGER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def forged(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("forged")
    found = {}
    for head in ("mtp", "exit:2", "lm"):
        ref = load_ref(SAMPLE, choose_head(SAMPLE, [], head), HeadOptions(), PairOptions().block)
        suffix = ".gguf" if head == "lm" else ".safetensors"
        found[head] = folder / f"{head.replace(':', '')}{suffix}"
        forge_head(ref, parse_cut("q4_0"), found[head])
    return found


def command(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["compare", "study", "forge", "inspect"])
def test_every_command_takes_every_option_of_a_block(name):
    options = {flag for param in command(name).params for flag in param.opts}
    assert set(FLAGS) <= options
    if name != "inspect":
        assert {"--trace", "--traces"} <= options


def test_all_of_them_arrive(monkeypatch, capsys):
    """Each command is asked for something that only the option can have told it."""
    seen = []
    monkeypatch.setattr("audit.cli.study.pair_options", lambda o: seen.append(pair_options(o)))
    monkeypatch.setattr("audit.cli.forge.pair_options", lambda o: seen.append(pair_options(o)))
    monkeypatch.setattr("audit.cli.inspect.pair_options", lambda o: seen.append(pair_options(o)))
    monkeypatch.setattr("audit.cli.compare.pair_options", lambda o: seen.append(pair_options(o)))
    flags = (
        "--head", "mtp", "--verifier", SAMPLE, "--borrow-target-head", "--concat", "hidden_first",
        "--stage", "pre_norm", "--position-offset", 3, "--aux-layers", "1,2,3",
    )  # fmt: skip
    monkeypatch.setattr("audit.study.run_study", lambda *args: 1 / 0)
    monkeypatch.setattr("audit.run.audit_heads", lambda *args: 1 / 0)
    for args in (
        ("study", SAMPLE, "--trace", TRACE),
        ("forge", SAMPLE, "--cut", "q4_0", "-o", "x.safetensors"),
        ("inspect", SAMPLE),
        ("compare", SAMPLE, SAMPLE, "--trace", TRACE),
    ):
        assert audit(*args, *flags) == 70  # without its options it can not go on
    capsys.readouterr()
    assert len(seen) == 4
    for pair in seen:
        block = pair.block
        assert pair.head == "mtp" and block.verifier.path == SAMPLE and block.borrow_target_head
        assert (block.concat, block.stage, block.position_offset) == ("hidden_first", "pre_norm", 3)
        assert block.aux_layers == (1, 2, 3)


def test_an_option_of_the_block_changes_what_is_inspected(capsys):
    digests = []
    for more in ((), ("--position-offset", 4), ("--concat", "hidden_first")):
        assert audit("inspect", SAMPLE, "--head", "mtp", *more, "--json") == 0
        digests.append(json.loads(capsys.readouterr().out)["head"]["sha256"])
    assert len(set(digests)) == 3


@pytest.mark.parametrize("text", ["2,2,1", "1,x", "", "1,2,", "99999,1"])
def test_layers_that_can_not_be_meant(text):
    options = dict.fromkeys(("head", "verifier", "concat", "stage", "position_offset"))
    with pytest.raises(BadUsageError, match="--aux-layers") as caught:
        pair_options(options | {"aux_layers": text, "borrow_target_head": False})
    assert caught.value.hint


def test_a_forged_head_is_compared_as_what_it_is(forged, capsys):
    assert audit(
        "compare", SAMPLE, forged["mtp"], "--traces", TRACE, "--resamples", 100, "--json"
    ) == 0  # fmt: skip
    run = json.loads(capsys.readouterr().out)
    assert run["reference"]["kind"] == run["candidates"][0]["head"]["kind"] == "mtp"


def test_forged_heads_choose_where_they_agree(forged, tmp_path):
    for head, path in forged.items():
        assert str(choose_head(SAMPLE, [path, path], None).name) == head
        assert str(choose_head(SAMPLE, [path], "exit:1").name) == "exit:1"
    mixed = choose_head(SAMPLE, [forged["mtp"], forged["lm"]], None)
    assert str(mixed.name) == "lm"
    plain = tmp_path / "plain.safetensors"
    save_file({"lm_head.weight": head_weight()}, plain)
    assert str(choose_head(SAMPLE, [forged["mtp"], plain], None).name) == "lm"


def test_a_strangers_word_for_a_head_is_not_obeyed(tmp_path):
    for text in ('{"head": "nonsense"}', '{"head": ["mtp"]}', "{", '"mtp"'):
        path = tmp_path / "x.safetensors"
        save_file({"lm_head.weight": head_weight()}, path, metadata={"forge": text})
        assert str(choose_head(SAMPLE, [path], None).name) == "lm"


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("lm", ("--concat", "hidden_first")),
        ("lm", ("--verifier", SAMPLE)),
        ("lm", ("--stage", "pre_norm")),
        ("exit:2", ("--position-offset", 0)),
        ("exit:2", ("--stage", "post_norm")),
        ("mtp", ("--aux-layers", "1,2,3")),
        ("mtp", ("--borrow-target-head",)),
    ],
)
def test_an_option_that_the_head_never_reads_is_refused(head, more, capsys):
    for command in (
        ("inspect", SAMPLE, "--head", head, "--json"),
        ("compare", SAMPLE, SAMPLE, "--head", head, "--trace", TRACE, "--json"),
    ):
        assert audit(*command, *more) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["message"].startswith(f"{more[0]} is about") and "--head" in error["hint"]
    assert audit("inspect", SAMPLE, "--head", head, "--json") == 0


def test_a_trim_keeps_the_whole_block(tmp_path):
    """Its size is the block's bytes in the file, and its share of the rows' bytes."""
    ref = load_ref(SAMPLE, choose_head(SAMPLE, [], "mtp"), HeadOptions(), PairOptions().block)
    with safe_open(SAMPLE / "model.safetensors", "pt") as file:
        sizes = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118
    block = sum(size for name, size in sizes.items() if name.startswith("mtp."))
    (rows,) = (sizes[name] for name in ref.projection.tensors)
    assert ref.record.stored_bytes == block + rows
    card = tmp_path / "card.txt"
    card.write_text("\n".join(map(str, range(1024))))
    trimmed = trim_reference(ref, card)
    assert trimmed.record.stored_bytes == block + rows * 1024 // len(ref.ids)
