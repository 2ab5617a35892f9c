"""One line per RPC."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text

from rdmascope.dissect.layers.oncrpc_codes import GSS_PRIVACY, GSS_PROCEDURE_NAMES, RPCSEC_GSS_DATA
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_NOMSG, procedure_name
from rdmascope.dissect.onc.hashes import handle_hash
from rdmascope.dissect.onc.programs import procedure_label, program_label
from rdmascope.dissect.onc.shapes.rpc_summary_fields import FlatFields
from rdmascope.dissect.onc.summary import TO_END_OF_FILE
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import at_least, moment, seconds, size

from .tables import STATE_STYLES

COLUMNS = (
    ("RPC", 6, 0),
    ("time", 11, 56),
    ("conn", 4, 64),
    ("xid", 10, 110),
    ("latency", 8, 0),
    ("frames", 13, 110),
    ("how", 3, 110),
    ("to server", 9, 110),
    ("to client", 9, 110),
    ("user", 5, 150),
    ("offset", 10, 130),
    ("count", 8, 130),
    ("status", 14, 160),
)
"""Name, width, and from which width of the terminal on; procedure and path follow with whatever room is left.  Without
the column, the status of what failed stands before the procedure."""
NARROW = 110
LINUX = 160
"""From this width on a COMPOUND has the name of Linux's client, where it says more than the operations."""
NOMSG = procedure_name(1, RDMA_NOMSG)
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


def linux_words(name: str | None, operations: Sequence[str]) -> str:
    """' [OPEN_NOATTR]'; '' where it is the first operation behind the preamble."""
    return f" [{name}]" if name and name != procedure_label("", operations).partition(" ")[0] else ""


def _encrypted(rpc: Rpc) -> bool:
    return rpc.gss is not None and rpc.gss.service == GSS_PRIVACY and rpc.gss.procedure == RPCSEC_GSS_DATA


def outcome(rpc: Rpc) -> Text:
    """The state, with the status where the call failed."""
    return _ended(rpc.state, rpc.status)


def _ended(state: str, status: str) -> Text:
    text = state
    if status and status != "OK":
        text = status if state == "error" else f"{state}, {status}"
    return Text(text, STATE_STYLES.get(state, ""))


def header(layout: RpcLine) -> Text:
    """The names of the columns."""
    cells = [f"{name:{'<' if name == 'status' else '>'}{width}}" for name, width in layout.names]
    if layout.place_width:
        cells.append(f" {'file:frames':<{layout.place_width}}")
    return Text(" ".join(cells) + "  procedure  path")


class RpcCells(NamedTuple):
    """What a line says of an RPC."""

    number: int
    begin: int
    """Nanoseconds since the Unix epoch."""
    connection: int
    backward: bool
    xid: int
    latency: str
    frames: str
    how: str
    up: int
    """Bytes of the call."""
    down: int
    """Bytes of the reply."""
    uid: int | None
    offset: int | None
    asked_bytes: int | None
    state: str
    status: str
    """'' where it is not known."""
    encrypted: bool
    psn_reused: bool
    title: str
    linux: str
    """Behind the title, where there is room."""
    path: str | None
    handle_hash: int | None

    @classmethod
    def of(cls, rpc: Rpc, fields: FlatFields, path: str | None, full: bool) -> RpcCells:
        """``full``: a COMPOUND with all its operations."""
        handle = None if fields.handle is None else handle_hash(fields.handle)
        asked = _asked(fields.count, rpc.operations or (rpc.name,))
        return cls(
            rpc.number, rpc.first_time, rpc.connection.number, rpc.backward, rpc.xid,
            _latency(rpc.waiting, rpc.latency is None), frames(rpc), how(rpc), rpc.call_bytes, rpc.reply_bytes,
            fields.uid, fields.offset, asked, rpc.state, rpc.status, _encrypted(rpc), bool(rpc.psn_errors),
            title(rpc, full=full), linux_words(fields.linux, rpc.operations), path, handle,
        )  # fmt: skip

    @classmethod
    def of_row(cls, row: Mapping[str, Any], full: bool) -> RpcCells:
        """The cells of a row of the table rpcs, which does not know what is encrypted."""
        label = program_label(row["program_number"], row["version"], row["minor_version"])
        operations = row["operations"] or ()
        name = procedure_label(row["procedure"] or "", operations, full=full)
        asked = _asked(row["count_bytes"], operations or (row["procedure"],))
        return cls(
            row["number"], row["time_ns"], row["connection"], row["direction"] == "backward", row["xid"],
            _latency(row["waiting_ns"], row["latency_ns"] is None),
            f"{row['call_frame'] or '?'}-{row['reply_frame'] or '?'}", _how_of_row(row),
            row["call_bytes"], row["reply_bytes"], row["uid"], row["offset_bytes"], asked, row["state"],
            row["status"] or "", False, bool(row["psn_reused"]), f"{label} {name}",
            linux_words(row["linux_operation"], operations), row["path"], row["file_handle_hash"],
        )  # fmt: skip


def _latency(waiting: int | None, outstanding: bool) -> str:
    return "-" if waiting is None else at_least(waiting, outstanding)


def _asked(count: int | None, names: Container[str | None]) -> int | None:
    """Bytes: those of a COMMIT of 0 are all that follow (RFC 1813, 3.3.21; RFC 8881, 18.3.3)."""
    return TO_END_OF_FILE if count == 0 and "COMMIT" in names else count


def _how_of_row(row: Mapping[str, Any]) -> str:
    """As ``how``: of the reply's bytes it is known only together what Write and Reply chunks carried."""
    marks = ""
    if row["call_chunk_bytes"]:
        marks += "0" if row["call_rdma_procedure"] == NOMSG else "r"
    if row["reply_chunk_bytes"]:
        by_reply_chunk = row["reply_rdma_procedure"] == NOMSG and row["reply_chunks"]
        marks += "R" if by_reply_chunk else "w"
    return marks


def line(rpc: Rpc, fields: FlatFields, path: str | None, layout: RpcLine, place: str | None = None) -> Text:
    """``place``: its frames in their files, where there are several; None where there are not."""
    return cells_line(RpcCells.of(rpc, fields, path, layout.width is None), layout, place)


def cells_line(rpc: RpcCells, layout: RpcLine, place: str | None = None) -> Text:
    values = {
        "RPC": str(rpc.number),
        "time": moment(rpc.begin).removesuffix(" UTC") if layout.absolute else seconds(rpc.begin - layout.first_time),
        "conn": f"{rpc.connection}{'<' if rpc.backward else ''}",
        "xid": f"{rpc.xid:#010x}",
        "latency": rpc.latency,
        "frames": rpc.frames,
        "how": rpc.how,
        "to server": size(rpc.up),
        "to client": size(rpc.down),
        "user": "-" if rpc.uid is None else str(rpc.uid),
        "offset": "-" if rpc.offset is None else str(rpc.offset),
        "count": "-"
        if rpc.asked_bytes is None
        else "to EOF"
        if rpc.asked_bytes == TO_END_OF_FILE
        else size(rpc.asked_bytes),
    }
    cells = [f"{values[name]:>{width}}" for name, width in layout.names if name in values]
    text = Text(" ".join(cells))
    ended = _ended(rpc.state, rpc.status)
    if len(cells) < len(layout.names):
        status = ended.plain
        if rpc.state == "complete":
            status = "accepted" if rpc.encrypted else rpc.status or "-"
        text.append(" ").append(f"{status:<14}", ended.style if rpc.state != "complete" else "")
    if place is not None:
        text.append(f"  {place}")
    text.append("  ")
    if len(cells) == len(layout.names) and rpc.state != "complete":
        text.append_text(ended)
        text.append("  ")
    if rpc.psn_reused:
        text.append("PSN reused", "red")
        text.append("  ")
    text.append(rpc.title)
    if rpc.linux and (layout.width is None or layout.width >= LINUX):
        text.append(rpc.linux, "dim")
    if rpc.path is not None or rpc.handle_hash is not None:
        text.append("  ")
        text.append(rpc.path or f"FH {rpc.handle_hash or 0:#010x}", "cyan" if rpc.path else "dim")
    return text
