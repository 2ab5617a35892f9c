"""What Wireshark is known to get wrong: each weak spot is seen where it is, and excuses nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from playbook import Capture, Wire, call, error, faults, fetch, nfs3, nfs4, reply
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.opinions import RPC_NAMES, compare, conversation, echo, ours
from playbook.rpc import call_parts, reply_parts, u32, whole
from playbook.rpcrdma import MSG, header
from playbook.shapes import DATA, read, write
from playbook.tcp import TcpSegment
from rdmascope.dissect.verify import frame_fields as weak_spots
from rdmascope.dissect.verify.frame_fields import FPDU_FIELDS, MPA_FIELDS, PACKET_NAMES, Fields

MINE = ours(Capture(conversation()))
THEIRS = echo(MINE)


def lost(kind: str) -> Callable[[], Capture]:
    def build() -> Capture:
        wire = conversation()
        index = faults.where(wire.packets, kind=kind)[2]
        return Capture(wire, faults.drop(wire.packets, [index]))

    return build


def plain(script: Callable[[Wire], None], **options: object) -> Callable[[], Capture]:
    def build() -> Capture:
        wire = Wire(**{"mtu": 1024, "seed": 5, **options})  # type: ignore[arg-type]
        script(wire)
        return Capture(wire)

    return build


def unread(wire: Wire) -> None:
    conn = wire.connect()
    error(call(conn, nfs3.write(0, DATA), reads={0: conn.register(len(DATA))}))


def sent_again() -> Capture:
    wire = conversation()
    return Capture(wire, faults.lose(wire, wire.packets, faults.where(wire.packets, kind="write")[1]))


def foreign(opcode: int = 0x51) -> Capture:
    """Packets of another transport service between two packets of the conversation."""
    wire = conversation()
    one = replace(wire.packets[-1], opcode=opcode, extended=b"", payload=bytes(range(64)), operation=0)
    return Capture(wire, [*wire.packets, one])


def snapped(length: int = 400) -> Capture:
    """Few enough bytes of each frame to lose chunk data, but not Sends."""
    wire = conversation()
    return Capture(wire, faults.snap(wire.packets, length))


def reply_before_call() -> Capture:
    wire = conversation()
    index = faults.where(wire.packets, kind="send", sender=0)[0]
    return Capture(wire, faults.swap(wire.packets, index, 3))


def both_ways(wire: Wire) -> None:
    conn = wire.connect()
    forward = call(conn, nfs3.getattr_(), xid=7)
    backward = call(conn, nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall()), backward=True, xid=7)
    reply(backward, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()))
    reply(forward, nfs3.getattr_reply())


def one_xid_on_two_connections(wire: Wire) -> None:
    for _ in range(2):
        reply(call(wire.connect(), nfs3.getattr_(), xid=7), nfs3.getattr_reply())


def one_handle(wire: Wire) -> None:
    conn = wire.connect()
    rpc = call(conn, nfs3.read(0, 2048), writes=[conn.register(1024, 1024, handle=0x77)])
    reply(rpc, nfs3.read_reply(DATA[:2048]))


def memory_again(wire: Wire) -> None:
    conn = wire.connect()
    chunk = conn.register(1024)
    for _ in range(2):
        reply(call(conn, nfs3.read(0, 1024), writes=[chunk]), nfs3.read_reply(DATA[:1024]))


def two_chunks(wire: Wire) -> None:
    conn = wire.connect()
    message = nfs4.compound(nfs4.putfh(), nfs4.read(0, 1024), nfs4.read(0, 1024), minor=0)
    rpc = call(conn, message, writes=[conn.register(1024), conn.register(1024)])
    done = nfs4.read_done(DATA[:1024])
    reply(rpc, nfs4.compound_reply(nfs4.putfh_done(), done, done))


def long_send(wire: Wire) -> None:
    conn = wire.connect(mtu=256)
    rpc = call(conn, nfs3.write(0, DATA), reads={0: conn.register(*[512] * 16)})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(len(DATA)))


def small_writes(wire: Wire) -> None:
    conn = wire.connect()
    reply(call(conn, nfs3.read(0, 4096), writes=[conn.register(4096)]), nfs3.read_reply(DATA[:4096]), split=1500)


def wrapping(wire: Wire) -> None:
    read(wire.connect(server_psn=(1 << 24) - 3))


def without_cm(wire: Wire) -> None:
    conn = wire.connect(cm=False)
    for _ in range(4):
        reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    read(conn)


def version_2(wire: Wire) -> None:
    conn = wire.connect()
    write(conn)
    conn.version = 2
    write(conn)


def refused(*words: int) -> Callable[[], Capture]:
    """A call whose transport header is these words behind the XID, and an RDMA_ERROR."""

    def script(wire: Wire) -> None:
        conn = wire.connect()
        conn.send(0, u32(7, *words) + whole(call_parts(nfs3.null(), 7)))
        conn.send(1, u32(7, words[0], 32, 4, 2))

    return plain(script)


def low_port() -> Capture:
    """The client's UDP source port is TFTP's."""
    wire = Wire(seed=5)
    conn = wire.connect()
    conn.ends[0].udp_port = 69
    read(conn)
    return Capture(wire)


def other_xid(wire: Wire) -> None:
    conn = wire.connect()
    call(conn, nfs3.getattr_(), xid=7)
    conn.send(1, header(7, MSG) + whole(reply_parts(nfs3.getattr_reply(), 8)))
    reply(call(conn, nfs3.null()), nfs3.null_reply())


TOUCHED: dict[str, Callable[[], Capture]] = {
    "other rdma_xid": plain(other_xid),
    "truncated": snapped,
    "version 2": plain(version_2),
    "unfinished": plain(unread),
    "retransmitted packets": sent_again,
    "missing packets": lost("write"),
    "out of order": reply_before_call,
    "no CM": plain(without_cm),
    "one handle twice": plain(one_handle),
    "several chunks": plain(two_chunks),
    "long Send": plain(long_send),
    "mixed sizes": plain(small_writes),
    "PSN wrap": plain(wrapping),
}


def psns_alike(wire: Wire) -> None:
    """The reply's Send begins with the first PSN of the call's."""
    conn = wire.connect(client_psn=500, server_psn=500)
    reply(call(conn, nfs3.symlink(b"name", DATA[:3000])), nfs3.readdirplus_reply([b"file-%d" % n for n in range(40)]))


def out_of_order(segments: list[TcpSegment]) -> list[TcpSegment]:
    """The two messages of an RDMA Write the wrong way round."""
    data = [index for index, segment in enumerate(segments) if segment.payload and segment.sender == 1]
    first, second = next((a, b) for a, b in pairwise(data) if segments[a].end == segments[b].at and b - a < 3)
    return faults.swap(segments, first, second - first)


def over_tcp(
    harm: Callable[[list[TcpSegment]], list[TcpSegment]] | None = None, **options: object
) -> Callable[[], Capture]:
    """The same over iWARP."""

    def build() -> Capture:
        wire = IwarpWire(mss=1460, seed=3)
        conn = wire.connect(**options)  # type: ignore[arg-type]
        chunk = conn.register(4096)
        reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
        write(conn)
        rpc = call(conn, nfs3.read(0, 4096), writes=[chunk])
        reply(rpc, nfs3.read_reply(DATA[:4096]), invalidate=chunk[0].handle)
        sent = wire.sent()
        return IwarpCapture(wire, sent if harm is None else harm(sent))

    return build


OVER_TCP: dict[str, Callable[[], Capture]] = {
    "no MPA": over_tcp(cm=False),
    "ready to receive": over_tcp(revision=2, ready="F"),
    "markers": over_tcp(markers=(True, False)),
    "TCP order": over_tcp(out_of_order),
    "split FPDUs": over_tcp(cutting="random"),
}
ELSEWHERE: dict[str, Callable[[], Capture]] = {
    "truncated frame": snapped,
    "UDP port": low_port,
    "retransmitted": sent_again,
    "DC or RD": foreign,
    "one XID both ways": plain(both_ways),
    "XID reused": plain(one_xid_on_two_connections),
    "memory advertised again": plain(memory_again),
    "PSNs alike": plain(psns_alike),
}
MALFORMED: dict[str, Callable[[], Capture]] = {
    "unknown version": refused(77, 32, 0, 0, 0, 0),
    "unknown procedure": refused(1, 32, 77, 0, 0, 0),
    "malformed header": refused(1, 32, 0, 2, 0, 0),
}
"""Calls that carry no RPC message."""
ROWS = {row.name: row for row in weak_spots.TABLE}


def test_every_weak_spot_has_its_conversation() -> None:
    assert {*TOUCHED, *ELSEWHERE, *OVER_TCP, *MALFORMED, "IP over InfiniBand"} == set(ROWS)
    assert {name for name, row in ROWS.items() if row.applies is None} == set(ROWS) - {*TOUCHED, *MALFORMED}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_header_that_wireshark_does_not_take_for_one_is_explained_by_its_own_row(name: str) -> None:
    mine = ours(MALFORMED[name]())
    reported = {
        frame: {key: values for key, values in fields.items() if not key.startswith("rpcordma.")}
        for frame, fields in echo(mine).items()
    }
    _, found = compare(mine, reported)
    first = next(one for one in found if one.what == "transport header")
    assert (first.right, first.reason) == ("rdmascope", ROWS[name].reason)
    assert not any(one.what == "call" for one in found)


@pytest.mark.parametrize("name", TOUCHED)
def test_a_weak_spot_is_seen_where_it_is(name: str) -> None:
    assert any(name in one.touched for one in ours(TOUCHED[name]()).messages)


def test_a_sound_conversation_touches_no_weak_spot() -> None:
    assert {one.touched for one in MINE.messages} == {frozenset()}
    assert not MINE.truncated and not MINE.retransmitted.found() and not MINE.circumstances.offered_again()
    assert not any(MINE.circumstances.by_xid(one.message.xid) for one in MINE.messages)


def no_rpc(reported: dict[int, Fields]) -> dict[int, Fields]:
    """The fields of a tool that sees the packets, but no RPC."""
    return {
        frame: {name: values for name, values in fields.items() if not name.startswith("rpc.")}
        for frame, fields in reported.items()
    }


@pytest.mark.parametrize("name", TOUCHED)
def test_what_wireshark_does_not_show_is_excused_where_a_weak_spot_is(name: str) -> None:
    mine = ours(TOUCHED[name]())
    _, found = compare(mine, no_rpc(echo(mine)))
    reasons = {one.reason for one in found if one.explained}
    assert ROWS[name].reason in reasons
    sound = [one for one in mine.messages if not one.touched]
    assert len([one for one in found if not one.explained]) == len(sound)


@pytest.mark.parametrize("name", TOUCHED)
def test_no_weak_spot_excuses_a_misread_value(name: str) -> None:
    mine = ours(TOUCHED[name]())
    reported = echo(mine)
    frame = next(one.message.frame for one in mine.messages if name in one.touched)
    altered = {**reported[frame], "infiniband.bth.psn": (0xABCDEF,), "rpcordma.xid": (1,)}
    _, found = compare(mine, {**reported, frame: altered})
    assert {one.field for one in found if not one.explained} >= {"infiniband.bth.psn", "rpcordma.xid"}


def test_a_message_that_is_shown_with_every_transmission() -> None:
    wire = conversation()
    index = faults.where(wire.packets, kind="send", sender=1)[0]
    capture = Capture(wire, faults.ghost(wire.packets, index, 2))
    mine = ours(capture)
    reported = echo(mine)
    shown, again = sorted(mine.retransmitted.found())
    assert shown in mine.headers and again not in mine.headers, "the same packet, twice"
    _, found = compare(mine, {**reported, again: {**reported[again], **reported[shown]}})
    assert {(one.what, one.field, one.right) for one in found} == {
        ("transport header", "rpcordma", "both"),
        ("reply", "rpc", "both"),
    }


def test_headers_that_end_with_a_truncated_frame() -> None:
    mine = ours(snapped(128))
    reported = echo(mine)
    frame = next(frame for frame in sorted(mine.truncated) if frame in mine.headers)
    _, found = compare(mine, {**reported, frame: {}})
    assert found
    assert {one.reason for one in found} == {ROWS["truncated frame"].reason}


def test_opcodes_of_a_service_that_is_not_decoded() -> None:
    mine = ours(foreign())
    reported = echo(mine)
    (frame,) = mine.foreign
    assert "infiniband.aeth.msn" not in reported[frame]
    _, found = compare(mine, {**reported, frame: {**reported[frame], "infiniband.aeth.msn": (1,)}})
    assert [(one.field, one.right, one.reason) for one in found] == [
        ("infiniband.aeth.msn", "both", ROWS["DC or RD"].reason)
    ]


@pytest.mark.parametrize("name", ["one XID both ways", "XID reused"])
def test_a_reply_given_to_another_call_with_its_xid(name: str) -> None:
    mine = ours(ELSEWHERE[name]())
    reported = echo(mine)
    first, second = sorted(one.message for one in mine.messages if one.message.is_reply)
    assert first.other is not None and second.other is not None and second.time is not None
    swapped = {**reported[second.frame], "rpc.repframe": (first.other,), "rpc.time": (second.time + 1,)}
    for other in RPC_NAMES:
        swapped[other] = reported[first.other][other]
    _, found = compare(mine, {**reported, second.frame: swapped})
    assert {(one.field, one.reason) for one in found} == {
        ("rpc.repframe", ROWS[name].reason),
        ("rpc.time", ROWS[name].reason),
    }


def test_memory_that_was_offered_before() -> None:
    mine = ours(ELSEWHERE["memory advertised again"]())
    reported = echo(mine)
    first, second = sorted(one.message for one in mine.messages if not one.message.is_reply)
    _, found = compare(mine, no_rpc(reported))
    verdicts = {one.frame: one.right for one in found if one.what == "call"}
    assert verdicts == {first.frame: "undecided", second.frame: "rdmascope"}


def test_sends_of_both_ends_with_the_same_psns() -> None:
    mine = ours(ELSEWHERE["PSNs alike"]())
    reported = echo(mine)
    called, replied = sorted(one.message.frame for one in mine.messages)
    assert mine.circumstances.psns_alike() == {replied}
    missing = {name: values for name, values in reported[replied].items() if name in PACKET_NAMES}
    unmatched = {name: values for name, values in reported[called].items() if name != "rpc.reqframe"}
    _, found = compare(mine, {**reported, called: unmatched, replied: missing})
    assert [one.field for one in found] == ["rpcordma", "rpc.reqframe", "rpc"]
    assert {one.reason for one in found} == {ROWS["PSNs alike"].reason}


def test_ip_over_infiniband_is_passed_over() -> None:
    last = max(THEIRS) + 1
    datagram: Fields = {"infiniband.bth.opcode": (0x64,), "infiniband.deth.q_key": (0x0B1B,)}
    _, found = compare(MINE, {**THEIRS, last: datagram})
    assert [(one.frame, one.field, one.right) for one in found] == [(last, "packet", "both")]
    _, found = compare(MINE, {**THEIRS, last: {**datagram, "infiniband.deth.q_key": (0x80010000,)}})
    assert not any(one.explained for one in found)


def test_iwarp_field_by_field() -> None:
    mine = ours(over_tcp(revision=2)())
    reported = echo(mine)
    comparison, found = compare(mine, reported)
    assert found == []
    assert comparison.tallies["packet"].compared == len(reported)
    names = {name for fields in reported.values() for name in fields}
    assert {*MPA_FIELDS, *FPDU_FIELDS} - names == {name for name in FPDU_FIELDS if ".term_" in name}
    for frame, fields in reported.items():
        for name in (*MPA_FIELDS, *FPDU_FIELDS):
            if name in fields:
                altered = {**fields, name: (fields[name][0] ^ 1, *fields[name][1:])}
                _, (difference,) = compare(mine, {**reported, frame: altered})
                assert (difference.frame, difference.field, difference.explained) == (frame, name, False)


@pytest.mark.parametrize("name", OVER_TCP)
def test_weak_spots_of_iwarp_are_seen(name: str) -> None:
    streams = ours(OVER_TCP[name]()).streams
    assert any(name in streams.of(frame) for frame in streams.links)
    sound = ours(over_tcp()()).streams
    assert {sound.of(frame) for frame in sound.links} == {frozenset()}


@pytest.mark.parametrize("name", [name for name in OVER_TCP if name != "ready to receive"])
def test_what_wireshark_makes_of_streams_that_it_lost(name: str) -> None:
    mine = ours(OVER_TCP[name]())
    reported = echo(mine)
    frame = max(mine.streams.links)
    _, found = compare(mine, {number: fields for number, fields in reported.items() if number != frame})
    assert ROWS[name].reason in {one.reason for one in found}
    assert all(one.explained for one in found)


def test_an_fpdu_without_contents() -> None:
    mine = ours(OVER_TCP["ready to receive"]())
    reported = echo(mine)
    (link,) = mine.streams.known
    assert link.lifetime.first is not None
    frame = next(number for number in range(link.lifetime.first[0], max(reported)) if number not in reported)
    _, found = compare(mine, {**reported, frame: {"iwarp_mpa.ulpdulength": (0,)}})
    assert [(one.field, one.right, one.reason) for one in found] == [
        ("packet", "both", ROWS["ready to receive"].reason)
    ]
