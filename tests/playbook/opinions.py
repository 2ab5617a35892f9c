"""What rdmascope finds in a conversation, and a Wireshark that tells the same."""

from __future__ import annotations

from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.verify.frame_fields import Fields, FrameFields
from rdmascope.dissect.verify.second_opinion import Comparison, Difference, Ours

from . import Capture, Wire, call, cm, nfs3, reply
from .capture import frame_batch
from .shapes import DATA, read, write

RPC_NAMES = ("rpc.program", "rpc.programversion", "rpc.procedure")


def conversation() -> Wire:
    """A short call, a WRITE through a Read chunk, a READ through a Write chunk, a Send With Invalidate."""
    wire = Wire(mtu=1024, seed=3)
    conn = wire.connect()
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    write(conn)
    read(conn)
    chunk = conn.register(4096)
    reply(call(conn, nfs3.read(0, 4096), writes=[chunk]), nfs3.read_reply(DATA[:4096]), invalidate=chunk[0].handle)
    conn.disconnect()
    refused = wire.connect()
    assert refused.sides is not None
    refused._mad(1, cm.REJ, cm.reject(refused.sides[1], refused.sides[0], 28))
    return wire


def ours(capture: Capture) -> Ours:
    found = Ours()
    analyzer = Analyzer()
    analyzer.watch_fpdus(found.add_fpdus)
    batch = frame_batch(capture.frames)
    for rpc in analyzer.feed(batch):
        found.add_rpc(rpc)
    found.add_packets(batch, decode(batch, locate(batch, analyzer.addresses)))
    for rpc in analyzer.finish():
        found.add_rpc(rpc)
    return found


def echo(mine: Ours) -> dict[int, Fields]:
    """By frame the fields of a tool that agrees in everything."""
    reported: dict[int, Fields] = {frame: dict(fields) for frame, fields in mine.frame_fields()}
    for frame, (fields, _) in mine.headers.items():
        reported.setdefault(frame, {}).update(fields)
    for one in mine.messages:
        half = one.message
        known = {
            "rpc.xid": half.xid,
            "rpc.msgtyp": int(half.is_reply),
            "rpc.program": half.program,
            "rpc.programversion": half.version,
            "rpc.procedure": half.procedure,
            "rpc.repframe" if half.is_reply else "rpc.reqframe": half.other,
            "rpc.time": half.time,
        }
        fields = reported.setdefault(half.frame, {})
        fields.update({name: (value,) for name, value in known.items() if value is not None})
    return reported


def compare(mine: Ours, reported: dict[int, Fields]) -> tuple[Comparison, list[Difference]]:
    comparison = Comparison(mine)
    return comparison, list(comparison.run(FrameFields(frame, reported[frame]) for frame in sorted(reported)))
