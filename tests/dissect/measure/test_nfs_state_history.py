"""What clients hold on a server, out of conversations of client and server."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings, strategies as st

from playbook import Wire, faults, nfs4, reply
from playbook.capture import Capture, frame_batches
from playbook.nfs4_client import CLIENT_ID, Client, stateid
from playbook.packets import Packet
from playbook.rows import decided
from playbook.rpcrdma import Exchange, call
from playbook.wire import Connection, Segment
from playbook.xdr_encode import callback_op, done, op
from rdmascope.dissect.measure import nfs_state_history, nfs_state_operations
from rdmascope.dissect.measure.nfs_state import RETRY, NfsClient, NfsSession, Wait
from rdmascope.dissect.measure.nfs_state_history import NO_REPLY, NfsStateHistory
from rdmascope.dissect.measure.nfs_state_operations import FORGOTTEN, GUESSED, RESTARTED
from rdmascope.dissect.measure.nfs_waits import DELAY, GRACE, NO_CREDIT, NO_SLOT, RECALL, STATE_LOST, waits
from rdmascope.dissect.records.nfs_state import state_records
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options

GRACE_STATUS, BADSESSION, STALE_CLIENTID, DELAYED, UNCACHED, DENIED = 10013, 10052, 10022, 10008, 10068, 10010
OTHER = b"another session.", b"yet another one."
MILLISECOND = 1_000_000
LIMIT = 50
"""Of clients and sessions, where a capture names more."""


def taken(wire: Wire, packets: list[Packet] | None = None, cuts: tuple[int, ...] = ()) -> NfsStateHistory:
    """The same in columns, many at a time and one by one, and one RPC after the other."""
    histories = [_taken(wire, packets, cuts, *how) for how in ((True, 1), (True, 1 << 20), (False, 1))]
    one, *others = ([*state_records(history)] for history in histories)
    assert others == [one, one]
    return histories[0]


def _taken(wire: Wire, packets: list[Packet] | None, cuts: tuple[int, ...], rows: bool, many: int) -> NfsStateHistory:
    history = NfsStateHistory()
    analyzer = Analyzer(listener=history.listener)
    with decided(rows), mock.patch.object(nfs_state_history, "MANY", many):
        for batch in frame_batches(Capture(wire, packets).frames, cuts):
            analyzer.feed(batch)
            history.advance()
        analyzer.finish()
    history.finish()
    return history


def connected() -> tuple[Wire, Client]:
    wire = Wire()
    return wire, Client(wire.connect())


def only(history: NfsStateHistory) -> tuple[NfsClient, NfsSession]:
    (client,), (session,) = history.clients, history.sessions
    return client, session


def waited(history: NfsStateHistory) -> dict[str, Wait]:
    return {wait.reason: wait for wait in waits(history)}


def test_a_client_and_its_session_from_begin_to_end() -> None:
    wire, one = connected()
    one.begin()
    one.ask(op("GETATTR", attr_request=(10,)), done("GETATTR", obj_attributes={"lease_time": 90}))
    one.alone(op("DESTROY_SESSION", dsa_sessionid=one.session), done("DESTROY_SESSION"))
    one.alone(op("DESTROY_CLIENTID", dca_clientid=CLIENT_ID), done("DESTROY_CLIENTID"))
    client, session = only(taken(wire))
    assert (client.id, client.owner, client.implementation) == (CLIENT_ID, b"client.example", "Linux 6.1")
    assert (client.minor_version, client.roles, client.lease) == (1, ("pNFS metadata server",), 90)
    assert (client.ended_by, session.ended_by) == ("DESTROY_CLIENTID", "DESTROY_SESSION")
    assert client.frame < client.confirmed_frame == session.frame < client.reclaim_complete
    assert client.renewals == 2
    assert (session.fore.agreed, session.back.agreed, session.fore_sizes) == (4, 2, (65536, 65536, 0, 8))
    assert session.connections == {1: "CREATE_SESSION"}


@pytest.mark.parametrize("cuts", [(), (9,), (9, 14, 20)])
def test_however_the_frames_come_in_batches(cuts: tuple[int, ...]) -> None:
    wire, one = connected()
    one.begin()
    one.open(1, delegation=7)
    one.recall(7)
    one.give_back(7)
    client, session = only(taken(wire, cuts=cuts))
    assert (session.fore.requests, session.fore.in_use, session.back.requests, client.delegations.returned) == (
        3,
        0,
        1,
        1,
    )
    assert not session.fore.events


def test_what_began_before_the_capture_is_marked() -> None:
    wire, one = connected()
    one.sequences[0] = 41
    one.close(3)
    one.give_back(9)
    client, session = only(taken(wire))
    assert (client.frame, client.id, client.owner, session.frame, session.fore.agreed) == (0, None, None, 0, None)
    assert (session.fore.begun, session.fore.events, session.fore.limit) == (False, [], 4)
    assert (client.opens.returned, client.opens.earlier, client.delegations.earlier) == (1, 1, 1)


def test_opens_that_were_not_closed() -> None:
    wire, one = connected()
    one.begin()
    one.open(1)
    one.open(2)
    one.open(2)  # Of the same file once more: the same state.
    one.close(1)
    client, _ = only(taken(wire))
    assert (client.opens.granted, client.opens.returned) == (2, 1)
    assert [(state.kind, state.handle) for state in client.opens.held.values()] == [("read", nfs4.FH)]


def test_locks_are_held_until_their_last_byte_is_unlocked() -> None:
    wire, one = connected()
    one.begin()
    locker = {"new_lock_owner": 1, "open_stateid": stateid(1), "lock_owner": {"owner": b"lock owner"}}
    for offset, length in ((0, 10), (20, 10)):
        asked = op("LOCK", locktype=2, offset=offset, length=length, locker=locker)
        one.ask(asked, done("LOCK", lock_stateid=stateid(5)))
    one.ask(op("LOCK", locktype=2, length=9, locker=locker), done("LOCK", DENIED))
    client, _ = only(taken(wire))
    (state,) = client.locks.held.values()
    assert (state.kind, state.ranges, client.denied) == ("write", [(0, 10), (20, 30)], 1)
    one.ask(op("LOCKU", lock_stateid=stateid(5), offset=5, length=20), done("LOCKU", lock_stateid=stateid(5)))
    client, _ = only(taken(wire))
    assert next(iter(client.locks.held.values())).ranges == [(0, 5), (25, 30)]
    one.ask(op("LOCKU", lock_stateid=stateid(5), length=2**64 - 1), done("LOCKU", lock_stateid=stateid(5)))
    client, _ = only(taken(wire))
    assert (client.locks.granted, client.locks.returned, client.locks.held) == (1, 1, {})


def test_a_recall_lasts_until_the_delegation_is_returned() -> None:
    wire, one = connected()
    one.begin()
    one.open(1, delegation=7)
    one.recall(7)
    one.ask(op("SETATTR", stateid=stateid(1)), done("SETATTR", DELAYED))
    wire.pause(5 * MILLISECOND)
    one.give_back(7)
    history = taken(wire)
    (state,) = only(history)[0].listed
    assert (state.kind, state.handle, state.delays) == ("read", nfs4.FH, 1)
    assert 0 < state.frame < state.recalled_frame < state.returned_frame
    assert state.recall_time is not None and 5 * MILLISECOND < state.recall_time < 6 * MILLISECOND
    assert waited(history)[RECALL].duration == state.recall_time
    assert (waited(history)[DELAY].count, waited(history)[DELAY].duration) == (1, None)


def begin_recall(one: Client, delegation: int) -> Exchange:
    return one.called_back(callback_op("CB_RECALL", stateid=stateid(delegation), fh=nfs4.FH))


def end_recall(exchange: Exchange) -> None:
    reply(exchange, nfs4.compound_reply(nfs4.Op(11, nfs4.cb_sequence_done(1).parts), nfs4.cb_recall_done()))


@pytest.mark.parametrize("cuts", [(), tuple(range(1, 60)), (30,)])
def test_a_delegation_that_comes_back_before_the_recall_is_answered(cuts: tuple[int, ...]) -> None:
    wire, one = connected()
    one.begin()
    one.open(1, delegation=7)
    recall = begin_recall(one, 7)
    wire.pause(5 * MILLISECOND)
    one.give_back(7)
    wire.pause(5 * MILLISECOND)
    end_recall(recall)
    one.ask(op("SETATTR", stateid=stateid(1)), done("SETATTR"))
    history = taken(wire, cuts=cuts)
    client, _ = only(history)
    (state,) = client.listed
    assert state.frame < state.recalled_frame < state.returned_frame
    assert state.recall_time is not None and 5 * MILLISECOND < state.recall_time < 6 * MILLISECOND
    assert (client.delegations.granted, client.delegations.returned, client.delegations.held) == (1, 1, {})
    assert waited(history)[RECALL].ended


def test_a_recall_that_is_never_answered_does_not_keep_what_came_back() -> None:
    wire, one = connected()
    one.begin()
    one.open(1, delegation=7)
    begin_recall(one, 7)
    one.give_back(7)
    (state,) = only(taken(wire))[0].listed
    assert state.recall_time


def test_a_recall_that_crosses_the_return_invents_no_delegation() -> None:
    wire, one = connected()
    one.begin()
    one.open(1, delegation=7)
    one.give_back(7)
    one.recall(7)
    history = taken(wire)
    (state,) = only(history)[0].listed
    assert state.returned_frame and not only(history)[0].delegations.held
    assert RECALL not in waited(history)


def test_a_recall_that_comes_before_the_open_is_answered() -> None:
    """RFC 8881, 2.10.6.3: the server had granted it already."""
    wire, one = connected()
    one.begin()
    opening = one.sent(nfs4.putfh(), op("OPEN", share_access=1, owner={"owner": b"o"}, claim={"claim": 4}))
    one.recall(7)
    granted = {"delegation_type": 1, "stateid": stateid(7)}
    one.answered(opening, nfs4.putfh_done(), done("OPEN", stateid=stateid(1), delegation=granted))
    one.give_back(7)
    client, _ = only(taken(wire))
    (state,) = client.listed
    assert (state.kind, client.delegations.granted, client.delegations.earlier) == ("read", 1, 0)
    assert 0 < state.recalled_frame < state.frame < state.returned_frame


def test_a_recall_that_is_outstanding_at_the_end_and_of_an_unknown_delegation() -> None:
    wire, one = connected()
    one.begin()
    one.recall(8)
    history = taken(wire)
    (state,) = only(history)[0].listed
    assert (state.kind, state.handle, state.frame, state.recall_time) == ("?", nfs4.FH, 0, None)
    assert not waited(history)[RECALL].ended


@pytest.mark.parametrize("one_direction", [False, True])
def test_a_recall_whose_return_the_capture_may_lack(one_direction: bool) -> None:
    wire, one = connected()
    one.begin()
    one.open(1, delegation=7)
    one.recall(7)
    before = len(wire.packets)
    one.give_back(7)
    returned = range(before, len(wire.packets))
    one.ask(nfs4.putfh(), nfs4.putfh_done())
    packets = wire.packets
    lost = [at for at, packet in enumerate(packets) if packet.sender == 0] if one_direction else returned
    history = taken(wire, faults.drop(packets, lost))
    wait = waited(history)[RECALL]
    assert (wait.ended, wait.duration) == (False, None)


def test_all_slots_in_use() -> None:
    wire, one = connected()
    one.begin()
    outstanding = [one.sent(nfs4.putfh(), slot=slot) for slot in range(4)]
    wire.pause(3 * MILLISECOND)
    for slot, exchange in enumerate(outstanding):
        one.answered(exchange, nfs4.putfh_done(), slot=slot)
    history = taken(wire)
    _, session = only(history)
    wait = waited(history)[NO_SLOT]
    assert (session.fore.max_in_use, session.fore.at_limit_count, wait.session) == (4, 1, session)
    assert wait.duration is not None and 3 * MILLISECOND <= wait.duration < 4 * MILLISECOND
    assert NO_CREDIT not in waited(history)


def uses_the_only_credit(wire: Wire, one: Client) -> None:
    """One credit is left, and a call has it for two milliseconds."""
    one.begin()
    one.answered(one.sent(nfs4.putfh()), nfs4.putfh_done())
    last = call(one.connection, nfs4.compound(op("PUTROOTFH"), minor=0))
    reply(last, nfs4.compound_reply(done("PUTROOTFH")), credits=1)
    exchange = one.sent(nfs4.putfh())
    wire.pause(2 * MILLISECOND)
    one.answered(exchange, nfs4.putfh_done())


def test_all_credits_in_use() -> None:
    wire, one = connected()
    uses_the_only_credit(wire, one)
    wait = waited(taken(wire))[NO_CREDIT]
    assert wait.connection == 1 and wait.duration is not None and wait.duration >= 2 * MILLISECOND


def test_of_evicted_connections_only_what_they_waited_for_is_kept() -> None:
    wire, one = connected()
    uses_the_only_credit(wire, one)
    for number in range(20):
        rpc = call(wire.connect(client=f"10.0.1.{number}"), nfs4.compound(op("PUTROOTFH"), minor=0))
        reply(rpc, nfs4.compound_reply(done("PUTROOTFH")))
    history = NfsStateHistory()
    analyzer = Analyzer(Options(max_connections=2, ended=0), history.listener)
    frames = Capture(wire).frames
    for batch in frame_batches(frames, tuple(range(1, len(frames)))):
        analyzer.feed(batch)
        history.evict(analyzer.evicted_since())
        assert len(history.credits) <= 4
    analyzer.finish()
    history.finish()
    assert analyzer.evicted.connections >= 18
    assert waited(history)[NO_CREDIT] == waited(taken(wire))[NO_CREDIT]


def lost_reply(one: Client, other: Connection, cached: bool = False) -> None:
    """A call whose reply does not arrive, and its retry on another connection."""
    asked = op("REMOVE", target=b"name")
    one.sent(nfs4.putfh(), asked, cached=cached)
    one.connection.disconnect()
    bind = op("BIND_CONN_TO_SESSION", bctsa_sessid=one.session, bctsa_dir=3)
    again = call(other, nfs4.compound(bind))
    reply(again, nfs4.compound_reply(done("BIND_CONN_TO_SESSION", bctsr_sessid=one.session, bctsr_dir=3)))
    retried = one.sent(nfs4.putfh(), asked, sequence=one.sequences[0], connection=other)
    if cached:
        one.answered(retried, nfs4.putfh_done(), done("REMOVE"))
    else:
        reply(retried, nfs4.compound_reply(nfs4.sequence_done(), nfs4.Op(22, status=UNCACHED)))


@pytest.mark.parametrize("cached", [False, True])
def test_a_retry_on_another_connection(cached: bool) -> None:
    wire, one = connected()
    one.begin()
    lost_reply(one, wire.connect(), cached)
    client, session = only(taken(wire))
    (event,) = session.fore.events
    assert event.earlier is not None
    assert (event.kind, event.use.connection, event.earlier.connection) == (RETRY, 2, 1)
    assert (event.earlier.cached, event.earlier.reply_frame) == (cached, 0)
    assert event.use.status == ("OK" if cached else "NFS4ERR_RETRY_UNCACHED_REP")
    assert session.connections == {1: "CREATE_SESSION", 2: "BIND_CONN_TO_SESSION, fore and back"}
    assert ("NFS4ERR_RETRY_UNCACHED_REP" in client.statuses) is not cached


def test_a_server_that_restarted() -> None:
    wire, one = connected()
    one.begin()
    one.open(1)
    one.refused(one.sent(nfs4.putfh()), BADSESSION)
    one.alone(op("CREATE_SESSION", csa_clientid=CLIENT_ID), done("CREATE_SESSION", STALE_CLIENTID))
    new = Client(one.connection, OTHER[0])
    new.exchange_id(client=5)
    new.create_session(client=5)
    new.ask(op("OPEN", claim={"claim": 0, "file": b"x"}), done("OPEN", GRACE_STATUS))
    new.open(2, claim=1)
    wire.pause(4 * MILLISECOND)
    new.ask(op("RECLAIM_COMPLETE"), done("RECLAIM_COMPLETE"))
    new.open(3)
    history = taken(wire)
    before, client = history.clients
    assert (client.before, client.lost, before.ended_by) == (before, FORGOTTEN, "a new client ID")
    assert history.sessions[0].ended_by == "NFS4ERR_BADSESSION"
    assert (client.reclaims, [state.reclaimed for state in client.opens.held.values()]) == (1, [True, False])
    lost, grace = waited(history)[STATE_LOST], waited(history)[GRACE]
    assert lost.ended and lost.duration is not None and lost.duration > 4 * MILLISECOND
    assert (grace.count, grace.ended) == (1, True)


def test_a_client_that_restarted_has_another_verifier() -> None:
    wire, one = connected()
    one.begin()
    one.exchange_id(client=6, co_verifier=b"restart!")
    assert taken(wire).clients[1].lost == RESTARTED


def test_a_second_exchange_id_before_the_first_session_is_of_one_client() -> None:
    wire, one = connected()
    one.exchange_id(client=6)
    one.begin()
    client, _ = only(taken(wire))
    assert (client.id, client.before) == (CLIENT_ID, None)


def test_a_session_from_before_the_capture_that_is_lost() -> None:
    wire, one = connected()
    one.sequences[0] = 8
    one.refused(one.sent(nfs4.putfh()), BADSESSION)
    new = Client(one.connection, OTHER[0])
    new.begin()
    before, client = taken(wire).clients
    assert (client.before, client.lost) == (before, GUESSED)


def test_version_0_has_clients_without_sessions() -> None:
    wire, one = connected()
    one.minor = 0
    owner = {"verifier": b"verifier", "id": b"client 0"}
    one.alone(op("SETCLIENTID", client=owner), done("SETCLIENTID", clientid=77))
    one.alone(op("SETCLIENTID_CONFIRM", clientid=77), done("SETCLIENTID_CONFIRM"))
    for _ in range(2):
        wire.pause(MILLISECOND)
        one.alone(op("RENEW", clientid=77), done("RENEW"))
    asked = op("OPEN", owner={"clientid": 77, "owner": b"o"}, claim={"claim": 0, "file": b"x"})
    one.alone(asked, done("OPEN", stateid=stateid(1), delegation={"delegation_type": 0}))
    history = taken(wire)
    (client,) = history.clients
    assert (client.minor_version, client.id, client.owner, client.renewals) == (0, 77, b"client 0", 3)
    assert client.longest is not None and client.longest[0] >= MILLISECOND
    assert (client.opens.granted, history.sessions) == (1, [])


def test_a_server_that_does_not_answer() -> None:
    wire, one = connected()
    one.exchange_id()
    call(one.connection, nfs4.compound(op("CREATE_SESSION", csa_clientid=CLIENT_ID)))
    history = taken(wire)
    (client,) = history.clients
    assert (client.confirmed_frame, client.statuses[NO_REPLY].count) == (0, 1)
    assert not waited(history)[NO_REPLY].ended


def test_replies_that_were_not_captured_are_no_failures() -> None:
    wire, one = connected()
    one.begin()
    for _ in range(3):
        one.ask(op("GETATTR"), done("GETATTR"))
    (client,) = taken(wire, [packet for packet in wire.packets if packet.sender == 0]).clients
    assert NO_REPLY not in client.statuses


def test_layouts() -> None:
    wire, one = connected()
    one.begin()
    one.ask(op("LAYOUTGET", loga_layout_type=1), done("LAYOUTGET", logr_stateid=stateid(4)))
    given = {"lr_returntype": 1, "lr_layout": {"lrf_stateid": stateid(4)}}
    client, _ = only(taken(wire))
    assert [state.kind for state in client.layouts.held.values()] == ["nfsv4 1 files"]
    one.ask(op("LAYOUTRETURN", lora_layoutreturn=given), done("LAYOUTRETURN"))
    client, _ = only(taken(wire))
    assert (client.layouts.granted, client.layouts.returned) == (1, 1)


@given(st.data())
def test_packets_that_are_lost_do_no_harm(draw: st.DataObject) -> None:
    wire, one = connected()
    one.begin()
    one.open(1, delegation=7)
    one.recall(7)
    one.give_back(7)
    lost_reply(one, wire.connect())
    lost = draw.draw(st.sets(st.integers(0, len(wire.packets) - 1)))
    history = taken(wire, [packet for number, packet in enumerate(wire.packets) if number not in lost])
    waits(history)
    for session in history.sessions:
        assert session.fore.in_use >= 0 and session.fore.requests >= len(session.fore.events)


CHANGES = st.one_of(
    st.tuples(st.sampled_from(("open", "delegate", "close", "give back", "recall", "lock")), st.integers(0, 2)),
    st.tuples(st.just("attributes"), st.sampled_from([(4,), (1, 4), (10,), (4, 10), (4, 19), (19,)])),
)


class Offering(Client):
    """Offers a Reply chunk with some of its calls, which the server then fills."""

    offers = False

    def sent(self, *ops: nfs4.Op, **how: Any) -> Exchange:
        handle = 1000 + len(self.connection.wire.packets)
        chunk = [Segment(handle, 4096, 1 << 32)] if self.offers else None
        return super().sent(*ops, **how, reply_chunk=chunk)


def happens(one: Client, what: str, which: int | tuple[int, ...]) -> None:
    if isinstance(which, tuple):
        known = {1: ("type", 1), 4: ("size", 90), 10: ("lease_time", 90), 19: ("filehandle", b"of attributes...")}
        attributes = dict(known[number] for number in which)
        exchange = one.sent(nfs4.putfh(), op("GETATTR", attr_request=which), op("CLOSE", open_stateid=stateid(1)))
        one.answered(exchange, nfs4.putfh_done(), done("GETATTR", obj_attributes=attributes), done("CLOSE"))
    elif what in ("open", "delegate"):
        one.open(which, 7 + which if what == "delegate" else None, handle=bytes([which]) * (4 + 4 * which))
    elif what == "close":
        one.close(which)
    elif what == "give back":
        one.give_back(7 + which)
    elif what == "recall":
        one.recall(7 + which)
    else:
        asked = op("LOCK", locktype=2, offset=which, length=1)
        one.ask(asked, done("LOCK", lock_stateid=stateid(20 + which)) if which else done("LOCK", DENIED))


@settings(max_examples=25)
@given(st.lists(st.tuples(CHANGES, st.booleans()), max_size=12), st.lists(st.integers(0, 60), max_size=2))
def test_whatever_changes_state_is_the_same_in_columns(
    changes: list[tuple[tuple[str, Any], bool]], cuts: list[int]
) -> None:
    wire = Wire()
    one = Offering(wire.connect())
    one.begin()
    for change, one.offers in changes:
        happens(one, *change)
    taken(wire, cuts=tuple(cuts))


def hostile(sessions: int) -> int:
    """Bytes that stay behind calls on so many sessions, each of which is named once."""
    wire = Wire()
    connection = wire.connect()
    for number in range(sessions):
        one = Client(connection, number.to_bytes(16, "big"))
        one.close(number)
    batches = frame_batches(Capture(wire).frames, ())
    tracemalloc.start()
    history = NfsStateHistory()
    analyzer = Analyzer(listener=history.listener)
    for batch in batches:
        analyzer.feed(batch)
        history.advance()
    analyzer.finish()
    history.finish()
    del analyzer, batches
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert history.table.untracked == max(0, sessions - LIMIT)
    return held


def test_what_a_hostile_capture_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{nfs_state_operations.__name__}.MAX_CLIENTS", LIMIT)
    monkeypatch.setattr(f"{nfs_state_operations.__name__}.MAX_SESSIONS", LIMIT)
    _, once, twice, four = hostile(20), hostile(100), hostile(200), hostile(400)
    assert four < 1.3 * twice < 1.7 * once


def announced(conn: Connection, client: int, scope: bytes) -> Client:
    """A client that asks a server for its owner and scope (RFC 8881, 2.10.5)."""
    one = Client(conn)
    owner = {"co_verifier": b"verifier", "co_ownerid": b"client.example"}
    server = {"so_minor_id": 1, "so_major_id": b"server.example"}
    one.alone(
        op("EXCHANGE_ID", eia_clientowner=owner),
        done("EXCHANGE_ID", eir_clientid=client, eir_server_owner=server, eir_server_scope=scope),
    )
    return one


def test_a_server_with_two_addresses_is_one() -> None:
    wire = Wire()
    first = announced(wire.connect(), CLIENT_ID, b"scope")
    first.create_session()
    first.ask(op("RECLAIM_COMPLETE"), done("RECLAIM_COMPLETE"))
    second = wire.connect(server="10.0.1.1")
    announced(second, CLIENT_ID, b"scope")
    first.connection = second
    first.ask(op("RECLAIM_COMPLETE"), done("RECLAIM_COMPLETE"))
    client, session = only(taken(wire))
    assert (client.server, list(client.server_addresses)) == ("10.0.0.1", ["10.0.1.1"])
    assert not client.lost and not client.ended_frame and len(session.connections) == 2


@pytest.mark.parametrize(("id", "scope"), [(CLIENT_ID + 1, b"scope"), (CLIENT_ID, b"another")])
def test_servers_that_give_other_ids_or_have_another_scope_are_two(id: int, scope: bytes) -> None:
    wire = Wire()
    announced(wire.connect(), CLIENT_ID, b"scope")
    announced(wire.connect(server="10.0.1.1"), id, scope)
    clients = taken(wire).clients
    assert [one.server for one in clients] == ["10.0.0.1", "10.0.1.1"]
    assert not any(one.lost or one.server_addresses for one in clients)
