"""``docs/records.md``: every record type with its fields, as the golden outputs have them.

``python tests/test_records.py`` writes it; run ``python tests/test_outputs.py`` before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from rdmascope.dissect.records.schema import VERSIONS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "records.md"
LEAF = re.compile(r"^([a-z_0-9]+)\.(\S.*?)  (.*)$")
MEANINGS = {
    "audit": "The audit of one capture: rules, RPCs, violations, notes",
    "capture": "What was read: frames, packets, times, RPCs by state",
    "connection": "Endpoints, queue pairs, private data, version, characteristics, thresholds, credits, losses",
    "credits": "Flow control of one direction of a connection, over time",
    "difference": "One difference from Wireshark",
    "evicted": "Sums of earlier connections, where a capture has too many to list",
    "export": "What an export wrote",
    "fault": "A fault that a synthetic endpoint can commit",
    "file": "One file: handle, path, bytes read and written, holes",
    "finding": "One violation or note: rule, endpoint, frames, what was found and required",
    "frame": "One frame with all its headers",
    "histogram": "RPCs with a latency between two bounds",
    "info": "A capture file at a glance",
    "live": "How a live capture went: device, filter, drops, why it ended",
    "manifest": "What was extracted: files, ranges, holes, conflicts, checksums",
    "packet": "One packet, or TCP segment of iWARP",
    "probe": "What a server agreed to",
    "probe_check": "One verdict of the conformance suite, with its rule",
    "probe_client": "What a client of the probe's server did",
    "probe_echo": "Bulk data through another probe",
    "probe_program": "A program and its versions on the server",
    "probe_round": "One call and its answer",
    "probe_served": "What the probe's server served",
    "probe_server": "Where the probe's server listens",
    "probe_suite": "The suite's verdicts, counted",
    "probe_summary": "Calls, replies and round trips",
    "probe_version": "The versions that the server supports, and its characteristics",
    "procedure": "RPCs, errors, bytes; latency and its parts as count, min, median, percentiles, max",
    "rpc": "One RPC: direction, XID, names, state, frames, times, latency, every chunk with its segments",
    "rule": "One rule of the audit, with its page",
    "script": "A script that ships",
    "slowest": "One of the slowest RPCs",
    "synth": "What a script played",
    "synth_key": "A key of scripts",
    "throughput": "RPCs and bytes over time",
    "transfer": "One kind of transfer: messages, chunks, segments, bytes",
    "transport": "The health of one connection: retransmissions by cause, delays, congestion, how it ended",
    "undecoded": "What was ignored or is damaged, and why",
    "verdict": "The verdict of one rule about one endpoint",
    "verification": "The comparison with Wireshark, counted",
}


def fields() -> dict[str, dict[str, set[str]]]:
    """Per type of record the fields, and the kinds of values that they have somewhere."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted((ROOT / "tests" / "golden").rglob("*.txt")):
        for line in path.read_text().splitlines():
            match = LEAF.match(line)
            if match and match[1] in VERSIONS:
                found[match[1]][match[2]] |= kinds(match[2], match[3])
    return found


def kinds(name: str, values: str) -> set[str]:
    known = {"number"} if re.match(r"\d+ numbers", values) else set()
    known |= {"null"} if re.search(r"(× |of |, )null", values) else set()
    known |= {"boolean"} if re.search(r"(× |of |, )(true|false)", values) else set()
    known |= {"string"} if '"' in values or re.search(r"of \d+ different", values) else set()
    return {"list"} if name.endswith("[]") and known == {"number"} else known


def page() -> str:
    lines = [
        "# The JSON of every command",
        "",
        "Every command has `--json`: one object a line. `schema` names its layout, such as `rdmascope.rpc/2`; the",
        "number changes when a name goes away or changes its meaning, not when one is added, so ignore names that you",
        "do not know. Times are integers in nanoseconds (`…_ns`), since the Unix epoch where they are moments. Sizes",
        "are bytes. What is unknown is `null`. `a.b` is a field of an object, `a[]` a list, `a[].b` a field of its",
        "objects.",
        "",
        "The fields are those in the golden outputs of all samples (`tests/golden`); this page is generated from them.",
        "",
        "| type | schema | what it is |",
        "| --- | --- | --- |",
        *(f"| `{name}` | `rdmascope.{name}/{VERSIONS[name]}` | {MEANINGS[name]} |" for name in sorted(VERSIONS)),
    ]
    for name, leaves in sorted(fields().items()):
        lines += ["", f"## {name}", "", "| field | values |", "| --- | --- |"]
        lines += [f"| `{leaf}` | {', '.join(sorted(leaves[leaf]))} |" for leaf in sorted(leaves)]
    return "\n".join(lines) + "\n"


def test_every_type_is_described() -> None:
    assert set(MEANINGS) == set(VERSIONS)


def test_the_page_of_the_records_is_fresh() -> None:
    assert PAGE.read_text() == page(), "python tests/test_records.py writes it"


if __name__ == "__main__":
    PAGE.write_text(page())
