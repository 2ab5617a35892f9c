"""Conversations at the very limit of a rule, and just beyond it."""

from __future__ import annotations

import struct

from .. import cm, nfs3, nfs4
from ..rpc import Reply, call_parts, items, opaque, reduced, u32
from ..rpcrdma import MSG, NOMSG, REPLY, call, error, fetch, reply, respond, update, wish
from ..shapes import DATA
from ..wire import Connection, Wire
from .characteristics import RBSIZ, reported
from .scripts import (
    CLIENT,
    SERVER,
    R,
    announced,
    answer,
    asked,
    big_call,
    callback,
    create_session,
    hello,
    listing,
    message,
    opened,
    push,
    reading,
    recalled,
    refuse,
    returned,
    sealed_call,
    session_created,
    sized,
    unreadable,
)
from .variations import breaks, hdr

FORMAT = 0xF6AB0E18


def _private(version: int, flags: int) -> bytes:
    return struct.pack(">IBBBB", FORMAT, version, flags, 3, 3)


@breaks("V1-NOMSG-CHUNK")
def long_call_of_nothing(wire: Wire) -> None:
    """A Read list whose segments have no bytes holds no message."""
    connection = opened(wire)
    connection.send(CLIENT, hdr(connection, 7, NOMSG, reads=[(0, connection.register(0))]))
    refuse(connection, 7)


@breaks("V1-NOMSG-CHUNK")
def long_call_with_nothing_but_a_reply_chunk(wire: Wire) -> None:
    """The server never called, so it is no backward reply, whose Reply chunk would look the same."""
    connection = opened(wire)
    connection.send(CLIENT, hdr(connection, 7, NOMSG, reply=connection.register(128)))
    refuse(connection, 7)


@breaks("V1-RDMA-AFTER-REPLY")
def written_after_the_reply_behind_what_it_returned(wire: Wire) -> None:
    """What the reply returned is what was written before it."""
    rpc = listing(opened(wire))
    reply(rpc, nfs3.readdirplus_reply([b"name"]))
    assert rpc.reply_chunk is not None
    rpc.connection.write(SERVER, rpc.reply_chunk[0].handle, rpc.reply_chunk[0].offset + 4096, DATA[:100])


@breaks("V1-DDP-ELIGIBLE")
def chunk_before_an_inline_call(wire: Wire) -> None:
    """Position 0 is that of a long call."""
    connection = opened(wire)
    connection.send(CLIENT, hdr(connection, 7, reads=[(0, connection.register(512))]) + message(nfs3.getattr_(), 7))
    refuse(connection, 7)


@breaks("PD-VERSION", versions=(1,))
def bits_of_another_format(wire: Wire) -> None:
    """What the bits beside R mean in version 2 of the format is not known."""
    opened(wire, client_private=_private(2, 0xFE))


@breaks("PD-RESERVED", versions=(1,))
def lowest_reserved_bit(wire: Wire) -> None:
    opened(wire, server_private=_private(1, 2))


def call_of(wire: Wire, limit: int, size: int) -> None:
    """A Send of ``size`` bytes where both ends announced ``limit``."""
    announced_size = cm.private_data(limit, limit)
    connection = opened(wire, client_private=announced_size, server_private=announced_size)
    room = size - 28 - len(message(nfs3.write(0, b""), 0))
    reply(call(connection, nfs3.write(0, bytes(room))), nfs3.write_reply(room))


@breaks(versions=(1,))
def smallest_size(wire: Wire) -> None:
    """Size code 0."""
    call_of(wire, 1024, 1024)


@breaks("V1-INLINE-EXCEEDED", versions=(1,))
def smallest_size_overrun(wire: Wire) -> None:
    call_of(wire, 1024, 1028)


@breaks(versions=(1,))
def largest_size(wire: Wire) -> None:
    """Size code 255."""
    call_of(wire, 262144, 262144)


@breaks()
def calls_to_the_last_credit(wire: Wire) -> None:
    connection = opened(wire, credits=3)
    for _ in range(2):
        for rpc in reversed([call(connection, nfs3.getattr_()) for _ in range(3)]):
            reply(rpc, nfs3.getattr_reply(), credits=3)


@breaks()
def callbacks_take_no_forward_credit(wire: Wire) -> None:
    connection = announced(wire)
    recalled(callback(connection))
    waiting = [callback(connection) for _ in range(2)]
    calls = [call(connection, nfs3.getattr_()) for _ in range(30)]
    for rpc in waiting:
        recalled(rpc)
    for rpc in calls:
        reply(rpc, nfs3.getattr_reply())


@breaks()
def pads_of_every_length(wire: Wire) -> None:
    connection = opened(wire)
    for size in range(1, 9):
        rpc = call(connection, nfs3.write(0, DATA[:size]), reads={0: connection.register(size)})
        fetch(rpc)
        reply(rpc, nfs3.write_reply(size))
        reply(reading(connection, size), nfs3.read_reply(DATA[:size], eof=True))
        reply(call(connection, nfs3.write(0, DATA[:size])), nfs3.write_reply(size))
        reply(call(connection, nfs3.read(0, size)), nfs3.read_reply(DATA[:size], eof=True))


@breaks()
def segments_of_no_bytes(wire: Wire) -> None:
    """Between others, in a Write chunk."""
    connection = opened(wire)
    chunk = [*connection.register(100), *connection.register(0), *connection.register(156)]
    rpc = call(connection, nfs3.read(0, 256), writes=[chunk])
    push(rpc, 0, 0, DATA[:100])
    push(rpc, 0, 2, DATA[100:256])
    returned(rpc, nfs3.read_reply(DATA[:256]), writes=[chunk], left_out=[0])


@breaks()
def chunks_without_segments(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.read(0, 100), writes=[[]], reply_chunk=[])
    returned(rpc, nfs3.read_reply(DATA[:100]), writes=[[]], reply=[])


@breaks()
def data_of_no_bytes(wire: Wire) -> None:
    """READ and WRITE of nothing, with a chunk for it."""
    connection = opened(wire)
    rpc = reading(connection, 4096)
    returned(rpc, nfs3.read_reply(b"", eof=True), writes=[[one._replace(length=0) for one in rpc.writes[0]]])
    rpc = call(connection, nfs3.write(0, b""))
    reply(rpc, nfs3.write_reply(0))


@breaks()
def rdma_of_no_bytes(wire: Wire) -> None:
    """It touches no memory, wherever it points."""
    connection = opened(wire)
    rpc = reading(connection, 256)
    push(rpc, 0, 0, DATA[:256])
    connection.write(SERVER, 0, 0, b"")
    returned(rpc, nfs3.read_reply(DATA[:256]), writes=[rpc.writes[0]], left_out=[0])


@breaks()
def long_call_of_many_segments(wire: Wire) -> None:
    connection = opened(wire)
    length = len(message(nfs3.getattr_(), 0))
    sizes = (1, 3, 5, 7, length - 16)
    chunk = [segment for size in sizes for segment in connection.register(size)]
    rpc = call(connection, nfs3.getattr_(), position_zero=chunk)
    fetch(rpc)
    reply(rpc, nfs3.getattr_reply())


@breaks(versions=(1,))
def invalidated_read_chunk(wire: Wire) -> None:
    connection = opened(wire, client_private=R, server_private=R)
    chunk = connection.register(600)
    rpc = call(connection, nfs3.write(0, DATA[:600]), reads={0: chunk})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(600), invalidate=chunk[0].handle)


@breaks()
def bound_back_channel(wire: Wire) -> None:
    """A connection that the client binds as one for both directions, or only for callbacks where it can."""
    connection = opened(wire)
    bind = nfs4.Op(41, (bytes(16) + u32(7, 0),))
    rpc = call(connection, nfs4.compound(bind))
    recalled(callback(connection))
    reply(rpc, nfs4.compound_reply(nfs4.Op(41, (bytes(16) + u32(3, 0),))))


@breaks("V1-BACKWARD-UNANNOUNCED", versions=(1,))
def back_channel_of_another_connection(wire: Wire) -> None:
    reply_to = call(opened(wire), create_session())
    reply(reply_to, session_created())
    other = opened(wire)
    recalled(callback(other))
    hello(other)


@breaks("V1-NOMSG-CHUNK", "V1-CREDIT-FIRST", versions=(1,))
def error_grants_nothing(wire: Wire) -> None:
    """RDMA_ERROR is no valid reply that tells how many credits there are."""
    connection = wire.connect()
    connection.send(CLIENT, hdr(connection, 7, NOMSG))
    refuse(connection, 7)
    calls = [call(connection, nfs3.getattr_()) for _ in range(2)]
    for rpc in calls:
        reply(rpc, nfs3.getattr_reply())


@breaks("V1-RDMA-AFTER-REPLY")
def written_after_the_error(wire: Wire) -> None:
    """RDMA_ERROR completes the call, and its memory is the requester's again."""
    rpc = reading(opened(wire), 512)
    error(rpc)
    push(rpc, 0, 0, DATA[:512])


@breaks("V1-ERROR-FOR-HEADER", "V1-NOMSG-CHUNK")
def served_without_a_message(wire: Wire) -> None:
    connection = opened(wire)
    connection.send(CLIENT, hdr(connection, 7, NOMSG))
    connection.send(SERVER, hdr(connection, 7, MSG, REPLY) + u32(7, 1, 0, 0, 0, 0))
    hello(connection)


def sealed_listing(wire: Wire, service: int, body: bytes) -> None:
    """READDIRPLUS without a Reply chunk under krb5i (2) or krb5p (3)."""
    connection = opened(wire)
    sealed = bytearray(sealed_call(7, 0, service, body))
    sealed[20:24] = u32(17)
    connection.send(CLIENT, hdr(connection, 7) + bytes(sealed))
    refuse(connection, 7)
    hello(connection)


@breaks("V1-REPLY-CHUNK-PROVIDED")
def long_listing_that_can_be_read(wire: Wire) -> None:
    """What krb5i protects can be read."""
    arguments = opaque(nfs3.FH) + bytes(16) + u32(512, 32768)
    sealed_listing(wire, 2, opaque(u32(1) + arguments) + opaque(bytes(28)))


@breaks()
def long_listing_that_cannot_be_read(wire: Wire) -> None:
    sealed_listing(wire, 3, opaque(bytes(200)))


@breaks()
def unused_chunk_that_was_written_to(wire: Wire) -> None:
    """A READ that failed half way: the chunk is unused, and modified (4.4.6.2)."""
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:500])
    returned(rpc, nfs3.read_failed(), writes=[sized(rpc.writes[0], 0)])


@breaks("V1-COUNT-MATCH")
def count_of_what_is_nowhere(wire: Wire) -> None:
    """A count word, an empty chunk, and nothing inline."""
    rpc = reading(opened(wire), 4096)
    returned(rpc, nfs3.read_reply(DATA[:4096]), writes=[sized(rpc.writes[0], 0)], left_out=[0])


@breaks()
def positions_in_any_order(wire: Wire) -> None:
    """Chunks need not stand in the list as they do in the stream."""
    connection = opened(wire)
    compound = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.write(0, DATA[:600]), nfs4.write(8192, DATA[:900]))
    chunks = [(1, connection.register(900)), (0, connection.register(600))]
    asked(connection, compound, 7, chunks)
    connection.send(SERVER, hdr(connection, 7, direction=REPLY) + answer(Reply(accept=4), 7))


# A smaller Receive Buffer Size that was asked for


def asked_for_less(wire: Wire) -> Connection:
    """16384 is in force for the server, and the client asks for 8192."""
    connection = reported(wire, server=((RBSIZ, 16384),))
    wish(connection, CLIENT, (RBSIZ, 8192), xid=99)
    return connection


@breaks(versions=(2,))
def as_much_as_was_asked_for(wire: Wire) -> None:
    connection = asked_for_less(wire)
    room = 8192 - 32 - len(message(nfs3.write(0, b""), 0))
    reply(call(connection, nfs3.write(0, bytes(room))), nfs3.write_reply(room))
    respond(connection, SERVER, done=[0], xid=99)


@breaks(versions=(2,))
def larger_when_it_is_rejected(wire: Wire) -> None:
    connection = asked_for_less(wire)
    respond(connection, SERVER, rejected=[0], xid=99)
    big_call(connection, 9000)


@breaks(versions=(2,))
def larger_when_the_request_is_refused(wire: Wire) -> None:
    connection = asked_for_less(wire)
    refuse(connection, 99, 3)
    big_call(connection, 9000)


@breaks("XC-RBSIZ-REQUESTED", versions=(2,))
def larger_while_it_is_pending(wire: Wire) -> None:
    connection = asked_for_less(wire)
    respond(connection, SERVER, pending=[0], xid=99)
    big_call(connection, 9000)
    update(connection, SERVER, RBSIZ, 8192, clear=True, xid=100)


@breaks(versions=(2,))
def larger_when_it_is_cleared_by_a_larger_size(wire: Wire) -> None:
    connection = asked_for_less(wire)
    respond(connection, SERVER, pending=[0], xid=99)
    update(connection, SERVER, RBSIZ, 12288, clear=True, xid=100)
    big_call(connection, 9000)


@breaks(versions=(2,))
def larger_size_was_asked_for(wire: Wire) -> None:
    connection = reported(wire, server=((RBSIZ, 16384),))
    wish(connection, CLIENT, (RBSIZ, 32768), xid=99)
    big_call(connection, 9000)
    respond(connection, SERVER, done=[0], xid=99)


@breaks(versions=(2,))
def other_end_sends_more(wire: Wire) -> None:
    """The server asks the client for smaller buffers, which the client's own Sends have nothing to do with."""
    connection = reported(wire, client=((RBSIZ, 16384),), server=((RBSIZ, 16384),))
    wish(connection, SERVER, (RBSIZ, 8192), xid=99)
    big_call(connection, 9000)
    respond(connection, CLIENT, done=[0], xid=99)


@breaks()
def segments_of_one_position(wire: Wire) -> None:
    """One chunk, whose first segment ends at no multiple of four."""
    connection = opened(wire)
    rpc = call(connection, nfs3.write(0, DATA), reads={0: [*connection.register(4093), *connection.register(4099)]})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(8192))


@breaks("V1-DDP-ELIGIBLE", "V1-READ-POSITION-SAME")
def chunk_behind_a_whole_item(wire: Wire) -> None:
    """The first chunk has all of the item, so the second one has nothing of it."""
    connection = opened(wire)
    parts = call_parts(nfs3.write(0, DATA[:4096]), 7)
    [(at, _)] = items(parts)
    stream, _ = reduced(parts, {0})
    reads = [(at, connection.register(4096)), (at + 4096, connection.register(64))]
    connection.send(CLIENT, hdr(connection, 7, reads=reads) + stream)
    refuse(connection, 7)


@breaks("V1-WRITE-UNUSED")
def failed_read_that_returns_bytes(wire: Wire) -> None:
    """The status says that there is no result, the Write chunk that 6 bytes of it were written."""
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:6])
    returned(rpc, nfs3.read_failed(), writes=[sized(rpc.writes[0], 6)])


def second_read_fails(wire: Wire, length: int) -> None:
    """The Write chunk of a READ that failed half way returns ``length`` bytes, behind one that did not fail."""
    connection = opened(wire)
    compound = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 512), nfs4.read(512, 512))
    rpc = call(connection, compound, writes=[connection.register(512), connection.register(512)])
    push(rpc, 0, 0, DATA[:512])
    push(rpc, 1, 0, DATA[:100])
    done = nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(DATA[:512]), nfs4.failed(25))
    returned(rpc, done, writes=[rpc.writes[0], sized(rpc.writes[1], length)], left_out=[0])


@breaks()
def second_read_fails_and_returns_nothing(wire: Wire) -> None:
    second_read_fails(wire, 0)


@breaks("V1-WRITE-UNUSED")
def second_read_fails_and_returns_bytes(wire: Wire) -> None:
    second_read_fails(wire, 100)


def another_xid(wire: Wire, backward: bool, rdma_xid: int, rpc_xid: int) -> Connection:
    """The first of two calls is answered under these XIDs, and the second one sent in answer to that."""
    connection = announced(wire) if backward else wire.connect()
    recall = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
    done = nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done())
    for xid, rdma, inside in ((100, rdma_xid, rpc_xid), (101, 101, 101)):
        text = message(recall if backward else nfs3.getattr_(), xid)
        connection.send(SERVER if backward else CLIENT, hdr(connection, xid) + text)
        wire.pause(1_000_000)
        text = answer(done if backward else nfs3.getattr_reply(), inside)
        connection.send(CLIENT if backward else SERVER, hdr(connection, rdma, direction=REPLY) + text)
        wire.pause(1_000_000)
    return connection


@breaks()
def callback_answered_under_another_xid(wire: Wire) -> None:
    """The client's mistake is none of the server, which was answered."""
    another_xid(wire, True, 7, 7)


@breaks("V1-XID-MATCH")
def callback_answered_under_another_rdma_xid(wire: Wire) -> None:
    another_xid(wire, True, 7, 100)


@breaks()
def call_answered_under_another_xid(wire: Wire) -> None:
    another_xid(wire, False, 7, 7)


def lost_credit(wire: Wire, more: int) -> None:
    """A reply under another XID, and then ``more`` calls at once, where 2 are granted."""
    connection = another_xid(wire, True, 7, 7)
    recalled(callback(connection), credits=2)
    wire.pause(2_000_000_000)
    calls = [callback(connection) for _ in range(more)]
    for rpc in calls:
        recalled(rpc, credits=2)


@breaks()
def lost_reply_may_be_the_credit(wire: Wire) -> None:
    lost_credit(wire, 2)


@breaks("V1-BACKWARD-CREDIT-EXCEEDED")
def lost_reply_is_one_credit_only(wire: Wire) -> None:
    lost_credit(wire, 3)


@breaks("V1-DDP-ELIGIBLE", "V1-REPLY-NO-BINDING")
def chunk_before_the_credential(wire: Wire) -> None:
    """Without the word that is in it the rest of the call cannot be read."""
    connection = opened(wire)
    text, chunk = message(nfs3.getattr_(), 7), connection.register(4)
    connection.send(CLIENT, hdr(connection, 7, reads=[(20, chunk)]) + text[:20] + text[24:])
    connection.send(SERVER, hdr(connection, 7, direction=REPLY) + answer(nfs3.getattr_reply(), 7))


@breaks("V1-HEADER-XDR", "V1-ERROR-XID")
def error_under_another_xid(wire: Wire) -> None:
    """The RDMA_ERROR may be meant for the message that nothing else answers."""
    connection = opened(wire)
    unreadable(connection)
    refuse(connection, 8)
    hello(connection)


@breaks("XC-RBSIZ-SHRINK", versions=(2,))
def smaller_than_was_asked_for(wire: Wire) -> None:
    connection = asked_for_less(wire)
    respond(connection, SERVER, pending=[0], xid=99)
    update(connection, SERVER, RBSIZ, 4096, clear=True)
