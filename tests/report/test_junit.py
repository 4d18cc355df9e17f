"""JUnit XML: read by independent readers, valid by the common layout, whatever the names hold."""

from __future__ import annotations

from xml.etree import ElementTree

import junitparser
import pytest
from hypothesis import given, settings
from lxml import etree

from audit.records import Run
from audit.report import junit
from audit.report.content import report_of
from audit.report.junit import render_junit
from tests.report.made import candidate, gate, limit, run, runs

# What the schemas of Jenkins' xUnit plug-in (junit-10) and of its forerunner (junit-4) both allow.
LAYOUT = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:complexType name="problem"><xs:simpleContent><xs:extension base="xs:string">
    <xs:attribute name="type" type="xs:string"/><xs:attribute name="message" type="xs:string"/>
  </xs:extension></xs:simpleContent></xs:complexType>
  <xs:complexType name="property">
    <xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="value" type="xs:string" use="required"/>
  </xs:complexType>
  <xs:complexType name="case"><xs:sequence>
      <xs:element name="skipped" type="xs:string" minOccurs="0"/>
      <xs:element name="error" type="problem" minOccurs="0"/>
      <xs:element name="failure" type="problem" minOccurs="0"/>
    </xs:sequence>
    <xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="classname" type="xs:string"/>
  </xs:complexType>
  <xs:complexType name="suite"><xs:sequence>
      <xs:element name="properties"><xs:complexType><xs:sequence>
        <xs:element name="property" type="property" maxOccurs="unbounded"/>
      </xs:sequence></xs:complexType></xs:element>
      <xs:element name="testcase" type="case" minOccurs="0" maxOccurs="unbounded"/>
      <xs:element name="system-out" type="xs:string" minOccurs="0"/>
    </xs:sequence>
    <xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="tests" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="failures" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="errors" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="skipped" type="xs:nonNegativeInteger"/>
    <xs:attribute name="timestamp" type="xs:string"/>
  </xs:complexType>
  <xs:element name="testsuites"><xs:complexType><xs:sequence>
      <xs:element name="testsuite" type="suite" minOccurs="0" maxOccurs="unbounded"/>
    </xs:sequence>
    <xs:attribute name="name" type="xs:string"/>
    <xs:attribute name="tests" type="xs:nonNegativeInteger"/>
    <xs:attribute name="failures" type="xs:nonNegativeInteger"/>
    <xs:attribute name="errors" type="xs:nonNegativeInteger"/>
  </xs:complexType></xs:element>
</xs:schema>
"""
SCHEMA = etree.XMLSchema(etree.fromstring(LAYOUT))


def render(found: Run) -> str:
    return render_junit(report_of(found))


def cases(found: Run) -> dict[str, str]:
    """Name -> pass, failure, error or skipped, as an independent reader sees it."""
    out = {}
    for suite in junitparser.JUnitXml.fromstring(render(found).encode()):
        for case in suite:
            results = [type(result).__name__.lower() for result in case.result]
            assert len(results) <= 1
            out[case.name] = results[0] if results else "pass"
    return out


def test_every_outcome_has_its_own_word() -> None:
    found = run(
        candidate(
            gate=gate(
                "fail",
                limit(limit="a", outcome="pass"),
                limit(limit="b", outcome="fail"),
                limit(limit="c", outcome="undecided", positions_needed=4000),
                limit(limit="d", outcome="fail", waiver="w" * 64),
            )
        )
    )
    assert cases(found) == {
        "a [german]": "pass", "b [german]": "failure", "c [german]": "error",
        "d [german]": "skipped", "1. self on all": "pass",
    }  # fmt: skip
    root = ElementTree.fromstring(render(found))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "1", "1")
    assert "about 4,000 positions would decide it" in render(found)


def test_a_run_without_a_policy_says_so_and_is_not_green() -> None:
    assert cases(run()) == {"policy": "skipped", "1. self on all": "pass"}
    assert "no policy was held against it" in render(run())


def test_a_failed_control_is_an_error() -> None:
    broken = run().controls[0].model_copy(update={"passed": False})
    assert cases(run(controls=(broken,)))["1. self on all"] == "error"


def test_cases_of_equal_heads_are_told_apart() -> None:
    """Consumers take class and name for a test's identity."""
    pair = [candidate("same.gguf", digest * 64, gate=gate("pass", limit(outcome="pass")))
            for digest in "ab"]  # fmt: skip
    root = ElementTree.fromstring(render(run(*pair)))
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(names) == len(set(names)) == 3


@settings(max_examples=60)
@given(runs())
def test_well_formed_and_of_the_common_layout_whatever_it_holds(found: Run) -> None:
    text = render(found)
    SCHEMA.assertValid(etree.fromstring(text.encode()))
    root = ElementTree.fromstring(text.encode())
    limits = [line.outcome for c in found.candidates if c.gate for line in c.gate.limits]
    unjudged = sum(c.gate is None for c in found.candidates)
    assert int(root.get("tests", "")) == len(limits) + unjudged + len(found.controls)
    waived = [x for c in found.candidates if c.gate for x in c.gate.limits if x.waiver]
    failed = sum(outcome == "fail" for outcome in limits)
    assert int(root.get("failures", "")) == failed - sum(x.outcome == "fail" for x in waived)
    for suite, c in zip(root, report_of(found).candidates, strict=False):
        assert c.verdict in (suite.findtext("system-out") or "").split("\n")


def test_a_file_that_does_not_read_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tostring = ElementTree.tostring
    monkeypatch.setattr(
        junit.ElementTree, "tostring", lambda *a: tostring(*a).replace("shift", "shi\x12ft")
    )
    with pytest.raises(ValueError, match="not well-formed"):
        render(run(candidate(gate=gate("pass", limit()))))
    monkeypatch.setattr(
        junit.ElementTree, "tostring", lambda *a: tostring(*a).replace("shift", "drift")
    )
    with pytest.raises(ValueError, match="does not read back"):
        render(run(candidate(gate=gate("pass", limit()))))
