"""RPCs in, sums and percentiles out."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from rdmascope.dissect.measure.statistics import MAX_PROCEDURES, MAX_REASONS, Statistics
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.messages import Message, Segment, TransportHeader
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Latency, Rpc, SegmentUse
from rdmascope.dissect.transport.connection import Connection, Endpoint
from rdmascope.dissect.transport.operations import Kind, Operation, Payload

CONVERSATION = Conversation(Connection(1, "RoCEv2", (Endpoint("10.0.0.1", 17), Endpoint("10.0.0.2", 18))))
NOTHING = memoryview(b"")
SECOND = 1_000_000_000


def send(initiator: int, time: int, inline: int, procedure: int = RDMA_MSG) -> Message:
    operation = Operation(Kind.SEND, initiator, 1, 2, time, time, inline + 28, Payload())
    return Message(operation, TransportHeader(7, 1, 1, procedure), NOTHING, 0, 0, inline)


def moved(kind: Kind, length: int) -> Operation:
    return Operation(kind, 1, 3, 4, 0, 0, length, Payload(), handle=5, address=0)


def rpc(
    number: int = 1,
    total: int = 1000,
    *,
    at: int = SECOND,
    name: str = "READ",
    status: str = "OK",
    state: str = "complete",
    latency: Latency | None = None,
    chunks: tuple[ChunkUse, ...] = (),
    call: Message | None = None,
    damage: tuple[str, ...] = (),
) -> Rpc:
    return Rpc(
        number,
        CONVERSATION,
        False,
        number,
        call or send(0, at, 100),
        send(1, at + total, 60),
        program=100003,
        version=3,
        procedure=6,
        name=name,
        status=status,
        failed=status != "OK",
        state=state,
        damage=damage,
        chunks=list(chunks),
        latency=latency or Latency(total, 0, 0, total, 0, 0),
    )


def collect(*rpcs: Rpc, keep: int = 10) -> Statistics:
    statistics = Statistics(keep)
    for one in rpcs:
        statistics.add_table(RpcTable([one]))
    return statistics


def test_calls_errors_and_bytes_add_up() -> None:
    statistics = collect(rpc(1), rpc(2, status="NFS3ERR_IO", state="error"), rpc(3, name="WRITE"))
    by_name = {one.key.name: one for one in statistics.procedures()}
    assert by_name["READ"].calls == 2
    assert by_name["READ"].failed == 1
    assert by_name["READ"].statuses == {"NFS3ERR_IO": 1}
    assert by_name["READ"].call_bytes == 200
    assert by_name["READ"].reply_bytes == 120
    assert statistics.states == {"complete": 2, "error": 1}
    assert statistics.connections[1].calls == 3
    assert statistics.connections[1].failed == 1
    assert statistics.transfers["inline call"].messages == 3
    assert statistics.transfers["inline reply"].transferred == 180


def test_chunk_data_counts_where_it_travelled() -> None:
    read = ChunkUse("read", 144, [SegmentUse(Segment(5, 4096, 0), None, [moved(Kind.READ, 4000)])])
    write = ChunkUse("write", None, [SegmentUse(Segment(5, 8192, 0), 100, [moved(Kind.WRITE, 100)])])
    unused = ChunkUse("reply", None, [SegmentUse(Segment(6, 512, 0), 0), SegmentUse(Segment(6, 512, 512), 0)])
    statistics = collect(rpc(chunks=(read, write, unused)))
    procedure = statistics.procedures()[0]
    assert procedure.call_bytes == 100 + 4000
    assert procedure.reply_bytes == 60 + 100
    assert statistics.transfers["read chunk"].advertised == 4096
    assert statistics.transfers["write chunk"].transferred == 100
    reply_chunk = statistics.transfers["reply chunk"]
    assert (reply_chunk.messages, reply_chunk.segments, reply_chunk.unused) == (1, 2, 1)
    assert statistics.transfers["position zero"].messages == 0


def test_a_call_that_is_a_chunk_is_position_zero() -> None:
    whole = ChunkUse("read", 0, [SegmentUse(Segment(5, 4096, 0), None, [moved(Kind.READ, 4096)])])
    statistics = collect(rpc(chunks=(whole,), call=send(0, SECOND, 0, RDMA_NOMSG)))
    assert statistics.transfers["position zero"].transferred == 4096
    assert statistics.transfers["read chunk"].messages == 0
    assert statistics.transfers["inline call"].messages == 0


def test_parts_keep_their_zeros() -> None:
    statistics = collect(
        rpc(1, latency=Latency(100, 0, 60, 40, 0, 0)),
        rpc(2, latency=Latency(50, 0, 0, 50, 0, 0)),
        rpc(3, latency=Latency(70, 0, 0, 70, 0, 0)),
    )
    parts = statistics.procedures()[0].parts()
    assert (parts["reads"].count, parts["reads"].minimum, parts["reads"].median, parts["reads"].maximum) == (
        3,
        0,
        0,
        60,
    )
    assert parts["reads"].mean == pytest.approx(20)
    assert parts["server"].total == 160
    assert parts["call"].maximum == 0


def test_an_rpc_with_one_half_has_no_latency() -> None:
    lonely = rpc(state="no reply")
    lonely.reply = lonely.latency = None
    procedure = collect(lonely).procedures()[0]
    assert procedure.calls == 1
    assert procedure.latency() is None
    assert procedure.parts() == {}


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60), st.integers(0, 8))
def test_the_slowest_are_the_slowest(totals: list[int], keep: int) -> None:
    statistics = collect(*(rpc(number, total) for number, total in enumerate(totals, 1)), keep=keep)
    assert [slow.waiting for slow in statistics.slowest()] == sorted(totals, reverse=True)[:keep]


def test_hostile_variety_stays_bounded() -> None:
    statistics = Statistics()
    for number in range(MAX_PROCEDURES + 50):
        statistics.add_table(
            RpcTable([rpc(number, name=f"proc-{number}", damage=(f"reason {chr(65 + number % 26) * (number % 90)}",))])
        )
    assert len(statistics.procedures()) <= MAX_PROCEDURES + 1
    assert len(statistics.damage.items()) <= MAX_REASONS + 1
    assert statistics.calls == MAX_PROCEDURES + 50


def test_reasons_that_differ_in_numbers_are_one() -> None:
    statistics = collect(rpc(1, damage=("bytes 4096 to 8192 missing",)), rpc(2, damage=("bytes 0 to 0x10 missing",)))
    assert statistics.damage.items() == [("bytes … to … missing", 2)]
