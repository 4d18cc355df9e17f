"""Traces and proposals for the tests on real small models."""

from __future__ import annotations

from pathlib import Path

import torch

from audit.corpora import Document
from audit.lockstep import compare_heads
from audit.measure import states_for
from audit.traces import lookahead_rows
from audit.traces.capture import capture
from audit.traces.recipe import Recipe, Source
from audit.traces.verifier import load_verifier

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample" / "model"
TEXT = '''import os

def read_lines(path, encoding=None):
    """Return the lines of a file."""
    with open(path, encoding=encoding) as stream:
        return [line.rstrip() for line in stream if line.strip()]

class Stack:
    """A stack of items."""

    def __init__(self, items=None):
        self.items = list(items or ())

    def push(self, item):
        if item is None:
            raise TypeError("item must not be None")
        self.items.append(item)
'''


def sample_trace():
    """States entering layer 2 and the last ones, in sequences of unlike length."""
    verifier = load_verifier(SAMPLE, "cpu", torch.float32)
    documents = [Document("a.py", TEXT), Document("b.py", TEXT[120:])]
    source = Source("code", "in_distribution", None, documents)
    return capture(verifier, source, Recipe(context=64, layers=(2,)))


def proposals(head, trace, ref=None):
    """With `ref` for a head without all rows."""
    rows, targets = lookahead_rows(trace, head.lookahead)
    states = states_for(head, trace, rows)
    _, [answers] = compare_heads(ref or head, [head], states, trace.oracle[targets])
    return answers.proposal
