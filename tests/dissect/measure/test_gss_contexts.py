"""Contexts of RPCSEC_GSS out of conversations.  There is no Kerberos here: tokens and checksums are made up."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from playbook import Wire, nfs3, nfs4, reply
from playbook.capture import Capture, frame_batch
from playbook.gss import CONTINUE, INTEGRITY, NONE, PRIVACY, Context
from playbook.rpc import Call, Reply, u32
from playbook.rpcrdma import call
from playbook.wire import Connection
from playbook.xdr_encode import done, op
from rdmascope.dissect.measure.gss_contexts import GssContext
from rdmascope.dissect.measure.nfs_state_history import NfsStateHistory
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.message_trees import decoded_call, decoded_reply
from rdmascope.dissect.rpcrdma.rpcs import Rpc

NFS = 100003
CTXPROBLEM = 14
NAMES = {NONE: "none", INTEGRITY: "integrity", PRIVACY: "privacy"}


def taken(wire: Wire) -> tuple[NfsStateHistory, list[Rpc]]:
    history = NfsStateHistory()
    analyzer = Analyzer(listener=history.listener)
    rpcs = analyzer.feed(frame_batch(Capture(wire).frames))
    history.advance()
    rpcs += analyzer.finish()
    history.finish()
    return history, rpcs


def only(wire: Wire) -> GssContext:
    (context,) = taken(wire)[0].security.contexts
    return context


def created(context: Context, version: int = 4) -> tuple[Wire, Connection]:
    wire = Wire()
    connection = wire.connect()
    asked, answered = context.create(NFS, version)
    reply(call(connection, asked), answered)
    return wire, connection


def ask(connection: Connection, context: Context, asked: Call, answered: Reply) -> None:
    reply(call(connection, context.call(asked)), context.reply(answered))


@pytest.mark.parametrize("service", NAMES)
def test_a_context_from_its_creation_to_its_end(service: int) -> None:
    one = Context(service)
    wire, connection = created(one, 3)
    for _ in range(3):
        ask(connection, one, nfs3.getattr_(), nfs3.getattr_reply())
    asked, answered = one.destroy(NFS, 3)
    reply(call(connection, asked), answered)
    context = only(wire)
    assert (context.handle, context.version, context.window, context.round_trips) == (b"context 1", 1, 128, 1)
    assert (dict(context.calls), context.first, context.highest) == ({NAMES[service]: 3}, 1, 3)
    assert 0 < context.frame < context.ended_frame
    assert (context.late, context.below_window, context.repeated, context.failures) == (0, 0, 0, {})


def test_a_context_that_takes_two_round_trips() -> None:
    one = Context(window=0)
    wire, connection = created(one)
    one.window = 64
    asked, answered = one.create(NFS, 4, CONTINUE)
    reply(call(connection, asked), answered)
    context = only(wire)
    assert (context.round_trips, context.window) == (2, 64)


def test_a_context_from_before_the_capture() -> None:
    wire = Wire()
    ask(wire.connect(), Context(sequence=900), nfs3.getattr_(), nfs3.getattr_reply())
    context = only(wire)
    assert (context.frame, context.window, context.first, context.round_trips) == (0, None, 901, 0)


def test_sequence_numbers_out_of_order() -> None:
    one = Context(NONE, window=4)
    wire, connection = created(one)
    for number in (1, 2, 9, 8, 5, 5):
        one.sequence = number - 1
        ask(connection, one, nfs4.compound(nfs4.putfh(), minor=0), nfs4.compound_reply(nfs4.putfh_done()))
    context = only(wire)
    assert (context.first, context.highest) == (1, 9)
    assert (context.late, context.below_window, context.repeated) == (3, 2, 1)


def test_state_of_nfs_is_known_with_integrity_as_without_any_service() -> None:
    def talked(service: int) -> NfsStateHistory:
        one = Context(service)
        wire, connection = created(one)
        owner = {"co_verifier": b"verifier", "co_ownerid": b"me"}
        asked = nfs4.compound(op("EXCHANGE_ID", eia_clientowner=owner))
        ask(connection, one, asked, nfs4.compound_reply(done("EXCHANGE_ID", eir_clientid=9)))
        asked = nfs4.compound(op("CREATE_SESSION", csa_clientid=9))
        slots = {"ca_maxrequests": 4}
        answered = done("CREATE_SESSION", csr_sessionid=nfs4.SESSION, csr_fore_chan_attrs=slots)
        ask(connection, one, asked, nfs4.compound_reply(answered))
        asked = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.getattr_())
        ask(connection, one, asked, nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.getattr_done()))
        return taken(wire)[0]

    for service in (NONE, INTEGRITY):
        history = talked(service)
        (session,) = history.sessions
        assert (session.client.owner, session.fore.agreed, session.fore.requests) == (b"me", 4, 1)
    sealed = talked(PRIVACY)
    assert (sealed.clients, sealed.sessions, sealed.undecoded) == ([], [], 0)
    assert sealed.security.contexts[0].calls == {"privacy": 3}


def test_what_is_sealed_is_marked_and_what_is_not_is_decoded() -> None:
    for service in NAMES:
        one = Context(service)
        wire, connection = created(one, 3)
        ask(connection, one, nfs3.read(4096, 12), nfs3.read_reply(b"twelve bytes"))
        rpc = taken(wire)[1][-1]
        call_side, reply_side = decoded_call(rpc), decoded_reply(rpc)
        assert call_side is not None and reply_side is not None
        for side in (call_side, reply_side):
            assert side.tree.problem == "" and side.tree.body is not None
        nodes = {node.name: node for side in (call_side, reply_side) for node in side.tree.body.walk()}  # type: ignore[union-attr]
        if service == PRIVACY:
            assert nodes["databody_priv"].note == "sealed by RPCSEC_GSS" and "offset" not in nodes
        else:
            assert (nodes["offset"].value, bytes(nodes["data"].value)) == (4096, b"twelve bytes")  # type: ignore[arg-type]


def test_a_server_that_lost_its_contexts() -> None:
    one = Context()
    wire, connection = created(one, 3)
    exchange = call(connection, one.call(nfs3.getattr_()))
    reply(exchange, Reply(denied=True, auth_error=CTXPROBLEM))
    assert only(wire).failures == {"RPCSEC_GSS_CTXPROBLEM": 1}


@given(st.binary(max_size=80), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_any_credential(body: bytes, procedure: int, length: int) -> None:
    wire = Wire()
    connection = wire.connect()
    padded = body + bytes(-len(body) % 4)
    asked = Call(NFS, 3, 0, (), u32(6, len(body)) + u32(1, procedure, 1, 2) + u32(length) + padded + u32(0, 0))
    reply(call(connection, asked), nfs3.getattr_reply())
    assert len(taken(wire)[0].security.contexts) <= 1
