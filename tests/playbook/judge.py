"""What the analyzer says of a capture, held against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.matching import BY_XID_ALONE
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc

from .capture import Capture, Ranges, frame_batches, merge
from .packets import Packet
from .wire import TrueRpc, Wire


@dataclass(frozen=True, slots=True)
class Finding:
    """An Rpc of the analyzer and the true RPC whose Sends it was made of."""

    rpc: Rpc
    true: TrueRpc
    call: Reassembled | None
    reply: Reassembled | None


def analyze(capture: Capture, cuts: Sequence[int] = ()) -> list[Rpc]:
    """The analyzer's Rpcs; ``cuts`` are the frame indices where one batch ends and the next begins."""
    analyzer = Analyzer()
    found: list[Rpc] = []
    for batch in frame_batches(capture.frames, cuts):
        found += analyzer.feed(batch)
    return found + analyzer.finish()


def judge(capture: Capture, rpcs: Sequence[Rpc]) -> list[Finding]:
    """Nothing may be wrong and silent: raises AssertionError where an Rpc says what the truth does not."""
    # Where an Rpc says that its reply was matched by nothing but its XID, or that it may be to another call with its
    # XID, the word is there, and it may be wrong.
    findings = [_identify(capture, rpc) for rpc in rpcs if not (BY_XID_ALONE in rpc.notes or _undecidable(rpc))]
    calls = [finding.true.index for finding in findings if finding.rpc.call]
    replies = [finding.true.index for finding in findings if finding.rpc.reply]
    assert len(calls) == len(set(calls)), f"a call was found twice: {sorted(calls)}"
    assert len(replies) == len(set(replies)), f"a reply was found twice: {sorted(replies)}"
    for finding in findings:
        _never_wrong(f"call of RPC {finding.true.index}", finding.call, finding.true.call)
        if finding.reply is not None:
            assert finding.true.reply is not None or _nothing(finding.reply), "a reply where RDMA_ERROR was sent"
            _never_wrong(f"reply of RPC {finding.true.index}", finding.reply, finding.true.reply or b"")
    return findings


def judge_whole(capture: Capture, rpcs: Sequence[Rpc]) -> list[Finding]:
    """Also: every call and reply whose bytes are all in the capture is there, matched and complete."""
    findings = judge(capture, rpcs)
    by_true = {finding.true.index: finding for finding in findings if finding.rpc.call}
    for true in capture.wire.truth:
        if not capture.header(true, "call"):
            continue
        name = f"RPC {true.index}, XID 0x{true.xid:08x}"
        assert true.index in by_true, f"{name}: its call was not found"
        finding = by_true[true.index]
        if not capture.missing(true, "call"):
            assert finding.call is not None and finding.call.complete, f"{name}: call incomplete {finding.call}"
            assert finding.call.prefix == true.call
        if not capture.header(true, "reply"):
            continue
        assert finding.rpc.reply is not None, f"{name}: its reply was not matched"
        if true.error is None and not capture.missing(true, "reply"):
            assert finding.reply is not None, f"{name}: no reply message"
            assert finding.reply.complete, f"{name}: reply incomplete {missing(finding.reply)}"
            assert finding.reply.prefix == true.reply
            if not capture.missing(true, "call"):
                assert finding.rpc.state in ("complete", "error"), (
                    name,
                    finding.rpc.state,
                    finding.rpc.damage,
                )
    return findings


def judge_wire(wire: Wire, packets: list[Packet] | None = None) -> list[Finding]:
    """The analyzer's findings on what passed the wire, every RPC found once and complete."""
    capture = Capture(wire, packets)
    findings = judge_whole(capture, analyze(capture))
    assert len(findings) == len(wire.truth)
    return findings


def missing(reassembled: Reassembled) -> Ranges:
    """The byte ranges that the analyzer calls missing."""
    gaps = [extent for extent in reassembled.extents if extent.missing]
    return merge([(extent.start, extent.start + extent.length) for extent in gaps])


def _undecidable(rpc: Rpc) -> bool:
    """Which of several calls with its XID its reply answers; then the damage says so, too."""
    assert not rpc.ambiguous or rpc.damage, f"RPC {rpc.number} is ambiguous and {rpc.state}"
    return rpc.ambiguous


def _identify(capture: Capture, rpc: Rpc) -> Finding:
    """By the frames that the Rpc names: they are in the truth's own list of packets."""
    owners = {}
    for true in capture.wire.truth:
        owners["call", true.call_operation] = owners["reply", true.reply_operation] = true
    found: list[TrueRpc] = []
    for part, message in (("call", rpc.call), ("reply", rpc.reply)):
        if message is not None:
            there = capture.operations(message.operation.first_frame)
            named = [owners[part, operation] for operation in there if (part, operation) in owners]
            assert named, f"the {part} in frame {message.frame} is none"
            found.append(next((true for true in named if true.xid == rpc.xid), named[0]))
    assert found, "an Rpc without call and reply"
    assert all(true is found[0] for true in found), (
        f"the reply of RPC {found[-1].index} was given to the call of RPC {found[0].index}"
    )
    true = found[0]
    assert rpc.xid == true.xid, f"XID 0x{rpc.xid:08x} where 0x{true.xid:08x} was sent"
    ends = capture.wire.connections[true.connection - 1].ends
    requester = rpc.connection.endpoints[1 if rpc.backward else 0]
    caller = ends[1 if true.backward else 0]
    reported, asked = ((end.address, end.qpn, end.port) for end in (requester, caller))
    assert reported == asked, "the direction is wrong"
    return Finding(rpc, true, reassembled_call(rpc), reassembled_reply(rpc))


def _nothing(reassembled: Reassembled) -> bool:
    """It claims no byte, nor that there is none."""
    return not reassembled.complete and all(extent.missing for extent in reassembled.extents)


def _never_wrong(name: str, reassembled: Reassembled | None, true: bytes) -> None:
    if reassembled is None:
        return
    reached = 0
    for extent in reassembled.extents:
        assert extent.start == reached, f"{name}: the extents do not follow each other"
        reached += extent.length
        if extent.missing:
            inside = [at for at, data in reassembled.pieces if at < reached and extent.start < at + len(data)]
            assert not inside, f"{name}: bytes where there are none"
            continue
        given = reassembled.captured(extent.start, reached)
        assert given == true[extent.start : reached], f"{name}: wrong bytes {extent} and no word of it"
    assert reached == reassembled.length
    if reassembled.complete:
        assert reassembled.prefix == true, f"{name}: complete, but {reached} of {len(true)} bytes"
