"""Single RPCs in full: chosen while the capture is read, when their bytes are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from rdmascope.dissect.arrays import Int64s, distinct
from rdmascope.dissect.layers.rpcrdma_codes import procedure_name
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.rpcrdma.message_trees import decoded_call, decoded_reply
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.rpc_table import FLAG_DAMAGE, STATES, ProcedureNames, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import DUPLICATE_REPLY, Rpc
from rdmascope.dissect.transport.health import TransportHealth
from rdmascope.dissect.transport.operations import Kind, Operation
from rdmascope.dissect.transport.retransmissions import DUPLICATE
from rdmascope.dissect.units import count, duration, plural, size

from ..views.rpc import header_tree, rpc_summary
from ..views.rpc_contents import message_tree
from ..views.rpcs import begin, title
from .markup import details, of_rich, shortened, tag, text

MAX_KINDS = 12
"""RPCs that failed, and that are damaged or not answered: one of each kind, so many kinds."""
MAX_NODES = 200
"""Values of a message that are shown."""
MAX_STEPS = 40
MAX_LINES = 20
"""Of what is said of an RPC."""
MAX_TREE = 40_000
"""Characters of HTML of one message."""
Kinds = tuple[ProcedureNames, str]
"""Procedure, and status or state."""
ERROR = STATES.index("error")
WHOLE = [STATES.index(one) for one in ("complete", "error", DUPLICATE_REPLY)]


class LadderStep(NamedTuple):
    """One Send, Read or Write, or a retransmission of them."""

    time: int
    sender: int
    words: str
    frames: str
    notable: bool = False


@dataclass(frozen=True, slots=True)
class ShownRpc:
    """One RPC."""

    number: int
    name: str
    outcome: str
    latency: str
    """'latency 3 ms'; '' where it is not known."""
    said: str
    """HTML of what is said of it."""
    steps: tuple[LadderStep, ...]
    trees: str
    """HTML of the call and the reply, and of their transport headers."""
    connection: int
    ends: tuple[str, str]
    begin: int
    end: int
    """Nanoseconds; 0 without a reply."""


class ShownRpcs:
    """Fed tables of RPCs as they end, after the statistics were."""

    def __init__(self, max_kinds: int = MAX_KINDS) -> None:
        self.slowest: dict[int, ShownRpc] = {}
        self.failed: dict[Kinds, ShownRpc] = {}
        self.damaged: dict[Kinds, ShownRpc] = {}
        self.more_failed = self.more_damaged = 0
        """RPCs of that sort beside those."""
        self._max_kinds = max_kinds
        self._first_time = 0

    def add_table(self, table: RpcTable, statistics: Statistics, first_time: int) -> None:
        """Take the RPCs of a batch; ``first_time``: of the capture, in nanoseconds."""
        if not len(table):
            return
        self._first_time = first_time
        rows = table.rows
        slowest = {one.number for one in statistics.slowest()}
        for number in [one for one in self.slowest if one not in slowest]:
            del self.slowest[number]
        if missing := slowest - self.slowest.keys():
            for at in np.isin(rows["number"], list(missing)).nonzero()[0].tolist():
                rpc = table.rpc(at)
                if rpc.state != DUPLICATE_REPLY:
                    self.slowest[rpc.number] = self._example(rpc)
        names = table.names
        failed = rows["state"] == ERROR
        self.more_failed += self._take_kinds(
            table, failed, rows["status"], [one[0] for one in names.statuses], self.failed
        )
        odd = ~np.isin(rows["state"], WHOLE) | (rows["flags"] & FLAG_DAMAGE != 0)
        self.more_damaged += self._take_kinds(table, odd, rows["state"], STATES, self.damaged)

    def _take_kinds(
        self,
        table: RpcTable,
        mask: NDArray[np.bool_],
        codes: Int64s,
        words: Sequence[str],
        taken: dict[Kinds, ShownRpc],
    ) -> int:
        """Have the first of each kind; returns how many others there are."""
        places = mask.nonzero()[0]
        left = len(places)
        if not left or len(taken) >= self._max_kinds:
            return left
        firsts, _ = distinct(table.rows["procedure"][places], codes[places])
        for at in sorted(places[firsts].tolist()):
            key = table.names.procedures[int(table.rows["procedure"][at])], words[int(codes[at])]
            if key not in taken and len(taken) < self._max_kinds:
                taken[key] = self._example(table.rpc(at))
                left -= 1
        return left

    def _example(self, rpc: Rpc) -> ShownRpc:
        outcome = rpc.status if rpc.state == "error" else rpc.state
        first, last = rpc.connection.endpoints
        ends = [message.operation.last_time for message in (rpc.reply,) if message is not None]
        return ShownRpc(
            rpc.number,
            shortened(title(rpc)),
            outcome,
            "" if rpc.latency is None else f"latency {duration(rpc.latency.total)}",
            "".join(map(of_rich, _said(rpc, self._first_time))),
            tuple(_folded(sorted(_steps(rpc), key=lambda step: step.time))),
            _trees(rpc),
            rpc.connection.number,
            (first.address, last.address),
            begin(rpc),
            ends[0] if ends else 0,
        )


def _said(rpc: Rpc, first_time: int) -> list[RenderableType]:
    """As ``rdmascope show`` says it, without the title; some of the lines, where there are many."""
    return list(rpc_summary(rpc, first_time).renderables)[1 : 1 + MAX_LINES]


def _steps(rpc: Rpc) -> Iterator[LadderStep]:
    for message in (rpc.call, rpc.reply):
        if message is not None:
            yield _send(message)
    for chunk in rpc.chunks:
        for use in chunk.segments:
            for one in use.operations:
                yield from _moved(one)


def _send(message: Message) -> LadderStep:
    one, header = message.operation, message.header
    name = "" if header.procedure is None else f", {procedure_name(header.version, header.procedure)}"
    return LadderStep(one.first_time, one.initiator, f"Send {size(one.length)}{name}{_repeated(one)}", _frames(one))


def _moved(one: Operation) -> Iterator[LadderStep]:
    place = f"{size(one.length)}, handle {one.handle:#010x}"
    if one.kind is Kind.READ:
        frame = str(one.first_frame)
        yield LadderStep(one.first_time, one.initiator, f"RDMA Read request {place}{_repeated(one)}", frame)
        if one.last_time > one.first_time:
            words = f"Read response, the last after {duration(one.last_time - one.first_time)}"
            yield LadderStep(one.last_time, 1 - one.initiator, words, str(one.last_frame))
    else:
        yield LadderStep(one.first_time, one.initiator, f"RDMA Write {place}{_repeated(one)}", _frames(one))


def _frames(one: Operation) -> str:
    return str(one.first_frame) if one.first_frame == one.last_frame else f"{one.first_frame}–{one.last_frame}"


def _repeated(one: Operation) -> str:
    return f", {plural(one.retransmissions, 'packet')} retransmitted" if one.retransmissions else ""


def _folded(steps: list[LadderStep]) -> list[LadderStep]:
    if len(steps) <= MAX_STEPS:
        return steps
    half = MAX_STEPS // 2
    between = steps[half:-half]
    return [*steps[:half], LadderStep(between[0].time, -1, f"{count(len(between))} more", ""), *steps[-half:]]


def _trees(rpc: Rpc) -> str:
    found = []
    for decoded, name in ((decoded_call(rpc, MAX_NODES), "call"), (decoded_reply(rpc, MAX_NODES), "reply")):
        if decoded is None:
            found.append(tag("p", text(f"The {name}: no RPC message in the capture")))
            continue
        whole = "whole" if decoded.bytes.complete else "with bytes missing"
        html = _bounded(rpc, of_rich(message_tree(decoded)))
        found.append(details(text(f"The {name}: {decoded.bytes.length:,} bytes, {whole}"), html))
    for message, name in ((rpc.call, "call"), (rpc.reply, "reply")):
        if message is not None:
            found.append(details(text(f"The {name}'s transport header"), _bounded(rpc, of_rich(header_tree(message)))))
    return "".join(found)


def _bounded(rpc: Rpc, html: str) -> str:
    if len(html) <= MAX_TREE:
        return html
    return tag("p", text(f"too large for this page: rdmascope show FILE --rpc {rpc.number} has it"))


def example_html(one: ShownRpc, health: TransportHealth | None) -> str:
    """What opens to an RPC in full."""
    bad = "" if one.outcome in ("complete", "OK") else "bad"
    summary = " ".join(
        (
            tag("b", text(f"RPC {one.number}")),
            text(one.name),
            tag("span", text(one.outcome), class_=f"outcome {bad}".strip()),
            tag("span", text(one.latency), class_="dim"),
        )
    )
    steps = sorted((*one.steps, *_retransmitted(one, health)), key=lambda step: step.time)
    hint = tag(
        "p", "Every packet and byte: ", tag("code", text(f"rdmascope show FILE --rpc {one.number}")), class_="dim"
    )
    return details(summary, one.said, _ladder(one, steps), one.trees, hint, id=f"rpc-{one.number}", class_="rpc")


def reference_html(one: ShownRpc) -> str:
    """Where it is on the page already."""
    link = tag("a", text(f"RPC {one.number}"), href=f"#rpc-{one.number}")
    return tag("p", link, text(f" {one.name} {one.outcome}: above"), class_="rpc")


def _retransmitted(one: ShownRpc, health: TransportHealth | None) -> Iterator[LadderStep]:
    """What was lost and retransmitted on its connection in the meantime."""
    if health is None or not one.end:
        return
    unit = "segment" if health.segments else "packet"
    found = [
        again
        for again in health.retransmissions
        if again.retransmission_time is not None
        and one.begin <= again.retransmission_time <= one.end
        and again.cause != DUPLICATE
    ]
    for again in found[:MAX_STEPS]:
        waited = again.loss_to_retransmission
        after = f" {duration(waited)} after the loss" if waited else ""
        words = f"{plural(again.packets, unit)} retransmitted{after} ({again.cause})"
        frame = "" if again.retransmission_frame is None else str(again.retransmission_frame)
        yield LadderStep(again.retransmission_time or 0, again.initiator, words, frame, True)
    if more := found[MAX_STEPS:]:
        words = f"{plural(len(more), 'more retransmission')}"
        yield LadderStep(more[0].retransmission_time or 0, -1, words, "", True)


def _ladder(one: ShownRpc, steps: list[LadderStep]) -> str:
    if not steps:
        return tag("p", "None of its packets is in the capture.")
    client, server = one.ends
    rows = []
    for step in steps:
        passed = step.time - one.begin
        time = f"+{duration(passed)}" if passed > 0 else "0" if not passed else f"−{duration(-passed)}"
        side = {0: "right", 1: "left"}.get(step.sender, "none")
        arrow = tag("span", text(step.words), class_=f"arrow {side}{' notable' if step.notable else ''}")
        sender = (client, server)[step.sender] if step.sender >= 0 else ""
        rows.append(
            tag("tr", tag("td", text(step.frames)), tag("td", time if step.sender >= 0 else ""),
                tag("td", text(sender), class_="sender"), tag("td", arrow, class_="lane"))
        )  # fmt: skip
    head = tag("tr", *(tag("th", name, scope="col") for name in ("frames", "time", "sender")),
               tag("th", tag("span", text(client)), tag("span", text(server)), scope="col", class_="lane ends",
                   aria_label=f"from {client} on the left, to {server} on the right"))  # fmt: skip
    caption = tag("caption", "Its messages and data, in the order of time")
    return tag("div", tag("table", caption, tag("thead", head), tag("tbody", *rows), class_="ladder"), class_="wide")
