"""The comparison with Wireshark: whatever is altered is found, and only what is known to be a weak spot is excused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook import Capture, Wire, call, cm, error, faults, fetch, nfs3, nfs4, reply
from playbook.capture import frame_batch
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.shapes import DATA, read, write
from playbook.tcp import TcpSegment
from rdmascope.dissect import weak_spots
from rdmascope.dissect.analyzer import Analyzer
from rdmascope.dissect.network import locate
from rdmascope.dissect.packets import decode
from rdmascope.dissect.second_opinion import Comparison, Difference, Ours, halves
from rdmascope.dissect.sightings import (
    ASKED,
    FPDU_FIELDS,
    HEADER_FIELDS,
    MPA_FIELDS,
    PACKET_NAMES,
    Fields,
    Sighting,
    sighting,
)

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
    """By frame what somebody would tell who agrees in everything."""
    told: dict[int, Fields] = {frame: dict(fields) for frame, fields in mine.sightings()}
    for frame, (fields, _) in mine.headers.items():
        told.setdefault(frame, {}).update(fields)
    for one in mine.halves:
        half = one.half
        known = {
            "rpc.xid": half.xid,
            "rpc.msgtyp": int(half.is_reply),
            "rpc.program": half.program,
            "rpc.programversion": half.version,
            "rpc.procedure": half.procedure,
            "rpc.repframe" if half.is_reply else "rpc.reqframe": half.other,
            "rpc.time": half.time,
        }
        fields = told.setdefault(half.frame, {})
        fields.update({name: (value,) for name, value in known.items() if value is not None})
    return told


def compare(mine: Ours, told: dict[int, Fields]) -> tuple[Comparison, list[Difference]]:
    comparison = Comparison(mine)
    return comparison, list(comparison.run(Sighting(frame, told[frame]) for frame in sorted(told)))


MINE = ours(Capture(conversation()))
TOLD = echo(MINE)
VALUES = [(frame, name) for frame, fields in TOLD.items() for name in fields if name != "rpc.msgtyp"]


def test_whoever_tells_the_same_agrees() -> None:
    comparison, found = compare(MINE, TOLD)
    assert found == []
    counted = {what: tally.compared for what, tally in comparison.tallies.items()}
    assert counted == {"packet": len(TOLD), "transport header": 8, "call": 4, "reply": 4}
    assert all(tally.equal == tally.compared for tally in comparison.tallies.values())


def test_every_field_is_compared() -> None:
    names = {name for _, name in VALUES}
    absent = {
        "infiniband.atomiceth.swapdt", "infiniband.atomiceth.cmpdt", "infiniband.atomicacketh.origremdt",
        "infiniband.immdt", "rpcordma.errcode",
        "rpcordma.vers_low", "rpcordma.vers_high", *MPA_FIELDS, *FPDU_FIELDS,
    }  # fmt: skip
    assert names >= {*PACKET_NAMES, *HEADER_FIELDS} - absent


@settings(max_examples=60)
@given(st.sampled_from(VALUES), st.integers(1, 255), st.data())
def test_any_value_that_is_altered_is_found(place: tuple[int, str], change: int, data: st.DataObject) -> None:
    frame, name = place
    values = TOLD[frame][name]
    at = data.draw(st.integers(0, len(values) - 1))
    altered = (*values[:at], values[at] ^ change, *values[at + 1 :])
    comparison, found = compare(MINE, {**TOLD, frame: {**TOLD[frame], name: altered}})
    assert found
    assert not any(difference.explained for difference in found)
    assert sum(tally.unexplained for tally in comparison.tallies.values()) in (1, 2)
    if name == "rpc.xid":  # then it is another RPC, and ours was not found
        assert {(one.frame, one.field) for one in found} == {(frame, "rpc")}
        assert [one.ours is None for one in found] == [False, True]
    else:
        (difference,) = found
        assert (difference.frame, difference.field) == (frame, name)
        assert difference.theirs == altered
        assert difference.ours == values


@settings(max_examples=30)
@given(st.sampled_from(VALUES))
def test_any_value_that_is_left_out_is_found(place: tuple[int, str]) -> None:
    frame, name = place
    fields = {key: values for key, values in TOLD[frame].items() if key != name}
    _, found = compare(MINE, {**TOLD, frame: fields})
    assert found
    assert not any(difference.explained for difference in found)


@pytest.mark.parametrize("frame", sorted(TOLD))
def test_a_frame_that_one_of_the_two_does_not_see_is_found(frame: int) -> None:
    fewer = {number: fields for number, fields in TOLD.items() if number != frame}
    _, found = compare(MINE, fewer)
    assert ("packet", frame, "packet") in {(one.what, one.frame, one.field) for one in found}
    assert all(one.theirs is None and not one.explained for one in found)


def test_packets_and_messages_that_only_wireshark_shows() -> None:
    last = max(TOLD)
    stranger = {name: TOLD[last][name] for name in PACKET_NAMES if name in TOLD[last]}
    message = {"rpcordma.xid": (7,), "rpc.xid": (7,), "rpc.msgtyp": (0,)}
    _, found = compare(MINE, {**TOLD, last + 1: {**stranger, **message}})
    assert {(one.what, one.frame, one.field, one.ours) for one in found} == {
        ("packet", last + 1, "packet", None),
        ("transport header", last + 1, "rpcordma", None),
        ("call", last + 1, "rpc", None),
    }
    assert not any(one.explained for one in found)


def with_a_read_chunk() -> tuple[int, int, int]:
    """Frames of the WRITE's call, of the last Read response, and of its reply."""
    (call_half,) = (one for one in MINE.halves if one.complete != one.call_frame and not one.half.is_reply)
    (reply_half,) = (one for one in MINE.halves if one.complete != one.call_frame and one.half.is_reply)
    return call_half.half.frame, call_half.complete, reply_half.half.frame


def late(shift: int) -> dict[int, Fields]:
    """The WRITE shown where Wireshark shows it, its time off by ``shift``."""
    called, complete, replied = with_a_read_chunk()
    rpc = {name: values for name, values in TOLD[called].items() if name.startswith("rpc.")}
    since = next(one.since_complete for one in MINE.halves if one.half.frame == replied)
    assert since is not None
    return {
        **TOLD,
        called: {name: values for name, values in TOLD[called].items() if name not in rpc},
        complete: {**TOLD[complete], **rpc},
        replied: {**TOLD[replied], "rpc.repframe": (complete,), "rpc.time": (since + shift,)},
    }


def test_a_call_shown_where_its_read_chunk_is_complete() -> None:
    comparison, found = compare(MINE, late(0))
    assert {(one.field, one.right) for one in found} == {
        (name, "both") for name in ("frame.number", "rpc.repframe", "rpc.time")
    }
    assert comparison.tallies["call"].explained == comparison.tallies["reply"].explained == 1


def test_a_time_that_no_convention_gives_is_not_excused() -> None:
    _, found = compare(MINE, late(1))
    assert [one.field for one in found if not one.explained] == ["rpc.time"]


# The weak spots


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


TOUCHED: dict[str, Callable[[], Capture]] = {
    "cut": snapped,
    "version 2": plain(version_2),
    "unfinished": plain(unread),
    "repeated packets": sent_again,
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
    """The two halves of an RDMA Write the wrong way round."""
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
    "cut frame": snapped,
    "sent again": sent_again,
    "one XID both ways": plain(both_ways),
    "XID again": plain(one_xid_on_two_connections),
    "memory offered again": plain(memory_again),
    "PSNs alike": plain(psns_alike),
}
ROWS = {row.name: row for row in weak_spots.TABLE}


def test_every_weak_spot_has_its_conversation() -> None:
    assert {*TOUCHED, *ELSEWHERE, *OVER_TCP, "IP over InfiniBand"} == set(ROWS)
    assert {name for name, row in ROWS.items() if row.applies is None} == set(ROWS) - set(TOUCHED)


@pytest.mark.parametrize("name", TOUCHED)
def test_a_weak_spot_is_seen_where_it_is(name: str) -> None:
    assert any(name in one.touched for one in ours(TOUCHED[name]()).halves)


def test_a_sound_conversation_touches_no_weak_spot() -> None:
    assert {one.touched for one in MINE.halves} == {frozenset()}
    assert not MINE.cut and not MINE.repetitions.found() and not MINE.circumstances.offered_again()
    assert not any(MINE.circumstances.by_xid(one.half.xid) for one in MINE.halves)


def no_rpc(told: dict[int, Fields]) -> dict[int, Fields]:
    """What somebody tells who sees the packets, but no RPC."""
    return {
        frame: {name: values for name, values in fields.items() if not name.startswith("rpc.")}
        for frame, fields in told.items()
    }


@pytest.mark.parametrize("name", TOUCHED)
def test_what_wireshark_does_not_show_is_excused_where_a_weak_spot_is(name: str) -> None:
    mine = ours(TOUCHED[name]())
    _, found = compare(mine, no_rpc(echo(mine)))
    reasons = {one.reason for one in found if one.explained}
    assert ROWS[name].reason in reasons
    sound = [one for one in mine.halves if not one.touched]
    assert len([one for one in found if not one.explained]) == len(sound)


@pytest.mark.parametrize("name", TOUCHED)
def test_no_weak_spot_excuses_a_misread_value(name: str) -> None:
    mine = ours(TOUCHED[name]())
    told = echo(mine)
    frame = next(one.half.frame for one in mine.halves if name in one.touched)
    altered = {**told[frame], "infiniband.bth.psn": (0xABCDEF,), "rpcordma.xid": (1,)}
    _, found = compare(mine, {**told, frame: altered})
    assert {one.field for one in found if not one.explained} >= {"infiniband.bth.psn", "rpcordma.xid"}


def test_a_message_that_is_shown_with_every_transmission() -> None:
    wire = conversation()
    index = faults.where(wire.packets, kind="send", sender=1)[0]
    capture = Capture(wire, faults.ghost(wire.packets, index, 2))
    mine = ours(capture)
    told = echo(mine)
    shown, again = sorted(mine.repetitions.found())
    assert shown in mine.headers and again not in mine.headers, "the same packet, twice"
    _, found = compare(mine, {**told, again: {**told[again], **told[shown]}})
    assert {(one.what, one.field, one.right) for one in found} == {
        ("transport header", "rpcordma", "both"),
        ("reply", "rpc", "both"),
    }


def test_headers_that_end_with_a_cut_frame() -> None:
    mine = ours(snapped(128))
    told = echo(mine)
    frame = next(frame for frame in sorted(mine.cut) if frame in mine.headers)
    _, found = compare(mine, {**told, frame: {}})
    assert found
    assert {one.reason for one in found} == {ROWS["cut frame"].reason}


@pytest.mark.parametrize("name", ["one XID both ways", "XID again"])
def test_a_reply_given_to_another_call_with_its_xid(name: str) -> None:
    mine = ours(ELSEWHERE[name]())
    told = echo(mine)
    first, second = sorted(one.half for one in mine.halves if one.half.is_reply)
    assert first.other is not None and second.other is not None and second.time is not None
    swapped = {**told[second.frame], "rpc.repframe": (first.other,), "rpc.time": (second.time + 1,)}
    for other in RPC_NAMES:
        swapped[other] = told[first.other][other]
    _, found = compare(mine, {**told, second.frame: swapped})
    assert {(one.field, one.reason) for one in found} == {
        ("rpc.repframe", ROWS[name].reason),
        ("rpc.time", ROWS[name].reason),
    }


def test_memory_that_was_offered_before() -> None:
    mine = ours(ELSEWHERE["memory offered again"]())
    told = echo(mine)
    first, second = sorted(one.half for one in mine.halves if not one.half.is_reply)
    _, found = compare(mine, no_rpc(told))
    verdicts = {one.frame: one.right for one in found if one.what == "call"}
    assert verdicts == {first.frame: "undecided", second.frame: "rdmascope"}


def test_sends_of_both_ends_with_the_same_psns() -> None:
    mine = ours(ELSEWHERE["PSNs alike"]())
    told = echo(mine)
    called, replied = sorted(one.half.frame for one in mine.halves)
    assert mine.circumstances.psns_alike() == {replied}
    missing = {name: values for name, values in told[replied].items() if name in PACKET_NAMES}
    unmatched = {name: values for name, values in told[called].items() if name != "rpc.reqframe"}
    _, found = compare(mine, {**told, called: unmatched, replied: missing})
    assert [one.field for one in found] == ["rpcordma", "rpc.reqframe", "rpc"]
    assert {one.reason for one in found} == {ROWS["PSNs alike"].reason}


def test_ip_over_infiniband_is_passed_over() -> None:
    last = max(TOLD) + 1
    datagram: Fields = {"infiniband.bth.opcode": (0x64,), "infiniband.deth.q_key": (0x0B1B,)}
    _, found = compare(MINE, {**TOLD, last: datagram})
    assert [(one.frame, one.field, one.right) for one in found] == [(last, "packet", "both")]
    _, found = compare(MINE, {**TOLD, last: {**datagram, "infiniband.deth.q_key": (1 << 31,)}})
    assert not any(one.explained for one in found)


def test_iwarp_field_by_field() -> None:
    mine = ours(over_tcp(revision=2)())
    told = echo(mine)
    comparison, found = compare(mine, told)
    assert found == []
    assert comparison.tallies["packet"].compared == len(told)
    names = {name for fields in told.values() for name in fields}
    assert {*MPA_FIELDS, *FPDU_FIELDS} - names == {name for name in FPDU_FIELDS if ".term_" in name}
    for frame, fields in told.items():
        for name in (*MPA_FIELDS, *FPDU_FIELDS):
            if name in fields:
                altered = {**fields, name: (fields[name][0] ^ 1, *fields[name][1:])}
                _, (difference,) = compare(mine, {**told, frame: altered})
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
    told = echo(mine)
    frame = max(mine.streams.links)
    _, found = compare(mine, {number: fields for number, fields in told.items() if number != frame})
    assert ROWS[name].reason in {one.reason for one in found}
    assert all(one.explained for one in found)


def test_an_fpdu_without_contents() -> None:
    mine = ours(OVER_TCP["ready to receive"]())
    told = echo(mine)
    (link,) = mine.streams.known
    assert link.first is not None
    frame = next(number for number in range(link.first[0], max(told)) if number not in told)
    _, found = compare(mine, {**told, frame: {"iwarp_mpa.ulpdulength": (0,)}})
    assert [(one.field, one.right, one.reason) for one in found] == [
        ("packet", "both", ROWS["ready to receive"].reason)
    ]


# What tshark prints


def line(**values: str) -> list[str]:
    given = {"frame.number": "12", **{name.replace("__", "."): text for name, text in values.items()}}
    return [given.get(name, "") for name in ASKED]


def test_values_as_tshark_prints_them() -> None:
    found = sighting(
        line(
            infiniband__bth__opcode="23",
            infiniband__bth__destqp="0x000011",
            infiniband__bth__se="True",
            infiniband__bth__a="0",
            infiniband__ieth="00000c7f,00000c7f",
            rpcordma__rdma_handle="0x00000c7f,0x00000c80",
            rpc__time="0.005607000",
        )
    )
    assert found.frame == 12
    assert found.fields == {
        "infiniband.bth.opcode": (23,),
        "infiniband.bth.destqp": (0x11,),
        "infiniband.bth.se": (1,),
        "infiniband.bth.a": (0,),
        "infiniband.ieth": (0xC7F,),
        "rpcordma.rdma_handle": (0xC7F, 0xC80),
        "rpc.time": (5_607_000,),
    }


Told = list[tuple[int, bool, int | None, int | None]]


def messages() -> Iterator[tuple[list[str], Told]]:
    one = line(rpc__xid="0x07", rpc__msgtyp="0", rpc__programversion="3,3", rpc__reqframe="14")
    yield one, [(7, False, 3, 14)]
    two = line(rpc__xid="7,8", rpc__msgtyp="1,0", rpc__programversion="3,3,4,4", rpc__reqframe="20", rpc__repframe="5")
    yield two, [(7, True, 3, 5), (8, False, 4, 20)]
    uneven = line(rpc__xid="7,8", rpc__msgtyp="1,0", rpc__programversion="3,4,4")
    yield uneven, [(7, True, None, None), (8, False, None, None)]


@pytest.mark.parametrize(("values", "expected"), list(messages()))
def test_messages_of_one_frame(values: list[str], expected: Told) -> None:
    found = halves(sighting(values))
    assert [(half.xid, half.is_reply, half.version, half.other) for half in found] == expected


@pytest.mark.parametrize("values", [[], ["12"], ["x"] * len(ASKED), line(rpc__xid="what?")])
def test_what_tshark_never_prints(values: list[str]) -> None:
    with pytest.raises(ValueError):
        sighting(values)
