"""Chunk lists, and the RDMA that serves them."""

from __future__ import annotations

from .. import nfs3, nfs4
from ..rpcrdma import NOMSG, call, fetch, reply
from ..shapes import DATA
from ..wire import Wire
from .scripts import (
    CLIENT,
    SERVER,
    Broken,
    asked,
    breaks,
    by_client,
    by_server,
    frame_of,
    listing,
    message,
    opened,
    push,
    reading,
    refuse,
    returned,
    sized,
)


@breaks("V1-READ-POSITION-ALIGN")
def read_position_align(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(8192))], shift=-2)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-READ-POSITION-RANGE")
def read_position_range(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(8192))], shift=4000)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-READ-POSITION-SAME")
def read_position_same(wire: Wire) -> Broken:
    connection = opened(wire)
    compound = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.write(0, DATA), nfs4.write(8192, DATA))
    chunks = [(0, connection.register(4096)), (1, connection.register(8192)), (0, connection.register(4096))]
    sent = asked(connection, compound, 7, chunks)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-READ-ROUNDUP")
def read_roundup(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA[:5]), 7, [(0, connection.register(5))], tail=bytes(3))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-LONG-CALL-POSITION")
def long_call_position(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(8192))], procedure=NOMSG)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-CHUNK-LENGTH-MATCH")
def chunk_length_match(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(4096))])
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-DDP-ELIGIBLE")
def ddp_eligible(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA[:64]), 7, [(100, connection.register(32))], out=False)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-READ-IN-REPLY")
def read_in_reply(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, returned(rpc, nfs3.getattr_reply(), reads=[(0, rpc.connection.register(64))]))


@breaks("V1-HANDLE-PERSISTENT")
def handle_persistent(wire: Wire) -> Broken:
    connection = opened(wire)
    for _ in range(16):
        rpc = call(connection, nfs3.read(0, 4096), writes=[connection.register(4096, handle=0x4242)])
        reply(rpc, nfs3.read_reply(DATA[:4096]))
    return by_client(wire, rpc.true.call_operation)


@breaks("V1-REPLY-CHUNK-MISSING")
def reply_chunk_missing(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    chunk = rpc.connection.register(128)
    return by_server(wire, returned(rpc, nfs3.getattr_reply(), reply=chunk, procedure=NOMSG))


@breaks("V1-REPLY-CHUNK-SIZE")
def reply_chunk_size(wire: Wire) -> Broken:
    rpc = listing(opened(wire), room=4096, count=65536)
    reply(rpc, nfs3.readdirplus_reply([b"name"]))
    return by_client(wire, rpc.true.call_operation)


@breaks("V1-WRITE-SEGMENT-COUNT")
def write_segment_count(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096, 4096)
    push(rpc, 0, 0, DATA[:4096])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=[rpc.writes[0][:1]], left_out=[0]))


@breaks("V1-WRITE-SEGMENT-COPY")
def write_segment_copy(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:4096])
    forged = [rpc.writes[0][0]._replace(handle=0)]
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=[forged], left_out=[0]))


@breaks("V1-WRITE-SEGMENT-LENGTH")
def write_segment_length(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:4096])
    longer = sized(rpc.writes[0], 8192)
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA), writes=[longer], left_out=[0]))


@breaks("V1-WRITE-FILL-ORDER")
def write_fill_order(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096, 4096)
    push(rpc, 0, 0, DATA[:2048])
    push(rpc, 0, 1, DATA[2048:4096])
    halves = sized(rpc.writes[0], 2048, 2048)
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=[halves], left_out=[0]))


@breaks("V1-WRITE-UNFILLED")
def write_unfilled(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096, 4096)
    push(rpc, 0, 0, DATA[:4096])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=rpc.writes, left_out=[0]))


@breaks("V1-WRITE-UNUSED")
def write_unused(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    return by_server(wire, returned(rpc, nfs3.read_failed(), writes=rpc.writes))


@breaks("V1-WRITE-LENGTH-TRUE")
def write_length_true(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:2048])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=rpc.writes, left_out=[0]))


@breaks("V1-WRITE-NO-PAD")
def write_no_pad(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:5] + bytes(3))
    five = sized(rpc.writes[0], 5)
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:5], eof=True), writes=[five], left_out=[0]))


@breaks("V1-WRITE-EXTRA")
def write_extra(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 6, 4, count=6)
    reply(rpc, nfs3.read_reply(DATA[:6]))
    return by_client(wire, rpc.true.call_operation)


@breaks("V1-REDUCE-REQUIRED")
def reduce_required(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 512)
    reply(rpc, nfs3.read_reply(DATA[:512]), via={})
    return by_server(wire, rpc.true.reply_operation)


@breaks("V1-WRITE-BEFORE-REPLY")
def write_before_reply(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    sent = returned(rpc, nfs3.read_reply(DATA[:4096]), writes=rpc.writes, left_out=[0])
    push(rpc, 0, 0, DATA[:4096])
    return by_server(wire, sent)


@breaks("V1-TRANSFER-MODEL")
def transfer_model(wire: Wire) -> Broken:
    connection = opened(wire)
    moved = connection.write(CLIENT, 0x4242, 0x10000, DATA[:100])
    return by_client(wire, moved)


@breaks("V1-RDMA-OUTSIDE")
def rdma_outside(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    place = rpc.writes[0][0]
    moved = rpc.connection.write(SERVER, place.handle, place.offset + 4096, DATA[:100])
    reply(rpc, nfs3.read_reply(DATA[:4096]))
    return by_server(wire, moved)


@breaks("V1-RDMA-AFTER-REPLY")
def rdma_after_reply(wire: Wire) -> Broken:
    connection = opened(wire)
    chunk = connection.register(4096)
    rpc = call(connection, nfs3.write(0, DATA[:4096]), reads={0: chunk})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(4096))
    moved = connection.read(SERVER, chunk[0].handle, chunk[0].offset, DATA[:4096])
    return Broken(SERVER, frame_of(wire, moved.number, first=True))


@breaks("V1-COUNT-MATCH")
def count_match(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:4096])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4000]), writes=rpc.writes, left_out=[0]))


@breaks("V1-ITEM-MOVED")
def item_moved(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 512)
    push(rpc, 0, 0, DATA[:512])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:512]), writes=rpc.writes))


@breaks("V1-WRITE-CHUNK-SIZE")
def write_chunk_size(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096, count=8192)
    reply(rpc, nfs3.read_reply(DATA[:4096]))
    return by_client(wire, rpc.true.call_operation)


@breaks("V1-REPLY-CHUNK-PROVIDED")
def reply_chunk_provided(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.readdirplus(65536))
    reply(rpc, nfs3.readdirplus_reply([b"name"]))
    return by_client(wire, rpc.true.call_operation)


@breaks("V1-HANDLE-PREDICTABLE")
def handle_predictable(wire: Wire) -> Broken:
    connection = opened(wire)
    calls = []
    for _ in range(33):
        calls.append(reading(connection, 4096))
        reply(calls[-1], nfs3.read_reply(DATA[:4096]))
    return by_client(wire, calls[32].true.call_operation)


# Other ways to break them


def item_and_pad_inline(wire: Wire) -> Broken:
    """V1-ITEM-MOVED: the pad of an item that is in the Write chunk."""
    rpc = reading(opened(wire), 5)
    push(rpc, 0, 0, DATA[:5])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:5]), writes=rpc.writes, left_out=[0], tail=bytes(3)))


def write_data_twice(wire: Wire) -> Broken:
    """V1-ITEM-MOVED: the data of a WRITE in a Read chunk and inline."""
    connection = opened(wire)
    position = len(message(nfs3.write(0, b""), 0))
    sent = asked(connection, nfs3.write(0, DATA[:64]), 7, [(position, connection.register(64))], out=False)
    refuse(connection, 7)
    return by_client(wire, sent)


def write_data_twice_in_compound(wire: Wire) -> Broken:
    """V1-ITEM-MOVED: the same in a COMPOUND, with an operation behind it."""
    connection = opened(wire)
    head = len(message(nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.write(0, b"")), 0))
    compound = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.write(0, DATA[:61]), nfs4.getattr_())
    sent = asked(connection, compound, 7, [(head, connection.register(61))], out=False)
    refuse(connection, 7)
    return by_client(wire, sent)


def wrong_pad(wire: Wire) -> Broken:
    """V1-WRITE-NO-PAD: a pad of another length than the one that is missing, written and counted."""
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:1] + bytes(1))
    two = sized(rpc.writes[0], 2)
    return by_server(
        wire, returned(rpc, nfs3.read_reply(DATA[:1], eof=True), writes=[two], left_out=[0]), "V1-COUNT-MATCH"
    )


def pad_counted_not_written(wire: Wire) -> Broken:
    """V1-WRITE-LENGTH-TRUE: the returned length counts a pad, and none was written."""
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:5])
    eight = sized(rpc.writes[0], 8)
    return by_server(
        wire, returned(rpc, nfs3.read_reply(DATA[:5], eof=True), writes=[eight], left_out=[0]), "V1-COUNT-MATCH"
    )


def write_list_left_out(wire: Wire) -> Broken:
    """V1-WRITE-SEGMENT-COUNT: the data are in the Write chunk, and the reply has no Write list."""
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:4096])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), left_out=[0]))


def small_chunk_in_compound(wire: Wire) -> Broken:
    """V1-WRITE-CHUNK-SIZE: the second of two READs."""
    connection = opened(wire)
    compound = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 4096), nfs4.read(4096, 4096))
    rpc = call(connection, compound, writes=[connection.register(4096), connection.register(2048)])
    done = (nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(DATA[:4096]), nfs4.read_done(DATA[:2048]))
    reply(rpc, nfs4.compound_reply(*done))
    return by_client(wire, rpc.true.call_operation)


OTHERS: dict[str, str] = {
    "item_and_pad_inline": "V1-ITEM-MOVED",
    "write_data_twice": "V1-ITEM-MOVED",
    "write_data_twice_in_compound": "V1-ITEM-MOVED",
    "wrong_pad": "V1-WRITE-NO-PAD",
    "pad_counted_not_written": "V1-WRITE-LENGTH-TRUE",
    "write_list_left_out": "V1-WRITE-SEGMENT-COUNT",
    "small_chunk_in_compound": "V1-WRITE-CHUNK-SIZE",
}
"""Script -> the rule that it breaks."""
