"""Where the time of an RPC went: its two Sends, its RDMA Reads, its RDMA Writes, and the rest.  Nanoseconds."""

from __future__ import annotations

from ..transport.operations import Operation
from .rpcs import Latency, Rpc

REPLY_EARLIER = "its reply has an earlier time than its call, so its latency is not known"
FAR_APART = "the times of its call and its reply are centuries apart, so its latency is not known"
MAX_LATENCY = (1 << 63) - 1
"""Nanoseconds that the columns of latencies hold."""


def latency(rpc: Rpc, call: Operation, reply: Operation) -> Latency | None:
    """Split the time between the call's first packet and the reply's last; the parts add up.

    None, with a note, where the capture's times contradict the order of call and reply.
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
    sent = min(max(call.last_time, begin), end)
    answering = min(max(reply.first_time, sent), end)
    read: list[Operation] = []
    written: list[Operation] = []
    for chunk in rpc.chunks:
        operations = read if chunk.kind == "read" else written
        for use in chunk.segments:
            operations += use.operations
    reached, reads = _span(read, sent, answering)
    _, writes = _span(written, reached, answering)
    server = answering - sent - reads - writes
    return Latency(end - begin, sent - begin, reads, server, writes, end - answering)


def _span(operations: list[Operation], begin: int, end: int) -> tuple[int, int]:
    """The end, and the duration, of these between ``begin`` and ``end``."""
    if not operations:
        return begin, 0
    first = min(max(min([operation.first_time for operation in operations]), begin), end)
    last = min(max(max([operation.last_time for operation in operations]), first), end)
    return last, last - first
