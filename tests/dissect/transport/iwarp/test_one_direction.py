"""What an end of a TCP connection acknowledges, and the capture does not have: the last reply, or a whole direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from playbook import nfs3
from playbook.capture import frame_batches
from playbook.iwarp import IwarpWire
from playbook.packets import Frame
from playbook.rpc import u32
from playbook.rpcrdma import call, reply
from playbook.segments import Talk
from playbook.tcp import encode_segments
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc

Sent = list[tuple[int, Frame]]
"""Frames, and who sent them."""


def iwarp(exchanges: int = 4) -> Sent:
    wire = IwarpWire(seed=3)
    connection = wire.connect()
    for _ in range(exchanges):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    segments = wire.sent()
    return [*zip((segment.sender for segment in segments), encode_segments(segments), strict=True)]


def records() -> Sent:
    talk = Talk(ports=(40000, 2049))
    talk.open()
    for xid in range(4):
        for sender, message in enumerate((u32(xid, 0, 2, 100003, 3, 0, 0, 0, 0, 0), u32(xid, 1, 0, 0, 0, 0))):
            talk.put(sender, u32(1 << 31 | len(message)) + message)
            talk.acknowledge(1 - sender)
    return [*zip((segment.sender for segment in talk.segments), talk.frames(), strict=True)]


CONVERSATIONS = pytest.mark.parametrize("conversation", [iwarp, records])


def analysed(frames: Sequence[Frame], cuts: Sequence[int] = ()) -> list[Rpc]:
    analyzer = Analyzer(listener=Auditor().listener)
    return [rpc for batch in frame_batches(frames, cuts) for rpc in analyzer.feed(batch)] + analyzer.finish()


@CONVERSATIONS
@pytest.mark.parametrize("sender", [0, 1])
@pytest.mark.parametrize("without", [0, 3], ids=["from the SYN on", "from later on"])
@pytest.mark.parametrize("cuts", [[], [2, 4]])
def test_what_the_other_end_sent_is_not_known(
    conversation: Callable[[], Sent], sender: int, without: int, cuts: list[int]
) -> None:
    rpcs = analysed([frame for mine, frame in conversation()[without:] if mine == sender], cuts)
    assert rpcs and all(rpc.connection.one_sided and rpc.outstanding is None for rpc in rpcs)


@pytest.mark.parametrize(
    ("kept", "one_sided"),
    [([0, 1, 2, 3], False), ([0, 1, 0, 2, 3], False), ([0, 2, 3], True), ([3], False), ([5, 7], False)],
)
def test_a_client_that_acknowledges_nothing_more_waits_for_its_reply(kept: Sequence[int], one_sided: bool) -> None:
    """SYN, its answer, the acknowledgement, and a call that is retransmitted; or the acknowledgement of the server that
    had the call before."""
    frames = [frame for _, frame in records()]
    call = frames[kept[-1]]
    again = [replace(call, time=call.time + (400_000_000 << turn)) for turn in range(3)]
    rpc = analysed([*(frames[at] for at in kept), *again])[-1]
    assert rpc.connection.one_sided == one_sided
    assert rpc.outstanding is not None


@CONVERSATIONS
def test_frames_without_times_are_there_all_the_same(conversation: Callable[[], Sent]) -> None:
    rpcs = analysed([replace(frame, time=0) for _, frame in conversation()])
    assert [rpc.connection.one_sided for rpc in rpcs] == [False] * 4


@CONVERSATIONS
@pytest.mark.parametrize("acknowledged", [True, False])
@pytest.mark.parametrize("cuts", [[], range(1, 40)])
def test_a_last_reply_that_was_acknowledged_did_arrive(
    conversation: Callable[[], Sent], acknowledged: bool, cuts: Sequence[int]
) -> None:
    sent = conversation()
    last = max(at for at, (sender, frame) in enumerate(sent) if sender == 1 and len(frame.data) > 70)
    behind = [frame for sender, frame in sent[last + 1 :] if sender == 0 and acknowledged]
    assert len(behind) == acknowledged
    rpc = analysed([*(frame for _, frame in sent[:last]), *behind], cuts)[-1]
    assert rpc.state == "no reply" and (rpc.outstanding is None) == acknowledged
    assert rpc.connection.missing_packets == (0, int(acknowledged))
    assert [gap.frame for gap in rpc.connection.gaps[1]] == [last + 1] * acknowledged


def test_replies_that_are_acknowledged_one_after_the_other_are_missing_however_many_bytes_they_have() -> None:
    """30 MB, none of which was captured but the first reply."""
    talk = Talk(ports=(40000, 2049))
    for xid in range(4):
        message = u32(xid, 0, 2, 100003, 3, 0, 0, 0, 0, 0)
        talk.put(0, u32(1 << 31 | len(message)) + message)
        if xid:
            talk.sides[1].next += 10_000_000
        else:
            talk.put(1, u32(1 << 31 | 24, xid, 1, 0, 0, 0, 0))
        talk.acknowledge(0)
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(talk.frames(), ()) for rpc in analyzer.feed(batch)] + analyzer.finish()
    assert [rpc.outstanding for rpc in rpcs] == [None] * 4
    assert rpcs[0].connection.missing_packets == (0, -(-30_000_000 // 65_495))
    assert analyzer.health(1).directions[1].last_time == talk.frames()[-1].time


def test_replies_that_waited_in_vain_for_their_calls_beside_what_an_audit_listens_to() -> None:
    """It listens to what uses RDMA, and no longer than they wait."""
    rpcs = analysed([frame for sender, frame in records() + iwarp(200) if sender == 1])
    assert [rpc.state for rpc in rpcs] == ["no call"] * 204
