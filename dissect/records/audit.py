"""Findings, verdicts, and rules as records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..audit.auditor import EARLIER, Result, RuleTally, TallyKey, side
from ..audit.rule import Finding, Rule, facts
from .schema import Record, RecordType, common, objects, record

if TYPE_CHECKING:
    from xml.etree import ElementTree


RULE = {
    "document": ("string", "document that has the rule"),
    "section": ("string", "section of the document"),
}

LEVEL = {"level": ("string", "MUST, SHOULD, STATED, …: how strongly the document says it")}

COUNTS = {
    "passed": ("integer", "occasions on which the rule held"),
    "violated": ("integer", "violations"),
    "notes": ("integer", "of these, only worth a note"),
    "findings": ("integer", "of these, with a record of their own: see --examples"),
    "undecidable": ("integer", "occasions on which the capture does not tell"),
    "reasons": ("map of integer", "why not -> how often"),
}

TALLY = {
    "compared": ("integer", "compared"),
    "equal": ("integer", "equal in both"),
    "explained": ("integer", "different, with a reason why rdmascope is right"),
    "unexplained": ("integer", "different, without a known reason"),
}

TYPES = {
    "rule": RecordType(
        "A rule that the audit knows.",
        "`rules`",
        {
            "id": ("string", "name of the rule"),
            "title": ("string", "the rule in a line"),
            **LEVEL,
            "role": ("string", "requester, responder or either: who must keep it"),
            **RULE,
            "final": ("string", "section of the RFC that the draft became; empty if none"),
            "not_judged": ("string|null", "why no capture can decide it; null where one can"),
            "what": ("string", "what the rule asks for"),
            "why": ("string", "what it is good for"),
            "right": ("string", "example that keeps it"),
            "wrong": ("string", "example that breaks it"),
        },
    ),
    "finding": RecordType(
        "A violation of a rule, or something worth a note.",
        "`audit`, `live`",
        {
            "rule": ("string", "name of the rule"),
            "title": ("string", "the rule in a line"),
            **LEVEL,
            "severity": ("string", "error, warning, notice or note"),
            **RULE,
            "final": ("string", "section of the RFC that the draft became; empty if none"),
            "verdict": ("string", "violation or note: see severity"),
            **common("connection"),
            "endpoint": ("string", "active or passive: the side that did it"),
            "address": ("string", "address of that side"),
            "role": ("string", "requester or responder"),
            "frames": ("array of integer", "frames that show it"),
            "time_ns": ("integer|null", "when"),
            "rpc": ("integer|null", "number of the RPC"),
            "xid": ("integer|null", "its transaction ID"),
            "observed": ("string", "what was seen"),
            "required": ("string", "what the rule asks for"),
            "violated": (
                "integer|absent",
                "violations of the rule at that end, also those beyond --examples; absent while a capture is running",
            ),
            "file": ("string|absent", "path of the capture; absent while a capture is running"),
        },
    ),
    "verdict": RecordType(
        "The verdict on a rule at one end of a connection.",
        "`audit`",
        {
            "rule": ("string", "name of the rule"),
            **LEVEL,
            "connection": ("integer|null", "number of the connection; null for all evicted ones together"),
            "endpoint": ("string", "active or passive"),
            "address": ("string|null", "address of that side; null for evicted connections"),
            "verdict": ("string", "the counts below in a word; not judged where no capture can decide"),
            **COUNTS,
            **common("file"),
        },
    ),
    "audit": RecordType(
        "The sum of an audit.",
        "`audit`",
        {
            **common("rpcs"),
            "connections": ("integer", "connections"),
            "rules": ("integer", "rules that were applied"),
            "violations": ("integer", "violations, without notes"),
            "notes": ("integer", "notes"),
            "waived": ("integer", "findings that a file of exceptions waives"),
            "filter": ("string|absent", "filters, which only RPCs that pass are judged for; absent without filters"),
            **common("file"),
        },
    ),
    "difference": RecordType(
        "Something that rdmascope and Wireshark show differently.",
        "`verify`",
        {
            "what": ("string", "what was compared"),
            **common("frame"),
            "field": ("string", "Wireshark's name of the field, else ours; packet, rpcordma, rpc: only one has any"),
            "rdmascope": ("array of integer|null", "values in rdmascope; null: it shows none"),
            "wireshark": ("array of integer|null", "values in Wireshark; null: it shows none"),
            "right": ("string", "rdmascope, wireshark, both or undecided"),
            "explained": ("boolean", "rdmascope or both are right"),
            "reason": ("string|null", "why"),
            "reference": ("string|null", "document that says so"),
        },
    ),
    "verification": RecordType(
        "The sum of a comparison with Wireshark.",
        "`verify`",
        {
            **common("file"),
            "tshark": ("string", "version of tshark"),
            "agree": ("boolean", "no difference is unexplained"),
            "field_names": ("array of string", "Wireshark's names of the fields of calls and replies compared"),
            **objects("compared", "map of object", "what was compared -> counts", TALLY),
        },
    ),
}


def finding_records(result: Result) -> Iterator[Record]:
    """The findings that were kept, each with how many there were of its rule at its end."""
    for finding in result.auditor.findings:
        tally = result.auditor.tally(finding.rule.id, finding.connection.number, finding.endpoint)
        yield {**finding_record(finding), "violated": tally.violated}


def sum_records(result: Result) -> Iterator[Record]:
    """The verdicts of evicted connections, and the sum of all."""
    for key, tally in result.auditor.tallies.items():
        if key.connection == EARLIER:
            yield record(
                "verdict",
                rule=key.rule,
                level=result.auditor.rules[key.rule].level.value,
                connection=None,
                endpoint=side(key.endpoint),
                address=None,
                **verdict_fields(result.auditor.rules[key.rule], tally, False),
            )
    yield record(
        "audit",
        rpcs=result.rpcs,
        connections=len(result.connections),
        rules=len(result.auditor.rules),
        violations=result.violations,
        notes=result.notes,
        waived=result.auditor.waived_count,
    )


def finding_record(finding: Finding) -> Record:
    rule = finding.rule
    return record(
        "finding",
        rule=rule.id,
        title=rule.title,
        level=rule.level.value,
        severity=finding.severity,
        document=rule.document,
        section=rule.section,
        final=rule.final,
        verdict=finding.verdict,
        connection=finding.connection.number,
        endpoint=side(finding.endpoint),
        address=str(finding.connection.endpoints[finding.endpoint]),
        role=finding.role,
        frames=list(finding.frames),
        time_ns=finding.time or None,
        rpc=finding.rpc,
        xid=finding.xid,
        observed=finding.observed,
        required=finding.required,
    )


def rule_record(rule: Rule) -> Record:
    """A rule and its page."""
    return record(
        "rule",
        id=rule.id,
        title=rule.title,
        level=rule.level.value,
        role=rule.role,
        document=rule.document,
        section=rule.section,
        final=rule.final,
        not_judged=rule.unjudgeable or None,
        **{name.lower(): text for name, text in facts(rule) if name in ("What", "Why", "Right", "Wrong")},
    )


_NOTHING = RuleTally()


def verdict_fields(rule: Rule, tally: RuleTally, unjudged: bool) -> Record:
    """What a tally says.  ``unjudged``: of a rule that cannot be judged, say so."""
    return {
        "verdict": "not judged" if unjudged and rule.unjudgeable else tally.verdict,
        "passed": tally.passed,
        "violated": tally.violated,
        "notes": tally.notes,
        "findings": len(tally.examples),
        "undecidable": tally.undecidable,
        "reasons": dict(tally.reasons),
    }


def verdict_lines(result: Result, **more: str) -> Iterator[str]:
    """The records of every rule at every end as JSON objects, with ``more`` fields behind."""
    rules = [*result.auditor.rules.values()]
    heads = [_inside(record("verdict", **_rule_fields(rule))) for rule in rules]
    tallies = result.auditor.tallies
    tails: dict[tuple[int, ...], str] = {}
    """By rule and counts, of tallies without reasons."""
    for connection in result.connections:
        for endpoint in (0, 1):
            address = str(connection.endpoints[endpoint])
            middle = _inside({"connection": connection.number, "endpoint": side(endpoint), "address": address})
            for at, (rule, head) in enumerate(zip(rules, heads, strict=True)):
                tally = tallies.get(TallyKey(rule.id, connection.number, endpoint), _NOTHING)
                key = at, tally.passed, tally.violated, tally.notes, tally.undecidable, len(tally.examples)
                tail = None if tally.reasons else tails.get(key)
                if tail is None:
                    tail = _inside({**verdict_fields(rule, tally, True), **more})
                    if not tally.reasons:
                        tails[key] = tail
                yield f"{{{head},{middle},{tail}}}"


def _rule_fields(rule: Rule) -> Record:
    return {"rule": rule.id, "level": rule.level.value}


def _inside(fields: Record) -> str:
    """The fields as JSON, without the brackets."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)[1:-1]


_SARIF_LEVELS = {"error": "error", "warning": "warning", "notice": "note", "note": "note"}


def sentence(finding: Finding) -> str:
    """A finding in one line."""
    rpc = f", RPC {finding.rpc}" if finding.rpc is not None else ""
    frames = ", ".join(str(frame) for frame in finding.frames)
    who = f"{finding.connection.endpoints[finding.endpoint]} ({finding.role})"
    source = f"connection {finding.connection.number}, {who}, frame {frames}{rpc}"
    return f"{finding.observed}; required: {finding.required} [{source}]"


def junit(results: Sequence[Result]) -> str:
    """A test suite for each end of a connection, a test case for each rule; those without a verdict are skipped."""
    from xml.etree import ElementTree  # Only here, as below: few ask for it, and it takes long to load.

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
    from importlib.metadata import version

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
