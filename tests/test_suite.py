"""Suites of traces: what is kept, what is captured again, and what a kill at any moment leaves."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from audit.cli.main import group
from audit.corpora import load_corpora
from audit.traces import read_trace
from audit.traces import suite as module
from audit.traces.suite import State
from tests.killing import kill_until_done

MODEL = Path(__file__).resolve().parents[1] / "audit" / "sample" / "model"
NAMES = ("chat", "german", "python-code")
SMALL = ("--max-positions", "60", "--context", "32")
SUITE = ("--suite", ",".join(NAMES), *SMALL)


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(group, [str(arg) for arg in args])


def captured(model: Path, folder: Path, *args: str) -> dict[str, dict[str, Any]]:
    """A suite's entries by corpus."""
    done = run("capture", model, "-o", folder, "--json", *args)
    assert done.exit_code == 0, done.output
    return {entry["corpus"]: entry for entry in json.loads(done.stdout)["traces"]}


def states(entries: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: entry["state"] for name, entry in entries.items()}


def content(folder: Path) -> dict[str, bytes]:
    """Everything that lies in a folder, whatever it is called."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def names(folder: Path) -> set[str]:
    """Names of what lies in a folder, hidden ones too; nothing where there is none."""
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODEL, tmp_path / "model"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "traces"
    captured(MODEL, folder, *SUITE, "--layer", "2")
    return folder


def test_one_trace_for_each_corpus_with_one_cap(whole: Path) -> None:
    assert sorted(content(whole)) == [f"{name}.trace.safetensors" for name in NAMES]
    for corpus in load_corpora():
        if corpus.manifest.name in NAMES:
            trace = read_trace(whole / f"{corpus.manifest.name}.trace.safetensors")
            assert trace.positions == 60 and trace.info.corpus == corpus.manifest.name
            assert trace.info.register_ == corpus.manifest.register_
            assert trace.info.language == corpus.manifest.language
            assert list(trace.states) == ["layer_2"]
            assert trace.info.settings["config_sha256"] and trace.info.corpus_sha256


def test_a_suite_gives_what_single_captures_give(whole: Path, tmp_path: Path) -> None:
    for name in NAMES:
        path = tmp_path / f"{name}.trace.safetensors"
        done = run("capture", MODEL, "--corpus", name, *SMALL, "--layer", "2", "-o", path)
        assert done.exit_code == 0, done.output
        assert path.read_bytes() == (whole / path.name).read_bytes()


def test_compare_takes_the_folder(whole: Path, tmp_path: Path) -> None:
    args = ("compare", MODEL, MODEL, "--head", "exit:2", "--trace", whole, "--no-record", "--json")
    done = run(*args)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [trace["info"]["corpus"] for trace in found["traces"]] == [
        "chat", "python-code", "german",
    ]  # fmt: skip
    values = {
        (e["measure"], e["corpus"]): e
        for e in found["candidates"][0]["estimates"]
        if e["token_class"] is None
    }
    assert values["disagreement", "german"]["positions"] == 60
    refused = run("compare", MODEL, MODEL, "--head", "exit:3", "--trace", whole, "--json")
    assert refused.exit_code == 2 and "lacks the state layer_3" in refused.stdout


def test_what_is_up_to_date_is_kept_without_opening_the_model(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "traces"))
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}

    def never(*args: object) -> None:
        raise AssertionError("the model was opened")

    monkeypatch.setattr(module, "_open", never)
    entries = captured(MODEL, folder, *SUITE, "--layer", "2")
    assert states(entries) == dict.fromkeys(NAMES, "kept")
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert entries["german"]["record"]["positions"] == 60


def test_only_what_is_missing_is_captured(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "traces"))
    (folder / "german.trace.safetensors").unlink()
    entries = captured(MODEL, folder, *SUITE, "--layer", "2")
    assert states(entries) == {"chat": "kept", "german": "captured", "python-code": "kept"}
    assert content(folder) == content(whole)


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        (("--context", "30"), ["settings.context"]),
        (("--max-positions", "61"), ["settings.max_positions"]),
        (("--layer", "1"), ["states"]),
        (("--batch", "2"), ["settings.batch"]),
        (("--dtype", "bfloat16"), ["settings.dtype"]),
    ],
)
def test_changed_settings_are_captured_again(
    whole: Path, tmp_path: Path, options: tuple[str, ...], differs: list[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "traces"))
    args = ("--suite", "german", *SMALL, "--layer", "2", *options)
    (planned,) = captured(MODEL, folder, *args, "--dry-run").values()
    assert (planned["state"], planned["differs"]) == ("changed", differs)
    assert content(folder) == content(whole)
    (entry,) = captured(MODEL, folder, *args).values()
    assert entry["state"] == "captured"
    assert content(folder) != content(whole)
    assert states(captured(MODEL, folder, *args)) == {"german": "kept"}


def test_a_changed_model_config_tokenizer_text_or_version_is_noticed(
    whole: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "traces"))

    def look() -> list[str]:
        args = ("--suite", "german", *SMALL, "--layer", "2", "--dry-run")
        (entry,) = captured(model, folder, *args).values()
        return list(entry["differs"])

    assert look() == []
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert look() == ["model_sha256"]
    (model / "model.safetensors").write_bytes(weights)
    for name in ("config.json", "tokenizer.json"):
        text = (model / name).read_bytes()
        (model / name).write_bytes(text + b"\n")
        assert look() == ["settings.config_sha256"]
        (model / name).write_bytes(text)
    (model / "README.md").write_text("nothing that a state depends on")
    assert look() == []
    own = tmp_path / "own"
    (german,) = [corpus for corpus in load_corpora() if corpus.manifest.name == "german"]
    shutil.copytree(german.folder, own)
    (trace,) = captured(model, folder, "--suite", str(own), *SMALL, "--layer", "2").values()
    assert trace["state"] == "kept"  # the same text under the same name, wherever it lies
    manifest = (own / "manifest.toml").read_text()
    (own / "manifest.toml").write_text(manifest.replace("domain_shift", "same_register"))
    (entry,) = captured(
        model, folder, "--suite", str(own), *SMALL, "--layer", "2", "--dry-run"
    ).values()
    assert entry["differs"] == ["register"]
    monkeypatch.setattr("audit.traces.recipe.__version__", "9.9")
    assert look() == ["captured_by"]


def test_a_trace_of_another_program_is_captured_again(whole: Path, tmp_path: Path) -> None:
    """One that was cut is told from one that is there by its length alone."""
    folder = Path(shutil.copytree(whole, tmp_path / "traces"))
    path = folder / "german.trace.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    done = run("capture", MODEL, "-o", folder, *SUITE)
    assert done.exit_code == 2 and "is not a trace" in done.output
    path.unlink()
    (folder / "german.trace.safetensors").mkdir()
    done = run("capture", MODEL, "-o", folder, *SUITE)
    assert done.exit_code == 2 and "this is a folder" in done.output


def test_a_dry_run_lists_and_does_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "traces"))
    (folder / "chat.trace.safetensors").unlink()

    def never(*args: object) -> None:
        raise AssertionError("the model was opened")

    monkeypatch.setattr(module, "_open", never)
    args = ("capture", MODEL, "-o", folder, "--suite", "chat,german,russian", *SMALL, "--dry-run")
    done = run(*args, "--layer", "2")
    assert done.exit_code == 0, done.output
    lines = {line.split()[0]: line for line in done.output.splitlines()[1:]}
    assert lines["german"].rstrip().endswith("there")
    assert lines["chat"].rstrip().endswith("would be captured")
    assert "would be captured again, for states" in run(*args).output
    assert not (folder / "chat.trace.safetensors").exists()
    single = run("capture", MODEL, "--corpus", "chat", "-o", tmp_path / "new.st", "--dry-run")
    assert single.exit_code == 0 and "would be captured" in single.output
    assert not (tmp_path / "new.st").exists()


def test_generated_suites_stand_beside_plain_ones(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "traces"))
    args = ("--suite", "german", *SMALL, "--generate", "8", "--only-generated", "--ignore-eos")
    (entry,) = captured(MODEL, folder, *args).values()
    assert entry["corpus"] == "german-generated" and entry["state"] == "captured"
    assert entry["record"]["counted"] == sum(
        read_trace(Path(entry["path"])).generated.tolist()  # type: ignore[union-attr]
    )
    plain = read_trace(folder / "german.trace.safetensors").info
    assert entry["record"]["info"]["corpus_sha256"] != plain.corpus_sha256
    assert states(captured(MODEL, folder, *args)) == {"german-generated": "kept"}
    other = captured(MODEL, folder, *args, "--temperature", "0.7", "--dry-run")
    assert other["german-generated"]["differs"] == ["corpus_sha256", "settings.generation"]


def test_killed_and_resumed_it_is_the_same_suite(whole: Path, tmp_path: Path) -> None:
    """SIGKILL at random moments, some while a trace is being written, until one run ends itself."""
    folder = tmp_path / "traces"
    args = ["capture", str(MODEL), "-o", str(folder), *SUITE, "--layer", "2", "-qq"]
    done = kill_until_done(args, folder, seed=3, kills=3)
    assert done.code == 0 and done.kills >= 2 and done.left > 0
    assert content(folder) == content(whole)
    assert names(folder) == names(whole)


def test_a_disk_that_fills_up_ends_with_exit_2_and_keeps_what_is_whole(tmp_path: Path) -> None:
    """The second trace is larger than any file may be; the first, a text of few words, stays."""
    (tmp_path / "short.txt").write_text("print(1)")
    folder = tmp_path / "traces"
    for name, text in (("small", "a word"), ("wide", "some words that go on " * 40)):
        place = tmp_path / name
        (place / "documents").mkdir(parents=True)
        (place / "documents" / "a.txt").write_text(text)
        _write_manifest(place, name)
    command = [sys.executable, "-m", "audit", "capture", str(MODEL), "-o", str(folder),
               "--corpus", str(tmp_path / "small"), "--corpus", str(tmp_path / "wide"),
               "--json"]  # fmt: skip
    limit = 40_000

    def cap() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=cap)
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout)["error"]
    assert "cannot be written" in error["message"] and error["hint"]
    assert names(folder) == {"small.trace.safetensors"}
    assert "Traceback" not in done.stderr


def _write_manifest(place: Path, name: str) -> None:
    from audit.corpora.documents import content_sha256, text_sha256

    files = {path.name: text_sha256(path.read_text()) for path in (place / "documents").iterdir()}
    listed = "\n".join(f'"{file}" = "{sha}"' for file, sha in files.items())
    (place / "manifest.toml").write_text(
        f'schema = 1\nname = "{name}"\nregister = "in_distribution"\nlanguage = "en"\n'
        f'title = "t"\ndescription = "d"\nlicence = "Apache-2.0"\nsource = "written here"\n'
        f'documents = {len(files)}\nsha256 = "{content_sha256(files)}"\n[files]\n{listed}\n'
    )


BAD_OPTIONS = {
    "suite and text": (("--suite", "german", "--text", "t.txt"), "a suite is made of corpora"),
    "two names for a text": (
        ("--text", "t.txt", "--corpus", "a", "--corpus", "b"), "at most one --corpus",
    ),
    "unknown corpus": (("--suite", "german,klingon"), "there is no corpus 'klingon'"),
    "a name left out": (("--suite", "german,"), "leaves a name out"),
    "no name": (("--suite", ""), "leaves a name out"),
    "nothing": ((), "no text to run over"),
    "register of all": (("--suite", "german", "--register", "domain_shift"), "every corpus"),
    "language of all": (("--suite", "german", "--language", "de"), "every corpus"),
    "field without text": (("--suite", "german", "--field", "text"), "about --text files"),
    "split without text": (("--corpus", "german", "--split"), "about --text files"),
    "sample of nothing": (("--suite", "german", "--top-k", "5"), "--top-k is about generated"),
    "counts of nothing": (("--suite", "german", "--only-generated"), "--only-generated is about"),
    "end of nothing": (("--suite", "german", "--ignore-eos"), "--ignore-eos is about generated"),
    "seed of nothing": (
        ("--suite", "german", "--generate", "5", "--seed", "1"), "--seed is of a sample",
    ),
    "no temperature": (
        ("--suite", "german", "--generate", "5", "--temperature", "0"), "x>0",
    ),
    "NaN": (("--suite", "german", "--generate", "5", "--temperature", "nan"), "temperature is nan"),
    "cold": (("--suite", "german", "--generate", "5", "--temperature", "1e-40"), "from 0.0001 to"),
    "hot": (("--suite", "german", "--generate", "5", "--temperature", "1e300"), "from 0.0001 to"),
    "a name that climbs": (("--text", "t.txt", "--corpus", "../../x"), "is not a plain name"),
    "a name of nothing": (("--text", "t.txt", "--corpus", ""), "is not a plain name"),
    "a name of two lines": (("--text", "t.txt", "--corpus", "x\n"), "is not a plain name"),
    "no language": (("--text", "t.txt", "--language", "x y;z"), "is no language tag"),
    "language of a corpus": (("--corpus", "german", "--language", "../de"), "is no language tag"),
    "top-p": (("--suite", "german", "--generate", "5", "--top-p", "nan"), "top_p is nan"),
    "no room": (("--suite", "german", "--generate", "512"), "leave no room for a prompt"),
    "layer": (("--suite", "german", "--layer", "99"), "layer 99 does not exist"),
    "context": (("--suite", "german", "--context", "9999"), "made for 512 tokens"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_exit_2_and_write_nothing(tmp_path: Path, case: str) -> None:
    args, message = BAD_OPTIONS[case]
    (tmp_path / "t.txt").write_text("words")
    texts = [str(tmp_path / arg) if arg == "t.txt" else arg for arg in args]
    folder = tmp_path / "traces"
    done = run("capture", MODEL, *texts, "-o", folder)
    assert done.exit_code == 2 and "Traceback" not in done.output, done.output
    assert message in done.output
    assert not folder.exists()


def test_two_corpora_of_one_name_and_places_that_can_not_be_written(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place / "documents").mkdir(parents=True)
        (tmp_path / place / "documents" / "x.txt").write_text(place)
        _write_manifest(tmp_path / place, "same")
    two = ("--corpus", str(tmp_path / "a"), "--corpus", str(tmp_path / "b"))
    done = run("capture", MODEL, *two, "-o", tmp_path / "traces")
    assert done.exit_code == 2 and "two corpora are named same" in done.output
    (tmp_path / "file").write_text("x")
    done = run("capture", MODEL, *SUITE, "-o", tmp_path / "file")
    assert done.exit_code == 2 and "file is not a folder" in done.output
    done = run("capture", tmp_path / "none", *SUITE, "-o", tmp_path / "traces")
    assert done.exit_code == 2 and "there is no model" in done.output


def test_the_standard_suite_is_every_bundled_corpus(tmp_path: Path) -> None:
    entries = captured(MODEL, tmp_path / "traces", "--suite", "standard", "--dry-run")
    assert list(entries) == [corpus.manifest.name for corpus in load_corpora()]
    assert {entry["state"] for entry in entries.values()} == {State.MISSING.value}
    assert not (tmp_path / "traces").exists()


def test_progress_names_each_corpus(tmp_path: Path) -> None:
    from audit.traces.bundled import source_of
    from audit.traces.model_files import find_model, identify
    from audit.traces.recipe import Generation, Recipe

    corpora = [corpus for corpus in load_corpora() if corpus.manifest.name in NAMES[:2]]
    jobs = [
        module.Job(source_of(corpus), tmp_path / f"{corpus.manifest.name}.trace.safetensors")
        for corpus in corpora
    ]
    recipe = Recipe(context=24, max_positions=30, generation=Generation(4))
    suite = module.Suite(MODEL, identify(find_model(MODEL)), jobs, recipe)
    seen: list[str] = []
    module.capture_suite(suite, lambda what, done, total: seen.append(what))
    assert list(dict.fromkeys(seen)) == [
        "loading the model", "generate chat (1/2)", "capture chat (1/2)",
        "generate german (2/2)", "capture german (2/2)",
    ]  # fmt: skip


def test_a_capture_tells_of_texts_that_repeat(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for i, text in enumerate(("a = 1", "b = a + 2", "a = 1", "a = 1")):
        (tmp_path / "t" / f"{i}.py").write_text(text)
    words = ("capture", MODEL, "--text", tmp_path / "t", "-o", tmp_path / "t.trace.safetensors")
    done = run(*words)
    sentence = "2 of 4 sequences repeat another one; they count once in intervals"
    assert done.exit_code == 0 and f"warning  REPEATED_TEXT  {sentence}" in done.output
    (told,) = json.loads(run(*words, "--json", "-qq").stdout)["findings"]
    assert told["code"] == "REPEATED_TEXT" and told["sentence"] == sentence


@pytest.mark.parametrize(("head", "ahead"), [("lm", 0), ("mtp", 1)])
def test_compare_counts_generated_positions_only(tmp_path: Path, head: str, ahead: int) -> None:
    """Rows whose oracle, `ahead` rows further, answers to a generated token; counted one by one."""
    (tmp_path / "prompts.jsonl").write_text(
        '{"text": "def area(width, height):"}\n{"text": "import os\\n\\nfor name in"}\n'
        '{"text": "class Stack:\\n    def push(self, item):"}\n'
    )
    path = tmp_path / "own.trace.safetensors"
    done = run("capture", MODEL, "--text", tmp_path / "prompts.jsonl", "--generate", "40",
               "--only-generated", "-o", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    trace = read_trace(path)
    assert trace.info.corpus == "prompts-generated" and trace.generated is not None
    counted = trace.generated if trace.counted is None else trace.counted
    wanted = sum(
        int(trace.sequence[row]) == int(trace.sequence[row + ahead]) and bool(counted[row + ahead])
        for row in range(trace.positions - ahead)
    )
    assert f"{int(counted.sum())} of them counted" in done.output
    args = ("compare", MODEL, MODEL, "--head", head, "--trace", path, "--no-record", "--json")
    compared = run(*args)
    assert compared.exit_code == 0, compared.output
    found = json.loads(compared.stdout)
    estimates = found["candidates"][0]["estimates"]
    values = {e["measure"]: e for e in estimates if e["corpus"] and e["token_class"] is None}
    assert values["disagreement"]["positions"] == wanted > 60
    assert found["traces"][0]["counted"] == int(counted.sum())


def test_a_trace_of_another_version_gives_way(tmp_path: Path) -> None:
    """Its metadata may be unreadable today; that it is a trace is told by its key alone."""
    import torch
    from safetensors.torch import save_file

    folder = tmp_path / "traces"
    folder.mkdir()
    path = folder / "german.trace.safetensors"
    for metadata in ("{", '{"schema_version": 99}', "[]"):
        save_file({"hidden": torch.zeros(2, 2)}, path, metadata={"trace": metadata})
        (entry,) = captured(MODEL, folder, "--suite", "german", *SMALL).values()
        assert entry["state"] == "captured" and len(entry["differs"]) == 1
        assert read_trace(path).positions == 60
