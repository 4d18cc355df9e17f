"""Policies: what is read, what is refused with which advice, and what changed between two."""

from __future__ import annotations

import ast
import datetime
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.catalogue import CLASS_MEASURES, CONTROLS, FINDING_CODES, TOKEN_CLASSES
from audit.errors import BadPolicyError, NotFoundError
from audit.gating import judge_run, selftest
from audit.policy import Limit, Policy, Requirement, changes_between, load_policy, parse_policy
from audit.policy.reading import keys_of
from audit.policy.suggest import MEASURES
from audit.policy.words import part_words
from audit.samples import REGISTERS
from tests.gating.made import NOW, estimate, limit, policy_of, require, run_of

TEMPLATE = (files("audit.policy") / "release.toml").read_text(encoding="utf-8")
UNCOMMENTED = re.sub(r"^#(?=[\[a-z])", "", TEMPLATE, flags=re.M)


def refused(text: str) -> BadPolicyError:
    with pytest.raises(BadPolicyError) as caught:
        parse_policy(text, "policy.toml")
    assert caught.value.where == "policy.toml" and caught.value.exit_code == 2
    assert caught.value.kind == "bad_policy"
    return caught.value


def test_a_limit_is_read_as_written() -> None:
    text = limit(
        name="han", measure="retention", minimum=0.9, register="domain_shift", token_class="han",
        ignore_fewer_than=30, over="corpora",
    )  # fmt: skip
    (found,) = policy_of(text).limits
    assert (found.name, found.measure, found.minimum, found.maximum) == (
        "han", "retention", 0.9, None,
    )  # fmt: skip
    assert (found.register_, found.token_class, found.ignore_fewer_than) == (
        "domain_shift", "han", 30,
    )  # fmt: skip
    assert found.date == datetime.date(2026, 1, 1) and found.reason == "because"
    assert policy_of(text.replace('"2026-01-01"', "2026-01-01")).limits[0].date == found.date
    whole = policy_of(limit(measure="kl_nats", maximum=1))
    assert whole.limits[0].maximum == 1.0 and isinstance(whole.limits[0].maximum, float)


def test_the_hash_is_that_of_the_text(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "p.toml"
    path.write_text(TEMPLATE, encoding="utf-8")
    found = load_policy(path)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.record.sha256 == found.sha256 and found.record.name == "draft head release"
    assert Policy.model_validate(found.model_dump(by_alias=True)) == found
    assert Policy.model_validate_json(found.model_dump_json(by_alias=True)) == found


# ---- what can not have been meant

NONSENSE = [
    ({"measure": "retention", "minimum": 95}, "retention is a fraction of one, 0.95 was probably"),
    ({"measure": "shift_tax", "maximum": 6}, "shift_tax is a fraction of one, 0.06 was probably"),
    ({"measure": "disagreement", "maximum": 12.5}, "0.125 was probably meant"),
    ({"measure": "retention", "minimum": 950}, "retention is asked to be between 0 and 1"),
    ({"measure": "disagreement", "maximum": -0.1}, "disagreement is always between 0 and 1"),
    ({"measure": "kl_nats", "maximum": -1.0}, "kl_nats is always 0 or more"),
    ({"measure": "harm", "maximum": -1.5}, "harm is always between -1 and 1"),
    ({"measure": "retention", "maximum": 0.95}, "minimum = 0.95 was probably meant"),
    ({"measure": "disagreement", "minimum": 0.1}, "maximum = 0.1 was probably meant"),
    ({"measure": "shift_loss", "minimum": 0.1}, "maximum = 0.1 was probably meant"),
    ({"measure": "flip_margin", "minimum": 2.0, "maximum": 1.0}, "swap them"),
    ({"measure": "retention"}, "neither minimum nor maximum"),
    ({"measure": "retention", "minimum": "95 %"}, "write 0.95 without quotes"),
    ({"measure": "retention", "minimum": True}, "True is not a number"),
    ({"measure": "shift_tax", "maximum": 0.1, "register": "in_distribution"}, "under domain_shift"),
    ({"measure": "retention", "minimum": 0.9, "allow_predicted": True}, "ever predicted"),
    ({"measure": "shift_loss", "maximum": 0.1, "allow_predicted": True, "corpus": "de"},
     "ever predicted"),
    ({"measure": "harm", "maximum": 0.1, "token_class": "han"}, "is not estimated per token class"),
    ({"measure": "retention", "minimum": 0.9, "ignore_fewer_than": 5}, "belongs to a token_class"),
    ({"measure": "retention", "minimum": 0.9, "over": "register", "corpus": "de"}, "drop either"),
    ({"measure": "retention", "minimum": 0.9, "name": " "}, "not text that can be read"),
    ({"measure": "retention", "minimum": 0.9, "date": "yesterday"}, "write 2026-01-31"),
    ({"measure": "retention", "minimum": 0.9, "date": 20260131}, "date = 20260131"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "words"), NONSENSE, ids=lambda one: str(one)[:50])
def test_nonsense_is_refused_with_what_was_probably_meant(
    keys: dict[str, object], words: str
) -> None:
    error = refused(f'name = "test"\n{limit(**keys)}')
    assert words in f"{error.message}: {error.hint}"
    assert error.message.startswith("limit ")


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "+nan"])
def test_bounds_that_bound_nothing(word: str) -> None:
    text = limit(measure="retention", minimum=0.5).replace("0.5", word)
    assert "bounds nothing" in refused(f'name = "test"\n{text}').message


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        (limit(measure="retenton", minimum=0.9), "'retenton' is not a measure",
         "did you mean retention?"),
        (limit(measure="KL", maximum=0.9), "'KL' is not a measure", "did you mean kl_nats"),
        (limit(measure="shift-tax", maximum=0.1), "is not a measure", "did you mean shift_tax"),
        (limit(measure="retention", minimun=0.9), "unknown key 'minimun'", "did you mean minimum"),
        (limit(measure="retention", min=0.9), "unknown key 'min'", "did you mean"),
        (limit(measure="retention", minimum=0.9, register="shift"), "register = 'shift'",
         "did you mean"),
        (limit(measure="retention", minimum=0.9, register="domain-shift"), "is not possible",
         "did you mean domain_shift"),
        (limit(measure="retention", minimum=0.9, token_class="chinese"), "not a token class",
         "there are stop"),
        (limit(measure="retention", minimum=0.9, token_class="cyrilic"), "not a token class",
         "did you mean cyrillic"),
        (limit(measure="retention", minimum=0.9, over="corpus"), "over = 'corpus'",
         "did you mean corpora"),
        (require(verdicts=["fidelty"]), "'fidelty' is not possible", "did you mean fidelity"),
        (require(verdicts="fidelity"), "verdicts = 'fidelity' is not a list", "write verdicts = ["),
        (require(controls=["shuffled"]), "'shuffled' is not a control",
         "did you mean shuffled rows"),
        (require(position=5), "unknown key 'position'", "did you mean positions"),
        (require(), "it asks for nothing", "give exactly one of"),
        (require(positions=5, sequences=5), "it gives positions, sequences", "give exactly one"),
        (require(verdicts=[]), "verdicts is empty", ""),
        (require(positions=0), "positions", ""),
        (require(positions=1.5), "positions", ""),
        (require(compressed=False), "compressed = False is not possible", ""),
        (require(audit_version="new"), "'new' is not a version", "write 0.1.0"),
        (require(compressed=True, corpus="de"), "belong to positions and sequences", ""),
        ("[limit]\nname = 'x'", "limit is not a list of tables", "[[limit]]"),
        ("limit = 3", "limit is not a list of tables", "[[limit]]"),
        ("", "it has no limits, so every head would pass", ""),
        (limit(measure="retention", minimum=0.9) * 2, "two limits are named 'it'", ""),
        (limit(measure="retention", minimum=0.9, name="controls"), "the name 'controls' is kept",
         ""),
        ("limits = []", "the policy has the unknown key 'limits'", "did you mean limit"),
        ("schema = 2\n" + limit(measure="retention", minimum=0.9), "schema = 2", ""),
        ("[[limit]\n", "this is not TOML", ""),
    ],
    ids=lambda one: one.replace("\n", " ")[:40],
)  # fmt: skip
def test_unknown_names_and_shapes_are_refused_with_advice(text: str, words: str, hint: str) -> None:
    error = refused(f'name = "test"\n{text}')
    assert words in error.message, error.message
    assert hint in error.hint, error.hint


@pytest.mark.parametrize("key", ["name", "reason", "date"])
def test_nobody_has_to_guess_why_a_limit_is_there(key: str) -> None:
    whole = limit(measure="retention", minimum=0.9)
    text = "\n".join(line for line in whole.splitlines() if not line.startswith(key))
    assert f"{key} is missing" in refused(f'name = "test"\n{text}').message


def test_the_policy_needs_a_name() -> None:
    assert "name is missing" in refused(limit(measure="retention", minimum=0.9)).message


def test_files_that_are_no_policies(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no file none\.toml"):
        load_policy(tmp_path / "none.toml")
    path = tmp_path / "p.toml"
    for content in (b"\xff\xfe", b"#" * (2 << 20), b"\x00"):
        path.write_bytes(content)
        with pytest.raises(BadPolicyError):
            load_policy(path)


ODD = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-(10**400), 10**400), st.floats(), st.text(max_size=6),
        st.sampled_from(["retention", "shift_tax", "han", "domain_shift", "register", "0.1"]),
        st.dates(), st.datetimes(), st.times(),
    ),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=3,
)  # fmt: skip


def odd_tables(kind: type[Limit] | type[Requirement]) -> st.SearchStrategy[dict[str, object]]:
    return st.dictionaries(st.sampled_from(sorted(keys_of(kind))), ODD, max_size=4)


@given(odd_tables(Limit), odd_tables(Requirement))
def test_odd_values_give_a_policy_or_one_sentence(
    one: dict[str, object], other: dict[str, object]
) -> None:
    for text in (
        limit(**({"measure": "retention", "minimum": 0.9} | one)),
        require(**({"positions": 3} | other)), limit(**one),
    ):  # fmt: skip
        try:
            policy = parse_policy(f'name = "odd"\n{text}', "odd.toml")
        except BadPolicyError as error:
            assert error.message
        else:
            judge_run(run_of(estimate("retention", "code", 0.9, 0.8, 1.0)), policy, now=NOW)


def test_numbers_that_no_float_holds() -> None:
    for digits in (400, 5000):
        number = "9" * digits
        text = limit(measure="retention", minimum=0.9).replace("0.9", number)
        refused(f'name = "test"\n{text}')
        refused(f'name = "test"\n{require(positions=3).replace("= 3", "= " + number)}')


# ---- the policy that `audit policy init` writes


def test_the_written_policy_is_valid_as_it_stands_and_can_fail() -> None:
    policy = parse_policy(TEMPLATE, "release.toml")
    assert len(policy.limits) >= 4 and len(policy.requirements) >= 6
    assert [one.limit for one in selftest(policy, NOW) if one.wrong] == []


def test_so_are_its_examples_once_uncommented() -> None:
    policy = parse_policy(UNCOMMENTED, "release.toml")
    assert policy.previous and len(policy.parts) >= len(parse_policy(TEMPLATE, "x").parts) + 8
    assert [one.limit for one in selftest(policy, NOW) if one.wrong] == []


def test_its_comments_name_every_key_and_every_word_that_the_parser_knows() -> None:
    comments = "\n".join(line for line in TEMPLATE.splitlines() if line.startswith("# "))
    keys = keys_of(Limit) | keys_of(Requirement) | keys_of(Policy)
    words = [
        *(keys - {"sha256", "changes"}), *MEASURES, *TOKEN_CLASSES, *CLASS_MEASURES, *CONTROLS,
        *REGISTERS, "identical", "fidelity", "function", "vocabulary", "undecided", "corpora",
        "register",
    ]  # fmt: skip
    text = " ".join(comments.replace("#", " ").split())
    assert [word for word in words if not re.search(rf"\b{word}\b", text)] == []
    used = {key for table in ("limit", "require") for one in tomllib.loads(UNCOMMENTED)[table]
            for key in one}  # fmt: skip
    assert used == keys_of(Limit) | keys_of(Requirement)


def test_policies_in_words() -> None:
    told = [part_words(part) for part in policy_of(
        limit(name="a", measure="retention", minimum=0.95, register="domain_shift"),
        limit(name="b", measure="shift_tax", maximum=0.06, over="register", allow_predicted=True),
        limit(name="c", measure="disagreement", maximum=0.125, corpus="de", token_class="han"),
        require(name="d", positions=1000, register="in_distribution"),
        require(name="e", controls=["self", "anchor"]),
    ).parts]  # fmt: skip
    assert told == [
        "d: at least 1,000 positions on every corpus in distribution (because; 2026-01-01)",
        "e: 2 controls by name, all passed: self, anchor (because; 2026-01-01)",
        "a: retention R at least 95.0 % on every corpus under domain shift (because; 2026-01-01)",
        "b: shift tax at most 6.0 pt over all text under domain shift together, predicted if not "
        "measured (because; 2026-01-01)",
        "c: disagreement D at most 12.50 % on de, for tokens of class han (because; 2026-01-01)",
    ]


# ---- thresholds that creep (bugs.md 58)

OLD = limit(name="keep", measure="retention", minimum=0.95)


def sentence(new: str, old: str = OLD) -> str:
    (change,) = changes_between(policy_of(old), policy_of(new))
    return f"{change.looser} {change.sentence}"


def test_a_threshold_lowered_to_todays_value_is_told() -> None:
    new = limit(name="keep", measure="retention", minimum=0.94, reason="we ship anyway",
                date="2026-02-01")  # fmt: skip
    assert sentence(new) == (
        "True keep: threshold changed 0.95 -> 0.94 (looser); reason: we ship anyway (2026-02-01)"
    )
    assert changes_between(policy_of(OLD), policy_of(OLD)) == ()


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (limit(name="keep", measure="retention", minimum=0.94),
         "True keep: threshold changed 0.95 -> 0.94 (looser); reason: because (2026-01-01); its "
         "reason and date were not renewed"),
        (limit(name="keep", measure="retention", minimum=0.96, date="2026-02-01"),
         "(stricter); reason: because (2026-02-01); its reason was not renewed"),
        (limit(name="keep", measure="retention", minimum=0.95, corpus="code"),
         "None keep: corpus changed none -> code;"),
        (limit(name="keep", measure="retention", minimum=0.94, over="register"),
         "threshold changed 0.95 -> 0.94, over changed none -> register;"),
        (limit(name="keep", measure="retention", minimum=0.9500000001), "0.95 -> 0.9500000001"),
        (require(name="keep", positions=5), "measure changed retention -> none"),
    ],
    ids=range(6),
)  # fmt: skip
def test_changes_in_words(new: str, words: str) -> None:
    assert words in sentence(new)


def test_added_and_removed_limits_are_told() -> None:
    other = limit(name="flips", measure="disagreement", maximum=0.1)
    assert sentence(OLD + other).startswith("False flips: added, measure disagreement, maximum 0.1")
    told = sentence(OLD, OLD + other)
    assert told == "True flips: removed, it was measure disagreement, maximum 0.1"


@pytest.mark.parametrize(
    ("key", "old", "new", "looser"),
    [
        ("positions", 1000, 500, True), ("positions", 1000, 2000, False),
        ("run_age_days", 30, 60, True), ("run_age_days", 30, 7, False),
        ("measures_version", 2, 1, True), ("audit_version", "0.2", "0.1", None),
    ],
)  # fmt: skip
def test_which_way_a_requirement_moved(
    key: str, old: object, new: object, looser: bool | None
) -> None:
    tables = [policy_of(require(**{key: value})) for value in (old, new)]
    (change,) = changes_between(*tables)
    assert change.looser is looser


def test_the_previous_policy_is_read_beside_this_one(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(f'name = "old"\n{OLD}')
    new = OLD.replace("0.95", "0.94")
    path = tmp_path / "new.toml"
    path.write_text(f'name = "new"\nprevious = "old.toml"\n{new}')
    (change,) = load_policy(path).changes
    assert "0.95 -> 0.94 (looser)" in change.sentence
    path.write_text(f'name = "new"\nprevious = "gone.toml"\n{new}')
    with pytest.raises(BadPolicyError, match=r"previous policy gone\.toml is not there"):
        load_policy(path)
    (tmp_path / "gone.toml").write_text("nonsense")
    with pytest.raises(BadPolicyError, match="not TOML"):
        load_policy(path)


def test_names_that_no_finding_has_and_limits_that_hold_whatever_comes(tmp_path: Path) -> None:
    """A requirement or limit that could never fail is worse than none."""
    error = refused(f'name = "x"\n{require(no_findings=["STOP_LOSTT"])}')
    assert "not the code of a finding" in error.message and "STOP_LOST" in error.hint
    path = tmp_path / "p.toml"
    for table in (
        limit(measure="retention", minimum=0.0), limit(measure="disagreement", maximum=1.0),
        limit(measure="shift_loss", maximum=1.0),
    ):  # fmt: skip
        path.write_text(f'name = "x"\n{table}')
        with pytest.raises(BadPolicyError, match="can not fail"):
            load_policy(path)
    path.write_text(f'\ufeffname = "x"\n{limit(measure="retention", minimum=0.1)}', "utf-8")
    assert load_policy(path).name == "x"
    path.write_text(f'name = "x"\nprevious = "p.toml"\n{limit(measure="harm", maximum=0.1)}')
    with pytest.raises(BadPolicyError, match="names itself"):
        load_policy(path)


def test_every_code_of_a_finding_is_one_that_a_policy_may_name() -> None:
    """Written in the code as the code of a finding; told from those of errors by their class."""
    root = Path(__file__).resolve().parents[2] / "audit"
    texts = {path: path.read_text() for path in root.rglob("*.py") if path.name != "catalogue.py"}
    written = {code for text in texts.values() for code in re.findall(r'"([A-Z][A-Z0-9_]+)"', text)}
    made = {
        keyword.value.value
        for path, text in texts.items()
        if "dumps" not in path.parts  # told when a trace is made, not in a run
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Finding"
        for keyword in call.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }
    assert made <= set(FINDING_CODES) and len(made) > 6
    for code in FINDING_CODES:
        assert code in written or any(f"{code}:" in text for text in texts.values()), code
