"""What a probe found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdmascope.captures.peer.endpoint.endpoint import Fault
from rdmascope.captures.peer.endpoint.nouns import Value
from rdmascope.captures.peer.probe.checks import Check, SuiteResult, VerdictKind
from rdmascope.captures.peer.probe.ping import (
    Echoed,
    PingPlan,
    PingResult,
    Program,
    Reached,
    Round,
    VersionTwoProbe,
    times,
)
from rdmascope.captures.peer.probe.serve import ServerEvent
from rdmascope.captures.peer.verbs.interface import Depths, PeerAddress
from rdmascope.dissect.layers.characteristics_codes import CHARACTERISTICS, characteristic_name
from rdmascope.dissect.onc.rpc_header import program_name
from rdmascope.dissect.units import duration, plural, size

from .tables import Grid, facts, heading, indented

STYLES = {
    VerdictKind.PASS: "green",
    VerdictKind.VIOLATION: "red",
    VerdictKind.NO_ANSWER: "yellow",
    VerdictKind.LOST: "red",
    VerdictKind.SKIPPED: "dim",
}


def finding(one: PingResult, target: PeerAddress, plan: PingPlan) -> RenderableType:
    match one:
        case Reached():
            return _reached(one, target, plan)
        case Round():
            return _round(one)
        case Echoed():
            return _echoed(one)
        case VersionTwoProbe():
            return _versions(one)
        case Program():
            return _program(one)


def _reached(one: Reached, target: PeerAddress, plan: PingPlan) -> RenderableType:
    title = Text.assemble((str(target), "bold"), f" by {one.device}, connected in {duration(one.connect_time)}")
    if one.announced is None:
        private = f"{len(one.private_data)} bytes, no RFC 8797 message" if any(one.private_data) else "none"
    else:
        way = "allows remote invalidation" if one.announced.remote_invalidation else "no remote invalidation"
        private = f"sends {size(one.announced.send_size)}, receives {size(one.announced.receive_size)}, {way}"
    granted = "nothing granted" if one.granted is None else f"{one.granted} granted"
    rows = [
        ["private data", private],
        ["inline threshold", f"{size(one.to_server)} to the server, {size(one.to_client)} back"],
        ["outstanding Reads", _depths(one.depths)],
        ["credits", f"{one.requested} requested, {granted}"],
    ]
    parts: list[RenderableType] = [title, facts(rows, gap=3)]
    if one.problem:
        parts.append(Text(f"  the first call: {one.problem}", "red"))
    parts += [Text(), heading(f"NULL, {program_name(plan.program)} version {plan.version}")] if plan.count else []
    return Group(*parts)


def _depths(depths: Depths) -> str:
    served = "unknown" if depths.served is None else f"{depths.served}"
    issued = "unknown" if depths.issued is None else f"{depths.issued}"
    return f"served here {served}, served there {issued}"


def _round(one: Round) -> RenderableType:
    text = Text(f"  {one.number:>3}  ")
    text.append("-" if one.time is None else f"{duration(one.time):>8}")
    if one.problem:
        text.append(f"  {one.problem}", "yellow" if one.time is not None else "red")
    return text


def _echoed(one: Echoed) -> RenderableType:
    text = Text(f"       {size(one.size)}")
    if one.there_and_back is not None:
        text.append(f" there and back {duration(one.there_and_back)}{_rate(2 * one.size, one.there_and_back)}")
    if one.read is not None:
        text.append(f", read {duration(one.read)}{_rate(one.size, one.read)}")
    if one.problem:
        text.append(f"  {one.problem}", "red")
    return text


def _rate(count: int, time: int) -> str:
    return f" ({size(count * 1e9 / time)}/s)" if time else ""


def rounds_summary(rounds: Sequence[Round]) -> RenderableType:
    answered = sum(ping.time is not None for ping in rounds)
    text = Text(f"  {plural(len(rounds), 'call')}, {plural(answered, 'reply', 'replies')}")
    if lost := len(rounds) - answered:
        text.append(f", {lost / len(rounds):.0%} lost", "red")
    if found := times(rounds):
        parts = {"min": found.minimum, "median": found.median, "p99": found.p99, "max": found.maximum}
        text.append("; " + ", ".join(f"{name} {duration(time)}" for name, time in parts.items()))
    return Group(text, Text())


def _versions(one: VersionTwoProbe) -> RenderableType:
    title = heading("Versions", "on a connection of its own")
    rows: list[list[str | Text]] = []
    if one.supported is not None:
        low, high = one.supported
        rows.append(["version 2", f"refused: RDMA_ERR_VERS, {low} to {high}"])
    elif one.version == 2:
        knows = "with transport characteristics" if one.extended else "without transport characteristics"
        rows.append(["version 2", f"supported, {knows}"])
    if one.version is None:
        rows.append(["version 2" if one.supported is None else "then", Text(one.problem or "no answer", "red")])
    elif one.version == 1:
        rows.append(["version 1", "supported, on the same connection"])
    rows += [[f"  {characteristic_name(which)}", _value(which, value)] for which, value in one.characteristics.items()]
    return Group(title, facts(rows, gap=3), Text(), heading("Programs"))


def _value(which: int, value: Value) -> str:
    kind = CHARACTERISTICS.get(which)
    if isinstance(value, bytes):
        return value.hex() or "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return kind.values.get(value, f"{value:,}") if kind else f"{value:,}"


def _program(one: Program) -> RenderableType:
    name = program_name(one.number)
    name += "" if name.endswith(str(one.number)) else f" ({one.number})"
    text = Text(f"  {name}  ")
    if one.versions:
        text.append("version " if len(one.versions) == 1 else "versions ", "")
        text.append(", ".join(map(str, one.versions)), "green")
        text.append(f" of {one.low} to {one.high}", "dim")
    else:
        text.append(one.status, "dim" if one.status == "not there" else "yellow")
    return text


# The suite


def suite_title(target: PeerAddress, wanted: Sequence[Check]) -> RenderableType:
    count = sum(check.fault for check in wanted)
    also = f", {plural(count, 'fault')} among them" if count else ""
    return heading(f"{target}: conformance", f"{plural(len(wanted), 'check')}, each on its own connection{also}")


def result_line(one: SuiteResult, wanted: Sequence[Check], width: int) -> RenderableType:
    """Verdict, check, where there is room the rule, and what was seen."""
    rule = one.rule
    verdict = Text(one.verdict.kind.value, STYLES[one.verdict.kind])
    cells: list[tuple[Text | str, int]] = [
        (verdict, max(len(kind.value) for kind in VerdictKind)),
        (one.check.name, max(len(check.name) for check in wanted)),
    ]
    if width >= 120:
        cells += [(rule.id, max(len(check.rule) for check in wanted)), (rule.level.value, 6)]
    line = Table.grid(padding=(0, 2, 0, 0))
    for _, room in cells:
        line.add_column(width=room, no_wrap=True)
    line.add_column(overflow="fold")
    other = f" ({rule.id})" if one.verdict.rule and width < 120 else ""
    line.add_row(*(cell for cell, _ in cells), one.verdict.observed + other)
    return indented(line)


def suite_summary(results: Sequence[SuiteResult], width: int) -> RenderableType:
    """Counts, and each failed check with the rule it cites."""
    parts: list[RenderableType] = [Text()]
    for suite_result in [result for result in results if result.failed]:
        rule = suite_result.rule
        title = Text.assemble(
            (suite_result.verdict.kind.value, STYLES[suite_result.verdict.kind]), f"  {suite_result.check.name}  "
        )
        title.append(f"{rule.level.value} {rule.id}", "bold")
        rows = [
            ["sent", suite_result.check.sends],
            ["rule", f"{rule.title} ({rule.document}, {rule.section}; {rule.final})"],
            ["received", suite_result.verdict.observed],
        ]
        parts += [title, facts(rows, gap=2), Text()]
    counts = {kind: sum(result.verdict.kind is kind for result in results) for kind in VerdictKind}
    outcomes = [(f"{number} {kind.value}", STYLES[kind]) for kind, number in counts.items() if number]
    line = Text(f"{plural(len(results), 'check')}: ")
    for at, (text, style) in enumerate(outcomes):
        line.append(", " if at else "").append(text, style)
    parts.append(line)
    return Group(*parts)


# The server


def listening(
    places: Sequence[str], highest: int, fault: Fault | None, capacity: int, mount_port: int | None
) -> RenderableType:
    versions = "version 1" if highest == 1 else "versions 1 and 2"
    lines = [Text.assemble(("Listening", "bold"), f"  {versions}; Ctrl-C ends it")]
    lines.append(Text("  no authentication: every host that reaches it can read and write", "yellow"))
    lines += [Text(f"  {place}") for place in places]
    at, _, port = places[0].partition(" ")[0].rpartition(":")
    lines.append(Text(f"  an NFS export in memory, of {size(capacity)}; a client mounts it by"))
    lines.append(Text(f"    mount -t nfs -o vers=4.1,rdma,port={port} {at}:/ /mnt", "bold"))
    if mount_port is not None:
        options = f"vers=3,rdma,port={port},mountport={mount_port},mountproto=tcp,nolock"
        lines.append(Text(f"    mount -t nfs -o {options} {at}:/ /mnt", "bold"))
    if fault is not None:
        lines.append(Text(f"  on purpose: {fault.says} ({fault.rule})", "yellow"))
    return Group(*lines)


def happened(one: ServerEvent) -> RenderableType:
    words = {"version": f"speaks version {one.text}", "call": one.text, "refused": f"refused: {one.text}"}
    text = words.get(one.what, one.what + (f": {one.text}" if one.text else ""))
    return Text(f"  client {one.client}  {text}")


def served(connections: int, calls: int, committed: int, fault: str | None) -> RenderableType:
    text = f"{plural(connections, 'connection')}, {plural(calls, 'call')}"
    if fault is not None:
        text += f"; {fault} committed {plural(committed, 'time')}"
    return Text(text)


def faults(table: Mapping[str, Fault]) -> RenderableType:
    rows = [[name, fault.rule, fault.says] for name, fault in table.items()]
    return Grid(["name", "breaks", "what it does"], [], rows, flexible=2, gap=2)
