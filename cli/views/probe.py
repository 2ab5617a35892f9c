"""What a probe found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdmascope.captures.peer.endpoint.endpoint import Fault
from rdmascope.captures.peer.endpoint.nouns import Value
from rdmascope.captures.peer.probe.checks import Check, SuiteResult, VerdictKind
from rdmascope.captures.peer.probe.serve import (
    Echoed,
    PingPlan,
    PingResult,
    Program,
    Reached,
    Round,
    ServerEvent,
    VersionTwoProbe,
    times,
)
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


def finding(result: PingResult, target: PeerAddress, plan: PingPlan) -> RenderableType:
    match result:
        case Reached():
            return _reached(result, target, plan)
        case Round():
            return _round(result)
        case Echoed():
            return _echoed(result)
        case VersionTwoProbe():
            return _versions(result)
        case Program():
            return _program(result)


def _reached(reached: Reached, target: PeerAddress, plan: PingPlan) -> RenderableType:
    title = Text.assemble((str(target), "bold"), f" by {reached.device}, connected in {duration(reached.connect_time)}")
    if reached.announced is None:
        private = f"{len(reached.private_data)} bytes, no RFC 8797 message" if any(reached.private_data) else "none"
    else:
        way = "allows remote invalidation" if reached.announced.remote_invalidation else "no remote invalidation"
        private = f"sends {size(reached.announced.send_size)}, receives {size(reached.announced.receive_size)}, {way}"
    granted = "nothing granted" if reached.granted is None else f"{reached.granted} granted"
    rows = [
        ["private data", private],
        ["inline threshold", f"{size(reached.to_server)} to the server, {size(reached.to_client)} back"],
        ["outstanding Reads", _depths(reached.depths)],
        ["credits", f"{reached.requested} requested, {granted}"],
    ]
    parts: list[RenderableType] = [title, facts(rows, gap=3)]
    if reached.problem:
        parts.append(Text(f"  the first call: {reached.problem}", "red"))
    parts += [Text(), heading(f"NULL, {program_name(plan.program)} version {plan.version}")] if plan.count else []
    return Group(*parts)


def _depths(depths: Depths) -> str:
    served = "unknown" if depths.served is None else f"{depths.served}"
    issued = "unknown" if depths.issued is None else f"{depths.issued}"
    return f"served here {served}, served there {issued}"


def _round(ping: Round) -> RenderableType:
    text = Text(f"  {ping.number:>3}  ")
    text.append("-" if ping.time is None else f"{duration(ping.time):>8}")
    if ping.problem:
        text.append(f"  {ping.problem}", "yellow" if ping.time is not None else "red")
    return text


def _echoed(echoed: Echoed) -> RenderableType:
    text = Text(f"       {size(echoed.size)}")
    if echoed.there_and_back is not None:
        text.append(f" there and back {duration(echoed.there_and_back)}{_rate(2 * echoed.size, echoed.there_and_back)}")
    if echoed.read is not None:
        text.append(f", read {duration(echoed.read)}{_rate(echoed.size, echoed.read)}")
    if echoed.problem:
        text.append(f"  {echoed.problem}", "red")
    return text


def _rate(count: int, time: int) -> str:
    return f" ({size(count * 1e9 / time)}/s)" if time else ""


def rounds_summary(rounds: Sequence[Round]) -> RenderableType:
    answered = sum(ping.time is not None for ping in rounds)
    text = Text(f"  {plural(len(rounds), 'call')}, {plural(answered, 'reply', 'replies')}")
    if lost := len(rounds) - answered:
        text.append(f", {lost / len(rounds):.0%} lost", "red")
    if spread := times(rounds):
        parts = {"min": spread.minimum, "median": spread.median, "p99": spread.p99, "max": spread.maximum}
        text.append("; " + ", ".join(f"{name} {duration(time)}" for name, time in parts.items()))
    return Group(text, Text())


def _versions(probed: VersionTwoProbe) -> RenderableType:
    title = heading("Versions", "on a connection of its own")
    rows: list[list[str | Text]] = []
    if probed.supported is not None:
        low, high = probed.supported
        rows.append(["version 2", f"refused: RDMA_ERR_VERS, {low} to {high}"])
    elif probed.version == 2:
        knows = "with transport characteristics" if probed.extended else "without transport characteristics"
        rows.append(["version 2", f"supported, {knows}"])
    if probed.version is None:
        rows.append(["version 2" if probed.supported is None else "then", Text(probed.problem or "no answer", "red")])
    elif probed.version == 1:
        rows.append(["version 1", "supported, on the same connection"])
    rows += [
        [f"  {characteristic_name(which)}", _value(which, value)] for which, value in probed.characteristics.items()
    ]
    return Group(title, facts(rows, gap=3), Text(), heading("Programs"))


def _value(which: int, value: Value) -> str:
    kind = CHARACTERISTICS.get(which)
    if isinstance(value, bytes):
        return value.hex() or "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return kind.values.get(value, f"{value:,}") if kind else f"{value:,}"


def _program(program: Program) -> RenderableType:
    name = program_name(program.number)
    name += "" if name.endswith(str(program.number)) else f" ({program.number})"
    text = Text(f"  {name}  ")
    if program.versions:
        text.append("version " if len(program.versions) == 1 else "versions ", "")
        text.append(", ".join(map(str, program.versions)), "green")
        text.append(f" of {program.low} to {program.high}", "dim")
    else:
        text.append(program.status, "dim" if program.status == "not there" else "yellow")
    return text


# The suite


def suite_title(target: PeerAddress, wanted: Sequence[Check]) -> RenderableType:
    count = sum(check.fault for check in wanted)
    also = f", {plural(count, 'fault')} among them" if count else ""
    return heading(f"{target}: conformance", f"{plural(len(wanted), 'check')}, each on its own connection{also}")


def result_line(result: SuiteResult, wanted: Sequence[Check], width: int) -> RenderableType:
    """Verdict, check, where there is room the rule, and what was seen."""
    rule = result.rule
    verdict = Text(result.verdict.kind.value, STYLES[result.verdict.kind])
    cells: list[tuple[Text | str, int]] = [
        (verdict, max(len(kind.value) for kind in VerdictKind)),
        (result.check.name, max(len(check.name) for check in wanted)),
    ]
    if width >= 120:
        cells += [(rule.id, max(len(check.rule) for check in wanted)), (rule.level.value, 6)]
    line = Table.grid(padding=(0, 2, 0, 0))
    for _, room in cells:
        line.add_column(width=room, no_wrap=True)
    line.add_column(overflow="fold")
    other = f" ({rule.id})" if result.verdict.rule and width < 120 else ""
    line.add_row(*(cell for cell, _ in cells), result.verdict.observed + other)
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


def happened(event: ServerEvent) -> RenderableType:
    words = {"version": f"speaks version {event.text}", "call": event.text, "refused": f"refused: {event.text}"}
    text = words.get(event.what, event.what + (f": {event.text}" if event.text else ""))
    return Text(f"  client {event.client}  {text}")


def served(connections: int, calls: int, committed: int, fault: str | None) -> RenderableType:
    text = f"{plural(connections, 'connection')}, {plural(calls, 'call')}"
    if fault is not None:
        text += f"; {fault} committed {plural(committed, 'time')}"
    return Text(text)


def faults(table: Mapping[str, Fault]) -> RenderableType:
    rows = [[name, fault.rule, fault.says] for name, fault in table.items()]
    return Grid(["name", "breaks", "what it does"], [], rows, flexible=2, gap=2)
