"""RPC over UDP: a message per datagram, which may come again, late, truncated, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings, strategies as st
from scapy.layers.inet import IP, UDP, fragment
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from playbook.capture import frame_batches
from playbook.packets import Frame
from playbook.rpc import opaque, u32
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Rpc

QUICK = settings(suppress_health_check=list(HealthCheck), deadline=None)
CUTS = st.lists(st.integers(0, 60), max_size=5)
PORTMAP, NFS, MOUNT, NLM, STATUS = 100000, 100003, 100005, 100021, 100024
EPOCH = 1_700_000_000_000_000_000


class Datagram(NamedTuple):
    message: bytes
    answers: bool
    client_port: int
    server_port: int
    snap: int | None = None


def frames(datagrams: Sequence[Datagram]) -> list[Frame]:
    made = []
    for number, one in enumerate(datagrams):
        ends, ports = ("10.0.0.1", "10.0.0.2"), (one.client_port, one.server_port)
        (source, destination), (sport, dport) = (pair[:: -1 if one.answers else 1] for pair in (ends, ports))
        data = bytes(Ether() / IP(src=source, dst=destination) / UDP(sport=sport, dport=dport) / Raw(one.message))
        kept = data if one.snap is None else data[: 42 + one.snap]
        made.append(Frame(EPOCH + number * 1_000_000, kept, len(data)))
    return made


def call(xid: int, program: int, procedure: int = 0) -> bytes:
    version = {PORTMAP: 2, NLM: 4, STATUS: 1}.get(program, 3)
    return u32(xid, 0, 2, program, version, procedure) + u32(0, 0, 0, 0) + opaque(b"/export") + u32(xid, xid)


def reply(xid: int) -> bytes:
    return u32(xid, 1, 0, 0, 0, 0, 0) + opaque(b"answer to %d" % xid)


def analysed(datagrams: Sequence[Datagram], cuts: Sequence[int] = ()) -> list[Rpc]:
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(frames(datagrams), cuts) for rpc in analyzer.feed(batch)]
    rpcs += analyzer.finish()
    assert {one.transport for one in analyzer.connections} <= {"UDP"}
    return sorted(rpcs, key=lambda one: one.number)


def described(rpcs: list[Rpc]) -> list[tuple[object, ...]]:
    return [
        (rpc.number, rpc.connection.number, rpc.xid, rpc.program, rpc.name, rpc.state, rpc.call_frame, rpc.reply_frame,
         rpc.damage, rpc.notes)
        for rpc in rpcs
    ]  # fmt: skip


EXCHANGES = st.lists(
    st.tuples(st.sampled_from([(PORTMAP, 111), (MOUNT, 43210), (NLM, 33333), (STATUS, 41111), (NFS, 2049)]),
              st.integers(0, 2)),
    min_size=1, max_size=15,
)  # fmt: skip


@QUICK
@given(EXCHANGES, CUTS)
def test_each_datagram_is_a_message(exchanges: list[tuple[tuple[int, int], int]], cuts: list[int]) -> None:
    sent = []
    for number, ((program, port), again) in enumerate(exchanges):
        asked = Datagram(call(1000 + number, program), False, 700, port)
        # A client that waits for an answer sends the same again (RFC 5531, 9).
        sent += [asked] * (1 + again) + [Datagram(reply(1000 + number), True, 700, port)]
    rpcs = analysed(sent, cuts)
    assert [(rpc.xid, rpc.program, rpc.state) for rpc in rpcs] == [
        (1000 + number, program, "complete") for number, ((program, _), _) in enumerate(exchanges)
    ]
    for rpc in rpcs:
        called, answered = reassembled_call(rpc), reassembled_reply(rpc)
        assert called is not None and answered is not None
        assert (called.prefix, answered.prefix) == (call(rpc.xid, rpc.program or 0), reply(rpc.xid))
    retransmitted = sum(sum(one.retransmitted_packets) for one in {rpc.connection for rpc in rpcs})
    assert retransmitted == sum(again for _, again in exchanges)


@QUICK
@given(EXCHANGES, st.sets(st.integers(0, 60), max_size=8), CUTS)
def test_what_is_lost_costs_its_rpc(
    exchanges: list[tuple[tuple[int, int], int]], lost: set[int], cuts: list[int]
) -> None:
    sent = []
    for number, ((program, port), _) in enumerate(exchanges):
        sent.append(Datagram(call(1000 + number, program), False, 700, port))
        sent.append(Datagram(reply(1000 + number), True, 700, port))
    rpcs = analysed([one for at, one in enumerate(sent) if at not in lost], cuts)
    complete = {1000 + number for number in range(len(exchanges)) if not {2 * number, 2 * number + 1} & lost}
    assert {rpc.xid for rpc in rpcs if rpc.state == "complete"} == complete
    assert {rpc.state for rpc in rpcs} <= {"complete", "no reply", "no call"}


@QUICK
@given(st.integers(28, 70), CUTS)
def test_truncated_datagrams(snap: int, cuts: list[int]) -> None:
    sent = []
    for number in range(6):
        sent += [Datagram(call(number, MOUNT), False, 700, 20048, snap), Datagram(reply(number), True, 700, 20048)]
    rpcs = analysed(sent, cuts)
    assert [rpc.xid for rpc in rpcs] == [*range(6)]
    for rpc in rpcs:
        asked = reassembled_call(rpc)
        assert asked is not None and call(rpc.xid, MOUNT).startswith(asked.prefix)
        assert asked.complete == (snap >= len(call(rpc.xid, MOUNT)))
    assert described(rpcs) == described(analysed(sent))


@QUICK
@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=20), st.sampled_from([53, 111, 2049]))
def test_other_datagrams_are_none(messages: list[bytes], port: int) -> None:
    assert not analysed([Datagram(one, False, 700, port) for one in messages])


def test_a_reply_whose_call_is_missing_shows_on_known_ports_alone() -> None:
    assert [rpc.state for rpc in analysed([Datagram(reply(7), True, 700, 2049)])] == ["no call"]
    assert not analysed([Datagram(reply(7), True, 700, 43210)])


def test_a_reply_in_fragments_is_counted_and_its_call_unanswered() -> None:
    """Wrong bytes would be worse: the first fragment alone is no reply."""
    whole = frames([Datagram(call(7, NFS), False, 700, 2049), Datagram(reply(7) + bytes(8192), True, 700, 2049)])
    pieces = [bytes(one) for one in fragment(Ether(whole[1].data), 1480)]
    assert len(pieces) == 6
    sent = [whole[0], *(Frame(whole[1].time, one, len(one)) for one in pieces)]
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(sent, []) for rpc in analyzer.feed(batch)]
    assert [one.state for one in [*rpcs, *analyzer.finish()]] == ["no reply"]
    assert analyzer.skipped == {"IP fragment": 6}


def test_tcp_beside_udp_between_the_same_ports() -> None:
    from playbook.segments import Talk

    talk = Talk(ports=(700, 111))
    talk.put(0, u32(1 << 31 | len(call(1, PORTMAP))) + call(1, PORTMAP))
    talk.put(1, u32(1 << 31 | len(reply(1))) + reply(1))
    udp = frames([Datagram(call(1, PORTMAP), False, 700, 111), Datagram(reply(1), True, 700, 111)])
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches([*talk.frames(), *udp], []) for rpc in analyzer.feed(batch)]
    assert [(rpc.connection.transport, rpc.state) for rpc in rpcs] == [("TCP", "complete"), ("UDP", "complete")]
    assert not analyzer.skipped
