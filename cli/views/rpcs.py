"""One line per RPC."""

from __future__ import annotations

from rich.text import Text

from rdmascope.dissect.layers.rpcrdma_codes import RDMA_NOMSG
from rdmascope.dissect.onc.names import procedure_label, program_label
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import duration, seconds, size

from .tables import STATE_STYLES

COLUMNS = (
    ("RPC", 6),
    ("time", 11),
    ("conn", 4),
    ("xid", 10),
    ("latency", 8),
    ("frames", 13),
    ("how", 3),
    ("up", 8),
    ("down", 8),
)
"""Name and width; the procedure follows with whatever room is left."""
FEW = ("RPC", "time", "conn", "latency", "frames")
"""Columns of a narrow terminal."""
NARROW = 110


def begin(rpc: Rpc) -> int:
    """When the call began, or what is known of the reply."""
    if rpc.call is not None:
        return rpc.call.operation.first_time
    return rpc.reply.operation.first_time if rpc.reply is not None else 0


def how(rpc: Rpc) -> str:
    """How payloads travelled beside the Sends: any of r 0 w R."""
    marks = set()
    nomsg = rpc.call is not None and rpc.call.header.procedure == RDMA_NOMSG
    for chunk in rpc.chunks:
        if chunk.transferred:
            read = "0" if nomsg and chunk.position == 0 else "r"
            marks.add({"read": read, "write": "w"}.get(chunk.kind, "R"))
    return "".join(mark for mark in "0rwR" if mark in marks)


def frames(rpc: Rpc) -> str:
    """First frame of the call and last of the reply; '?' for the half that was not seen."""
    return f"{rpc.call_frame or '?'}-{rpc.reply_frame or '?'}"


def title(rpc: Rpc, full: bool = True) -> str:
    """'NFSv4.2 SEQUENCE PUTFH READ'."""
    name = procedure_label(rpc.name, rpc.operations, full=full)
    return f"{program_label(rpc.program, rpc.version, rpc.minor_version)} {name}"


def outcome(rpc: Rpc) -> Text:
    """The state, with the status where the call failed."""
    text = rpc.state
    if rpc.status and rpc.status != "OK":
        text = rpc.status if rpc.state == "error" else f"{rpc.state}, {rpc.status}"
    return Text(text, STATE_STYLES.get(rpc.state, ""))


def header(narrow: bool = False, place_width: int = 0) -> Text:
    """``place_width``: of a column that says in which of several files frames are."""
    cells = [f"{name:>{width}}" for name, width in COLUMNS if not narrow or name in FEW]
    if place_width:
        cells.append(f" {'file:frames':<{place_width}}")
    return Text(" ".join(cells) + "  procedure")


def line(rpc: Rpc, first_time: int, narrow: bool = False, place: str | None = None) -> Text:
    """``place``: its frames in their files, where there are several; None where there are not."""
    values = (
        str(rpc.number),
        seconds(begin(rpc) - first_time),
        f"{rpc.connection.number}{'<' if rpc.backward else ''}",
        f"{rpc.xid:#010x}",
        duration(rpc.latency.total) if rpc.latency else "-",
        frames(rpc),
        how(rpc),
        size(rpc.call_bytes),
        size(rpc.reply_bytes),
    )
    cells = [
        f"{value:>{width}}" for value, (name, width) in zip(values, COLUMNS, strict=True) if not narrow or name in FEW
    ]
    if place is not None:
        cells.append(f" {place}")
    text = Text(" ".join(cells) + "  ")
    if rpc.state != "complete":
        text.append_text(outcome(rpc))
        text.append("  ")
    if rpc.psn_errors:
        text.append("PSN reused", "red")
        text.append("  ")
    text.append(title(rpc, full=not narrow))
    return text
