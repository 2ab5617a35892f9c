"""Two sets of RPCs beside each other: the same ones seen at two capture points, or two runs of a like load.

Sets are columns of the table ``rpcs``, by their names; times in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import erfc, sqrt

import numpy as np
from numpy.ma import MaskedArray, getmaskarray
from numpy.typing import NDArray

from ..arrays import Int64s
from ..named_tuple import NamedTuple
from ..onc.rpc_header import NFS, procedure_label, program_label
from ..percentiles import Distribution, distribution
from ..rpcrdma.conversation import ENDS, Conversation


def settings(conversations: Iterable[Conversation]) -> dict[str, tuple[str, ...]]:
    """Name of a setting -> every value that a connection has of it, in the order of first use."""
    values_of: dict[str, dict[str, None]] = {}
    for conversation in conversations:
        if conversation.carries_rpc:
            for name, value in _settings(conversation):
                values_of.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in values_of.items()}


def _settings(conversation: Conversation) -> Iterator[tuple[str, str]]:
    connection = conversation.connection
    yield "transport", connection.transport
    if not connection.rdma:
        return
    version = conversation.version()
    yield "version of RPC-over-RDMA", str(version) if version else "unknown"
    for end, way in enumerate(("to the server", "to the client")):
        yield f"inline threshold {way}, bytes", str(conversation.known_inline_threshold(end)[0] or "unknown")
    yield "path MTU", str(connection.path_mtu or "unknown")
    for end, name in enumerate(ENDS):
        data = conversation.private_data(end)
        none = "none" if conversation.private_data_known(end) else "not seen"
        yield (
            f"private data of the {name}",
            (
                none
                if data is None
                else f"sends {data.send_size}, receives {data.receive_size}, "
                f"{'allows' if data.remote_invalidation else 'no'} remote invalidation"
            ),
        )
    for name, values in (("requested", conversation.credits_requested), ("granted", conversation.credits_granted)):
        yield f"credits {name}", "unknown" if values is None else str(values[1])
    for name, depth in (
        ("that the client serves", connection.endpoints[0].responder_resources),
        ("that the server issues", connection.endpoints[1].initiator_depth),
    ):
        yield f"outstanding RDMA Reads {name}", "unknown" if depth is None else str(depth)


_KERNEL = tuple(
    f"client_{part}_ns" for part in ("encoded", "registered", "posted", "completed", "invalidated", "decoded")
)

COLUMNS = (
    "number",
    "direction",
    "xid",
    "time_ns",
    "end_time_ns",
    "client",
    "server",
    "program_number",
    "version",
    "minor_version",
    "procedure",
    "operations",
    "failed",
    "latency_ns",
    "server_ns",
    "retransmitted_packets",
    "connection",
    *_KERNEL,
    "reads_ns",
    "writes_ns",
    "retransmission_delay_ns",
    "call_bytes",
    "call_chunk_bytes",
    "reply_bytes",
    "reply_chunk_bytes",
)
"""Columns that a comparison needs."""

RpcColumns = Mapping[str, MaskedArray]

FARTHEST = 10_000_000_000
"""Nanoseconds that an RPC can need from one capture point to the other; farther apart it is another of its XID."""
ENOUGH = 8
"""Values in each sample from which on the normal approximation of a test will do."""
MAX_EXACT = 400
"""Values in both samples of which the exact distribution is reckoned."""
SIGNIFICANT = 0.01
"""A difference that chance makes less often."""


class Labels(NamedTuple):
    """What each RPC was called for."""

    names: list[str]
    codes: Int64s
    """Index into ``names``, of each RPC."""


def labels(columns: RpcColumns) -> Labels:
    """'NFSv4.2 WRITE GETATTR', 'NFSv3 READ', 'NFSv4.0 CB_RECALL (backward)'."""
    keys = list(
        zip(
            *(columns[name].filled(-1).tolist() for name in ("program_number", "version", "minor_version")),
            columns["procedure"].filled("").tolist(),
            columns["operations"].data.tolist(),
            columns["direction"].filled("").tolist(),
            strict=True,
        )
    )
    known: dict[str, int] = {}
    codes = {key: known.setdefault(_label(*key), len(known)) for key in dict.fromkeys(keys)}
    return Labels(list(known), np.array([codes[key] for key in keys], np.int64))


def _label(program: int, version: int, minor: int, procedure: str, operations: tuple[str, ...], direction: str) -> str:
    of = program_label(None if program < 0 else program, None if version < 0 else version, None if minor < 0 else minor)
    back = " (backward)" if direction == "backward" else ""
    return f"{of} {procedure_label(procedure, operations)}{back}"


@dataclass(frozen=True, slots=True)
class Phases:
    """Where the time of RPCs went that both capture points saw.  The means add up to that of ``waited``."""

    name: str
    """What they were called for; '' for all together."""
    rpcs: int
    waited: Distribution
    """Between the call's first packet and the reply's last one, at the client's capture point."""
    server: float
    """Mean: at the server's capture point, without RDMA Reads and Writes and without waiting for retransmissions."""
    there: float
    """Mean: the call's way from the client's capture point to the server's, by the offset of the clocks."""
    back: float
    """Mean: the reply's way from the server's capture point to the client's."""
    read_network: float
    """Mean: RDMA Reads took so much longer at the server's capture point than at the client's."""
    write_network: float
    """Mean: RDMA Writes at the server's capture point, and waiting for retransmissions there: sending, not serving."""
    client: float
    """Mean: RDMA Reads at the client's capture point: how long the client took to answer them."""

    @property
    def network(self) -> float:
        """Mean of all ways between the capture points."""
        return self.there + self.back + self.read_network + self.write_network


class PairedRpc(NamedTuple):
    """An RPC that two capture points saw: when, and where its time went.  Times in nanoseconds."""

    name: str
    """What it was called for."""
    xid: int
    client_number: int
    """The number of the RPC in the client's capture."""
    server_number: int
    client_time: int
    """The time of the call's first packet, by the clock there."""
    server_time: int
    waited: int
    """Latency at the client's capture point."""
    at_server: int
    """Latency at the server's."""
    server: int
    there: int
    back: int
    read_network: int
    write_network: int
    client: int
    """These six as in ``Phases``, of this RPC."""


class SameTraffic(NamedTuple):
    """The RPCs that two capture points saw."""

    total: Phases | None
    """None where there is no such RPC with a latency at both."""
    procedures: list[Phases]
    """The most time first."""
    only_client: int
    """RPCs that the client's capture point alone shows with call and reply."""
    only_server: int
    each: Callable[[], Iterator[PairedRpc]]
    """Gives the RPCs one by one, in the order of the client's capture."""


def same_traffic(client: RpcColumns, server: RpcColumns, offset: Callable[[Int64s], Int64s]) -> SameTraffic:
    """``client``, ``server``: RPCs at the two capture points; ``offset``: the server's clock less the client's at
    times of the client's.
    """
    whole = [_whole(columns) for columns in (client, server)]
    near, far = _pairs(_rows(client, whole[0]), _rows(server, whole[1]), offset)
    both = len(near)
    seen = [{name: columns[name][rows][pair] for name in COLUMNS} for columns, rows, pair in
            ((client, whole[0], near), (server, whole[1], far))]  # fmt: skip
    waited, at_server = (columns["latency_ns"].filled(0) for columns in seen)
    reads = [columns["reads_ns"].filled(0) for columns in seen]
    called_at = seen[0]["time_ns"].filled(0)
    there = seen[1]["time_ns"].filled(0) - called_at - offset(called_at)
    own = np.minimum(*reads)
    writes = seen[1]["writes_ns"].filled(0) + seen[1]["retransmission_delay_ns"].filled(0)
    parts = {
        "server": at_server - reads[1] - writes,
        "there": there,
        "back": waited - at_server - there,
        "read_network": reads[1] - own,
        "write_network": writes,
        "client": own,
    }
    called = labels(seen[0])

    def phases(name: str, which: NDArray[np.bool_] | slice) -> Phases | None:
        spread = distribution(waited[which])
        if spread is None:
            return None
        return Phases(
            name, spread.count, spread, **{part: float(values[which].mean()) for part, values in parts.items()}
        )

    per_procedure = (phases(name, called.codes == code) for code, name in enumerate(called.names))
    procedures = sorted(
        (phases for phases in per_procedure if phases is not None), key=lambda spent: -spent.waited.total
    )

    def each() -> Iterator[PairedRpc]:
        names = (called.names[code] for code in called.codes.tolist())
        places = (seen[0]["xid"], seen[0]["number"], seen[1]["number"], seen[0]["time_ns"], seen[1]["time_ns"])
        columns = [*(ends.filled(0) for ends in places), waited, at_server, *parts.values()]
        yield from map(PairedRpc, names, *(column.tolist() for column in columns))

    return SameTraffic(phases("", slice(None)), procedures, len(whole[0]) - both, len(whole[1]) - both, each)


def _whole(columns: RpcColumns) -> Int64s:
    """The RPCs with call and reply, and a latency."""
    return np.flatnonzero(~getmaskarray(columns["latency_ns"]))


def _rows(columns: RpcColumns, which: Int64s) -> dict[str, MaskedArray]:
    return {name: columns[name][which] for name in ("client", "server", "direction", "xid", "time_ns")}


def _pairs(near: RpcColumns, far: RpcColumns, offset: Callable[[Int64s], Int64s]) -> tuple[Int64s, Int64s]:
    """Indices of the same RPCs in both: by hosts, direction and XID, and of one XID in the order of time."""
    codes: dict[tuple[str, str, str], int] = {}
    keys, times = [], [times["time_ns"].filled(0) for times in (near, far)]
    for columns in (near, far):
        ends = zip(*(columns[name].filled("").tolist() for name in ("client", "server", "direction")), strict=True)
        hosts = np.array([codes.setdefault(end, len(codes)) for end in ends], np.int64)
        keys.append(hosts << 32 | columns["xid"].filled(0))
    _, numbers = np.unique(np.concatenate(keys), return_inverse=True)
    numbers = numbers.astype(np.int64) << 32
    split = numbers[: len(keys[0])], numbers[len(keys[0]) :]
    turned = [number | _turns(number, time) for number, time in zip(split, times, strict=True)]
    _, first, second = np.intersect1d(turned[0], turned[1], assume_unique=True, return_indices=True)
    called_at = times[0][first]
    close = np.abs(times[1][second] - called_at - offset(called_at)) <= FARTHEST
    return first[close], second[close]


def _turns(keys: Int64s, times: Int64s) -> Int64s:
    """How many with the same key were before each."""
    turns = np.zeros(len(keys), np.int64)
    if len(keys):
        order = np.lexsort((times, keys))
        begins = np.concatenate(([True], np.diff(keys[order]) != 0))
        index = np.arange(len(keys))
        turns[order] = index - np.maximum.accumulate(np.where(begins, index, 0))
    return turns


@dataclass(frozen=True, slots=True)
class Run:
    """The RPCs of one procedure in one run."""

    rpcs: int
    failed: int
    latency: Distribution | None
    call_bytes: int
    reply_bytes: int
    chunk_bytes: int
    """Bytes of these that RDMA Read and Write transferred."""


class Costs(NamedTuple):
    """What NFS cost in one run: means of an RPC in nanoseconds, of procedures of both runs, which count alike in
    both."""

    waited: float
    server: float
    """With the network behind the capture point, where ``network`` is None."""
    network: float | None
    """The way from the capture point to the server and back, at best, and all transfers; None: the way is not known."""
    retransmissions: float
    """Time in which RPCs waited for retransmissions."""
    retransmitted: int
    """Packets, or segments."""
    kernel: float | None
    """What the client's kernel did itself, as its trace tells."""
    throughput: float
    """Bytes of calls and replies a second, while any was outstanding."""


def costs(runs: tuple[RpcColumns, RpcColumns], ways: tuple[int | None, int | None]) -> tuple[Costs, Costs] | None:
    """The costs of both runs; None where no procedure is in both.  ``ways``: from the capture point to the server."""
    called = [labels(run) for run in runs]
    whole = [_whole(run) for run in runs]
    known = [rows[run["program_number"][rows].filled(0) == NFS] for run, rows in zip(runs, whole, strict=True)]
    names = set.intersection(*({of.names[code] for code in np.unique(of.codes[rows]).tolist()}
                               for of, rows in zip(called, known, strict=True)))  # fmt: skip
    if not names:
        return None
    chosen = [[rows[of.codes[rows] == of.names.index(name)] for name in sorted(names)]
              for of, rows in zip(called, known, strict=True)]  # fmt: skip
    weights = [min(map(len, rows)) for rows in zip(*chosen, strict=True)]

    def cost(columns: RpcColumns, procedures: list[Int64s], way: int | None) -> Costs:
        def mean(name: str) -> float:
            means = [float(columns[name][rows].filled(0).mean()) for rows in procedures]
            return float(np.average(means, weights=weights))

        waited, server, lost = (mean(name) for name in ("latency_ns", "server_ns", "retransmission_delay_ns"))
        alone = server if way is None else max(0.0, server - way)
        every = np.concatenate(procedures)
        traced = not getmaskarray(columns[_KERNEL[0]][every]).any()
        starts, ends = (np.sort(columns[name].filled(0)[every]) for name in ("time_ns", "end_time_ns"))
        # Between the n-th end and the start behind it nothing is outstanding where that is later.
        busy = int(ends[-1] - starts[0]) - int(np.maximum(0, starts[1:] - ends[:-1]).sum())
        moved = sum(int(columns[name][every].filled(0).sum()) for name in ("call_bytes", "reply_bytes"))
        return Costs(
            waited, alone, None if way is None else waited - alone - lost, lost,
            int(columns["retransmitted_packets"][every].filled(0).sum()),
            sum(map(mean, _KERNEL)) if traced else None, moved * 1e9 / max(1, busy),
        )  # fmt: skip

    before, after = (cost(*side) for side in zip(runs, chosen, ways, strict=True))
    return before, after


class Change(NamedTuple):
    """One procedure in two runs."""

    name: str
    before: Run
    after: Run
    chance: float | None
    """How often chance alone makes latencies differ as much, two-sided; None where one run has none."""
    slower: float | None
    """The share of pairs, an RPC of each run, in which the second run's took longer; half of those alike."""

    @property
    def significant(self) -> bool:
        return self.chance is not None and self.chance < SIGNIFICANT


class ProcedureCalls(NamedTuple):
    """The RPCs of one procedure in a run."""

    run: Run
    latencies: Int64s
    """Known latencies: nanoseconds, or values in the same order."""
    counts: Int64s
    """How many there are of each."""


def called(columns: RpcColumns) -> dict[str, ProcedureCalls]:
    """The calls of each procedure."""
    of, calls_of = labels(columns), {}
    for code, name in enumerate(of.names):
        rows = np.flatnonzero(of.codes == code)
        latencies = columns["latency_ns"][rows].compressed()
        calls_of[name] = ProcedureCalls(_run(columns, rows), latencies, np.ones(len(latencies), np.int64))
    return calls_of


_NEVER = ProcedureCalls(Run(0, 0, None, 0, 0, 0), np.zeros(0, np.int64), np.zeros(0, np.int64))


def two_runs(before: Mapping[str, ProcedureCalls], after: Mapping[str, ProcedureCalls]) -> list[Change]:
    """Procedure by procedure, those with the most time in both runs first."""
    changes = []
    for name in dict.fromkeys((*before, *after)):
        first, second = before.get(name, _NEVER), after.get(name, _NEVER)
        test = rank_test(first.latencies, second.latencies, (first.counts, second.counts))
        changes.append(Change(name, first.run, second.run, *test))
    return sorted(
        changes, key=lambda change: -sum(run.latency.total for run in (change.before, change.after) if run.latency)
    )


def _run(columns: RpcColumns, rows: Int64s) -> Run:
    def total(*names: str) -> int:
        return sum(int(columns[name][rows].filled(0).sum()) for name in names)

    return Run(
        len(rows),
        total("failed"),
        distribution(columns["latency_ns"][rows].compressed()),
        total("call_bytes"),
        total("reply_bytes"),
        total("call_chunk_bytes", "reply_chunk_bytes"),
    )


def rank_test(
    first: Int64s, second: Int64s, counts: tuple[Int64s, Int64s] | None = None
) -> tuple[float | None, float | None]:
    """The test of Mann and Whitney: exact for small samples, by its normal approximation with ties for others.

    How often chance alone makes two such samples differ as much, two-sided, and the share of pairs in which the second
    value is the larger one, half of those alike.  None and None where either is empty.  ``counts``: how many there are
    of each value; one by default.
    """
    weights = np.ones(len(first) + len(second)) if counts is None else np.concatenate(counts).astype(np.float64)
    sizes = int(weights[: len(first)].sum()), int(weights[len(first) :].sum())
    if not min(sizes):
        return None, None
    _, inverse = np.unique(np.concatenate((first, second)), return_inverse=True)
    ties = np.bincount(inverse, weights)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[inverse]
    larger = float((ranks * weights)[len(first) :].sum()) - sizes[1] * (sizes[1] + 1) / 2
    pairs, everything = float(sizes[0]) * sizes[1], float(sum(sizes))
    if min(sizes) < ENOUGH and sum(sizes) <= MAX_EXACT:
        ranks = np.repeat(ranks, weights.astype(np.int64))
        few = int(sizes[1] < sizes[0])
        return _exact(ranks, ranks[sizes[0] :] if few else ranks[: sizes[0]]), larger / pairs
    alike = float((ties**3 - ties).sum()) / (everything * (everything - 1))
    variance = pairs / 12 * (everything + 1 - alike)
    if variance <= 0:
        return 1.0, 0.5
    return erfc(abs(larger - pairs / 2) / sqrt(2 * variance)), larger / pairs


def _exact(ranks: NDArray[np.float64], few: NDArray[np.float64]) -> float:
    """How many of all choices of as many ranks have a sum as far from the mean as that of ``few``, as a share."""
    doubled = np.rint(2 * ranks).astype(np.int64)
    size, total = len(few), int(doubled.sum())
    ways = np.zeros((size + 1, total + 1))
    ways[0, 0] = 1.0
    for rank in doubled.tolist():
        ways[1:, rank:] += ways[:-1, : total + 1 - rank].copy()
    distance = np.abs(np.arange(total + 1) * len(ranks) - size * total)
    rank_distance = abs(int(np.rint(2 * few.sum())) * len(ranks) - size * total)
    return float(ways[size][distance >= rank_distance].sum() / ways[size].sum())
