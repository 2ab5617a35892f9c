"""The headers of FPDUs in columns (RFC 5044, RFC 5041, RFC 5040), and the FPDUs that were decoded."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Bytes, Int64s, Rows
from ...layers.columns import compiled
from ...layers.fpdus import LENGTH_BYTES, fpdu_bytes
from ...layers.iwarp_codes import READ_REQUEST
from . import rdmap
from .window import Window

HEAD = LENGTH_BYTES + rdmap.UNTAGGED_HEADER + rdmap.READ_REQUEST_HEADER
"""Bytes of an FPDU that are looked at."""
CONTROL = 4
"""Bytes of the length field and the control octets."""
TO_QUEUE = 12
"""Bytes up to the queue number's end."""

FPDU = np.dtype(
    [
        ("opcode", "u1"),
        ("last", "?"),
        ("broken", "?"),  # bytes are missing, or what they are is not known, between the FPDU before and this one
        ("stag", "u4"),  # tagged: the STag; untagged: what is to be invalidated
        ("msn", "u4"),  # untagged
        ("place", "u8"),  # the TO or MO
        ("length", "i4"),  # payload bytes
        ("start", "i8"),  # positions in the stream, markers counted: of its first byte, a marker before it included
        ("stop", "i8"),  # behind it
        ("ack", "u4"),  # acknowledgement number beside its last byte
        ("first_frame", "i8"),
        ("last_frame", "i8"),
        ("order", "i8"),  # the frame in whose place it stands in the order of events
        ("first_time", "i8"),
        ("last_time", "i8"),
    ]
)


class ReadRequest(NamedTuple):
    """RFC 5040, 4.4."""

    sink_stag: int
    sink_to: int
    length: int
    source_stag: int
    source_to: int


@dataclass(slots=True)
class Fpdus:
    """Consecutive FPDUs."""

    rows: Rows
    """FPDU rows."""
    requests: dict[int, ReadRequest]
    """The RDMA Read Requests, by the index of the FPDU."""
    pieces: Rows
    """STRETCH rows of all payloads; ``at`` is the place in the payload of its FPDU."""
    edges: Int64s
    """``pieces[edges[i]:edges[i + 1]]`` is the payload of FPDU ``i``."""
    datas: list[Bytes]

    def __len__(self) -> int:
        return len(self.rows)

    def payload(self, index: int) -> bytes:
        """What of the payload of an FPDU was captured, up to the first byte that was not."""
        pieces = self.pieces[int(self.edges[index]) : int(self.edges[index + 1])]
        parts: list[bytes] = []
        reached = 0
        columns = (pieces[name].tolist() for name in ("at", "payload", "length", "captured", "chunk"))
        for at, offset, length, captured, chunk in zip(*columns, strict=True):
            if at != reached:
                break
            parts.append(self.datas[chunk][offset : offset + captured].tobytes())
            reached += captured
            if captured < length:
                break
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class FpduHeaders:
    """The headers of FPDUs that follow each other, a column for each field; all of the same length."""

    starts: Int64s
    """Places in the stream, without markers."""
    ends: Int64s
    lengths: Int64s
    """ULPDU lengths."""
    opcode: Rows
    last: Rows
    tagged: Rows
    size: Rows
    """Bytes of the DDP and RDMAP header."""
    stag: Rows
    """Untagged: what is to be invalidated."""
    msn: Rows
    place: Rows
    """The TO or MO."""
    empty: Rows
    """A ULPDU of no bytes: its sender says that it is ready (RFC 6581, 9.2)."""
    captured: Rows
    """The header is there."""
    illegal: Rows
    """No FPDU begins so."""
    head: Bytes
    """The first HEAD bytes of each, zero where not captured."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: slice | Rows) -> FpduHeaders:
        return FpduHeaders(*(getattr(self, one.name)[which] for one in fields(self)))

    @property
    def payload_starts(self) -> Int64s:
        return self.starts + LENGTH_BYTES + self.size

    def reads(self) -> Int64s:
        """Indices of the RDMA Read Requests."""
        return np.flatnonzero(self.opcode == READ_REQUEST)

    def read_columns(self, index: Int64s, *names: str) -> dict[str, Any]:
        """Header fields of the RDMA Read Requests at indices, by their names in the Scapy layer."""
        head = np.ascontiguousarray(self.head[index])
        places = np.arange(len(index)) * HEAD + LENGTH_BYTES + rdmap.UNTAGGED_HEADER
        return compiled("RDMAPReadRequest")(head.reshape(-1), places, names)

    def requests(self) -> dict[int, ReadRequest]:
        index = self.reads()
        if not len(index):
            return {}
        names = ("sinkstag", "sinkto", "rdmardsz", "srcstag", "srcto")
        columns = self.read_columns(index, *names)
        found = zip(*(columns[name].tolist() for name in names), strict=True)
        return dict(zip(index.tolist(), map(ReadRequest._make, found), strict=True))


def decode_headers(window: Window, starts: Int64s, lengths: Int64s) -> FpduHeaders:
    """What stands at places, ascending, where FPDUs with these ULPDU lengths begin."""
    head, there = window.heads(starts, HEAD)
    flat, places = head.reshape(-1), np.arange(len(starts)) * HEAD + LENGTH_BYTES
    tag = compiled("DDPTagged")(flat, places, ("stag", "tagged_offset"))
    untag = compiled("DDPUntagged")(flat, places, ("inval_stag", "qn", "msn", "mo"))
    control = head[:, 2].astype(np.int64) << 8 | head[:, 3]
    opcode = (control & 15).astype(np.uint8)
    tagged = control & rdmap.TAGGED << 8 != 0
    size = np.where(tagged, rdmap.TAGGED_HEADER, rdmap.UNTAGGED_HEADER)
    fixed = np.where(tagged, 0, rdmap.FIXED[opcode])
    legal = rdmap.LEGAL[control] & (lengths >= size) & ((fixed == 0) | (lengths == fixed))
    legal &= tagged | (there < TO_QUEUE) | (untag["qn"] == rdmap.QUEUE[opcode])
    empty = lengths == 0
    return FpduHeaders(
        starts,
        starts + fpdu_bytes(lengths),
        lengths,
        opcode,
        control & rdmap.LAST << 8 != 0,
        tagged,
        size,
        np.where(tagged, tag["stag"], untag["inval_stag"]),
        untag["msn"],
        np.where(tagged, tag["tagged_offset"], untag["mo"]),
        empty,
        there >= np.where(opcode == READ_REQUEST, HEAD, LENGTH_BYTES + size),
        ~legal & (there >= CONTROL) & ~empty,
        head,
    )


def fpdu_rows(headers: FpduHeaders, window: Window, order: int) -> Rows:
    """FPDU rows without ``broken``, ``start`` and ``stop``; ``order``: that of the FPDU before the first."""
    rows = np.zeros(len(headers), FPDU)
    for name in ("opcode", "last", "stag", "msn", "place"):
        rows[name] = getattr(headers, name)
    rows["length"] = np.maximum(headers.lengths - headers.size, 0)
    first = np.minimum(np.searchsorted(window.end, headers.starts, side="right"), len(window.at) - 1)
    final = np.maximum(np.searchsorted(window.at, headers.ends, side="left") - 1, first)
    for name, of_first, of_last in (
        ("frame", "first_frame", "last_frame"),
        ("time", "first_time", "last_time"),
    ):
        values = window.rows[name]
        rows[of_first] = np.minimum(values[first], values[final])
        rows[of_last] = np.maximum(values[first], values[final])
    rows["order"] = np.maximum(window.last_frames[final], order)
    rows["ack"] = window.rows["ack"][final]
    return rows
