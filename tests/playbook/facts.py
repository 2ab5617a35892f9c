"""Facts of a capture without a wire: RPCs and transport health as they would be measured, for detectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec

import numpy as np

from rdmascope.dissect.diagnosis.facts import Diagnosis, Facts, Gathered, Statement, all_detectors, diagnose
from rdmascope.dissect.diagnosis.file_facts import FileFacts
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_MSG
from rdmascope.dissect.measure.files import File, FileUses
from rdmascope.dissect.measure.nfs_operations import OPERATION
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.messages import Message, Segment, TransportHeader
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Latency, Rpc, SegmentUse
from rdmascope.dissect.rpcrdma.unanswered import note_outstanding
from rdmascope.dissect.transport.connection import Connection, Endpoint
from rdmascope.dissect.transport.health import CapturePoint, DirectionHealth, TransportHealth
from rdmascope.dissect.transport.operations import Kind, Operation, Payload
from rdmascope.dissect.transport.retransmissions import Retransmission, Tally

START = 1_700_000_000_000_000_000
MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000
NOTHING = memoryview(b"")


def connection(number: int = 1, **changed: Any) -> Conversation:
    """NFS on one connection of the same client to the same server, for the whole capture."""
    ends = (
        Endpoint("10.0.0.2", 16 + number, private_data_frame=1),
        Endpoint("10.0.0.1", 32 + number, private_data_frame=2),
    )
    made = Connection(number, "RoCEv2", ends, service_port=20049, first_time=START, last_time=START + 100 * SECOND)
    made.bytes = (1, 1)
    for name, value in changed.items():
        setattr(made, name, value)
    return Conversation(made, protocol="rpcrdma")


FIRST = connection()


def _message(initiator: int, begin: int, inline: int, credits: int, frame: int) -> Message:
    operation = Operation(Kind.SEND, initiator, frame, frame, begin, begin, inline + 28, Payload())
    return Message(operation, TransportHeader(7, 1, credits, RDMA_MSG), NOTHING, 0, 0, inline)


def chunk(kind: str, length: int, transferred: bool = True) -> ChunkUse:
    """One segment, transferred whole."""
    data = Operation(Kind.READ if kind == "read" else Kind.WRITE, 1, 3, 4, 0, 0, length, Payload(), handle=5, address=0)
    return ChunkUse(
        kind, 0 if kind == "read" else None, [SegmentUse(Segment(5, length, 0), None, [data] if transferred else [])]
    )


def rpc(
    number: int,
    name: str = "GETATTR",
    *,
    on: Conversation = FIRST,
    at: int | None = None,
    takes: int = MILLISECOND,
    parts: tuple[int, int] = (0, 0),
    status: str = "OK",
    operations: tuple[str, ...] = (),
    backward: bool = False,
    credits: tuple[int, int] = (64, 64),
    chunks: Sequence[ChunkUse] = (),
    delay: int = 0,
    answered: bool = True,
    inline: tuple[int, int] = (100, 100),
) -> Rpc:
    """An RPC that begins ``at`` ns after the start, or at 10 ms times its number, and ``takes`` so long, in ``parts``
    in RDMA Reads and in Writes and for the rest in the server.
    """
    begin = START + (number * 10 * MILLISECOND if at is None else at)
    caller = 1 if backward else 0
    made = Rpc(
        number,
        on,
        backward,
        number,
        _message(caller, begin, inline[0], credits[0], number),
        _message(1 - caller, begin + takes, inline[1], credits[1], number + 1) if answered else None,
        100003,
        4 if operations else 3,
        1,
        1 if operations else None,
        operations=operations,
        name="COMPOUND" if operations else name,
        status=status if answered else "",
        failed=status != "OK",
        state="no reply" if not answered else "error" if status != "OK" else "complete",
        chunks=list(chunks),
        order=number,
        retransmission_delay=delay,
    )
    if answered:
        made.latency = Latency(takes, 0, parts[0], takes - sum(parts), parts[1], 0)
    return made


def many(count: int, name: str = "GETATTR", first: int = 1, **each: Any) -> list[Rpc]:
    return [rpc(number, name, **each) for number in range(first, first + count)]


def direction(**changed: Any) -> DirectionHealth:
    """An endpoint that sent a thousand packets without any trouble."""
    plain: dict[str, Any] = {"packets": 1000, "bytes": 1 << 20, "active_time": SECOND, "acknowledgements": 100}
    plain |= {"reads_outstanding": 4, "read_depth": 16}
    return DirectionHealth(**plain | changed)


def health(number: int = 1, client: DirectionHealth | None = None, **changed: Any) -> TransportHealth:
    """Of a connection without any trouble; ``client``: what the client sent."""
    point = CapturePoint("between", 1.0, "", "")
    server = changed.pop("server", None)
    plain = TransportHealth(
        number, "RoCEv2", (client or direction(), server or direction()), (), 0, 4096, "open", point, None
    )
    return plain._replace(**changed)


def retransmitted(cause: str, times: int, wait: int = 0) -> TransportHealth:
    """A client that retransmitted ten packets, ``times``; each ``wait`` ns after the loss."""
    one = Retransmission(
        0, 1, 11, cause, "request", False, 5, START, 6, START, 7, START + wait, 10, 40_000
    )  # fmt: skip
    tally = Tally(10 * times, 40_000 * times)
    return health(
        1,
        direction(causes={cause: tally}, retransmitted=tally, original_missing=tally),
        retransmissions=(one,) * times,
        retransmission_count=times,
        causes={cause: times},
    )


def facts(
    rpcs: Iterable[Rpc],
    healths: Iterable[TransportHealth] = (),
    conversations: Sequence[Conversation] = (FIRST,),
    files: FileFacts | None = None,
    seconds: int = 100,
    **changed: Any,
) -> Facts:
    """A capture of ``seconds`` that holds these RPCs."""
    gathered, rpcs = Gathered(), list(rpcs)
    note_outstanding(rpcs, [one.connection for one in conversations], lambda frame: START + seconds * SECOND)
    gathered.add_table(RpcTable([*rpcs]))
    known = {one.connection: one for one in healths}
    made = Facts(
        gathered.statistics,
        gathered.rpcs,
        list(conversations),
        {
            one.connection.number: known.get(one.connection.number, health(one.connection.number))
            for one in conversations
        },
        START,
        START + seconds * SECOND,
        frames=1000,
        files=files,
    )
    return replace(made, **changed)


def found(given: Facts, kind: str = "") -> list[Statement]:
    """What is said of them; ``kind``: by this detector."""
    diagnosis: Diagnosis = diagnose(given, (kind,) if kind else ())
    assert set(diagnosis.not_looked_at) <= {name for name, one in all_detectors().items() if one.needs}
    _DIAGNOSES.append({one.kind for one in diagnosis.statements})
    return list(diagnosis.statements)


def kinds(given: Facts) -> set[str]:
    """The detectors that speak."""
    return {one.kind for one in found(given)}


_DIAGNOSES: list[set[str]] = []
"""The detectors that spoke, in each diagnosis of the test that runs."""
SPEAKING: dict[str, list[str]] = {}
SILENT: dict[str, list[str]] = {}
"""Tests of facts of which a detector has to speak, and of facts that come near but are nothing to it."""
P = ParamSpec("P")
Test = Callable[P, None]


def speaks(*kinds: str) -> Callable[[Test[P]], Test[P]]:
    """A test in which these detectors speak; of a test with parameters, one of them in each case."""
    return _test_of(SPEAKING, kinds, lambda spoken: not spoken.isdisjoint(kinds))


def silent(*kinds: str) -> Callable[[Test[P]], Test[P]]:
    """A test of facts of which these detectors say nothing, though they come near."""
    return _test_of(SILENT, kinds, lambda spoken: spoken.isdisjoint(kinds))


def _test_of(
    tests: dict[str, list[str]], kinds: Iterable[str], holds: Callable[[set[str]], bool]
) -> Callable[[Test[P]], Test[P]]:
    def decorate(test: Test[P]) -> Test[P]:
        for kind in kinds:
            tests.setdefault(kind, []).append(test.__name__)

        @wraps(test)
        def run(*arguments: P.args, **named: P.kwargs) -> None:
            _DIAGNOSES.clear()
            test(*arguments, **named)
            assert any(map(holds, _DIAGNOSES))

        return run

    return decorate


class Accesses(FileFacts):
    """Files that were read and written, reported one access after the other."""

    def access(
        self, kind: str, file: int, offset: int, count: int, takes: int = MILLISECOND, stable: int | None = None
    ) -> Rpc:
        made = rpc(len(self.rpcs) + 1, kind.upper(), takes=takes)
        noun = self.files.setdefault(file, File("10.0.0.1", bytes([file % 256, file >> 8]), number=file))
        done = np.zeros(1, OPERATION)
        done["succeeded"], done["stable"], done["count"] = True, stable or -1, count
        table = RpcTable([made])
        moved = (0, kind, noun, offset, count, None, True)
        self.take(table, FileUses(done, [made.name], [noun], [moved]))
        self.rpcs.append(made)
        return made

    def __init__(self) -> None:
        super().__init__()
        self.rpcs: list[Rpc] = []
