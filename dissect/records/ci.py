"""Findings for other programs: JUnit XML and SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from ..audit.finding import Finding
from ..audit.result import Result, side

if TYPE_CHECKING:
    from ..audit.rule import Rule

_SARIF_LEVELS = {"error": "error", "warning": "warning", "notice": "note", "note": "note"}


def sentence(finding: Finding) -> str:
    """A finding in one line."""
    rpc = f", RPC {finding.rpc}" if finding.rpc is not None else ""
    frames = ", ".join(str(frame) for frame in finding.frames)
    who = f"{finding.connection.endpoints[finding.endpoint]} ({finding.role})"
    place = f"connection {finding.connection.number}, {who}, frame {frames}{rpc}"
    return f"{finding.observed}; required: {finding.required} [{place}]"


def junit(results: Sequence[Result]) -> str:
    """A test suite for each end of a connection, a test case for each rule; those without a verdict are skipped."""
    root = ElementTree.Element("testsuites", name="rdmascope audit")
    for result in results:
        suites: dict[tuple[int, int], ElementTree.Element] = {}
        for row in result.rows():
            key = row.connection.number, row.endpoint
            if key not in suites:
                name = f"{result.file}: connection {key[0]}, {side(key[1])} side"
                suites[key] = ElementTree.SubElement(root, "testsuite", name=name)
            case = ElementTree.SubElement(suites[key], "testcase", classname=row.rule.id, name=row.rule.title)
            tally = row.tally
            if tally.violated and not tally.only_notes:
                element = ElementTree.SubElement(
                    case, "failure", type=row.rule.level.value, message=f"{tally.violated} violations"
                )
                element.text = "\n".join(sentence(finding) for finding in tally.examples)
            elif row.rule.unjudgeable:
                ElementTree.SubElement(case, "skipped", message=f"not judged: {row.rule.unjudgeable}")
            elif tally.undecidable:
                ElementTree.SubElement(case, "skipped", message="undecidable: " + "; ".join(tally.reasons))
            elif not tally.passed:
                ElementTree.SubElement(case, "skipped", message="no opportunity")
        for suite in suites.values():
            suite.set("tests", str(len(suite)))
            suite.set("failures", str(len(suite.findall("testcase/failure"))))
            suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def sarif(results: Sequence[Result]) -> str:
    """One run: the rules as the driver's, the kept findings as results."""
    rules: dict[str, Rule] = {}
    for result in results:
        rules |= result.auditor.rules
    index = {id: number for number, id in enumerate(rules)}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "rdmascope",
                        "version": version("rdmascope"),
                        "rules": [_sarif_rule(rule) for rule in rules.values()],
                    }
                },
                "results": [
                    _sarif_result(result.file, finding, index[finding.rule.id])
                    for result in results
                    for finding in result.auditor.findings
                ],
            }
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    parts = rule.paragraphs
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": parts["What"]},
        "help": {"text": f"{parts.get('Why', '')} ({rule.sources})"},
        "defaultConfiguration": {"level": {"MUST": "error", "SHOULD": "warning"}.get(rule.level.value, "note")},
    }


def _sarif_result(file: str, finding: Finding, index: int) -> dict[str, Any]:
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": index,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": sentence(finding)},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": file}},
                "logicalLocations": [
                    {"fullyQualifiedName": f"connection {finding.connection.number}, frame {frame}", "kind": "element"}
                ],
            }
            for frame in finding.frames or (0,)
        ],
        "properties": {
            "connection": finding.connection.number,
            "endpoint": side(finding.endpoint),
            "role": finding.role,
            "frames": list(finding.frames),
            "rpc": finding.rpc,
            "observed": finding.observed,
            "required": finding.required,
        },
    }
