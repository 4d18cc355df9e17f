"""Documents from files."""

from __future__ import annotations

import pytest

from audit.errors import BadUsageError, NotFoundError, UnreadableError
from audit.corpora import Document, own_documents


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def test_each_file_is_one_document_word_for_word(write):
    paths = [write("b.txt", "two\n\n\n\nlines\r\n"), write("a.py", "x = 1\n")]
    assert own_documents(paths, split_blank_lines=False, field=None) == [
        Document("b.txt", "two\n\n\n\nlines\r\n"),
        Document("a.py", "x = 1\n"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "one\n\nstill one\n\n\ntwo\n",
        "one\r\n\r\nstill one\r\n\r\n\r\ntwo\r\n",
        "\n\n\none\n\nstill one\n \n\t\n\n\n\ntwo\n\n\n",
        "\ufeffone\n\nstill one\n\n\ntwo",
    ],
)
def test_two_blank_lines_separate_and_one_does_not(write, text):
    found = own_documents([write("c.txt", text)], split_blank_lines=True, field=None)
    assert [document.name for document in found] == ["c.txt#1", "c.txt#2"]
    assert [document.text.split() for document in found] == [["one", "still", "one"], ["two"]]
    assert found[1].text == "two"


def test_shared_corpora_are_split(shared_corpora):
    counts = {
        path.stem: len(own_documents([path], split_blank_lines=True, field=None))
        for path in sorted(shared_corpora.glob("*.txt"))
    }
    assert min(counts.values()) > 1, counts


def test_bytes_that_are_not_utf8_are_named_with_their_offset(write):
    with pytest.raises(UnreadableError, match="byte 3 is 0xe9") as caught:
        own_documents([write("l1.txt", b"caf\xe9")], split_blank_lines=False, field=None)
    assert "iconv" in caught.value.hint


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("text", ["", " \n\n\n\n\t\n", "\ufeff"])
def test_a_file_without_text_is_refused(write, text, split):
    with pytest.raises(UnreadableError, match="holds no text"):
        own_documents([write("e.txt", text)], split_blank_lines=split, field=None)


def test_missing_files_folders_and_no_files(tmp_path):
    with pytest.raises(NotFoundError, match="no text file"):
        own_documents([tmp_path / "none.txt"], split_blank_lines=False, field=None)
    with pytest.raises(UnreadableError, match="cannot be read"):
        own_documents([tmp_path], split_blank_lines=False, field=None)
    with pytest.raises(BadUsageError, match="no text was given"):
        own_documents([], split_blank_lines=False, field=None)
