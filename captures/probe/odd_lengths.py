"""Data whose length is no multiple of four: no XDR pad in a Write chunk, and one behind inline data."""

from __future__ import annotations

from struct import pack
from typing import NamedTuple

from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.rpcrdma.messages import WriteChunk

from ..synth.endpoint import service
from ..verbs.interface import RegisteredMemory
from .checks import OP_LOOKUP, contents, message, nfs_status, read, read_path, replied, returned, rpc_error, unread
from .raw_connection import RawConnection
from .serve import OP_GETATTR, OP_PUTROOTFH, OP_WRITE, SUPPORTED_ATTRS
from .verdicts import CheckVerdict, VerdictKind, check, named, passed, violation

LENGTHS = (1, 2, 3, 5, 1023, 2999)
UNTOUCHED = 0xA5
"""What the memory of a Write chunk holds before the call."""
ODD = 5
EXACT = 256
"""Bytes that fill a segment, and fit inline, too."""


class _Written(NamedTuple):
    """What came of a READ with a Write chunk."""

    pieces: list[RegisteredMemory]
    """The memory of its segments."""
    given: WriteChunk
    """As the reply returns it."""
    payload: bytes
    """Of the reply."""


def _reading(on: RawConnection, xid: int, count: int) -> bytes:
    return read_path(xid, on.file, count) if on.file else read(xid, count)


def _read_by_chunk(on: RawConnection, count: int, segments: list[int]) -> _Written | CheckVerdict:
    """A READ with a Write chunk of untouched segments; a verdict where it fails, or its chunk does not come back."""
    xid = on.xid()
    pieces, chunk = on.chunk(segments, bytes([UNTOUCHED]) * sum(segments))
    header = message(xid)
    header.writes = (chunk,)
    answer = on.ask(header, _reading(on, xid, count))
    verdict = replied(answer)
    if verdict.kind is not VerdictKind.PASS or answer.header is None:
        return verdict
    if nothing := unread(on, answer):
        return nothing
    given = answer.header.writes[0] if answer.header.writes else None
    if problem := returned(chunk, given, "the Write chunk"):
        return problem
    assert given is not None
    return _Written(pieces, given, answer.payload)


@check("write-chunk-odd", "V1-WRITE-NO-PAD")
def write_chunk_odd(on: RawConnection) -> CheckVerdict:
    """READs of 1, 2, 3, 5, 1,023 and 2,999 bytes, each with a Write chunk; exactly so many bytes are written and
    returned, and the count in the reply is the same."""
    lengths = []
    for wanted in LENGTHS:
        written = _read_by_chunk(on, wanted, [1000, 3000])
        if isinstance(written, CheckVerdict):
            return written
        pieces, given, payload = written
        count = int.from_bytes(payload[-4:], "big")
        length = len(contents(pieces, given))
        if length != count:
            return violation(f"a READ of {wanted} bytes returns {length} in its Write chunk, and counts {count}")
        memory = b"".join(piece.fetch(0, piece.length) for piece in pieces)
        behind = memory[count : count + 4]
        if behind != bytes([UNTOUCHED]) * len(behind):
            return violation(f"a READ of {count} bytes, and pad bytes are written behind them")
        lengths.append(count)
    return passed(f"{', '.join(map(str, lengths))} bytes, and no pad")


@check("write-chunk-exact", "V1-WRITE-LENGTH-TRUE")
def write_chunk_exact(on: RawConnection) -> CheckVerdict:
    """A READ of 256 bytes of a file, with a Write chunk of one segment as long; as many are returned as were written,
    and a READ without chunks brings the same, to the last byte."""
    written = _read_by_chunk(on, EXACT, [EXACT])
    if isinstance(written, CheckVerdict):
        return written
    pieces, given, _ = written
    data = contents(pieces, given)
    xid = on.xid()
    again = on.ask(message(xid), _reading(on, xid, EXACT))
    if again.payload.endswith(pack(">I", len(data)) + data + bytes(-len(data) % 4)):
        return passed(f"{len(data)} bytes in one segment, the same inline")
    lacking = bytes([UNTOUCHED]) * 8
    if lacking in data and lacking not in again.payload:
        return violation(f"{len(data)} bytes returned, of which {data.index(lacking)} were written")
    return violation(f"other bytes in the Write chunk than inline ({named(again)})")


@check("inline-write-odd", "V1-READ-ROUNDUP")
def inline_write_odd(on: RawConnection) -> CheckVerdict:
    """An NFSv4.0 COMPOUND with five bytes of WRITE data inline, their pad, and a GETATTR behind; both succeed.  With
    --file the five bytes are those that the file begins with."""
    data = bytes(ODD)
    if on.file:
        xid = on.xid()
        answer = on.ask(message(xid), read_path(xid, on.file, ODD))
        size = answer.payload.find(pack(">I", ODD), max(0, len(answer.payload) - 12))
        if nfs_status(answer) != 0 or size < 0:
            return CheckVerdict(VerdictKind.SKIPPED, f"{on.file} has no {ODD} bytes that can be read")
        data = answer.payload[size + 4 : size + 4 + ODD]
    xid = on.xid()
    answer = on.ask(message(xid), write_path(xid, on.file, data))
    verdict = replied(answer, parsed=True)
    if verdict.kind is not VerdictKind.PASS:
        return verdict
    if error := rpc_error(answer):
        return CheckVerdict(VerdictKind.SKIPPED, f"no COMPOUND is to be had: {error}")
    status = nfs_status(answer)
    if status == 0:
        return passed(f"{len(data)} bytes inline, and the GETATTR behind them")
    results = int.from_bytes(answer.payload[-8:-4], "big")
    if results == OP_WRITE:
        return CheckVerdict(VerdictKind.SKIPPED, f"{on.file or 'no file'}: not writable, status {status}")
    return violation(f"{named(answer)}: status {status} of the operation behind {len(data)} bytes of WRITE data")


def write_path(xid: int, path: str, data: bytes) -> bytes:
    """An NFSv4.0 WRITE of a file by its path, with the anonymous stateid, and a GETATTR (RFC 7530, 16.36 and 16.7)."""
    names = [part.encode() for part in path.split("/") if part]
    lookups = b"".join(pack(">I", OP_LOOKUP) + service.opaque(name) for name in names)
    head = service.call_head(xid, NFS, 4, service.COMPOUND) + service.opaque(b"")
    write = pack(">I16xQI", OP_WRITE, 0, 0) + service.opaque(data)
    ask = pack(">III", OP_GETATTR, 1, 1 << SUPPORTED_ATTRS)
    return head + pack(">III", 0, 3 + len(names), OP_PUTROOTFH) + lookups + write + ask
