"""RPCs with chunks in columns are those that one Operation after the other gives; what is unusual is no row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from playbook import Capture, Connection, Segment, Wire, call, faults, fetch, nfs3, nfs4, reply
from playbook.capture import frame_batch, frame_batches
from playbook.strategies import CAPTURE_FAULTS, WIRE_FAULTS, aim, harm
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.dispatch import Dispatcher
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.transport.operations import Operation

from .test_analyzer_playbook import QUICK
from .test_row_rpcs import compare, plainly

DATA = bytes(range(200)) * 20
"""Of 4,000 bytes: several packets."""


def chunk(connection: Connection, *sizes: int) -> list[Segment]:
    return [one for size in sizes for one in connection.register(size)]


def halves(connection: Connection, size: int = len(DATA)) -> list[Segment]:
    return chunk(connection, size // 2, size - size // 2)


def write3(conn: Connection, split: int | None = None) -> None:
    exchange = call(conn, nfs3.write(0, DATA), reads={0: halves(conn)})
    fetch(exchange, split=split, pipelined=2)
    reply(exchange, nfs3.write_reply(len(DATA)))


def write4(conn: Connection, split: int | None = None) -> None:
    ops = nfs4.sequence(), nfs4.putfh(), nfs4.write(0, DATA), nfs4.getattr_()
    exchange = call(conn, nfs4.compound(*ops), reads={0: halves(conn)})
    fetch(exchange, split=split)
    done = nfs4.sequence_done(), nfs4.putfh_done(), nfs4.write_done(len(DATA)), nfs4.getattr_done()
    reply(exchange, nfs4.compound_reply(*done))


def read3(conn: Connection, split: int | None = None) -> None:
    reply(call(conn, nfs3.read(0, 5000), writes=[halves(conn, 5000)]), nfs3.read_reply(DATA), split=split)


def read4(conn: Connection, split: int | None = None) -> None:
    ops = nfs4.sequence(), nfs4.putfh(), nfs4.read(0, len(DATA))
    done = nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(DATA)
    reply(call(conn, nfs4.compound(*ops), writes=[halves(conn)]), nfs4.compound_reply(*done), split=split)


def failing(conn: Connection, split: int | None = None) -> None:
    """An unused Write chunk, returned empty."""
    reply(call(conn, nfs3.read(0, 5000), writes=[halves(conn, 5000)]), nfs3.read_failed())


def listing(conn: Connection, split: int | None = None) -> None:
    names = [b"name %d" % number for number in range(30)]
    exchange = call(conn, nfs3.readdirplus(), reply_chunk=chunk(conn, 1000, 5000, 500))
    reply(exchange, nfs3.readdirplus_reply(names), split=split)


def short_listing(conn: Connection, split: int | None = None) -> None:
    """The Reply chunk is not needed."""
    exchange = call(conn, nfs3.readdirplus(), reply_chunk=chunk(conn, 1000, 5000))
    reply(exchange, nfs3.readdirplus_reply([b"a"]), long=False)


BULK: list[Callable[[Connection, int | None], None]] = [write3, write4, read3, read4, failing, listing, short_listing]


def settled() -> Connection:
    """A connection on which one call was answered, which is a row."""
    conn = Wire(mtu=1024).connect()
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    return conn


@pytest.mark.parametrize("split", [None, 700], ids=["one a segment", "several a segment"])
@pytest.mark.parametrize("one", BULK)
def test_bulk_is_in_rows(one: Callable[[Connection, int | None], None], split: int | None) -> None:
    conn = settled()
    for _ in range(3):
        one(conn, split)
    for contents in (True, False):
        assert compare(frame_batches(Capture(conn.wire).frames, []), contents) == 4


@pytest.mark.parametrize("one", [read3, read4, listing])
def test_replies_wait_as_rows_for_calls_behind_one_that_comes_late(
    one: Callable[[Connection, int | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They and the transfers before them happen before their calls."""
    conn = Wire(mtu=1024).connect(acks="none")
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    late = call(conn, nfs3.getattr_())
    begun = len(conn.wire.packets) - 1
    one(conn, 700)
    packets = faults.swap(conn.wire.packets, begun, len(conn.wire.packets) - begun - 1)
    answered = len(packets)
    reply(late, nfs3.getattr_reply())
    batches = frame_batches(Capture(conn.wire, [*packets, *conn.wire.packets[answered:]]).frames, [])
    compare(batches)
    taken: list[Operation] = []
    monkeypatch.setattr(Dispatcher, "take", lambda _, operation: taken.append(operation))
    analyzer = Analyzer()
    assert len([rpc for batch in batches for rpc in analyzer.feed(batch)] + analyzer.finish()) == 3
    assert not taken


def getattr3(conn: Connection, split: int | None = None) -> None:
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())


@pytest.mark.parametrize("one", [*BULK, getattr3])
def test_a_call_behind_its_reply_by_frame_and_time_is_a_row(one: Callable[[Connection, int | None], None]) -> None:
    """Some frames later no other reply to it is awaited any more; memory that it offered tells at once."""
    conn = Wire(mtu=1024).connect(acks="none")
    getattr3(conn)
    begun = len(conn.wire.packets)
    one(conn, 700)
    late = len(conn.wire.packets) - begun - 1
    for _ in range(200):
        getattr3(conn)
    assert compare(frame_batches(Capture(conn.wire, faults.swap(conn.wire.packets, begun, late)).frames, [])) == 202


@pytest.mark.parametrize("rpcs", [50, 190])
def test_such_a_call_waits_for_another_reply(rpcs: int) -> None:
    """That may be its own, where it comes soon."""
    conn = Wire().connect(acks="none")
    getattr3(conn)
    begun = len(conn.wire.packets)
    exchange = call(conn, nfs3.getattr_())
    reply(exchange, nfs3.getattr_reply())
    for count in range(200):
        if count == rpcs:
            reply(exchange, nfs3.getattr_reply())
        getattr3(conn)
    frames = Capture(conn.wire, faults.swap(conn.wire.packets, begun, 1)).frames
    compare(frame_batches(frames, [300]))
    found = [
        sorted(
            (rpc.call_frame, rpc.reply_frame, rpc.state)
            for rpc in [*chain.from_iterable(map(analyzer.feed, frame_batches(frames, cuts))), *analyzer.finish()]
        )
        for cuts in ([], [300])
        for analyzer in [Analyzer()]
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("one", [write3, read3, listing])
def test_what_is_transferred_before_its_call_is_in_rows(one: Callable[[Connection, int | None], None]) -> None:
    conn = Wire(mtu=1024).connect(acks="none")
    getattr3(conn)
    begun = len(conn.wire.packets)
    one(conn, 700)
    late = len(conn.wire.packets) - begun - 2
    assert compare(frame_batches(Capture(conn.wire, faults.swap(conn.wire.packets, begun, late)).frames, [])) == 2


@QUICK
@given(st.lists(st.sampled_from(BULK), min_size=1, max_size=6), st.lists(st.integers(0, 200), max_size=2))
def test_bulk_in_batches_of_any_size(shapes: list[Callable[[Connection, int | None], None]], cuts: list[int]) -> None:
    conn = settled()
    for shape in shapes:
        shape(conn, 700)
    compare(frame_batches(Capture(conn.wire).frames, cuts))


@QUICK
@given(
    st.lists(st.sampled_from(BULK), min_size=1, max_size=4),
    st.sampled_from(WIRE_FAULTS + CAPTURE_FAULTS),
    st.integers(0, 60),
    st.integers(1, 5),
)
def test_bulk_with_any_fault(
    shapes: list[Callable[[Connection, int | None], None]], kind: str, start: int, distance: int
) -> None:
    conn = settled()
    for shape in shapes:
        shape(conn, 700)
    packets = conn.wire.packets
    index = aim(packets, kind, start % len(packets))
    if index is not None:
        packets = harm(conn.wire, packets, kind, index, True, distance)
    compare(frame_batches(Capture(conn.wire, packets).frames, []))


@QUICK
@given(st.data())
def test_any_bytes_in_the_messages(data: st.DataObject) -> None:
    """What one way does not understand, the other does not either."""
    conn = settled()
    for shape in BULK:
        shape(conn, None)
    batch = frame_batch(Capture(conn.wire).frames)
    changed = batch.data.copy()
    shortest = np.flatnonzero(batch.rows["captured"] < 600).tolist()
    for _ in range(data.draw(st.integers(1, 4))):
        row = batch.rows[data.draw(st.sampled_from(shortest))]
        at = data.draw(st.integers(54, int(row["captured"]) - 5))
        changed[int(row["offset"]) + at] = data.draw(st.integers(0, 255))
    compare([type(batch)(changed, batch.rows)])


def test_truncated_frames() -> None:
    conn = settled()
    for shape in BULK:
        shape(conn, None)
    whole = compare(frame_batches(Capture(conn.wire).frames, []))
    assert compare(frame_batches(Capture(conn.wire, faults.snap(conn.wire.packets, 400)).frames, [])) == whole


def test_calls_that_share_memory_are_no_rows() -> None:
    conn = settled()
    memory = chunk(conn, len(DATA))
    calls = [call(conn, nfs3.read(0, len(DATA)), writes=[memory]) for _ in range(2)]
    for one in calls:
        reply(one, nfs3.read_reply(DATA))
    assert compare(frame_batches(Capture(conn.wire).frames, [])) == 1


def test_memory_used_by_one_call_after_the_other_is_in_rows() -> None:
    conn = settled()
    memory = chunk(conn, len(DATA))
    for _ in range(3):
        reply(call(conn, nfs3.read(0, len(DATA)), writes=[memory]), nfs3.read_reply(DATA))
    assert compare(frame_batches(Capture(conn.wire).frames, [])) == 4


def test_memory_of_an_earlier_call_without_a_reply_is_no_row() -> None:
    conn = settled()
    memory = chunk(conn, len(DATA))
    call(conn, nfs3.read(0, len(DATA)), writes=[memory])
    cut = len(Capture(conn.wire).frames)
    reply(call(conn, nfs3.read(0, len(DATA)), writes=[memory]), nfs3.read_reply(DATA))
    for cuts in ([], [cut]):
        assert compare(frame_batches(Capture(conn.wire).frames, cuts)) == 1


def test_segments_filled_in_another_order_are_no_rows() -> None:
    conn = settled()
    exchange = call(conn, nfs3.read(0, len(DATA)), writes=[chunk(conn, len(DATA))])
    reply(exchange, nfs3.read_reply(DATA), split=1000, order=Random(3))
    assert compare(frame_batches(Capture(conn.wire).frames, [])) == 1


def tables(conn: Connection) -> list[RpcTable]:
    analyzer = Analyzer()
    cuts = [len(Capture(conn.wire).frames)]
    return [analyzer.feed_table(analyzer.decoder.take(one)) for one in frame_batches(Capture(conn.wire).frames, cuts)]


def test_transfers_are_no_objects_until_they_are_wanted() -> None:
    conn = settled()
    for shape in BULK:
        shape(conn, 700)
    (table,) = tables(conn)
    assert table.origin is not None and table.origin.chunks is not None
    found = table.origin.chunks.found
    assert sum(map(len, found.runs)) == len(found) and not any(run.made for run in found.runs)
    wanted = [
        one.payload.whole for rpc in table for chunk in rpc.chunks for use in chunk.segments for one in use.operations
    ]
    assert len(wanted) == len(found) == sum(len(run.made) for run in found.runs) and all(wanted)
    assert [*found] == [
        one for rpc in table for chunk in rpc.chunks for use in chunk.segments for one in use.operations
    ]


@pytest.mark.parametrize("contents", [True, False], ids=["contents", "no contents"])
@pytest.mark.parametrize("kind", ["read", "response", "write"])
def test_transfers_that_are_repeated_in_a_later_batch(kind: str, contents: bool) -> None:
    """Of more than are remembered the first, some in the middle, and the last, with their own bytes and with others."""
    conn = settled()
    for _ in range(12):
        write3(conn, 500)
        read3(conn, 500)
    packets = conn.wire.packets
    mine = [index for index, packet in enumerate(packets) if packet.kind == kind and packet.connection == conn.number]
    again = [packets[index] for index in (mine[0], mine[len(mine) // 2], *mine[-9:])]
    last = packets[-1].time
    again = [replace(one, time=last + 1000 * at) for at, one in enumerate(again, 1)]
    again += [replace(one, time=last + 20000, payload=b"\1" + one.payload[1:]) for one in again[-1:] if one.payload]
    frames = Capture(conn.wire, [*packets, *again]).frames
    compare(frame_batches(frames, [len(frames) - len(again)]), contents)
    compare(frame_batches(frames, []), contents)


def test_a_table_whose_rpcs_with_many_chunks_are_objects() -> None:
    conn = settled()
    for one in (read3, listing, write4):
        one(conn, None)
        reply(call(conn, nfs3.readdirplus(), reply_chunk=chunk(conn, 5000)), nfs3.readdirplus_reply([b"a"] * 9))
    (table,) = tables(conn)
    few = table.with_readable_rows()
    assert len(table.objects) == 0 and len(few.objects) == 3 and len(few) == len(table) == 7
    assert [plainly(one) for one in few] == [plainly(one) for one in table]
    assert (few.only_rows["chunks"] == few.only_rows["transfer"]).all()
    assert few.with_readable_rows() is few


def test_chosen_rows_keep_their_chunks() -> None:
    conn = settled()
    for one in (read3, listing, write4, write3):
        one(conn, None)
    (table,) = tables(conn)
    for first, behind in pairwise(range(0, len(table) + 1, 2)):
        mask = np.zeros(len(table), np.bool_)
        mask[first:behind] = True
        assert [plainly(one) for one in table.selected(mask)] == [plainly(one) for one in table[first:behind]]
