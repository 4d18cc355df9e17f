"""A Run as JUnit XML: one test case per limit of the policy and per control.

What consumers make of it decides the mapping. A limit that failed is a `failure`. One that is
undecided is an `error`: `skipped` shows as green in most of them, and an undecided gate must block.
A failed control is an `error` too, since then no number means anything. What a waiver lifts is
`skipped`, so that it stays in sight. A run that was held against no policy gets one skipped case
that says so.

The layout is what the schemas of Jenkins' xUnit plug-in (junit-10) and of its forerunner have in
common; no time is claimed. Sentences stand in the text as well as in `message`, which GitLab does
not show. The result is parsed again before anyone gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from audit.report.content import NOT_JUDGED, Judged, Line, Report
from audit.report.decided import LimitLine

Element = ElementTree.Element
_COUNTED = {"failures": "failure", "errors": "error"}
_CLASS = "audit"


def render_junit(report: Report) -> str:
    """The report as JUnit XML, well-formed whatever the names hold.

    Raises:
        ValueError: the file does not read back as it was meant, which would be a bug.
    """
    suites = [_limits(candidate, report) for candidate in report.candidates]
    suites.append(_controls(report.controls, report))
    root = Element("testsuites", name="audit")
    root.extend(suites)
    for name in ("tests", *_COUNTED):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    ElementTree.indent(root)
    text = f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(root, 'unicode')}\n"
    _check(text, root)
    return text


def _check(text: str, meant: Element) -> None:
    """Some consumers drop a whole report without a word when one character is wrong."""
    try:
        found = ElementTree.fromstring(text.encode())
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise ValueError(f"the JUnit report is not well-formed: {error}") from error
    if [_content(element) for element in found.iter()] != [_content(e) for e in meant.iter()]:
        raise ValueError("the JUnit report does not read back as it was written")


def _content(element: Element) -> tuple[str, dict[str, str], str]:
    return element.tag, element.attrib, element.text or ""


def _limits(candidate: Judged, report: Report) -> Element:
    """The suite of one candidate; its verdict and predictions as the output."""
    # Consumers take class and name for a test's identity, so the head's hash keeps heads apart.
    place = f"{_CLASS}.{candidate.name}.{candidate.digest}"
    if candidate.outcome is None:
        cases = [_skipped("policy", place, NOT_JUDGED)]
    else:
        cases = [_limit(line, place) for line in candidate.limits]
    told = [candidate.verdict, candidate.outcome_sentence, *candidate.predictions]
    suite = _suite(candidate.name, cases, report)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(told)
    return suite


def _limit(line: LimitLine, place: str) -> Element:
    name = f"{line.limit} [{line.scope}]" if line.scope else line.limit
    told = f"{line.sentence} ({line.why})"
    if line.outcome == "waived":
        return _skipped(name, place, f"waived: {told}")
    case = Element("testcase", name=name, classname=place)
    if line.outcome != "pass":
        kind = "failure" if line.outcome == "fail" else "error"
        problem = ElementTree.SubElement(case, kind, type=line.outcome, message=line.sentence)
        problem.text = told
    return case


def _controls(controls: Sequence[Line], report: Report) -> Element:
    cases = []
    for number, control in enumerate(controls, start=1):
        name, _, told = control.sentence.partition(": ")
        case = Element("testcase", name=f"{number}. {name}", classname=f"{_CLASS}.controls")
        if control.loud:
            problem = ElementTree.SubElement(case, "error", type="control", message=told)
            problem.text = control.sentence
        cases.append(case)
    return _suite("controls", cases, report)


def _skipped(name: str, place: str, why: str) -> Element:
    """Without attributes: the older schema has none for `skipped`, and all read its text."""
    case = Element("testcase", name=name, classname=place)
    ElementTree.SubElement(case, "skipped").text = why
    return case


def _suite(name: str, cases: Sequence[Element], report: Report) -> Element:
    suite = Element("testsuite", name=name, tests=str(len(cases)))
    for title, kind in {**_COUNTED, "skipped": "skipped"}.items():
        suite.set(title, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("timestamp", report.created.removesuffix("Z"))
    properties = ElementTree.SubElement(suite, "properties")
    for label, text in (("run", report.id), ("headline", report.headline)):
        ElementTree.SubElement(properties, "property", name=label, value=text)
    suite.extend(cases)
    return suite
