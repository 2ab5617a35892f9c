"""Row RPCs in columns are the same RPCs, with the same state left behind, as one Operation after the other gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from playbook import Capture, Wire, call, faults, nfs3, nfs4, reply
from playbook.capture import frame_batch, frame_batches
from playbook.gss import INTEGRITY, NONE, PRIVACY, Context
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.rows import decided
from playbook.samples import MANIFEST, SAMPLES
from playbook.strategies import CAPTURE_FAULTS, WIRE_FAULTS, Conversation, conversations, faulty, few_xids
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.arrays import Int64s, words_at
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.measure.statistics import EXACT, MAX_PROCEDURES, Statistics
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.matching import Matching
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.rpc_table import COLUMNS, PLACES, RPC, RpcNames, RpcTable, rpc_row
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Rpc
from rdmascope.dissect.transport.operations import Operation

from .test_analyzer_playbook import QUICK

CUTS = st.lists(st.integers(0, 1000), max_size=4)


@cache
def names(noun: type[Any]) -> tuple[str, ...]:
    """Of its fields."""
    return tuple(one.name for one in fields(noun))


def plainly(value: object) -> Any:
    """What a noun says, in what can be compared: not where its bytes are, which one way copies where it waits long."""
    match value:
        case Operation():
            payload = value.payload
            only = payload.only and payload.only[0][payload.only[1] : payload.only[2]].tobytes()
            runs = [(at, rows["frame"].tolist()) for at, _, rows in payload.runs]
            own = [getattr(value, name) for name in names(Operation) if name != "payload"]
            return own, payload.length, payload.seen, payload.truncated, runs, only
        case Message():
            header = [getattr(value.header, one.name) for one in fields(value.header)]
            data = value.data[value.start : value.end].tobytes()
            return plainly(value.operation), header, data, value.inline_length
        case ChunkUse():
            uses = [(use.advertised, use.returned, use.contested, plainly(use.operations)) for use in value.segments]
            return value.kind, value.position, uses
        case Rpc():
            said = {name: plainly(getattr(value, name)) for name in names(Rpc) if name != "conversation"}
            return value.connection.number, said
        case list() | tuple():
            return [plainly(one) for one in value]
        case _:
            return value


def open_rows(analyzer: Analyzer) -> dict[tuple[int, int], dict[int, list[int]]]:
    """By connection and caller the calls without a reply that are rows: XID -> numbers."""
    found: dict[tuple[int, int], dict[int, list[int]]] = {}
    machine = analyzer._machine
    for number, opened in machine._open.items():
        assert machine._data is not None
        numbers = iter(opened.numbers)
        for run, rows in opened.runs:
            xids = words_at(machine._data, run.rows["payload"][rows].astype(np.int64)).tolist()
            calls = found.setdefault((number, run.sender), {})
            calls.update({xid: [next(numbers)] for xid in xids})
    return found


def matched(matching: Matching, rows: Mapping[tuple[int, int], dict[int, list[int]]]) -> dict[str, object]:
    """What is known about what comes next."""
    conversation = matching.conversation
    for direction in matching.directions:
        assert direction.answered.soonest
    return {
        "directions": [
            (one.outstanding, one.sent, one.granted, one.last_answered, one.in_order) for one in matching.directions
        ],
        "answered": [one.answered._known[:2].tolist() for one in matching.directions],
        "calls": [
            {xid: [rpc.number for rpc in rpcs] for xid, rpcs in one.calls.items()}
            | rows.get((conversation.connection.number, caller), {})
            for caller, one in enumerate(matching.directions)
        ],
        "replies": [(one.number, one.message.frame, one.earlier) for one in matching.unsettled.replies],
        "settled": matching.settled,
        "waiting": [rpc.number for rpc in (*matching.unsettled.lingering, *matching.unsettled.doubtful)],
        "credits": (conversation.credits_requested, conversation.credits_granted),
        "protocol": (conversation.protocol, conversation.recognised_by),
        "answers": conversation.negotiation.answers,
        "unread": conversation.connection.unread_messages,
    }


LIMITS = {"exact": EXACT, "max_procedures": MAX_PROCEDURES}
"""Of the statistics."""


def counted(sums: Statistics) -> dict[str, object]:
    """Everything that statistics say."""
    return {
        "transfers": {way: asdict(totals) for way, totals in sums.transfers.items()},
        "connections": {number: asdict(share) for number, share in sums.connections.items()},  # in either order
        "reasons": [sums.damage.items(), sums.notes.items()],
        "counts": (sums.calls, sums.truncated, sums.duplicate_replies, sorted(sums.states.items())),
        "timeline": (sums.timeline.width, sums.timeline.rows.tobytes()),
        "slowest": sums.slowest(),
        "histogram": sums.histogram(),
        "procedures": [
            (one.key, one.calls, one.failed, one.call_bytes, one.reply_bytes, sorted(one.states.items()),
             sorted(one.statuses.items()), one.latency(), one.parts(), one.waited)
            for one in sorted(sums._procedures.values(), key=lambda one: str(one.key))
        ],
    }  # fmt: skip


class Way:
    """One of the two."""

    def __init__(self, columns: bool, contents: bool = True) -> None:
        self.analyzer = Analyzer(Options(contents=contents))
        self.kept: list[RpcTable] = []
        self.in_rows = 0
        self.seen: list[object] = []
        self.statistics = Statistics(3, **LIMITS)
        self.columns = columns

    def feed(self, batches: Iterable[FrameBatch]) -> Way:
        with decided(self.columns):
            return self._feed(batches)

    def _feed(self, batches: Iterable[FrameBatch]) -> Way:
        analyzer = self.analyzer
        for batch in batches:
            table = analyzer.feed_table(analyzer.decoder.take(batch))
            self.in_rows += len(table.row_places)
            self._take(table)
            rows = open_rows(analyzer)
            self.seen.append([matched(one.matching, rows) for one in analyzer._dispatchers.values()])
            self.seen.append(analyzer._numbers.last)
        self._take(RpcTable(analyzer.finish()))
        self.seen.append(counted(self.statistics))
        # What was retransmitted after its RPC had ended is noted in it all the same.
        self.seen.append([plainly(rpc) for table in self.kept for rpc in sorted(table, key=attrgetter("number"))])
        self.seen.append([(analyzer.undecoded, analyzer.unplaced)])
        return self

    def _take(self, table: RpcTable) -> None:
        self.kept.append(table)
        if self.columns:
            self.statistics.add_table(table)
        else:
            for rpc in table:
                self.statistics.add_table(RpcTable([rpc]))
        if len(table) and len(self.kept) % 8 == 1:  # Sums only grow: what differs once does so at the end, too.
            self.seen.append(counted(self.statistics))
        # One by one, what may have a second reply ends when that is too late: the order is that of the calls.
        order = table.rows["number"].argsort()
        every = [*table]
        self.seen.append([plainly(every[index]) for index in order.tolist()])
        self.seen.append([plainly(table[index]) for index in order[-3:].tolist()])
        self.seen.append(rows(table, order))


def rows(table: RpcTable, order: Int64s) -> dict[str, object]:
    """The columns of a table, without what only row RPCs have."""
    found: dict[str, object] = {name: table.rows[name][order].tolist() for name in COLUMNS if name not in PLACES}
    found["procedure"] = [table.names.procedures[number] for number in table.rows["procedure"][order].tolist()]
    found["status"] = [table.names.statuses[number] for number in table.rows["status"][order].tolist()]
    return found


def compare(batches: Sequence[FrameBatch], contents: bool = True) -> int:
    """Both ways give the same; how many RPCs were rows."""
    columns, reference = Way(True, contents).feed(batches), Way(False, contents).feed(batches)
    assert not reference.in_rows
    assert len(columns.seen) == len(reference.seen)
    for one, other in zip(columns.seen, reference.seen, strict=True):
        assert one == other
    return columns.in_rows


def sample_batches(name: str, limits: Limits | None = None) -> Iterator[FrameBatch]:
    return Session(str(SAMPLES / MANIFEST[name]["file"]), limits=limits).batches()


@cache
def first_batch(name: str, frames: int) -> FrameBatch:
    return next(sample_batches(name, Limits(frames=frames)))


@pytest.mark.parametrize("name", [*MANIFEST])
def test_every_sample(name: str) -> None:
    compare([*sample_batches(name)])


@pytest.mark.parametrize(("frames", "contents"), [(50, True), (333, True), (333, False), (5000, True)])
def test_batches_of_any_size(frames: int, contents: bool) -> None:
    batches = [*sample_batches("meta-rxe", Limits(frames=frames))]
    # Those in the middle, where NFSv4 comes after NFSv3.
    assert compare(batches[10_000 // frames : 15_000 // frames + 1], contents) > frames // 5


def test_statistics_whose_latencies_become_a_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "exact", 700)
    monkeypatch.setitem(LIMITS, "max_procedures", 9)
    # Of one procedure there are 800, and NFSv4 brings more procedures than are kept.
    compare([*sample_batches("meta-rxe", Limits(frames=1500))][3:9])


@QUICK
@given(faulty(WIRE_FAULTS + CAPTURE_FAULTS, conversations()), CUTS, st.integers(0, 20))
def test_any_conversation_with_any_fault(conversation: Conversation, cuts: list[int], start: int) -> None:
    capture = Capture(conversation.wire, faults.cut(conversation.packets, start))
    compare(frame_batches(capture.frames, cuts))


@QUICK
@given(st.one_of(few_xids(), faulty(conversation=few_xids())), CUTS, st.integers(0, 9))
def test_xids_that_are_used_again(conversation: Conversation, cuts: list[int], start: int) -> None:
    compare(frame_batches(Capture(conversation.wire, faults.cut(conversation.packets, start)).frames, cuts))


def test_one_xid_for_all_calls() -> None:
    """Where each call has its reply before the next, they are rows, wherever a batch ends."""
    wire = Wire()
    conn = wire.connect()
    for number in range(40):
        chunk = conn.register(8000) if number % 4 == 3 else None
        asked = call(conn, nfs3.readdirplus() if chunk else nfs3.getattr_(), xid=7, reply_chunk=chunk)
        answer = nfs3.readdirplus_reply([b"name"] * number) if chunk else nfs3.getattr_reply()
        reply(asked, answer, long=chunk is not None)
    frames = Capture(wire).frames
    assert compare(frame_batches(frames, [])) == 40
    assert compare(frame_batches(frames, range(4, len(frames), 31))) > 30
    both = [call(conn, nfs3.getattr_(), xid=7) for _ in range(2)]
    for one in both:
        reply(one, nfs3.getattr_reply())
    assert compare(frame_batches(Capture(wire).frames, [])) == 40


def test_what_is_missing_costs_its_neighbours_alone() -> None:
    """One packet in 200 is not in the capture: the other RPCs stay in columns."""
    batch = next(sample_batches("meta-rxe", Limits(frames=8000)))
    left = np.arange(len(batch)) % 200 != 150
    rows = batch.rows[left]
    columns, reference = Way(True).feed([FrameBatch(batch.data, rows)]), Way(False).feed([FrameBatch(batch.data, rows)])
    every = sum(map(len, columns.kept))
    assert every == sum(map(len, reference.kept))
    assert columns.in_rows > every * 0.9


def test_replies_whose_calls_are_missing_stay_rows() -> None:
    """All but one at the end of the batch, whose call may still come."""
    wire = Wire()
    conn = wire.connect()
    for xid in range(200):
        reply(call(conn, nfs3.getattr_(), xid=xid), nfs3.getattr_reply())
    calls = [at for at in faults.where(wire.packets, kind="send") if wire.packets[at].sender == 0]
    frames = Capture(wire, faults.drop(wire.packets, [calls[at] for at in (5, 50, 120, 195)])).frames
    compare(frame_batches(frames, []))
    (table, _) = Way(True).feed(frame_batches(frames, [])).kept
    assert table.origin is not None
    assert table.origin.alone["xid"].tolist() == [5, 50, 120]


def test_what_is_retransmitted_behind_a_gap_of_the_other_end() -> None:
    """The rows of a run that wait for the gap are no rows any more, and what is said of one of them neither."""
    wire = Wire()
    connection = wire.connect(acks="none")
    for _ in range(12):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    calls, replies = (faults.where(wire.packets, kind="send", sender=sender) for sender in (0, 1))
    packets = faults.drop(faults.duplicate(wire.packets, calls[-1], 1), replies[1:2])
    compare(frame_batches(Capture(wire, packets).frames, []))


@settings(QUICK, max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(40, 240), st.integers(0, 255)), min_size=1, max_size=40))
@example([(300, 64, 112), (73, 178, 1), (126, 192, 0)])  # An acknowledgement shows some of a gap, and a call the rest.
def test_any_bytes_in_the_messages(changes: list[tuple[int, int, int]]) -> None:
    """Lengths, versions, counts, types: what one way does not understand, the other does not either."""
    batch = first_batch("meta-rxe", 500)
    data = batch.data.copy()
    for frame, at, value in changes:
        row = batch.rows[frame]
        data[int(row["offset"]) + at % int(row["captured"])] = value
    compare([FrameBatch(data, batch.rows[:200]), FrameBatch(data, batch.rows[200:])])


@pytest.mark.parametrize("frames", [97, 1 << 15])
def test_what_kerberos_protects_is_rows(frames: int) -> None:
    found = compare([*sample_batches("krb5-rxe", Limits(frames=frames))])
    rpcs = [*Session(str(SAMPLES / MANIFEST["krb5-rxe"]["file"])).rpcs()]
    secured = [rpc for rpc in rpcs if rpc.gss is not None]
    assert {rpc.gss.service for rpc in secured if rpc.gss is not None} == {1, 2, 3}
    assert frames == 97 or found > 0.9 * len(secured)


@pytest.mark.parametrize("service", [NONE, INTEGRITY, PRIVACY])
def test_so_is_what_sets_its_contexts_up_and_ends_them(service: int) -> None:
    wire, context = Wire(), Context(service)
    conn = wire.connect()
    began, ended = context.create(nfs4.PROGRAM, 4), context.destroy(nfs4.PROGRAM, 4)
    for asked, answered in (began, ended):
        reply(call(conn, asked), answered)
    assert compare(frame_batches(Capture(wire).frames, [])) == 2


def test_nothing_but_plain_calls() -> None:
    wire = Wire()
    conn = wire.connect()
    open_calls = [call(conn, nfs3.getattr_()) for _ in range(3)]
    for one in open_calls:
        reply(one, nfs3.getattr_reply())
    for number in range(20):
        ops = nfs4.sequence(), nfs4.putfh(), nfs4.getattr_()
        done = nfs4.sequence_done(), nfs4.putfh_done(), nfs4.getattr_done()
        reply(call(conn, nfs4.compound(*ops, tag=b"t" * number)), nfs4.compound_reply(*done, tag=b"t" * number))
    assert compare(frame_batches(Capture(wire).frames, [])) == 23


def test_a_row_of_an_object_is_that_of_the_plain_rpc() -> None:
    names = RpcNames()
    for batch in sample_batches("meta-rxe"):
        analyzer = Analyzer()
        table = analyzer.feed_table(analyzer.decoder.take(batch))
        assert len(table.row_places)
        for index in table.row_places[:50].tolist():
            row, again = table.rows[index], np.array(rpc_row(table[index], names), RPC)
            for name in set(COLUMNS) - {*PLACES, "procedure", "status"}:
                assert row[name] == again[name], name
        break


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("overlapping", [False, True])
def test_replies_through_reply_chunks(shared: bool, overlapping: bool) -> None:
    """Where open calls share a segment, whose Write it is no row can say."""
    wire = Wire()
    conn = wire.connect()
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    chunk = conn.register(2000)
    waiting = []
    for number in range(6):
        waiting.append(call(conn, nfs3.readdirplus(), reply_chunk=chunk if shared else conn.register(2000)))
        if not overlapping or number % 2:
            for one in waiting:
                reply(one, nfs3.readdirplus_reply([b"name"] * number), long=True)
            waiting.clear()
    assert compare(frame_batches(Capture(wire).frames, [])) == (1 if shared and overlapping else 7)


def test_what_is_iwarp_is_counted_with_its_batch() -> None:
    """Row RPCs in the same batch make no difference."""
    roce, iwarp = Wire(seed=1), IwarpWire(seed=1)
    for wire in (roce, iwarp):
        connection = wire.connect()
        for _ in range(3):
            reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    batch = frame_batch([*Capture(roce).frames, *IwarpCapture(iwarp).frames])
    analyzers = [Analyzer(), Analyzer()]
    for rows, analyzer in zip((True, False), analyzers, strict=True):
        with decided(rows):
            assert len(analyzer.feed(batch)) == 6
    assert analyzers[0].packets == analyzers[1].packets > len(Capture(roce).frames)
    assert analyzers[0].skipped == analyzers[1].skipped


@pytest.mark.parametrize("at_once", [1, 4, 5, 20])
def test_calls_that_are_kept_are_fewer_than_a_batch_has(at_once: int) -> None:
    """Columns are taken as long as no more calls are open at a time; the RPCs are the same in any case."""
    wire = Wire()
    connection = wire.connect()
    for _ in range(40 // at_once):
        calls = [call(connection, nfs3.getattr_()) for _ in range(at_once)]
        for one in calls:
            reply(one, nfs3.getattr_reply())
    frames = Capture(wire).frames
    tables = []
    for columns in (True, False):
        analyzer = Analyzer(Options(outstanding=4))
        opening, rest = frame_batches(frames, (len(frames) - 80,))
        with decided(columns):
            analyzer.feed(opening)
            tables.append([analyzer.feed_table(analyzer.decoder.take(rest)), *[RpcTable(analyzer.finish())]])
    assert [len(table.row_places) > 0 for table in (tables[0][0], tables[1][0])] == [at_once <= 4, False]
    both, alone = ([(rpc.number, rpc.xid, rpc.state) for table in each for rpc in table] for each in tables)
    assert both == alone
