"""Whole RPC messages: lengths that contradict, parts that stand apart, padding, and bytes that are missing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from playbook import Call, Capture, Connection, Exchange, Reply, Wire, call, fetch, nfs3, nfs4, reply
from playbook.judge import analyze
from playbook.rpc import call_parts, items, reduced, reply_parts, u32, whole
from playbook.rpcrdma import MSG, NOMSG, header, segments_xdr
from playbook.wire import Segment
from rdmascope.dissect.measure.files import FileTable
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Rpc

CLIENT, SERVER = 0, 1


def only(wire: Wire) -> Rpc:
    (rpc,) = analyze(Capture(wire))
    return rpc


def padded_read(rpc: Exchange, message: Reply, written: bytes, chunk: Sequence[Segment]) -> bytes:
    """A reply whose Write chunk returns all that is ``written``, pad included; gives the true message."""
    parts = reply_parts(message, rpc.true.xid)
    stream, _ = reduced(parts, {0})
    left, returned = len(written), []
    for segment in chunk:
        data = written[len(written) - left :][: segment.length]
        rpc.connection.write(SERVER, segment.handle, segment.offset, data)
        returned.append(segment._replace(length=len(data)))
        left -= len(data)
    rpc.connection.send(SERVER, header(rpc.true.xid, MSG, writes=[returned]) + stream)
    return whole(parts)


@pytest.mark.parametrize(("count", "written"), [(1, 2), (2, 4), (3, 6), (5, 6), (1023, 1026), (6, 8), (8, 12)])
def test_what_a_write_chunk_returns_beyond_the_count_word_is_not_data(count: int, written: int) -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    chunk = [*connection.register(count), *connection.register(8)]
    rpc = call(connection, nfs3.read(0, count), writes=[chunk])
    data = bytes(range(1, 200)) * 10
    true = padded_read(rpc, nfs3.read_reply(data[:count], eof=True), data[:written], chunk)
    found = only(wire)
    assert (found.state, found.contents, found.damage) == ("complete", "whole", ())
    note = f"Write chunk 1 returned {written} bytes for {count} bytes of data: the rest is not data"
    assert found.notes == (note,)
    message = reassembled_reply(found)
    assert message is not None and message.complete and message.prefix == true
    table = FileTable()
    (transfer,) = table.add(found)
    assert (transfer.count, b"".join(bytes(part) for _, part in transfer.captured)) == (count, data[:count])


def test_operations_behind_such_a_read_keep_their_place() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    chunk = connection.register(5, 3)
    asked = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 5), nfs4.getattr_())
    rpc = call(connection, asked, writes=[chunk])
    done = nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(b"12345"), nfs4.getattr_done()
    true = padded_read(rpc, nfs4.compound_reply(*done), b"12345\0", chunk)
    found = only(wire)
    message = reassembled_reply(found)
    assert found.state == "complete" and message is not None and message.prefix == true


def test_a_write_chunk_that_returns_less_than_the_count_word_is_damage() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    chunk = connection.register(16)
    rpc = call(connection, nfs3.read(0, 16), writes=[chunk])
    padded_read(rpc, nfs3.read_reply(bytes(16)), bytes(12), chunk)
    found = only(wire)
    assert found.state == "damaged"
    assert "Write chunk 0 returned 12 bytes for 16 bytes of READ" in found.damage[0]


def reading_call(connection: Connection, message: Call, chunks: Sequence[tuple[int, Segment]]) -> int:
    """A call's Send whose first item travels in a Read list given segment by segment; gives its XID."""
    xid = connection.wire.random.getrandbits(32)
    stream, _ = reduced(call_parts(message, xid), set(range(len(items(call_parts(message, xid))))))
    reads = [(position, [segment]) for position, segment in chunks]
    connection.send(CLIENT, header(xid, MSG, reads=reads) + stream)
    return xid


def answer(connection: Connection, xid: int, message: Reply) -> None:
    connection.send(SERVER, header(xid, MSG) + whole(reply_parts(message, xid)))


def test_segments_of_one_position_that_stand_apart_are_one_chunk() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    first, second = bytes(range(1, 14)), bytes(range(100, 110))  # neither piece is a multiple of four long
    message = nfs4.compound(nfs4.write(0, first[:7] + second), nfs4.write(64, first[7:]), nfs4.getattr_())
    parts = call_parts(message, 0)
    (one, _), (other, _) = items(parts)
    chunk = connection.register(7, 6, 10)
    xid = reading_call(connection, message, [(one, chunk[0]), (other, chunk[1]), (one, chunk[2])])
    for segment, data in zip(chunk, (first[:7], first[7:], second), strict=True):
        connection.read(SERVER, segment.handle, segment.offset, data)
    answer(connection, xid, nfs4.compound_reply(nfs4.write_done(17), nfs4.write_done(6), nfs4.getattr_done()))
    found = only(wire)
    assert (found.state, found.operations) == ("complete", ("WRITE", "WRITE", "GETATTR"))
    assert [(chunk.position, len(chunk.segments)) for chunk in found.chunks] == [(one, 2), (other, 1)]
    whole_call = reassembled_call(found)
    assert whole_call is not None and whole_call.complete
    assert whole_call.prefix == whole(call_parts(message, xid))


def test_a_position_beyond_all_messages_takes_what_there_is() -> None:
    wire = Wire()
    connection = wire.connect()
    stream = whole(call_parts(nfs3.getattr_(), 7))
    connection.send(CLIENT, header(7, MSG, reads=[(0xFF000034, connection.register(4))]) + stream)
    found = reassembled_call(only(wire))
    assert found is not None and not found.complete
    assert found.prefix == stream


def test_a_read_chunk_longer_than_its_count_word_shifts_nothing() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    message = nfs4.compound(nfs4.write(0, b"12345"), nfs4.getattr_())
    ((position, _),) = items(call_parts(message, 0))
    (segment,) = connection.register(12)
    xid = reading_call(connection, message, [(position, segment)])
    connection.read(SERVER, segment.handle, segment.offset, b"12345\0\0\0rest")
    answer(connection, xid, nfs4.compound_reply(nfs4.write_done(5), nfs4.getattr_done()))
    found = only(wire)
    whole_call = reassembled_call(found)
    assert found.state == "complete" and whole_call is not None
    assert whole_call.prefix == whole(call_parts(message, xid))
    assert found.notes == (f"Read chunk at Position {position} has 12 bytes for 5 bytes of data: the rest is not data",)


def test_the_contents_of_an_rdma_msgp_are_undecidable() -> None:
    wire = Wire(mtu=4096)
    connection = wire.connect()
    text = whole(call_parts(nfs3.write(0, bytes(range(200))), 77))
    padding = b"not data"
    msgp = u32(77, 1, 32, 2, 512, 128, 0, 0, 0)
    connection.send(CLIENT, msgp + text[:-200] + padding + text[-200:])
    answer(connection, 77, nfs3.write_reply(200))
    found = only(wire)
    assert (found.name, found.state) == ("WRITE", "undecidable")
    assert found.damage[0].startswith("call: undecidable: RDMA_MSGP has alignment padding")
    message = reassembled_call(found)
    assert message is not None and not message.complete
    assert text.startswith(message.prefix) and 24 <= len(message.prefix) < len(text) - 200
    assert FileTable().add(found) == []


HUGE = 1 << 30


@pytest.mark.parametrize("way", ["read", "write", "reply", "position zero"])
def test_a_gibibyte_that_a_chunk_claims_costs_no_memory(way: str) -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    huge = Segment(7, HUGE, 0x10000)
    xid = 99
    write, read = nfs3.write(0, b"12345678"), nfs3.read(0, HUGE)
    stream, _ = reduced(call_parts(write, xid), {0})
    if way == "read":
        stream = stream[:-4] + u32(HUGE)
        connection.send(CLIENT, header(xid, MSG, reads=[(len(stream), [huge])]) + stream)
    elif way == "position zero":
        connection.send(CLIENT, header(xid, NOMSG, reads=[(0, [huge])]))
    else:
        offered = header(xid, MSG, writes=[[huge]]) if way == "write" else header(xid, MSG, reply=[huge])
        connection.send(CLIENT, offered + whole(call_parts(read, xid)))
    if way == "write":
        answered, _ = reduced(reply_parts(nfs3.read_reply(b"1234"), xid), {0})
        connection.send(SERVER, header(xid, MSG, writes=[[huge]]) + answered[:-4] + u32(HUGE))
    elif way == "reply":
        connection.send(SERVER, u32(xid, 1, 32, NOMSG, 0, 0, 1) + segments_xdr([huge]))
    else:
        answer(connection, xid, nfs3.write_reply(HUGE))
    capture = Capture(wire)
    tracemalloc.start()
    (found,) = analyze(capture)
    messages = [one for one in (reassembled_call(found), reassembled_reply(found)) if one is not None]
    FileTable().add(found)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.state == "damaged"
    assert max(message.length for message in messages) >= HUGE
    assert peak < 16 << 20


def test_fetched_and_complete_as_before() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    rpc = call(connection, nfs3.write(0, b"12345"), reads={0: connection.register(5)})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(5))
    found = only(wire)
    message = reassembled_call(found)
    assert message is not None and (message.prefix, message.length) == (rpc.true.call, len(rpc.true.call))
    assert found.notes == ()
