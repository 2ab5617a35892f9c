"""One line per RPC."""

from __future__ import annotations

from typing import NamedTuple

from rich.text import Text

from rdmascope.dissect.layers.oncrpc_codes import GSS_PRIVACY, GSS_PROCEDURE_NAMES, RPCSEC_GSS_DATA
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_NOMSG
from rdmascope.dissect.onc.names import procedure_label, program_label
from rdmascope.dissect.onc.shapes.flat import FlatFields
from rdmascope.dissect.onc.summary import handle_hash
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import duration, moment, seconds, size

from .tables import STATE_STYLES

COLUMNS = (
    ("RPC", 6, 0),
    ("time", 11, 0),
    ("conn", 4, 0),
    ("xid", 10, 110),
    ("latency", 8, 0),
    ("frames", 13, 110),
    ("how", 3, 110),
    ("up", 8, 110),
    ("down", 8, 110),
    ("user", 5, 150),
    ("offset", 10, 130),
    ("count", 8, 130),
    ("status", 14, 160),
)
"""Name, width, and from which width of the terminal on; procedure and path follow with whatever room is left.  Without
the column, the status of what failed stands before the procedure."""
NARROW = 110
WHOLE_TIME = 26
"""Width of a date and time."""


class RpcLine(NamedTuple):
    """How lines are laid out."""

    first_time: int
    """Times are seconds since then."""
    width: int | None = None
    """Columns of the terminal; None where the output is none."""
    absolute: bool = False
    """Times are dates and times of day."""
    place_width: int = 0
    """Of a column that says in which of several files frames are."""

    @property
    def names(self) -> list[tuple[str, int]]:
        """The columns and their widths."""
        return [
            (name, WHOLE_TIME if name == "time" and self.absolute else width)
            for name, width, least in COLUMNS
            if self.width is None or self.width >= least
        ]


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
    """'NFSv4.2 SEQUENCE PUTFH READ', 'NFSv4 RPCSEC_GSS_INIT'."""
    name = procedure_label(rpc.name, rpc.operations, full=full)
    if rpc.gss is not None and rpc.gss.procedure != RPCSEC_GSS_DATA:
        name = GSS_PROCEDURE_NAMES.get(rpc.gss.procedure, f"RPCSEC_GSS procedure {rpc.gss.procedure}")
    elif _encrypted(rpc):
        name += " (encrypted by RPCSEC_GSS)"
    return f"{program_label(rpc.program, rpc.version, rpc.minor_version)} {name}"


def _encrypted(rpc: Rpc) -> bool:
    return rpc.gss is not None and rpc.gss.service == GSS_PRIVACY and rpc.gss.procedure == RPCSEC_GSS_DATA


def outcome(rpc: Rpc) -> Text:
    """The state, with the status where the call failed."""
    text = rpc.state
    if rpc.status and rpc.status != "OK":
        text = rpc.status if rpc.state == "error" else f"{rpc.state}, {rpc.status}"
    return Text(text, STATE_STYLES.get(rpc.state, ""))


def header(layout: RpcLine) -> Text:
    """The names of the columns."""
    cells = [f"{name:{'<' if name == 'status' else '>'}{width}}" for name, width in layout.names]
    if layout.place_width:
        cells.append(f" {'file:frames':<{layout.place_width}}")
    return Text(" ".join(cells) + "  procedure  path")


def line(rpc: Rpc, fields: FlatFields, path: str | None, layout: RpcLine, place: str | None = None) -> Text:
    """``place``: its frames in their files, where there are several; None where there are not."""
    start = begin(rpc)
    values = {
        "RPC": str(rpc.number),
        "time": moment(start).removesuffix(" UTC") if layout.absolute else seconds(start - layout.first_time),
        "conn": f"{rpc.connection.number}{'<' if rpc.backward else ''}",
        "xid": f"{rpc.xid:#010x}",
        "latency": duration(rpc.latency.total) if rpc.latency else "-",
        "frames": frames(rpc),
        "how": how(rpc),
        "up": size(rpc.call_bytes),
        "down": size(rpc.reply_bytes),
        "user": "-" if fields.uid is None else str(fields.uid),
        "offset": "-" if fields.offset is None else str(fields.offset),
        "count": "-" if fields.count is None else size(fields.count),
    }
    cells = [f"{values[name]:>{width}}" for name, width in layout.names if name in values]
    text = Text(" ".join(cells))
    ended = outcome(rpc)
    if len(cells) < len(layout.names):
        status = ended.plain
        if rpc.state == "complete":
            status = "accepted" if _encrypted(rpc) else rpc.status or "-"
        text.append(" ").append(f"{status:<14}", ended.style if rpc.state != "complete" else "")
    if place is not None:
        text.append(f"  {place}")
    text.append("  ")
    if len(cells) == len(layout.names) and rpc.state != "complete":
        text.append_text(ended)
        text.append("  ")
    if rpc.psn_errors:
        text.append("PSN reused", "red")
        text.append("  ")
    text.append(title(rpc, full=layout.width is None))
    if path is not None or fields.handle is not None:
        text.append("  ")
        text.append(path or f"FH {handle_hash(fields.handle or b''):#010x}", "cyan" if path else "dim")
    return text
