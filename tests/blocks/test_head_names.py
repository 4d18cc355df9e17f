"""`--head` in words."""

from __future__ import annotations

import pytest

from audit.blocks import HeadName, parse_head_name
from audit.blocks.head_names import exit_point
from audit.errors import BadUsageError


@pytest.mark.parametrize(
    ("text", "kind", "detail"),
    [
        ("lm", "lm", ""),
        ("mtp", "mtp", ""),
        ("eagle3", "eagle3", ""),
        ("medusa:0", "medusa", "0"),
        ("exit:16", "exit", "16"),
        ("exit:16:15-17", "exit", "16:15-17"),
    ],
)
def test_round_trip(text, kind, detail):
    name = parse_head_name(text)
    assert name == HeadName(kind, detail)
    assert str(name) == text


@pytest.mark.parametrize(
    "text", ["", "LM", "medusa", "medusa:x", "exit", "exit:", "exit:1:2-", "x"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(BadUsageError) as caught:
        parse_head_name(text)
    assert "exit:16" in caught.value.hint


def test_exits_of_a_model_of_18_layers():
    last = exit_point(parse_head_name("exit:16"), 18)
    assert (last.state, list(last.layers)) == (16, [17])
    some = exit_point(parse_head_name("exit:16:15-17"), 18)
    assert (some.state, list(some.layers)) == (16, [15, 16, 17])
    assert list(exit_point(parse_head_name("exit:3:4"), 18).layers) == [4]
