"""Which classes of tokens a trimmed head kept, counted by hand; names in any spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.files import open_container
from audit.heads.aliases import ALIASES, HEADS, looked_for, names_of
from audit.heads.dialects import dialects_in
from tests.bugs.use import inspect, matrix, model, tokenizer, told, write

WORDS = ["a", "b", "1", "2", "3", "中", "文", "да", " ", "</s>", "<0x0A>", "é"]
KEPT = [0, 1, 2, 5, 9]
H = 8


def trimmed(folder: Path) -> dict:
    import torch

    place = model(
        folder, {"vocab_size": len(WORDS), "eos_token_id": 9},
        lm_head__weight=matrix(len(WORDS), H)[KEPT], token_map=torch.tensor(KEPT),
    )  # fmt: skip
    tokenizer(place, WORDS, {9: "</s>"})
    return inspect(place)


def test_coverage_by_class(tmp_path: Path) -> None:
    found = trimmed(tmp_path)
    assert found["coverage"] == {
        "stop": [1, 1], "byte": [0, 1], "digit": [1, 3], "whitespace": [0, 1], "latin": [2, 3],
        "cyrillic": [0, 1], "han": [1, 2],
    }  # fmt: skip
    assert told(found, "CLASS_COVERAGE") == [
        ("note", "rows by token class: byte 0 of 1, digit 1 of 3, whitespace 0 of 1, latin 2 of 3, "
                 "cyrillic 0 of 1, han 1 of 2")
    ]  # fmt: skip
    ((severity, sentence),) = told(found, "CLASS_LOST")
    assert severity == "warning"
    assert sentence.startswith("no token of class byte, whitespace, cyrillic has a row")


def test_a_whole_head_has_no_coverage_to_tell(tmp_path: Path) -> None:
    place = model(tmp_path, {"vocab_size": len(WORDS)}, lm_head__weight=matrix(len(WORDS), H))
    tokenizer(place, WORDS)
    found = inspect(place)
    assert found["coverage"] == {} and not told(found, "CLASS_COVERAGE")


def test_the_terminal_shows_names_absence_and_coverage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from audit.cli import main

    trimmed(tmp_path)
    with pytest.raises(SystemExit):
        main(["inspect", str(tmp_path)])
    text = " ".join(capsys.readouterr().out.split())
    assert "names lm_head as Hugging Face spells them" in text
    assert "absent mtp: looked for mtp.fc, layers.N.eh_proj, mtp_layers.N.input_proj" in text
    assert "coverage byte 0 of 1, cyrillic 0 of 1, whitespace 0 of 1, digit 1 of 3" in text
    assert "1 of 7 classes whole" in text


@pytest.mark.parametrize("alias", [a for a in ALIASES if a.format == "safetensors"], ids=str)
def test_every_name_of_the_table_is_recognised(tmp_path: Path, alias) -> None:
    name = alias.name.replace("{n}", "3")
    leaf = "" if name.endswith((".weight", "_fn", "_base", "_scale")) else ".weight"
    for prefix in ("", "model.", "model.language_model."):
        path = write(tmp_path / "h.safetensors", **{prefix + name + leaf: matrix(4, 4)})
        roles = {one.role for one in dialects_in(open_container(path))}
        assert alias.role in roles, prefix + name


def test_names_that_only_look_alike_are_not_taken(tmp_path: Path) -> None:
    names = ("my_lm_head.weight", "layers.5.hidden_norm.weight", "lm_head.weight.extra", "xmtp.fc")
    path = write(tmp_path / "h.safetensors", **{name: matrix(4, 4) for name in names})
    assert dialects_in(open_container(path)) == ()


def test_no_name_has_two_roles_of_one_format() -> None:
    for form in ("gguf", "safetensors"):
        known = [(a.name, a.role) for a in ALIASES if a.format == form]
        assert len({name for name, _ in known}) == len(known)
    assert all(looked_for(head, "safetensors") for head in HEADS)
    assert names_of("lm_head", "gguf") == ("output.weight",)
