"""The latency of an RPC divided: its two Sends, its RDMA Reads, its RDMA Writes, and the rest.  Nanoseconds."""

from __future__ import annotations

from ..named_tuple import NamedTuple
from ..transport.operations import Operation
from .rpcs import Latency, Rpc

REPLY_EARLIER = "its reply has an earlier time than its call, so its latency is not known"
FAR_APART = "the times of its call and its reply are more than a century apart, so its latency is not known"
MAX_LATENCY = 100 * 365 * 86_400 * 10**9
"""Nanoseconds: beyond a century a clock is wrong, or a time was cut to 63 bits."""


class LatencyMoments(NamedTuple):
    """Points in time of an RPC, ns, ascending; the time between the parts is the server's."""

    begin: int
    sent: int
    """Last packet of the call's Send."""
    read: int
    read_end: int
    """First and last packet of its RDMA Reads; ``sent`` without any."""
    written: int
    written_end: int
    """First and last packet of its RDMA Writes after those; ``read_end`` without any."""
    answering: int
    """First packet of the reply's Send."""
    end: int


def latency(rpc: Rpc, call: Operation, reply: Operation) -> Latency | None:
    """Divide the time between the call's first packet and the reply's last into parts that add up.

    None, with a note, if the capture's times contradict the order of call and reply.
    """
    begin, end = call.first_time, reply.last_time
    if end - begin > MAX_LATENCY:
        rpc.notes += (FAR_APART,)
        return None
    if not rpc.chunks and begin <= call.last_time <= reply.first_time <= end:
        sent, answering = call.last_time, reply.first_time
        return Latency(end - begin, sent - begin, 0, answering - sent, 0, end - answering)
    if end < begin:
        rpc.notes += (REPLY_EARLIER,)
        return None
    moments = phases(rpc, call, reply)
    reads, writes = moments.read_end - moments.read, moments.written_end - moments.written
    server = moments.answering - moments.sent - reads - writes
    return Latency(end - begin, moments.sent - begin, reads, server, writes, end - moments.answering)


def phases(rpc: Rpc, call: Operation, reply: Operation) -> LatencyMoments:
    """When the parts of the latency begin and end; the RPC's latency must be known."""
    begin, end = call.first_time, reply.last_time
    sent = min(max(call.last_time, begin), end)
    answering = min(max(reply.first_time, sent), end)
    read: list[Operation] = []
    written: list[Operation] = []
    for chunk in rpc.chunks:
        operations = read if chunk.kind == "read" else written
        for use in chunk.segments:
            operations += use.operations
    first_read, last_read = _span(read, sent, answering)
    return LatencyMoments(begin, sent, first_read, last_read, *_span(written, last_read, answering), answering, end)


def _span(operations: list[Operation], begin: int, end: int) -> tuple[int, int]:
    """The first and the last time of these Operations, limited to [begin, end]."""
    if not operations:
        return begin, begin
    first = min(max(min([operation.first_time for operation in operations]), begin), end)
    last = min(max(max([operation.last_time for operation in operations]), first), end)
    return first, last
