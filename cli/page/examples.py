"""Single RPCs in full: chosen while the capture is read, when their bytes are there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from rdmascope.dissect.arrays import Int64s, distinct
from rdmascope.dissect.diagnosis.detectors.nfs import is_hard
from rdmascope.dissect.layers.rpcrdma_codes import NO_RDMA, procedure_name
from rdmascope.dissect.measure.file_names import Pathed, PathLearner
from rdmascope.dissect.measure.statistics import PARTS, Statistics
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.rpcrdma.message_trees import decoded_call, decoded_reply
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.rpc_table import ERROR, FLAG_DAMAGE, STATES, ProcedureNames, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import DUPLICATE_REPLY, Latency, Rpc
from rdmascope.dissect.transport.health import TransportHealth
from rdmascope.dissect.transport.operations import Kind, Operation
from rdmascope.dissect.transport.retransmissions import DUPLICATE
from rdmascope.dissect.units import at_least, count, duration, plural, size

from ..sanitize import harmless_line
from ..views.rpc import header_tree, message_tree, rpc_summary, title

MAX_TEXT = 240
"""Characters of a name or a remark that may be of any length."""


def text(value: object) -> str:
    """On one line, with nothing in it that acts."""
    return escape(harmless_line(str(value)))


def shortened(value: str) -> str:
    """No longer than MAX_TEXT, without its middle."""
    if len(value) <= MAX_TEXT:
        return value
    half = MAX_TEXT // 2
    return f"{value[:half]} … {len(value) - 2 * half:,} more … {value[-half:]}"


def tag(name: str, *content: str, **attributes: object) -> str:
    """``content`` is HTML, attributes are text; one that is None or False is left out, True has no value.

    ``_`` at the end of a name is for those that Python has; others become hyphens.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{text(value)}"')
    return f"<{' '.join(parts)}>{''.join(content)}</{name}>"


def listed(items: Iterable[str], **attributes: object) -> str:
    """HTML of a list; '' without items."""
    lines = [tag("li", item) for item in items]
    return tag("ul", *lines, **attributes) if lines else ""


def details(summary: str, *content: str, **attributes: object) -> str:
    """What opens on demand; all of it is HTML."""
    return tag("details", tag("summary", summary), *content, **attributes)


def data_script(id: str, value: Any) -> str:
    """JSON that a script of the page reads."""
    encoded = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{escape(id)}">{encoded}</script>'


def of_rich(renderable: RenderableType) -> str:
    """A view of the terminal as HTML: lines of text, and trees as nested lists."""
    if isinstance(renderable, Group):
        return "".join(map(of_rich, renderable.renderables))
    if isinstance(renderable, Padding):
        return of_rich(renderable.renderable)
    if isinstance(renderable, Tree):
        return tag("ul", _branch(renderable), class_="tree")
    if isinstance(renderable, Text):
        return tag("div", styled(renderable), class_="line")
    return tag("div", text(renderable), class_="line")


def _branch(tree: Tree) -> str:
    label = styled(tree.label) if isinstance(tree.label, Text) else of_rich(tree.label)
    below = "".join(map(_branch, tree.children))
    return tag("li", label, tag("ul", below) if below else "")


def styled(line: Text) -> str:
    """With the styles as classes."""
    return "".join(
        tag("span", text(part), class_=" ".join(f"s-{style}" for style in styles)) if styles else text(part)
        for part, styles in _parts(line)
    )


def _parts(line: Text) -> Iterator[tuple[str, list[str]]]:
    edges = sorted({0, len(line), *(edge for span in line.spans for edge in (span.start, span.end))})
    for first, behind in pairwise(edges):
        styles = [str(line.style)] + [str(span.style) for span in line.spans if span.start <= first < span.end]
        yield line.plain[first:behind], sorted({word for style in styles for word in style.split()})


MAX_KINDS = 12
"""RPCs that failed, and that are damaged or not answered: one of each kind, so many kinds."""
MAX_NODES = 200
"""Values of a message that are shown."""
MAX_STEPS = 40
MAX_LINES = 20
"""Lines of what is said of an RPC."""
MAX_TREE = 40_000
"""Characters of HTML of one message."""
Kinds = tuple[ProcedureNames, str]
"""Procedure, and status or state."""
PHASES = (*PARTS, "hung")
"""Phases of a bar, in the order of the wire."""
WHOLE = [STATES.index(state) for state in ("complete", "error", DUPLICATE_REPLY)]


class LadderStep(NamedTuple):
    """One Send, Read or Write, or a retransmission of them."""

    time: int
    sender: int
    words: str
    frames: str
    notable: bool = False


@dataclass(frozen=True, slots=True)
class ShownRpc:
    """An RPC that the page has in full."""

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
    waiting: int | None
    """Nanoseconds, without a reply a lower bound; None: not known."""
    parts: Latency | None
    bad: bool
    """Its outcome is none of daily work."""
    called: Pathed | None
    """The file that the call names."""


class ShownRpcs:
    """Fed tables of RPCs as they end, after the statistics were."""

    def __init__(self, learner: PathLearner) -> None:
        """``learner``: of paths, which is given all tables."""
        self._learner = learner
        self.slowest: dict[int, ShownRpc] = {}
        self.failed: dict[Kinds, ShownRpc] = {}
        self.damaged: dict[Kinds, ShownRpc] = {}
        self.more_failed = self.more_damaged = 0
        """RPCs of that sort beside those."""
        self._first_time = 0

    def add_table(self, table: RpcTable, statistics: Statistics, first_time: int) -> None:
        """Take the RPCs of a batch; ``first_time``: of the capture, in nanoseconds."""
        if not len(table):
            return
        self._first_time = first_time
        rows = table.rows
        slowest = {slow_rpc.number for slow_rpc in statistics.slowest()}
        for number in [number for number in self.slowest if number not in slowest]:
            del self.slowest[number]
        if missing := slowest - self.slowest.keys():
            for at in np.isin(rows["number"], list(missing)).nonzero()[0].tolist():
                rpc = table[at]
                if rpc.state != DUPLICATE_REPLY:
                    self.slowest[rpc.number] = self._example(rpc)
        names = table.names
        hard = np.array([is_hard(status) for status, _ in names.statuses] or [False])
        failed = (rows["state"] == ERROR) & hard[rows["status"]]
        self.more_failed += self._take_kinds(
            table, failed, rows["status"], [status[0] for status in names.statuses], self.failed
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
        if not left or len(taken) >= MAX_KINDS:
            return left
        firsts, _ = distinct(table.rows["procedure"][places], codes[places])
        for at in sorted(places[firsts].tolist()):
            key = table.names.procedures[int(table.rows["procedure"][at])], words[int(codes[at])]
            if key not in taken and len(taken) < MAX_KINDS:
                taken[key] = self._example(table[at])
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
            "" if rpc.waiting is None else f"latency {at_least(rpc.waiting, rpc.latency is None)}",
            "".join(map(of_rich, _said(rpc, self._first_time))),
            tuple(_folded(sorted(_steps(rpc), key=lambda step: step.time))),
            _trees(rpc),
            rpc.connection.number,
            (first.address, last.address),
            rpc.first_time,
            ends[0] if ends else 0,
            rpc.waiting,
            rpc.latency,
            is_hard(rpc.status) if rpc.state == "error" else rpc.state != "complete",
            self._learner.one(rpc, self._learner.reader.fields(rpc)),
        )


def _said(rpc: Rpc, first_time: int) -> list[RenderableType]:
    """An RPC as ``rdmascope show`` prints it, without the title, and cut if it has many lines."""
    return list(rpc_summary(rpc, first_time).renderables)[1 : 1 + MAX_LINES]


def _steps(rpc: Rpc) -> Iterator[LadderStep]:
    for message in (rpc.call, rpc.reply):
        if message is not None:
            yield _send(message)
    for chunk in rpc.chunks:
        for use in chunk.segments:
            for operation in use.operations:
                yield from _moved(operation)


def _send(message: Message) -> LadderStep:
    sent, header = message.operation, message.header
    name = procedure_name(header.version, header.procedure)
    what, name = "record" if header.version == NO_RDMA else "Send", name and f", {name}"
    return LadderStep(
        sent.first_time, sent.initiator, f"{what} {size(sent.length)}{name}{_repeated(sent)}", _frames(sent)
    )


def _moved(operation: Operation) -> Iterator[LadderStep]:
    target = f"{size(operation.length)}, handle {operation.handle:#010x}"
    if operation.kind is Kind.READ:
        frame = str(operation.first_frame)
        yield LadderStep(
            operation.first_time, operation.initiator, f"RDMA Read request {target}{_repeated(operation)}", frame
        )
        if operation.last_time > operation.first_time:
            words = f"Read response, the last after {duration(operation.last_time - operation.first_time)}"
            yield LadderStep(operation.last_time, 1 - operation.initiator, words, str(operation.last_frame))
    else:
        yield LadderStep(
            operation.first_time, operation.initiator, f"RDMA Write {target}{_repeated(operation)}", _frames(operation)
        )


def _frames(operation: Operation) -> str:
    return (
        str(operation.first_frame)
        if operation.first_frame == operation.last_frame
        else f"{operation.first_frame}–{operation.last_frame}"
    )


def _repeated(operation: Operation) -> str:
    return f", {plural(operation.retransmissions, 'packet')} retransmitted" if operation.retransmissions else ""


def _folded(steps: list[LadderStep]) -> list[LadderStep]:
    if len(steps) <= MAX_STEPS:
        return steps
    half = MAX_STEPS // 2
    between = steps[half:-half]
    return [*steps[:half], LadderStep(between[0].time, -1, f"{count(len(between))} more", ""), *steps[-half:]]


def _trees(rpc: Rpc) -> str:
    parts = []
    for decoded, name in ((decoded_call(rpc, MAX_NODES), "call"), (decoded_reply(rpc, MAX_NODES), "reply")):
        if decoded is None:
            parts.append(tag("p", text(f"The {name}: no RPC message in the capture")))
            continue
        whole = "whole" if decoded.bytes.complete else "with bytes missing"
        html = _bounded(rpc, of_rich(message_tree(decoded)))
        parts.append(details(text(f"The {name}: {decoded.bytes.length:,} bytes, {whole}"), html))
    for message, name in ((rpc.call, "call"), (rpc.reply, "reply")):
        if message is not None:
            parts.append(details(text(f"The {name}'s transport header"), _bounded(rpc, of_rich(header_tree(message)))))
    return "".join(parts)


def _bounded(rpc: Rpc, html: str) -> str:
    if len(html) <= MAX_TREE:
        return html
    return tag("p", text(f"too large for this page: rdmascope show FILE --rpc {rpc.number} has it"))


def path_of(shown: ShownRpc) -> str:
    """'' where it is not known."""
    return (shown.called.path() if shown.called is not None else None) or ""


def waterfall_html(some: Sequence[ShownRpc], first_time: int, folded: bool = True) -> str:
    """A bar for each RPC, with its phases; ``folded``: without the time in which none of them waited."""
    rpcs = sorted((rpc for rpc in some if rpc.waiting is not None), key=lambda drawn: (drawn.begin, drawn.number))
    spans = [(rpc.begin, rpc.begin + (rpc.waiting or 0)) for rpc in rpcs]
    idle = _idle(spans) if folded else []

    def place(time: int) -> int:
        return time - sum(min(time, end) - begin for begin, end in idle if begin < time)

    if not rpcs:
        return ""
    origin = place(min(begin for begin, _ in spans))
    whole = max(1, max(place(end) for _, end in spans) - origin)
    rows = []
    for drawn, (begin, end) in zip(rpcs, spans, strict=True):
        parts = {"hung": end - begin} if drawn.parts is None else drawn.parts._asdict()
        bars, at = [], begin
        for phase in PHASES:
            if taken := parts.get(phase, 0):
                left, width = ((place(at) - origin) / whole, (place(at + taken) - place(at)) / whole)
                style = f"left:{100 * left:.3f}%;width:{100 * width:.3f}%"
                bars.append(tag("span", class_=f"phase {phase}", style=style, title=f"{phase} {duration(taken)}"))
                at += taken
        rows.append(
            tag("tr", tag("td", tag("a", text(f"RPC {drawn.number}"), href=f"#rpc-{drawn.number}")),
                tag("td", text(drawn.name), " ", tag("code", text(path_of(drawn)))),
                tag("td", text(f"{(begin - first_time) / 1e9:,.3f} s")),
                tag("td", text(at_least(drawn.waiting or 0, drawn.parts is None))),
                tag("td", *bars, class_="bars"))
        )  # fmt: skip
    legend = " ".join(tag("span", text(phase), class_=f"legend {phase}") for phase in PHASES)
    head = tag("tr", *(tag("th", name, scope="col") for name in ("", "procedure and path", "called at", "latency", "")))
    words = f"{duration(sum(end - begin for begin, end in idle))} in which none of them waited are folded. " * bool(
        idle
    )
    caption = tag("caption", text(words), legend)
    table = tag("table", caption, tag("thead", head), tag("tbody", *rows), class_="waterfall")
    return tag("div", table, class_="wide")


def _idle(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Time between spans, which are in the order of their beginnings."""
    gaps: list[tuple[int, int]] = []
    reached = spans[0][1] if spans else 0
    for begin, end in spans:
        if begin > reached:
            gaps.append((reached, begin))
        reached = max(reached, end)
    return gaps


def example_html(shown: ShownRpc, health: TransportHealth | None) -> str:
    """What opens to an RPC in full."""
    bad = "bad" if shown.bad else ""
    summary = " ".join(
        (
            tag("b", text(f"RPC {shown.number}")),
            text(shown.name),
            tag("code", text(path_of(shown))),
            tag("span", text(shown.outcome), class_=f"outcome {bad}".strip()),
            tag("span", text(shown.latency), class_="dim"),
        )
    )
    steps = sorted((*shown.steps, *_retransmitted(shown, health)), key=lambda step: step.time)
    hint = tag(
        "p", "Every packet and byte: ", tag("code", text(f"rdmascope show FILE --rpc {shown.number}")), class_="dim"
    )
    return details(
        summary, shown.said, _ladder(shown, steps), shown.trees, hint, id=f"rpc-{shown.number}", class_="rpc"
    )


def reference_html(shown: ShownRpc) -> str:
    """Where it is on the page already."""
    link = tag("a", text(f"RPC {shown.number}"), href=f"#rpc-{shown.number}")
    return tag("p", link, text(f" {shown.name} {shown.outcome}: above"), class_="rpc")


def _retransmitted(shown: ShownRpc, health: TransportHealth | None) -> Iterator[LadderStep]:
    """What was lost and retransmitted on its connection in the meantime."""
    if health is None or not shown.end:
        return
    unit = "segment" if health.segments else "packet"
    repeated = [
        again
        for again in health.retransmissions
        if again.retransmission_time is not None
        and shown.begin <= again.retransmission_time <= shown.end
        and again.cause != DUPLICATE
    ]
    for again in repeated[:MAX_STEPS]:
        waited = again.loss_to_retransmission
        after = f" {duration(waited)} after the loss" if waited else ""
        words = f"{plural(again.packets, unit)} retransmitted{after} ({again.cause})"
        frame = "" if again.retransmission_frame is None else str(again.retransmission_frame)
        yield LadderStep(again.retransmission_time or 0, again.initiator, words, frame, True)
    if more := repeated[MAX_STEPS:]:
        words = f"{plural(len(more), 'more retransmission')}"
        yield LadderStep(more[0].retransmission_time or 0, -1, words, "", True)


def _ladder(shown: ShownRpc, steps: list[LadderStep]) -> str:
    if not steps:
        return tag("p", "None of its packets is in the capture.")
    client, server = shown.ends
    rows = []
    for step in steps:
        passed = step.time - shown.begin
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
