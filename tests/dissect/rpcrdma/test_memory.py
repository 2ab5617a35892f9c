"""Memory that many calls advertise: right where it can be reported, and never more than in proportion."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest

from playbook import Capture, Wire, call, nfs3
from playbook.capture import frame_batch
from playbook.rpc import call_parts, whole
from playbook.rpcrdma import MSG, header
from playbook.wire import Connection, Segment
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc

CLIENT, SERVER = 0, 1


def shared_by_calls(connection: Connection, count: int) -> None:
    """Calls that all advertise one memory, each followed by an RDMA Write to it; no replies."""
    chunk = connection.register(64)
    for _ in range(count):
        call(connection, nfs3.read(0, 64), writes=[chunk])
        connection.write(SERVER, chunk[0].handle, chunk[0].offset, bytes(64))


def shared_by_segments(connection: Connection, count: int) -> None:
    """One list of segments that lie over each other, and RDMA Writes to all of them."""
    chunk = [Segment(5, 4096, 0x1000 + at) for at in range(count)]
    text = header(9, MSG, writes=[chunk]) + whole(call_parts(nfs3.read(0, 4096), 9))
    connection.send(CLIENT, text)
    for at in range(count):
        connection.write(SERVER, 5, 0x1000 + at, bytes(64))


def one_handle(connection: Connection, count: int) -> None:
    """Calls that all use one handle at addresses of their own; no replies."""
    for at in range(count):
        call(connection, nfs3.read(0, 64), writes=[[Segment(5, 64, 64 * at)]])
        connection.write(SERVER, 5, 64 * at, bytes(64))


def cost(batch: FrameBatch) -> tuple[int, int, list[Rpc]]:
    """Peak of memory, and Operations attached to segments."""
    tracemalloc.start()
    analyzer = Analyzer()
    rpcs = analyzer.feed(batch) + analyzer.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak, sum(len(use.operations) for rpc in rpcs for chunk in rpc.chunks for use in chunk.segments), rpcs


@pytest.mark.parametrize("shape", [shared_by_calls, shared_by_segments, one_handle])
def test_memory_grows_in_proportion(shape: Callable[[Connection, int], None]) -> None:
    peaks, attached = [], []
    for count in (150, 300, 600):
        wire = Wire(mtu=4096)
        shape(wire.connect(), count)
        peak, operations, _ = cost(frame_batch(Capture(wire).frames))
        peaks.append(peak)
        attached.append(operations)
    for few, many in pairwise(peaks):
        assert many < 2.4 * few
    assert attached[2] <= 64 * 600 and attached[2] - attached[1] <= 2.4 * (attached[1] - attached[0]) + 64 * 64


def test_every_call_of_one_handle_keeps_its_own_writes() -> None:
    wire = Wire(mtu=4096)
    one_handle(wire.connect(), 500)
    _, operations, rpcs = cost(frame_batch(Capture(wire).frames))
    assert operations == 500
    assert all(chunk.transferred == 64 for rpc in rpcs for chunk in rpc.chunks)


def test_where_too_many_calls_share_a_memory_it_is_undecidable_whose_data_they_are() -> None:
    wire = Wire(mtu=4096)
    shared_by_calls(wire.connect(), 200)
    _, _, rpcs = cost(frame_batch(Capture(wire).frames))
    assert any(use.contested for rpc in rpcs for chunk in rpc.chunks for use in chunk.segments)
