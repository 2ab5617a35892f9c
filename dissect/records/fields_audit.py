"""The fields of the records about rules, findings and the comparison with Wireshark."""

from __future__ import annotations

from .field_types import RecordType, common, objects

RULE = {
    "document": ("string", "document that has the rule"),
    "section": ("string", "section of it"),
}

LEVEL = {"level": ("string", "MUST, SHOULD, STATED, …: how strongly the document says it")}

COUNTS = {
    "passed": ("integer", "occasions on which the rule held"),
    "violated": ("integer", "violations"),
    "notes": ("integer", "of the violations, those that are only worth a note"),
    "findings": ("integer", "of the violations, those that are records of their own: see --examples"),
    "undecidable": ("integer", "occasions on which the capture does not tell"),
    "reasons": ("map of integer", "why not -> how often"),
}

TALLY = {
    "compared": ("integer", "compared"),
    "equal": ("integer", "the same in both"),
    "explained": ("integer", "different, with a reason that rdmascope is right"),
    "unexplained": ("integer", "different, without such a reason"),
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
            "final": ("string", "the same in the RFC that the draft became; empty where it became none"),
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
            "final": ("string", "the same in the RFC that the draft became; empty where it became none"),
            "verdict": ("string", "violation, of notes too: severity tells them apart"),
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
                "violations of the rule at that end; those without a record are beyond --examples; absent while a"
                " capture is running",
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
            "field": ("string", "Wireshark's name of the field, else ours; packet, rpcordma, rpc: one has nothing"),
            "rdmascope": ("array of integer|null", "values in rdmascope; null for nothing"),
            "wireshark": ("array of integer|null", "values in Wireshark; null for nothing"),
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
