"""Capture against a dense oracle: the unbatched model's own states and logits in float64."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from audit.corpora import Document
from audit.errors import BadUsageError, MismatchError, UnreadableError, UnsupportedFormatError
from audit.provenance import canonical_json
from audit.traces import oracle as oracle_module
from audit.traces import read_trace, write_trace
from audit.traces.capture import capture
from audit.traces.oracle import check_against_model, greedy_tokens
from audit.traces.recipe import Recipe, Source
from audit.traces.states import record_states
from audit.traces.windows import cut_windows, plan_batches

DOCUMENTS = [
    Document("one", "the cat sat on a mat and saw some dog run up hill " * 5),
    Document("two", "while it was raining hard today the dog sat " * 2),
    Document("three", "<s> hill"),
    Document("four", "cat unheard dog " * 12),
]
BASIC = {"context": 16, "batch": 4}


def run(verifier, documents=DOCUMENTS, progress=None, **options):
    source = Source("tiny", "same_register", "en", documents)
    return capture(verifier, source, Recipe(**(BASIC | options)), progress)


@pytest.fixture(params=["llama", "qwen3"])
def verifier(request):
    return request.getfixturevalue(request.param)


@torch.no_grad()
def dense(verifier, trace):
    """Each sequence alone, in float64: decoder output, logits of known ids, all layer states."""
    model = copy.deepcopy(verifier.model).double()
    hidden, logits, layers = [], [], []
    for number in range(trace.sequences):
        tokens = trace.token[trace.sequence == number].unsqueeze(0)
        output = model(input_ids=tokens, output_hidden_states=True)
        hidden.append(model.model(input_ids=tokens).last_hidden_state[0])
        logits.append(output.logits[0, :, : verifier.vocabulary])
        layers.append([state[0] for state in output.hidden_states])
    by_layer = [torch.cat(states) for states in zip(*layers, strict=True)]
    return torch.cat(hidden), torch.cat(logits), by_layer


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_states_and_oracle_are_those_of_the_unbatched_model(verifier, batch):
    trace = run(verifier, batch=batch, layers=[1, 0])
    hidden, logits, layers = dense(verifier, trace)
    assert torch.allclose(trace.hidden.double(), hidden, atol=1e-5)
    top = logits.topk(2).values
    clear = top[:, 0] - top[:, 1] > 1e-4
    assert clear.double().mean() > 0.99
    assert torch.equal(trace.oracle[clear], logits.argmax(1)[clear])
    assert trace.oracle.max() < verifier.vocabulary
    assert [state.tensor for state in trace.info.states] == ["layer_0", "layer_1"]
    for layer in (0, 1):
        assert torch.allclose(trace.states[f"layer_{layer}"].double(), layers[layer], atol=1e-5)


def test_batch_size_changes_no_token_and_no_more_than_the_last_bits(verifier):
    one, many = run(verifier, batch=1), run(verifier, batch=7)
    for name in ("token", "oracle", "sequence", "position"):
        assert torch.equal(getattr(one, name), getattr(many, name))
    assert torch.allclose(one.hidden, many.hidden, atol=1e-5)


def test_windows_by_hand(llama, qwen3):
    """Context 4 over six tokens: Llama adds its BOS (id 1) to each window, so 3 + 3; Qwen3 4 + 2.

    A text that starts with the BOS gets no second one.
    """
    words = Document("d", "the cat sat on a mat")
    ids = llama.tokenizer("the cat sat on a mat", add_special_tokens=False)["input_ids"]
    got = [window.tolist() for window in cut_windows(llama, [words], 4, None)]
    assert got == [[1, *ids[:3]], [1, *ids[3:]]]
    got = [window.tolist() for window in cut_windows(qwen3, [words], 4, None)]
    assert got == [ids[:4], ids[4:]]
    saved = Document("d", "<s> the cat")
    assert [w.tolist() for w in cut_windows(llama, [saved], 4, None)] == [[1, *ids[:2]]]


def test_batches_join_windows_of_like_length():
    windows = [torch.zeros(n, dtype=torch.int64) for n in (4, 2, 4, 4, 1)]
    plan = plan_batches(windows, 2)
    assert plan.batches == [[0, 2], [3, 1], [4]]
    assert plan.starts == [0, 4, 6, 10, 14]
    assert plan.rows == 15


def test_sequences_never_cross_documents(llama):
    trace = run(llama)
    bodies = [llama.tokenizer(d.text, add_special_tokens=False)["input_ids"] for d in DOCUMENTS]
    windows = sum(-(-len([i for i in body if i != 1]) // 15) for body in bodies)
    assert trace.sequences == windows
    starts = trace.token[trace.position == 0]
    assert starts.tolist() == [1] * windows
    assert (trace.token == 1).sum() == windows


@pytest.mark.parametrize("limit", [1, 15, 16, 17, 40])
def test_max_positions_cuts_exactly(verifier, limit):
    short, whole = run(verifier, max_positions=limit), run(verifier)
    assert short.positions == limit
    assert torch.equal(short.token, whole.token[:limit])
    assert torch.equal(short.position, whole.position[:limit])
    assert torch.allclose(short.hidden, whole.hidden[:limit], atol=1e-5)


def test_a_corpus_smaller_than_the_limit_is_taken_whole(llama):
    assert run(llama, max_positions=10_000).positions == run(llama).positions


def test_twice_the_same_bytes_and_readable(verifier, tmp_path):
    paths = [tmp_path / name for name in ("a.trace.safetensors", "b.trace.safetensors")]
    for path in paths:
        write_trace(run(verifier, layers=[1]), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    info = read_trace(paths[0]).info
    assert info.settings["context"] == 16
    assert info.settings["dtype"] == "float32"
    assert info.settings["documents"] == len(DOCUMENTS)
    assert info.stage == "post_norm"
    assert info.vocabulary == verifier.vocabulary
    assert str(tmp_path) not in str(info)


def test_the_description_knows_the_text(llama):
    texts = canonical_json([document.text for document in DOCUMENTS])
    assert run(llama).info.corpus_sha256 == hashlib.sha256(texts.encode()).hexdigest()
    assert run(llama, DOCUMENTS[:1]).info.corpus_sha256 != run(llama).info.corpus_sha256


def test_progress_rises_to_the_total(llama):
    calls = []
    trace = run(llama, progress=lambda what, done, total: calls.append((done, total)))
    assert [total for _, total in calls] == [trace.positions] * len(calls)
    assert sorted(calls) == calls
    assert calls[-1] == (trace.positions, trace.positions)


def test_capture_prints_nothing(llama, capfd):
    run(llama)
    assert capfd.readouterr() == ("", "")


def test_states_keep_the_dtype_of_the_model(llama, tmp_path):
    half = replace(llama, model=copy.deepcopy(llama.model).bfloat16())
    trace = write_trace(run(half, layers=[1]), tmp_path / "t.trace.safetensors")
    assert trace.hidden.dtype == trace.states["layer_1"].dtype == torch.bfloat16
    assert trace.info.settings["dtype"] == "bfloat16"


def test_non_finite_states_name_their_rows(llama):
    model = copy.deepcopy(llama.model)
    word = llama.tokenizer("unheard", add_special_tokens=False)["input_ids"][0]
    model.model.embed_tokens.weight[word] = torch.inf
    broken = replace(llama, model=model)
    with pytest.raises(UnreadableError, match=r"^NON_FINITE: \d+/\d+ positions of `hidden`"):
        run(broken)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 0}, "context is 0"),
        ({"context": 1}, "leave no room"),
        ({"context": 129}, "made for 128 tokens"),
        ({"batch": 0}, "batch is 0"),
        ({"max_positions": 0}, "max_positions is 0"),
        ({"layers": [2]}, "layer 2 does not exist"),
        ({"layers": [-1]}, "layer -1 does not exist"),
    ],
)
def test_arguments_out_of_range(llama, options, message):
    with pytest.raises(BadUsageError, match=message):
        run(llama, **options)


def test_documents_without_tokens_and_ids_without_embedding(llama):
    with pytest.raises(UnreadableError, match="hold no tokens"):
        run(llama, [Document("blank", "  ")])
    with pytest.raises(UnreadableError, match="hold no tokens"):
        run(llama, [])
    model = copy.deepcopy(llama.model)
    model.resize_token_embeddings(3)
    with pytest.raises(MismatchError, match="embeds 3 ids"):
        run(replace(llama, model=model))


def test_a_hybrid_model_of_another_program_and_padding(golden_qwen35):
    """Qwen3.5 with linear attention: its recorded states and greedy tokens, one sequence cut.

    The cut one is padded in its batch, which must not reach the states before the padding.
    """
    expected = load_file(golden_qwen35 / "expected.safetensors")
    model = AutoModelForCausalLM.from_pretrained(golden_qwen35 / "hf", dtype=torch.float32)
    lengths = [40, 17, 40]
    windows = [row[:n].long() for row, n in zip(expected["tokens"], lengths, strict=True)]
    with torch.no_grad():
        hidden, states = record_states(model, plan_batches(windows, 3), [2], lambda done: None)
        oracle = greedy_tokens(hidden, model.get_output_embeddings(), 1024)
    assert states["layer_2"].shape == hidden.shape
    recorded = {
        name: torch.cat([row[:n] for row, n in zip(expected[name], lengths, strict=True)])
        for name in ("trunk_hidden_post_norm", "verifier_greedy")
    }
    assert torch.allclose(hidden, recorded["trunk_hidden_post_norm"], atol=1e-4)
    assert (oracle == recorded["verifier_greedy"]).double().mean() > 0.99


def linear(weight, bias=None):
    return SimpleNamespace(weight=torch.as_tensor(weight, dtype=torch.float32), bias=bias)


def test_greedy_tokens_by_hand():
    """Logits of h = 1 are the weights themselves: a tie takes the lowest id, also across tiles."""
    one = torch.ones(1, 1)
    assert greedy_tokens(one, linear([[1.0], [3.0], [3.0], [2.0]]), 4).tolist() == [1]
    assert greedy_tokens(one, linear([[1.0], [2.0], [3.0], [9.0]]), 3).tolist() == [2]
    bias = torch.tensor([5.0, 0.0, 0.0])
    assert greedy_tokens(one, linear([[1.0], [2.0], [3.0]], bias), 3).tolist() == [0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [1, 6, 7, 8, 23])
def test_tiles_and_blocks_change_nothing(monkeypatch, vocabulary, dtype):
    monkeypatch.setattr(oracle_module, "_TILE", 7)
    monkeypatch.setattr(oracle_module, "_ROWS", 5)
    generator = torch.Generator().manual_seed(3)
    # Small integers: products are exact in any order, and ties are everywhere.
    hidden = torch.randint(-2, 3, (17, 4), generator=generator).to(dtype)
    weight = torch.randint(-2, 3, (23, 4), generator=generator)
    bias = torch.randint(-2, 3, (23,), generator=generator).to(dtype)
    logits = (hidden.double() @ weight.double().T + bias.double())[:, :vocabulary]
    lowest = [int((row == row.max()).nonzero()[0]) for row in logits]
    head = SimpleNamespace(weight=weight.to(dtype), bias=bias)
    done = []
    assert greedy_tokens(hidden, head, vocabulary, progress=done.append).tolist() == lowest
    assert done == [5, 10, 15, 17]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("row", [0, 9, 22])
def test_non_finite_logits_fail_closed(monkeypatch, row, value):
    monkeypatch.setattr(oracle_module, "_TILE", 7)
    weight = torch.ones(23, 1)
    weight[row] = value
    with pytest.raises(UnreadableError, match="NON_FINITE: the verifier's logits"):
        greedy_tokens(torch.ones(2, 1), linear(weight), 23)


class Changed(torch.nn.Module):
    """A model that changes its logits after its head."""

    def __init__(self, inner, change):
        super().__init__()
        self.inner, self.change = inner, change
        self.device = inner.device
        self.get_decoder, self.get_output_embeddings = (
            inner.get_decoder,
            inner.get_output_embeddings,
        )

    def forward(self, **inputs):
        output = self.inner(**inputs)
        output.logits = self.change(output.logits)
        return output


@torch.no_grad()
def test_the_self_check_passes_softcap_and_scale_and_sees_everything_else(llama):
    tokens = torch.arange(60) % llama.vocabulary
    for harmless in (lambda x: x, lambda x: 0.1 * x, lambda x: 30 * torch.tanh(x / 30)):
        assert check_against_model(Changed(llama.model, harmless), tokens, llama.vocabulary) == 1
    for harm in (lambda x: -x, lambda x: x.roll(1, dims=-1)):
        with pytest.raises(UnsupportedFormatError, match="changes its logits after the head"):
            check_against_model(Changed(llama.model, harm), tokens, llama.vocabulary)


@torch.no_grad()
def test_a_model_is_checked_on_its_first_text_only(llama, monkeypatch):
    calls = []
    true = oracle_module.check_against_model
    monkeypatch.setattr(
        oracle_module, "check_against_model", lambda *args: calls.append(1) or true(*args)
    )
    verifier = replace(llama, model=copy.deepcopy(llama.model))
    run(verifier)
    run(verifier)
    assert len(calls) == 1
    broken = Changed(copy.deepcopy(llama.model), lambda x: -x)
    broken.config, broken.dtype = llama.model.config, llama.model.dtype
    broken.get_input_embeddings = llama.model.get_input_embeddings
    for _ in range(2):
        with pytest.raises(UnsupportedFormatError, match="changes its logits after the head"):
            run(replace(llama, model=broken))
    assert len(calls) == 3
