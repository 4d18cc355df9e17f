"""Text that the model writes itself: against transformers' own generation, one prompt at a time."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import GenerationConfig

from audit.corpora import Document
from audit.errors import BadUsageError, UnreadableError, UnsupportedFormatError
from audit.traces import generate as module
from audit.traces import lookahead_rows, read_trace, write_trace
from audit.traces.capture import capture
from audit.traces.generate import continue_prompts, end_tokens
from audit.traces.oracle import greedy_tokens
from audit.traces.recipe import Generation, Recipe, Source
from audit.traces.windows import cut_windows

DOCUMENTS = [
    Document("one", "the cat sat on a mat and saw some dog run up hill " * 3),
    Document("two", "while it was raining"),
    Document("three", "hill"),
    Document("four", "cat dog the mat hill run"),
]


@pytest.fixture(params=["llama", "qwen3"])
def verifier(request):
    return request.getfixturevalue(request.param)


def run(verifier, how, documents=DOCUMENTS, progress=None, **options):
    recipe = Recipe(**({"context": 40, "generation": how} | options))
    return capture(verifier, Source("own", "in_distribution", "en", documents), recipe, progress)


def continued(verifier, how, prompts, max_positions=None):
    return continue_prompts(verifier, prompts, how, max_positions, lambda done, total: None)


def alone(verifier, prompt, tokens, eos=None):
    """What transformers' greedy generation says to one prompt, without any of our parts.

    Padding rows of the head are suppressed by its own means.
    """
    rows = verifier.model.get_output_embeddings().weight.shape[0]
    config = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, eos_token_id=eos, pad_token_id=0,
        suppress_tokens=list(range(verifier.vocabulary, rows)) or None,
    )  # fmt: skip
    inputs = prompt.unsqueeze(0)
    output = verifier.model.generate(
        input_ids=inputs, attention_mask=torch.ones_like(inputs), generation_config=config
    )
    return output[0, len(prompt) :]


def test_greedy_tokens_are_those_of_transformers_prompt_by_prompt(verifier):
    """Prompts of unlike lengths run side by side, so the padding must not be seen."""
    prompts = cut_windows(verifier, DOCUMENTS, 16, None)
    assert len({len(prompt) for prompt in prompts}) > 2
    found = continued(verifier, Generation(12, ignore_eos=True), prompts)
    for prompt, one in zip(prompts, found, strict=True):
        assert torch.equal(one.tokens[: one.prompt], prompt)
        assert torch.equal(one.tokens[one.prompt :], alone(verifier, prompt, 12))


def test_states_are_those_of_a_teacher_forced_pass(verifier):
    """Of the unbatched model in float64 over the whole sequence, generated or not."""
    trace = run(verifier, Generation(10), layers=(1,))
    model = copy.deepcopy(verifier.model).double()
    for number in range(trace.sequences):
        rows = trace.sequence == number
        with torch.no_grad():
            output = model(input_ids=trace.token[rows].unsqueeze(0), output_hidden_states=True)
            last = model.model(input_ids=trace.token[rows].unsqueeze(0)).last_hidden_state[0]
        assert torch.allclose(trace.hidden[rows].double(), last, atol=1e-5)
        entering = output.hidden_states[1][0]
        assert torch.allclose(trace.states["layer_1"][rows].double(), entering, atol=1e-5)
    generated = trace.generated.nonzero().flatten()
    assert len(generated) and torch.equal(trace.token[generated], trace.oracle[generated - 1])


def test_generated_rows_are_marked_and_windows_leave_room(verifier):
    trace = run(verifier, Generation(10, ignore_eos=True), context=24)
    prompts = cut_windows(verifier, DOCUMENTS, 14, None)
    assert trace.sequences == len(prompts)
    for number, prompt in enumerate(prompts):
        rows = trace.sequence == number
        marks = trace.generated[rows]
        assert marks.tolist() == [False] * len(prompt) + [True] * 10
        assert torch.equal(trace.token[rows][: len(prompt)], prompt)
    assert trace.position.max() == 23 and trace.counted is None


def ending(verifier, after):
    """The verifier with an end token that its text to some word first shows behind `after` tokens.

    Returns:
        The verifier, the document, its prompt, its endless text, the end token.
    """
    for word in DOCUMENTS[0].text.split():
        document = Document(word, word)
        (prompt,) = cut_windows(verifier, [document], 30, None)
        text = alone(verifier, prompt, 40).tolist()
        if ends := [token for token in text[after:] if token not in text[:after]]:
            model = copy.copy(verifier.model)
            model.generation_config = GenerationConfig(eos_token_id=[ends[0]])
            return replace(verifier, model=model), document, prompt, text, ends[0]
    raise AssertionError("every text is a loop")


def test_a_text_ends_at_its_end_token(verifier):
    """The end token is kept, as transformers keeps it, and no proposal is asked for behind it."""
    ends, document, prompt, text, end = ending(verifier, 2)
    wanted = text[: text.index(end) + 1]
    assert alone(ends, prompt, 40, eos=end).tolist() == wanted
    trace = run(ends, Generation(40), [document], context=100)
    assert trace.token.tolist() == [*prompt.tolist(), *wanted]
    assert trace.counted.tolist() == [True] * (trace.positions - 1) + [False]
    only = run(ends, Generation(40, only_generated=True), [document], context=100)
    assert torch.equal(only.counted, only.generated & (only.position < only.position.max()))
    on = run(ends, Generation(40, ignore_eos=True), [document], context=100)
    assert on.token.tolist() == [*prompt.tolist(), *text] and on.counted is None


def test_texts_end_each_by_itself(verifier):
    """One that ends early, among others that do not, is cut; its filling is no text."""
    ends, _, prompt, _, end = ending(verifier, 2)
    prompts = [*cut_windows(verifier, DOCUMENTS, 16, None), prompt]
    found = continued(ends, Generation(30), prompts)
    for one, given in zip(found, prompts, strict=True):
        new = one.tokens[one.prompt :]
        assert torch.equal(new, alone(ends, given, 30, eos=end))
        assert one.ended == (int(new[-1]) == end)
    assert found[-1].ended and len({len(one.tokens) - one.prompt for one in found}) > 1


def test_end_tokens_come_from_everywhere(llama):
    known = llama.vocabulary
    model, tokenizer = copy.copy(llama.model), copy.deepcopy(llama.tokenizer)
    model.config = copy.deepcopy(model.config)
    model.config.eos_token_id = 3
    model.generation_config = GenerationConfig(eos_token_id=[4, 5, known + 1])
    tokenizer.eos_token = llama.tokenizer.convert_ids_to_tokens(6)
    assert end_tokens(replace(llama, model=model, tokenizer=tokenizer)) == [3, 4, 5, 6]
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    assert end_tokens(replace(llama, model=model)) == []


def test_the_checkpoints_own_sampling_defaults_are_not_used(llama):
    """Many checkpoints say do_sample, a penalty or beams in their generation config."""
    prompts = cut_windows(llama, DOCUMENTS, 16, None)
    model = copy.copy(llama.model)
    own = GenerationConfig(
        do_sample=True, temperature=5.0, repetition_penalty=3.0, num_beams=2, min_new_tokens=3,
        no_repeat_ngram_size=1,
    )  # fmt: skip
    model.generation_config = own
    plain = continued(llama, Generation(12, ignore_eos=True), prompts)
    found = continued(replace(llama, model=model), Generation(12, ignore_eos=True), prompts)
    assert [one.tokens.tolist() for one in found] == [one.tokens.tolist() for one in plain]
    assert model.generation_config is own


def test_rows_without_a_token_are_never_generated(llama):
    """Llama's 11 padding rows win often where they are not masked."""
    prompts = cut_windows(llama, DOCUMENTS, 16, None)
    bare = [
        llama.model.generate(
            input_ids=prompt.unsqueeze(0), max_new_tokens=12, do_sample=False, pad_token_id=0
        )
        for prompt in prompts
    ]
    assert max(int(row.max()) for row in bare) >= llama.vocabulary
    for how in (Generation(12), Generation(12, temperature=5.0)):
        found = continued(llama, how, prompts)
        assert max(int(one.tokens.max()) for one in found) < llama.vocabulary


SAMPLED = Generation(12, temperature=1.5, top_k=8, top_p=0.9, seed=3, ignore_eos=True)


def test_a_sample_is_its_seeds_and_nothing_elses(verifier, monkeypatch):
    """Not of the prompts beside it, not of the batch, and not of torch's own generator."""
    prompts = cut_windows(verifier, DOCUMENTS, 16, None)
    wanted = [one.tokens.tolist() for one in continued(verifier, SAMPLED, prompts)]
    torch.manual_seed(99)
    state = torch.get_rng_state()
    for group in (1, 2, 3):
        monkeypatch.setattr(module, "GROUP", group)
        found = continued(verifier, SAMPLED, prompts)
        assert [one.tokens.tolist() for one in found] == wanted
    assert torch.equal(torch.get_rng_state(), state)
    part = continued(verifier, SAMPLED, prompts[:2])
    assert [one.tokens.tolist() for one in part] == wanted[:2]
    other = continued(verifier, replace(SAMPLED, seed=4), prompts)
    assert [one.tokens.tolist() for one in other] != wanted


def test_the_same_sample_gives_the_same_bytes_and_no_batch_changes_the_text(verifier, tmp_path):
    paths = [tmp_path / f"{name}.trace.safetensors" for name in "ab"]
    for path in paths:
        write_trace(run(verifier, SAMPLED), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    first, other = read_trace(paths[0]), run(verifier, SAMPLED, batch=1)
    assert torch.equal(first.token, other.token)
    assert torch.equal(first.oracle, other.oracle)
    assert first.info.oracle == "verifier_greedy"
    assert first.info.settings["generation"] == {
        "tokens": 12, "temperature": 1.5, "top_k": 8, "top_p": 0.9, "seed": 3,
        "ignore_eos": True, "only_generated": False, "oracle": "verifier_greedy",
    }  # fmt: skip
    again = greedy_tokens(first.hidden, verifier.model.lm_head, verifier.vocabulary)
    assert torch.equal(first.oracle, again)
    rows = first.generated.nonzero().flatten()
    assert (first.token[rows] != first.oracle[rows - 1]).any()


def test_samples_follow_the_models_distribution(llama):
    """4,000 first tokens from one prompt against its probabilities, by a chi-square bound.

    Temperature, top-k and top-p are computed here by hand in float64.
    """
    prompt = cut_windows(llama, DOCUMENTS[2:3], 16, None)[0]
    with torch.no_grad():
        logits = llama.model(input_ids=prompt.unsqueeze(0)).logits[0, -1, : llama.vocabulary]
    scaled = (logits.double() / 0.5).sort(descending=True)
    top = scaled.values[:6].softmax(0)
    kept = int((top.cumsum(0) < 0.7).sum()) + 1
    wanted = dict(
        zip(scaled.indices[:kept].tolist(), (top[:kept] / top[:kept].sum()).tolist(), strict=True)
    )
    how = Generation(1, temperature=0.5, top_k=6, top_p=0.7, seed=1)
    found = Counter(int(one.tokens[-1]) for one in continued(llama, how, [prompt] * 4000))
    assert set(found) <= set(wanted) and 2 <= kept < 6
    chi = sum((found[token] - 4000 * p) ** 2 / (4000 * p) for token, p in wanted.items())
    assert chi < 25  # five degrees at most: p below 0.0002


@pytest.mark.parametrize("temperature", [1e-4, 1e4])
def test_the_extreme_temperatures_still_draw(llama, temperature):
    """So cold that only the greedy token has any probability; so hot that all are nearly alike."""
    prompts = [torch.tensor([1, 2, 3, 4])]
    how = Generation(6, temperature=temperature, top_k=10**9, top_p=1e-300, ignore_eos=True)
    (drawn,) = continued(llama, how, prompts)
    (greedy,) = continued(llama, Generation(6, ignore_eos=True), prompts)
    assert torch.equal(drawn.tokens, greedy.tokens)
    (free,) = continued(llama, Generation(6, temperature=temperature, ignore_eos=True), prompts)
    assert int(free.tokens.max()) < llama.vocabulary
    assert torch.equal(free.tokens, greedy.tokens) == (temperature < 1)


def test_a_draw_never_takes_what_is_impossible():
    """The sum is flat over impossible tokens; the ends of the interval must not fall on them."""
    scores = torch.full((3, 6), -torch.inf)
    scores[:, [1, 4]] = 0.0

    class Fixed:
        """Stands for a generator whose next number is known."""

        def __init__(self, value):
            self.value = value

    def number(size, dtype, generator):
        return torch.tensor([generator.value], dtype=dtype)

    draw = module._Draw([Fixed(0.0), Fixed(0.5), Fixed(1 - 2**-53)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.torch, "rand", number)
        chosen = draw(torch.zeros(3, 1), scores)
    # 1 - u = 1, 0.5 and 2**-53: the last possible, the first (its sum reaches 0.5), the first.
    assert chosen.argmax(1).tolist() == [4, 1, 1]
    assert (chosen == 0).sum(1).tolist() == [1, 1, 1]


@pytest.mark.parametrize("limit", [1, 15, 30, 57])
def test_max_positions_cuts_exactly(verifier, limit):
    how = Generation(6, ignore_eos=True)
    whole = run(verifier, how, context=20)
    short = run(verifier, how, context=20, max_positions=limit)
    assert short.positions == limit < whole.positions
    assert torch.equal(short.token, whole.token[:limit])
    assert torch.equal(short.generated, whole.generated[:limit])


def test_progress_tells_tokens_then_positions(llama):
    calls = []
    trace = run(llama, Generation(6), progress=lambda *call: calls.append(call))
    kinds = [what for what, _, _ in calls]
    assert kinds == sorted(kinds, reverse=True) and set(kinds) == {"generate", "capture"}
    made = [(done, total) for what, done, total in calls if what == "generate"]
    assert made == sorted(made) and made[-1] == (trace.sequences * 6,) * 2
    assert calls[-1] == ("capture", trace.positions, trace.positions)


def test_generating_prints_nothing(llama, capfd):
    run(llama, SAMPLED)
    assert capfd.readouterr() == ("", "")


def test_prompts_left_out_of_the_counts(llama):
    """Their rows stay, and the first oracle that counts follows the first generated token."""
    trace = run(llama, Generation(6, ignore_eos=True, only_generated=True))
    assert torch.equal(trace.counted, trace.generated)
    rows, targets = lookahead_rows(trace, 2)
    wanted = [
        row
        for row in range(trace.positions - 1)
        if trace.sequence[row] == trace.sequence[row + 1] and trace.generated[row + 1]
    ]
    assert rows.tolist() == wanted and targets.tolist() == [row + 1 for row in wanted]
    first = [r for r in wanted if not trace.generated[r]]
    assert len(first) == trace.sequences  # one row of each prompt proposes behind its own token


def test_nothing_left_to_count_is_refused(verifier):
    prompt = cut_windows(verifier, DOCUMENTS[2:3], 30, None)[0]
    model = copy.copy(verifier.model)
    model.generation_config = GenerationConfig(eos_token_id=int(alone(verifier, prompt, 1)[0]))
    how = Generation(5, only_generated=True)
    with pytest.raises(UnreadableError, match="no generated token is left to count"):
        run(replace(verifier, model=model), how, DOCUMENTS[2:3])
    with pytest.raises(UnreadableError, match="the cap of positions ended before"):
        run(verifier, how, DOCUMENTS[:1], max_positions=3)


def test_a_text_that_its_model_would_not_write_is_refused(llama, monkeypatch):
    """As a cache that mixes its rows up would make it."""
    true = module._generate

    def mixed(verifier, prompts, *rest):
        return true(verifier, prompts[::-1], *rest)

    monkeypatch.setattr(module, "_generate", mixed)
    with pytest.raises(UnsupportedFormatError, match="generated a text of which only"):
        run(llama, Generation(20, ignore_eos=True))
    assert run(llama, replace(SAMPLED, tokens=20)).positions  # a sample is no greedy text


@pytest.mark.parametrize(
    ("how", "options", "message"),
    [
        (Generation(0), {}, "generate is 0"),
        (Generation(40), {}, "40 new tokens leave no room for a prompt in a context of 40"),
        (Generation(5, temperature=0.0), {}, "temperature is 0"),
        (Generation(5, temperature=float("nan")), {}, "temperature is nan"),
        (Generation(5, temperature=float("inf")), {}, "temperature is inf"),
        (Generation(5, temperature=1e-40), {}, "temperature is 1e-40"),
        (Generation(5, temperature=1e300), {}, r"temperature is 1e\+300"),
        (Generation(5, temperature=1.0, top_p=0.0), {}, "top_p is 0"),
        (Generation(5, temperature=1.0, top_p=float("nan")), {}, "top_p is nan"),
        (Generation(5, temperature=1.0, top_k=0), {}, "top_k is 0"),
    ],
)
def test_settings_out_of_range(llama, how, options, message):
    with pytest.raises(BadUsageError, match=message):
        run(llama, how, **options)


def test_no_room_beside_the_prefix(llama):
    """One token is left of the context, and Llama's BOS takes it."""
    with pytest.raises(BadUsageError, match="1 tokens of context leave no room"):
        run(llama, Generation(39))
