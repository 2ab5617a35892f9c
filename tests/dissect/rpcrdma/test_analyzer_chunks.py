"""Chunks and handles of every shape: each conversation comes out whole."""

from __future__ import annotations

import pytest

from playbook import Capture, Wire, call, faults, fetch, nfs3, nfs4, pad_segment, reply
from playbook.judge import analyze, judge, judge_wire
from playbook.shapes import DATA

# Chunks


def test_two_writes_of_a_compound_in_two_read_chunks() -> None:
    wire = Wire()
    conn = wire.connect()
    ops = (nfs4.sequence(), nfs4.putfh(), nfs4.write(0, DATA[:1001]), nfs4.write(1001, DATA[:2222]))
    done = (nfs4.sequence_done(), nfs4.putfh_done(), nfs4.write_done(1001), nfs4.write_done(2222))
    rpc = call(conn, nfs4.compound(*ops), reads={0: conn.register(1001), 1: conn.register(1000, 1222)})
    fetch(rpc)
    reply(rpc, nfs4.compound_reply(*done))
    assert judge_wire(wire)[0].rpc.operations == ("SEQUENCE", "PUTFH", "WRITE", "WRITE")


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_reads_of_a_compound_take_the_write_chunks_in_order(chunks: int) -> None:
    """Where chunks run out the rest comes inline (RFC 8267, 4.3)."""
    wire = Wire()
    conn = wire.connect()
    sizes = (1001, 333, 4096)[:chunks]
    ops = (nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 1001), nfs4.read(0, 333), nfs4.read(0, 96))
    results = [nfs4.read_done(DATA[:size]) for size in (1001, 333, 96)]
    rpc = call(conn, nfs4.compound(*ops), writes=[conn.register(size) for size in sizes])
    reply(rpc, nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), *results))
    judge_wire(wire)


def test_an_empty_write_chunk_asks_for_its_read_inline() -> None:
    """RFC 8267, 4.3: no segments for the first READ, memory for the second."""
    wire = Wire()
    conn = wire.connect()
    ops = (nfs4.putfh(), nfs4.read(0, 100), nfs4.read(0, 3001))
    rpc = call(conn, nfs4.compound(*ops, minor=0), writes=[[], conn.register(3001)])
    results = (nfs4.putfh_done(), nfs4.read_done(DATA[:100]), nfs4.read_done(DATA[:3001]))
    reply(rpc, nfs4.compound_reply(*results), via={1: 1})
    judge_wire(wire)


def test_a_failed_read_leaves_its_write_chunk_unused() -> None:
    wire = Wire()
    conn = wire.connect()
    ops = (nfs4.putfh(), nfs4.read(0, 1000), nfs4.read(1000, 1000))
    rpc = call(conn, nfs4.compound(*ops, minor=0), writes=[conn.register(1000), conn.register(1000)])
    reply(rpc, nfs4.compound_reply(nfs4.putfh_done(), nfs4.read_done(DATA[:999]), nfs4.failed(25)))
    (finding,) = judge_wire(wire)
    assert finding.rpc.failed
    assert [chunk.returned for chunk in finding.rpc.chunks] == [999, 0]


@pytest.mark.parametrize("got", [0, 1, 2, 3, 4, 4095, 4096, 4097, 8191])
def test_a_short_read_over_several_segments(got: int) -> None:
    wire = Wire()
    conn = wire.connect()
    rpc = call(conn, nfs3.read(0, 8192), writes=[conn.register(4096, 4096)])
    reply(rpc, nfs3.read_reply(DATA[:got]))
    (finding,) = judge_wire(wire)
    assert finding.rpc.chunks[0].returned == got


def test_a_reply_chunk_together_with_write_chunks() -> None:
    wire = Wire()
    conn = wire.connect()
    ops = (nfs4.putfh(), nfs4.read(0, 3333), nfs4.readlink(), nfs4.getattr_())
    results = (nfs4.putfh_done(), nfs4.read_done(DATA[:3333]), nfs4.readlink_done(DATA[:77]), nfs4.getattr_done())
    chunks = [conn.register(4000), conn.register(1000)]
    rpc = call(conn, nfs4.compound(*ops, minor=0), writes=chunks, reply_chunk=conn.register(64, 4000))
    reply(rpc, nfs4.compound_reply(*results))
    (finding,) = judge_wire(wire)
    assert [chunk.kind for chunk in finding.rpc.chunks] == ["write", "write", "reply"]


def test_hundreds_of_segments_and_a_call_of_several_packets() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    rpc = call(conn, nfs3.read(0, 8192), writes=[conn.register(*[16] * 300, 3392)])
    reply(rpc, nfs3.read_reply(DATA))
    rpc = call(conn, nfs3.write(0, DATA), reads={0: conn.register(*[32] * 256)})
    fetch(rpc, pipelined=16)
    reply(rpc, nfs3.write_reply(8192))
    judge_wire(wire)


def test_a_call_in_a_position_zero_chunk_and_a_reply_in_the_reply_chunk() -> None:
    wire = Wire()
    conn = wire.connect()
    message = nfs3.symlink(b"name", DATA[:2001])
    chunk = conn.register(1000, 1160)
    rpc = call(conn, message, position_zero=chunk, reply_chunk=conn.register(2000))
    fetch(rpc)
    reply(rpc, nfs3.symlink_reply())
    judge_wire(wire)


def test_a_position_zero_chunk_beside_a_read_chunk() -> None:
    wire = Wire()
    conn = wire.connect()
    message = nfs3.write(0, DATA)
    rpc = call(conn, message, reads={0: conn.register(8192)}, position_zero=conn.register(140))
    fetch(rpc)
    reply(rpc, nfs3.write_reply(8192))
    judge_wire(wire)


@pytest.mark.parametrize("size", [5, 6, 7, 8])
def test_round_up_in_the_read_chunk_or_not(size: int) -> None:
    wire = Wire()
    conn = wire.connect()
    for length in (size, size + -size % 4):
        rpc = call(conn, nfs3.write(0, DATA[:size]), reads={0: conn.register(length)})
        fetch(rpc)
        reply(rpc, nfs3.write_reply(size))
    judge_wire(wire)


# Handles


def test_one_handle_with_several_ranges() -> None:
    wire = Wire()
    conn = wire.connect()
    rpc = call(conn, nfs3.read(0, 8192), writes=[conn.register(4000, 100, 4092, handle=0x77)])
    reply(rpc, nfs3.read_reply(DATA), split=1500, order=wire.random)
    judge_wire(wire)


def test_one_write_spans_adjacent_segments_of_one_registration() -> None:
    wire = Wire()
    conn = wire.connect()
    rpc = call(conn, nfs3.read(0, 8192), writes=[conn.register(1000, 3000, 4192, adjacent=True)])
    reply(rpc, nfs3.read_reply(DATA), joined=True)
    assert sum(packet.opcode == 6 for packet in wire.packets) == 1
    judge_wire(wire)


def test_one_read_spans_adjacent_segments_of_one_registration() -> None:
    wire = Wire()
    conn = wire.connect()
    rpc = call(conn, nfs3.write(0, DATA), reads={0: conn.register(1001, 2999, 4192, adjacent=True)})
    fetch(rpc, joined=True)
    reply(rpc, nfs3.write_reply(8192))
    judge_wire(wire)


def test_the_same_memory_again_by_a_later_call() -> None:
    wire = Wire()
    conn = wire.connect()
    memory = conn.register(4096)
    for data in (DATA[:4096], DATA[4096:], bytes(4096)):
        rpc = call(conn, nfs3.read(0, 4096), writes=[memory])
        reply(rpc, nfs3.read_reply(data))
    judge_wire(wire)


def test_the_same_memory_again_while_the_earlier_call_is_open() -> None:
    """Each reply follows its own Writes; the calls are all out before."""
    wire = Wire()
    conn = wire.connect()
    memory = conn.register(4096)
    open_calls = [call(conn, nfs3.read(0, 4096), writes=[memory]) for _ in range(2)]
    reply(open_calls[0], nfs3.read_reply(DATA[:4096]))
    reply(open_calls[1], nfs3.read_reply(DATA[4096:]))
    capture = Capture(wire)
    judge(capture, analyze(capture))


def test_the_same_memory_again_after_a_call_that_got_no_reply() -> None:
    wire = Wire()
    conn = wire.connect()
    memory = conn.register(4096)
    call(conn, nfs3.read(0, 4096), writes=[memory])
    reply(call(conn, nfs3.read(0, 4096), writes=[memory]), nfs3.read_reply(DATA[:4096]))
    findings = {finding.true.index: finding for finding in judge_wire(wire)}
    assert findings[0].rpc.state == "no reply"
    assert findings[1].rpc.state == "complete"


def test_the_same_handle_and_address_on_two_connections() -> None:
    wire = Wire()
    one, two = wire.connect(), wire.connect()
    memory = one.register(4096)
    first = call(one, nfs3.read(0, 4096), writes=[memory])
    second = call(two, nfs3.read(0, 4096), writes=[memory])
    reply(second, nfs3.read_reply(DATA[4096:]))
    reply(first, nfs3.read_reply(DATA[:4096]))
    judge_wire(wire)
    judge_wire(wire, faults.interleave(wire, wire.packets, wire.random))


def test_the_fixed_pad_segment_of_the_linux_client() -> None:
    wire = Wire()
    conn = wire.connect()
    calls = [
        call(conn, nfs3.read(0, size), writes=[[*conn.register(size), pad_segment(conn, 0x99)]])
        for size in (5, 1022, 3)
    ]
    for rpc, size in zip(calls, (5, 1022, 3), strict=True):
        reply(rpc, nfs3.read_reply(DATA[:size]))
    judge_wire(wire)
