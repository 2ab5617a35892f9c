"""Less usual ways to break the rules of chunks: Positions that go on, chunks in headers and names, Reply chunks."""

from __future__ import annotations

from .. import nfs3, nfs4
from ..nfs4 import Op
from ..rpc import Call, Reply, call_parts, items, opaque, reduced, u32
from ..rpcrdma import MSG, NOMSG, REPLY, call, header, reply
from ..shapes import DATA
from ..wire import Wire
from .scripts import (
    CLIENT,
    SERVER,
    Broken,
    answer,
    by_client,
    by_server,
    listing,
    message,
    opened,
    refuse,
    returned,
    sized,
)


def positions_go_on(wire: Wire) -> Broken:
    """Each segment of WRITE's data has a Position of its own."""
    connection = opened(wire)
    parts = call_parts(nfs3.write(0, DATA), 7)
    [(at, _)] = items(parts)
    stream, _ = reduced(parts, {0})
    reads = [(at, connection.register(4096)), (at + 4096, connection.register(4096))]
    sent = connection.send(CLIENT, header(7, MSG, version=connection.version, reads=reads) + stream)
    refuse(connection, 7)
    return by_client(wire, sent, "V1-READ-POSITION-SAME")


def long_call_goes_on(wire: Wire) -> Broken:
    """The second segment of a long call has the Position where the first ends."""
    connection = opened(wire)
    text = message(nfs4.compound(nfs4.sequence(), nfs4.putfh(), Op(15, (opaque(bytes(3000)),))), 7)
    first, second = connection.register(1600), connection.register(len(text) - 1600)
    reads = [(0, first), (1600, second)]
    sent = connection.send(CLIENT, header(7, NOMSG, version=connection.version, reads=reads))
    connection.read(SERVER, first[0].handle, first[0].offset, text[:1600])
    connection.read(SERVER, second[0].handle, second[0].offset, text[1600:])
    refuse(connection, 7)
    return by_client(wire, sent)


def name_in_chunk(wire: Wire) -> Broken:
    """LOOKUP's name in a Read chunk."""
    connection = opened(wire)
    text = message(nfs4.compound(nfs4.sequence(), nfs4.putfh(), Op(15, (u32(200),))), 7)
    reads = [(len(text), connection.register(200))]
    sent = connection.send(CLIENT, header(7, MSG, version=connection.version, reads=reads) + text)
    refuse(connection, 7)
    return by_client(wire, sent)


def tag_in_chunk(wire: Wire) -> Broken:
    """The COMPOUND's tag in a Read chunk."""
    connection = opened(wire)
    parts = call_parts(Call(nfs4.PROGRAM, 4, 1, (u32(300), u32(1, 1, 22) + opaque(nfs4.FH))), 7)
    text = b"".join(part for part in parts if isinstance(part, bytes))
    at = len(text) - len(u32(1, 1, 22) + opaque(nfs4.FH))
    sent = connection.send(
        CLIENT, header(7, MSG, version=connection.version, reads=[(at, connection.register(300))]) + text
    )
    refuse(connection, 7)
    return by_client(wire, sent)


def credential_in_chunk(wire: Wire) -> Broken:
    """An RPCSEC_GSS credential in a Read chunk."""
    connection = opened(wire)
    head = u32(7, 0, 2, nfs3.PROGRAM, 3, 1, 6, 220)
    text = head + u32(0, 0) + opaque(nfs3.FH)
    reads = [(len(head), connection.register(220))]
    sent = connection.send(CLIENT, header(7, MSG, version=connection.version, reads=reads) + text)
    refuse(connection, 7)
    return by_client(wire, sent)


def reply_chunk_as_it_was(wire: Wire) -> Broken:
    """An RDMA_MSG that returns the Reply chunk as the call gave it."""
    rpc = listing(opened(wire))
    return by_server(wire, returned(rpc, nfs3.readdirplus_reply([b"name"]), reply=rpc.reply_chunk))


def empty_reply_chunk(wire: Wire) -> Broken:
    """An RDMA_NOMSG whose Reply chunk returns nothing."""
    rpc = listing(opened(wire))
    assert rpc.reply_chunk is not None
    return by_server(wire, returned(rpc, Reply(), reply=sized(rpc.reply_chunk, 0), procedure=NOMSG))


def half_a_read(wire: Wire) -> Broken:
    """NFSv3 READ without its count, answered with data."""
    connection = opened(wire)
    version = connection.version
    connection.send(CLIENT, header(7, MSG, version=version) + message(nfs3.read(0, 4096), 7)[:-4])
    head = header(7, MSG, version=version, direction=REPLY)
    return by_server(wire, connection.send(SERVER, head + answer(nfs3.read_reply(DATA[:8]), 7)))


def long_reply_under_another_xid(wire: Wire) -> Broken:
    """A long reply whose rdma_xid is that of no call; its RPC message in the Reply chunk has the right one."""
    rpc = listing(opened(wire))
    chunk, text = rpc.reply_chunk, answer(nfs3.readdirplus_reply([b"name"]), rpc.true.xid)
    assert chunk is not None
    rpc.connection.write(SERVER, chunk[0].handle, chunk[0].offset, text)
    version = rpc.connection.version
    head = header(rpc.true.xid ^ 1, NOMSG, version=version, direction=REPLY, reply=sized(chunk, len(text)))
    return by_server(wire, rpc.connection.send(SERVER, head))


def unknown_version_called_a_bad_header(wire: Wire) -> Broken:
    """Version 3, answered by RDMA_ERR_BADHEADER."""
    connection = opened(wire)
    connection.send(CLIENT, header(7, MSG, version=3) + message(nfs3.null(), 7))
    return by_server(wire, refuse(connection, 7, version=3), "V1-VERSION")


def invented_write_chunk(wire: Wire) -> Broken:
    """A reply returns a Write chunk that no call gave."""
    rpc = call(opened(wire), nfs3.getattr_())
    chunk = sized(rpc.connection.register(64), 0)
    return by_server(wire, returned(rpc, nfs3.getattr_reply(), writes=[chunk]))


def half_a_write(wire: Wire) -> Broken:
    """NFSv3 WRITE whose data end before their count does, answered with success."""
    connection = opened(wire)
    version = connection.version
    connection.send(CLIENT, header(7, MSG, version=version) + message(nfs3.write(0, DATA[:64]), 7)[:-32])
    head = header(7, MSG, version=version, direction=REPLY)
    return by_server(wire, connection.send(SERVER, head + answer(nfs3.write_reply(64), 7)))


def numbered_handles(wire: Wire) -> Broken:
    """Handles in one step, and beside each the handle of a buffer for pads."""
    connection = opened(wire)
    for number in range(12):
        segments = [connection.register(8, handle=0x100 + 0x101 * (3 * number + more))[0] for more in range(3)]
        segments += connection.register(8, handle=0x99)
        rpc = call(connection, nfs3.read(0, 32), writes=[segments])
        reply(rpc, nfs3.read_reply(DATA[:32]))
    return by_client(wire, rpc.true.call_operation)


def handles_of_a_pool(wire: Wire) -> Broken:
    """The handles of four registrations that take turns, each of which counts up in its last eight bits."""
    connection = opened(wire)
    indexes, use = (0x5D21, 0x11C8, 0x9E40, 0x2ABC), [0x20, 0x70, 0x05, 0xF8]
    for number in range(36):
        one = number * 7 % 4 if number % 3 else number % 4
        use[one] = use[one] + 1 & 0xFF
        rpc = call(connection, nfs3.read(0, 32), writes=[connection.register(32, handle=indexes[one] << 8 | use[one])])
        reply(rpc, nfs3.read_reply(DATA[:32]))
        if number == 35:
            found = rpc
    return by_client(wire, found.true.call_operation)


def unknown_version_served(wire: Wire) -> Broken:
    """Version 77, answered as if it were the server's own."""
    connection = opened(wire)
    connection.send(CLIENT, header(7, MSG, version=77) + message(nfs3.null(), 7))
    head = header(7, MSG, version=connection.version, direction=REPLY)
    return by_server(wire, connection.send(SERVER, head + answer(nfs3.null_reply(), 7)), "V1-VERSION")


def device_without_reply_chunk(wire: Wire) -> Broken:
    """GETDEVICEINFO for more bytes than fit inline, and no Reply chunk."""
    device = Op(47, (bytes(16) + u32(1, 8192, 0),))
    rpc = call(opened(wire), nfs4.compound(nfs4.sequence(), device))
    reply(rpc, nfs4.compound_reply(nfs4.sequence_done(), nfs4.failed(47)))
    return by_client(wire, rpc.true.call_operation)


def link_longer_than_its_chunk(wire: Wire) -> Broken:
    """READLINK with a Write chunk of 8 bytes, and a link of 9, which therefore comes inline."""
    connection = opened(wire)
    rpc = call(connection, nfs3.readlink(), writes=[connection.register(8)])
    returned(rpc, nfs3.readlink_reply(b"nine byte"), writes=[sized(rpc.writes[0], 0)])
    return by_client(wire, rpc.true.call_operation)


OTHERS: dict[str, str] = {
    "handles_of_a_pool": "V1-HANDLE-PREDICTABLE",
    "unknown_version_served": "V1-ERROR-FOR-VERSION",
    "device_without_reply_chunk": "V1-REPLY-CHUNK-PROVIDED",
    "link_longer_than_its_chunk": "V1-WRITE-CHUNK-SIZE",
    "positions_go_on": "V1-CHUNK-LENGTH-MATCH",
    "long_call_goes_on": "V1-LONG-CALL-POSITION",
    "name_in_chunk": "V1-DDP-ELIGIBLE",
    "tag_in_chunk": "V1-DDP-ELIGIBLE",
    "credential_in_chunk": "V1-GSS-MATERIAL",
    "reply_chunk_as_it_was": "V1-WRITE-UNUSED",
    "empty_reply_chunk": "V1-NOMSG-CHUNK",
    "invented_write_chunk": "V1-WRITE-SEGMENT-COUNT",
    "half_a_write": "V1-GARBAGE-ARGS",
    "numbered_handles": "V1-HANDLE-PREDICTABLE",
    "half_a_read": "V1-GARBAGE-ARGS",
    "long_reply_under_another_xid": "V1-XID-MATCH",
    "unknown_version_called_a_bad_header": "V1-ERROR-FOR-VERSION",
}
"""Script -> the rule that it breaks."""
