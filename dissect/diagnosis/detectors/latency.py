"""Where the time went: the server, RDMA Reads and Writes, one connection among many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...measure.statistics import Procedure
from ...units import duration, percent, plural, size
from ..facts import Cause, Facts, Limits, Severity, detector, label
from ..rpc_facts import Sums


def _sums(facts: Facts, procedure: Procedure) -> dict[int, Sums]:
    """The sums of one procedure, by connection."""
    return facts.sums.get(procedure.key, {})


def _slowest(facts: Facts, procedure: Procedure) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers and first frames of the procedure's RPCs among the slowest that were answered."""
    slowest = [rpc for rpc in facts.statistics.slowest_answered() if rpc.key == procedure.key]
    return tuple(rpc.number for rpc in slowest[:5]), tuple(rpc.call_frame for rpc in slowest[:5] if rpc.call_frame)


def _enough(procedure: Procedure, answered: int, least: float) -> bool:
    """Whether it has enough RPCs, at most half of them outstanding, as at the end of a capture, or with damage."""
    outstanding = procedure.outstanding
    return answered >= least / 2 and answered + (outstanding.count if outstanding else 0) >= least


def _step(facts: Facts, sums: list[Sums], part: str, least_calls: int) -> tuple[int, float, float] | None:
    """When the mean of a part rose: the time, and the means before and after it, all in nanoseconds."""
    calls = np.sum([each.calls for each in sums], axis=0)
    if calls.sum() < 2 * least_calls:
        return None
    time = np.sum([getattr(each, part) for each in sums], axis=0)
    counted, spent = np.cumsum(calls), np.cumsum(time)
    before, after = counted[:-1], counted[-1] - counted[:-1]
    at = ((before >= max(1, least_calls)) & (after >= max(1, least_calls)) & (calls[1:] > 0)).nonzero()[0]
    low, high = spent[at] / before[at], (spent[-1] - spent[at]) / after[at]
    gain = np.where(high > low, (high - low) ** 2 * before[at] * after[at] / counted[-1], 0.0)
    if not gain.any():
        return None
    best = int(gain.argmax())
    return facts.rpcs.start + (int(at[best]) + 1) * facts.rpcs.width, float(low[best]), float(high[best])


@detector(
    "server-time",
    "Slow server",
    Severity.PROBLEM,
    "parts of the latency of each procedure",
    {
        "least_calls": (20, "RPCs of the procedure"),
        "latency_share": (0.25, "share of the latency of all RPCs that is server time of this procedure"),
        "median_ms": (20, "median server time of the procedure, milliseconds"),
    },
    (
        "rdmascope rpcs FILE --sort latency, and show FILE --rpc N: what the slow RPCs have in common",
        "rdmascope files FILE: which files they access",
        "on the server: disk latency (iostat -x), busy nfsd threads (/proc/net/rpc/nfsd), locks",
        "where the capture was taken: at the client, the network round trip counts as server time",
    ),
    follows_from=("commit-storm",),
)
def server_time(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Server time is the time between call and reply without the transfers on the wire: the server waited for disks,
    locks, a free thread or another host. Of the network it includes only the path between capture point and server.
    """
    for procedure in facts.procedures:
        known = procedure.part("server")
        server = known or procedure.latency()  # A client's trace tells of what is outside the client, and no more.
        what = "server time" if known else "network and server time"
        if server is None or procedure.key.backward or not _enough(procedure, server.count, limits["least_calls"]):
            continue
        traced = facts.hosts.procedures.get(procedure.key)
        if traced is not None and traced.times["executed"] < traced.whole("server") / 2:
            continue  # The server's own trace says where else the time went.
        part = facts.share(server.total)
        if part < limits["latency_share"] or server.median < limits["median_ms"] * 1e6:
            continue
        rpcs, frames = _slowest(facts, procedure)
        by_connection = _sums(facts, procedure)
        worst = sorted(by_connection, key=lambda number: -float(by_connection[number].server.sum()))
        delayed = sum(examples.count for examples in facts.rpcs.delays.values())
        waited = delayed >= 0.05 * server.count
        weakened = (
            ("packets were retransmitted; server time includes what was held back behind them",) if waited else ()
        )
        yield Cause(
            f"{label(procedure.key)}: {duration(server.total)} of {what}, median {duration(server.median)}",
            server.count,
            None,
            "",
            None,
            (
                f"{what}: median {duration(server.median)}, 99th percentile {duration(server.p99)},"
                f" maximum {duration(server.maximum)}",
                *(facts.ends(number) for number in worst[:2] if number),
            ),
            tuple(number for number in worst if number)[:5],
            rpcs,
            frames,
            0.5 if waited else 0.9,
            weakened,
            Severity.WARNING if waited else None,
            server.total,
            procedures=(label(procedure.key),),
        )


@detector(
    "slower-since",
    "Server became slower",
    Severity.PROBLEM,
    "server time of each procedure over time",
    {
        "least_calls": (100, "RPCs of the procedure before, and after"),
        "factor": (4, "mean server time after, as a multiple of that before"),
        "latency_share": (0.1, "share of the latency of all RPCs that was added"),
        "mean_ms": (2, "mean server time after, milliseconds"),
    },
    (
        "what started on the server then: a backup, a scrub, a rebuild, a snapshot, a full write cache",
        "rdmascope rpcs FILE --since TIME --sort latency",
        "rdmascope report FILE: latencies over time",
    ),
    follows_from=("commit-storm", "server-time"),
)
def slower_since(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """From one moment on, the same procedure took several times as long. The load from this client is in the capture;
    what else the server had to do is not.
    """
    for procedure in facts.procedures:
        by_connection = _sums(facts, procedure)
        change = (
            _step(facts, list(by_connection.values()), "server", int(limits["least_calls"])) if by_connection else None
        )
        if change is None or procedure.key.backward:
            continue
        since, before, after = change
        later = sum(
            float(sums.calls[(since - facts.rpcs.start) // facts.rpcs.width :].sum()) for sums in by_connection.values()
        )
        lost = round((after - before) * later)
        if (
            after < limits["factor"] * before
            or after < limits["mean_ms"] * 1e6
            or facts.share(lost) < limits["latency_share"]
        ):
            continue
        rpcs, frames = _slowest(facts, procedure)
        yield Cause(
            f"{label(procedure.key)}: mean server time rose from {duration(before)} to {duration(after)}",
            round(later),
            None,
            "",
            since,
            (f"{later:,.0f} RPCs since then; moment known to within {duration(facts.rpcs.width)}",),
            tuple(number for number in by_connection if number)[:5],
            rpcs,
            frames,
            0.8,
            ("only the largest step is shown; a server may be slow again and again",),
            lost=lost,
            procedures=(label(procedure.key),),
        )


PHASE = {
    "least_calls": (20, "RPCs of the procedure"),
    "latency_share": (0.25, "share of the latency of all RPCs taken by this part of the procedure"),
    "part_share": (0.5, "share of the procedure's own latency"),
    "median_ms": (5, "median of the part, milliseconds"),
}


def _phase(facts: Facts, limits: Limits, part: str, what: str) -> Iterator[Cause]:
    for procedure in facts.procedures:
        phase = procedure.part(part)
        if phase is None or not _enough(procedure, phase.count, limits["least_calls"]) or not procedure.waited:
            continue
        share_of_all, own = facts.share(phase.total), phase.total / procedure.waited
        if (
            share_of_all < limits["latency_share"]
            or own < limits["part_share"]
            or phase.median < limits["median_ms"] * 1e6
        ):
            continue
        rpcs, frames = _slowest(facts, procedure)
        numbers = [number for number in _sums(facts, procedure) if number]
        moved = procedure.call_bytes if part == "reads" else procedure.reply_bytes
        evidence = [f"RDMA {what}: {percent(own)} of its latency, {size(moved * 1e9 / phase.total)}/s while they last"]
        for number in numbers[:3]:
            health = facts.healths.get(number)
            if health is None:
                continue
            depth, open_reads = health.directions[1].read_depth, health.directions[1].reads_outstanding
            if part == "reads" and (depth == 1 or (depth is None and open_reads == 1)):
                evidence.append(f"{facts.ends(number)}: one RDMA Read at a time")
            if health.path_mtu is not None and health.path_mtu <= 1024:
                evidence.append(f"{facts.ends(number)}: path MTU {health.path_mtu}")
        delayed = sum(facts.rpcs.delays[number].count for number in numbers if number in facts.rpcs.delays)
        waited = delayed >= 0.05 * phase.count
        yield Cause(
            f"{label(procedure.key)}: {duration(phase.total)} of RDMA {what}, median {duration(phase.median)}",
            phase.count,
            None,
            "",
            None,
            tuple(evidence),
            tuple(numbers[:5]),
            rpcs,
            frames,
            0.5 if waited else 0.85,
            ("packets were retransmitted; the time includes what was held back behind them",) if waited else (),
            Severity.WARNING if waited else None,
            phase.total,
        )


@detector(
    "read-phase",
    "Slow RDMA Reads of client data",
    Severity.PROBLEM,
    "parts of the latency of each procedure; transport health",
    PHASE,
    (
        "rdmascope transport FILE: RDMA Reads outstanding and their limit, path MTU, delay of Read responses",
        "ORD and IRD of the connection (initiator depth, responder resources): with 1, each Read costs a round trip",
        "bandwidth and load of the client's transmit path: memory, PCIe slot, port",
    ),
)
def read_phase(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The server fetches a call's data from the client's memory by RDMA Reads (Read chunks), and that took longer than
    everything else. The client's CPU has no part in it: its NIC, the path, and how many Reads the server may have
    outstanding decide.
    """
    yield from _phase(facts, limits, "reads", "Reads")


@detector(
    "write-phase",
    "Slow RDMA Writes to the client",
    Severity.PROBLEM,
    "parts of the latency of each procedure; transport health",
    PHASE,
    (
        "rdmascope transport FILE: path MTU, congestion, retransmissions",
        "bandwidth and load of the client's receive path and of the server's port; incast of several servers",
        "whether the server sends while it reads from disk: then its disks set the pace",
    ),
)
def write_phase(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The server returns data by RDMA Writes, and from their first to their last packet more time passed than in the
    rest of the RPC.
    """
    yield from _phase(facts, limits, "writes", "Writes")


@detector(
    "slow-connection",
    "One connection slower than the others of its mount",
    Severity.PROBLEM,
    "latency of the same procedures on connections of one mount, and of clients of one server",
    {
        "least_connections": (2, "connections of one mount with enough RPCs"),
        "least_calls": (100, "RPCs of a connection that are compared"),
        "factor": (3, "latency as a multiple of that on the others"),
        "client_factor": (10, "latency as a multiple of that of other clients' connections"),
        "load_factor": (4, "largest ratio of calls, or of bytes per call, between connections that are compared"),
    },
    (
        "rdmascope transport FILE --connection N: what its transport did",
        "the path that its UDP source port or queue pair is hashed to: one bad link among several",
        "the receive queue or CPU that serves it on either host",
    ),
    uses="sessions",
)
def slow_connection(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Connections of one mount (nconnect, session trunking) carry the same kinds of calls at the same time. On one of
    them the same procedures take several times as long as on the others: its network path, or the CPU or queue that
    serves it, is slower. Connections are compared only if they were opened together and carry the same NFS version,
    similar numbers of calls and similar amounts of data. Clients of one server are compared in the same way, by one
    connection each; a slower one is a warning.
    """
    for numbers in _mounts(facts):
        for number in numbers:
            yield from _slower(facts, limits, number, numbers)
    for by_client in _clients(facts):
        for client, number in by_client.items():
            for cause in _slower(facts, limits, number, [*by_client.values()], "client_factor"):
                yield replace(
                    cause,
                    severity=Severity.WARNING,
                    title="One client slower than the others of its server",
                    confidence=0.6,
                    weakened_by=(f"what {client} asks for may lie elsewhere on the server",),
                )


def _slower(
    facts: Facts, limits: Limits, number: int, numbers: Sequence[int], factor: str = "factor"
) -> Iterator[Cause]:
    """A cause if the connection is slower than those of ``numbers`` with a similar load."""
    shares = facts.statistics.connections
    if number not in shares or shares[number].calls < limits["least_calls"]:
        return
    others = [other for other in numbers if other != number and _same_load(facts, number, other, limits["load_factor"])]
    if len(others) + 1 < limits["least_connections"]:
        return
    compared = took = expected = rest = 0.0
    for by_number in facts.sums.values():
        theirs = [by_number[other] for other in others if other in by_number]
        if number not in by_number or not theirs:
            continue
        mine = by_number[number]
        calls, latency = sum(each.calls for each in theirs), sum(each.latency for each in theirs)
        both = (mine.calls > 0) & (np.asarray(calls) > 0)  # load changes over time
        compared += float(mine.calls[both].sum())
        rest += float(np.asarray(calls)[both].sum())
        took += float(mine.latency[both].sum())
        expected += float((mine.calls[both] * (latency / np.maximum(calls, 1))[both]).sum())
    if number in facts.rpcs.delays:
        took -= facts.rpcs.delays[number].total  # Another statement names that cause.
    if compared < limits["least_calls"] or rest < limits["least_calls"] or took < limits[factor] * expected:
        return
    yield Cause(
        f"{facts.ends(number)}: latency {took / expected:.1f} times that of the"
        f" {'other' if len(others) == 1 else f'{len(others)} others'}",
        round(compared),
        None,
        "",
        None,
        (f"mean {duration(took / compared)} instead of {duration(expected / compared)}, {compared:,.0f} RPCs",),
        (number,),
        confidence=0.85,
        lost=round(took - expected),
    )


MAX_CLIENTS = 32
"""Clients of one server that are compared."""
TOGETHER = 1_000_000_000
"""Nanoseconds between the first packets of the first and the last connection that one mount opens."""


def _mounts(facts: Facts) -> Iterator[list[int]]:
    """Groups of connections between two hosts that belong to one mount: of one session, or opened together."""
    versions = _versions(facts)
    sessions = {number: session.number for session in facts.sessions or () for number in session.connections}
    mounts: dict[tuple[object, ...], list[int]] = defaultdict(list)
    opened: dict[tuple[object, ...], tuple[int, int]] = {}
    """By what they have in common: when the first connection of the latest group began, and the number of groups."""
    for conversation in sorted(facts.conversations, key=lambda each: each.connection.first_time):
        connection = conversation.connection
        alike = (*(endpoint.address for endpoint in connection.endpoints), connection.service_port,
                 versions[connection.number])  # fmt: skip
        if (session := sessions.get(connection.number)) is not None:
            mounts[*alike, "session", session].append(connection.number)
        elif connection.start_known:
            time, groups = opened.get(alike, (-TOGETHER - 1, 0))
            if connection.first_time - time > TOGETHER:
                time, groups = connection.first_time, groups + 1
            opened[alike] = time, groups
            mounts[*alike, "opened", groups].append(connection.number)
    yield from mounts.values()


def _versions(facts: Facts) -> Mapping[int, frozenset[tuple[int | None, ...]]]:
    """By connection: programs, versions and minor versions of its calls."""
    versions: dict[int, frozenset[tuple[int | None, ...]]] = defaultdict(frozenset)
    for key, by_number in facts.sums.items():
        if not key.backward:
            for number in by_number:
                versions[number] |= {(key.program, key.version, key.minor_version)}
    return versions


def _clients(facts: Facts) -> Iterator[dict[str, int]]:
    """For each server whose clients use the same versions: by client, the connection with the most calls."""
    versions, shares = _versions(facts), facts.statistics.connections
    servers: dict[tuple[object, ...], dict[str, int]] = defaultdict(dict)
    for number in sorted(versions.keys() & shares.keys() & facts.by_number.keys(), key=lambda each: shares[each].calls):
        connection = facts.by_number[number].connection
        client, server = (endpoint.address for endpoint in connection.endpoints)
        by_client = servers[server, connection.service_port, versions[number]]
        by_client.pop(client, None)  # It goes to the end, where the busiest are.
        by_client[client] = number
    for by_client in servers.values():
        yield dict([*by_client.items()][-MAX_CLIENTS:])


def _same_load(facts: Facts, first: int, other: int, factor: float) -> bool:
    """Whether both carry about as many calls of the same procedures, and as many bytes with each."""
    pairs = [
        tuple(float(by_number[number].calls.sum()) if number in by_number else 0.0 for number in (first, other))
        for key, by_number in facts.sums.items()
        if not key.backward
    ]
    common = sum(min(pair) for pair in pairs)
    if common * factor < max(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)):
        return False
    shares = facts.statistics.connections
    if first not in shares or other not in shares:
        return False
    sizes = [
        [moved / max(share.calls, 1) for moved in (share.call_bytes, share.reply_bytes)]
        for share in (shares[first], shares[other])
    ]
    return all(max(pair) <= factor * min(pair) for pair in zip(*sizes, strict=True))


@detector(
    "unequal-connections",
    "Unbalanced connections",
    Severity.WARNING,
    "RPCs on each connection",
    {
        "least_connections": (2, "connections open at the same time between the same addresses"),
        "least_calls": (1000, "RPCs on all of them"),
        "share": (0.9, "share of them on one connection"),
    },
    (
        "nconnect, and how the client chooses a connection",
        "rdmascope report FILE: what ended or delayed the others",
    ),
)
def unequal_connections(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A client had several connections open to one server to share the load, but nearly all RPCs used one."""
    ends: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
    for conversation in facts.conversations:
        connection = conversation.connection
        if conversation.carries_rpc and not (connection.refused or connection.unanswered):
            client, server = connection.endpoints
            ends[client.address, server.address, connection.service_port].append(connection.number)
    for numbers in ends.values():
        connections = [facts.by_number[number].connection for number in numbers]
        begin = max(connection.first_time for connection in connections)
        end = min(connection.last_time for connection in connections)
        if len(numbers) < limits["least_connections"] or end - begin < facts.span / 2:
            continue
        shares = facts.statistics.connections
        carried = {number: shares[number].calls for number in numbers if number in shares}
        total = sum(carried.values())
        if total < limits["least_calls"]:
            continue
        busiest = max(carried, key=lambda number: carried[number])
        if carried[busiest] / total >= limits["share"]:
            yield Cause(
                f"{percent(carried[busiest] / total)} of the RPCs on one of {len(numbers)} connections",
                carried[busiest],
                carried[busiest] / total,
                "the RPCs of these connections",
                None,
                (f"{facts.ends(busiest)}: {plural(carried[busiest], 'RPC')}",),
                (busiest, *(number for number in numbers if number != busiest)),
                confidence=0.7,
                weakened_by=("the other connections may belong to idle mounts",),
            )
