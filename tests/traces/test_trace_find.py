"""Where traces are looked for."""

from __future__ import annotations

import os

import pytest

from audit.errors import NotFoundError
from audit.traces import find_traces


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv("AUDIT_TRACES", raising=False)


@pytest.fixture
def files(tmp_path):
    """Traces in four places, by name; found only by name, so they may be empty."""
    places = {
        "beside": "model/a.trace.safetensors",
        "below": "model/traces/b.trace.safetensors",
        "listed": "listed/c.trace.safetensors",
        "given": "given/d.trace.safetensors",
    }
    for place in places.values():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    (tmp_path / "model" / "ref.safetensors").touch()
    return {name: tmp_path / place for name, place in places.items()}


def test_explicit_files_and_folders_come_first(files, monkeypatch):
    monkeypatch.setenv("AUDIT_TRACES", str(files["listed"]))
    ref = files["beside"].parent / "ref.safetensors"
    given = [files["given"].parent, files["given"], files["beside"]]
    assert find_traces(given, ref) == [files["given"], files["beside"]]


def test_the_variable_lists_files_and_folders(files, monkeypatch):
    listed = os.pathsep.join([str(files["listed"].parent), "", str(files["given"])])
    monkeypatch.setenv("AUDIT_TRACES", listed)
    ref = files["beside"].parent / "ref.safetensors"
    assert find_traces([], ref) == [files["given"], files["listed"]]


def test_an_empty_variable_counts_as_unset_and_the_reference_is_looked_beside(files, monkeypatch):
    monkeypatch.setenv("AUDIT_TRACES", "")
    folder = files["beside"].parent
    expected = [files["beside"], files["below"]]
    assert find_traces([], folder / "ref.safetensors") == expected
    assert find_traces([], folder) == expected


def test_one_file_under_two_spellings_is_one_trace(files):
    crooked = files["given"].parent / ".." / "given" / files["given"].name
    assert len(find_traces([files["given"], crooked], files["given"])) == 1


def test_named_places_that_hold_nothing_are_errors(files, tmp_path, monkeypatch):
    with pytest.raises(NotFoundError, match=r"no trace at .*none.*named by --trace"):
        find_traces([tmp_path / "none"], files["beside"])
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("AUDIT_TRACES", str(tmp_path / "empty"))
    with pytest.raises(NotFoundError, match="from AUDIT_TRACES holds no"):
        find_traces([], files["beside"])


def test_the_hint_is_the_command_whose_trace_is_then_found(tmp_path):
    ref = tmp_path / "my head" / "ref.safetensors"
    ref.parent.mkdir()
    with pytest.raises(NotFoundError, match="no trace was found") as caught:
        find_traces([], ref)
    target = f"'{ref.parent}/NAME.trace.safetensors'"
    assert caught.value.hint == f"make one: audit capture MODEL --text FILE -o {target}"
    (ref.parent / "config.json").touch()
    with pytest.raises(NotFoundError) as caught:
        find_traces([], ref)
    assert f"audit capture '{ref.parent}' --text FILE" in caught.value.hint
