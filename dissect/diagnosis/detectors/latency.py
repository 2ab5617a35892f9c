"""Where the time went: the server, RDMA Reads and Writes, one connection among many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ...measure.statistics import Procedure
from ...units import duration, percent, plural, size
from ..detector import Limits, detector
from ..facts import Facts, label
from ..rpc_facts import Sums
from ..statement import Cause, Severity


def _sums(facts: Facts, procedure: Procedure) -> dict[int, Sums]:
    """Of one procedure, by connection."""
    return facts.sums.get(procedure.key, {})


def _slowest(facts: Facts, procedure: Procedure) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers and first frames of those of the slowest RPCs that are of the procedure."""
    found = [one for one in facts.statistics.slowest() if one.key == procedure.key]
    return tuple(one.number for one in found[:5]), tuple(one.call_frame for one in found[:5] if one.call_frame)


def _step(facts: Facts, sums: list[Sums], part: str, least_calls: int) -> tuple[int, float, float] | None:
    """When the mean of a part rose: the moment, and the means before and after it, in nanoseconds."""
    calls = np.sum([one.calls for one in sums], axis=0)
    if calls.sum() < 2 * least_calls:
        return None
    time = np.sum([getattr(one, part) for one in sums], axis=0)
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
    "The server takes most of the time",
    Severity.PROBLEM,
    "parts of the latency of each procedure",
    {
        "least_calls": (20, "RPCs of the procedure"),
        "latency_share": (0.25, "share of the latency of all RPCs that is server time of this procedure"),
        "median_ms": (20, "median server time of the procedure, milliseconds"),
    },
    (
        "rdmascope rpcs FILE --sort latency, and show FILE --rpc N: what the slow ones have in common",
        "rdmascope files FILE: which files they are about",
        "on the server: disk latencies (iostat -x), nfsd threads that are all busy (/proc/net/rpc/nfsd), locks",
        "where the capture was taken: at the client, the network's time there and back counts as the server's",
    ),
)
def server_time(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Between the call and its reply, apart from the transfers that the wire shows, the time is the server's: it waited
    for disks, for locks, for a free thread, or for another host. The network and RDMA had no part in it, except for the
    way between the capture point and the server.
    """
    for procedure in facts.procedures:
        server = procedure.part("server")
        if server is None or server.count < limits["least_calls"] or procedure.key.backward:
            continue
        part = facts.share(server.total) or 0.0
        if part < limits["latency_share"] or server.median < limits["median_ms"] * 1e6:
            continue
        rpcs, frames = _slowest(facts, procedure)
        by_connection = _sums(facts, procedure)
        worst = sorted(by_connection, key=lambda number: -float(by_connection[number].server.sum()))
        delayed = sum(examples.count for examples in facts.rpcs.delays.values())
        waited = delayed >= 0.05 * server.count
        weakened = (
            ("packets were retransmitted, and what RPCs waited for that is in the server's time, too",)
            if waited
            else ()
        )
        yield Cause(
            f"{label(procedure.key)}: {percent(part)} of all latency is server time, median {duration(server.median)}",
            server.count,
            part,
            "the latency of all RPCs",
            None,
            (
                f"server time: median {duration(server.median)}, 99th percentile {duration(server.p99)},"
                f" greatest {duration(server.maximum)}",
                *(facts.ends(number) for number in worst[:2] if number),
            ),
            tuple(number for number in worst if number)[:5],
            rpcs,
            frames,
            0.5 if waited else 0.9,
            weakened,
            Severity.WARNING if waited else None,
        )


@detector(
    "slower-since",
    "The server became slower",
    Severity.PROBLEM,
    "server time of each procedure over time",
    {
        "least_calls": (100, "RPCs of the procedure before, and after"),
        "factor": (4, "how many times the mean server time before it is after"),
        "latency_share": (0.1, "share of the latency of all RPCs that is more than before"),
        "mean_ms": (2, "mean server time after, milliseconds"),
    },
    (
        "what began on the server then: a backup, a scrub, a rebuild, a full write cache or snapshot",
        "rdmascope rpcs FILE --since TIME --sort latency",
        "rdmascope report FILE: its latencies over time",
    ),
)
def slower_since(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """From one moment on the same procedure took several times as long as before, and stayed so. The load from this
    client is in the capture; what else the server had to do then is not.
    """
    for procedure in facts.procedures:
        by_connection = _sums(facts, procedure)
        found = (
            _step(facts, list(by_connection.values()), "server", int(limits["least_calls"])) if by_connection else None
        )
        if found is None or procedure.key.backward:
            continue
        since, before, after = found
        later = sum(
            float(sums.calls[(since - facts.rpcs.start) // facts.rpcs.width :].sum()) for sums in by_connection.values()
        )
        part = facts.share((after - before) * later) or 0.0
        if after < limits["factor"] * before or after < limits["mean_ms"] * 1e6 or part < limits["latency_share"]:
            continue
        rpcs, frames = _slowest(facts, procedure)
        yield Cause(
            f"{label(procedure.key)}: mean server time rose from {duration(before)} to {duration(after)}",
            round(later),
            part,
            "the latency of all RPCs",
            since,
            (f"{later:,.0f} RPCs since then; the moment is known to {duration(facts.rpcs.width)}",),
            tuple(number for number in by_connection if number)[:5],
            rpcs,
            frames,
            0.8,
            ("one step is looked for: of a server that is slow again and again, only the greatest change is shown",),
        )


PHASE = {
    "least_calls": (20, "RPCs of the procedure"),
    "latency_share": (0.25, "share of the latency of all RPCs that this part of the procedure is"),
    "part_share": (0.5, "share of the procedure's own latency"),
    "median_ms": (5, "median of the part, milliseconds"),
}


def _phase(facts: Facts, limits: Limits, part: str, what: str) -> Iterator[Cause]:
    for procedure in facts.procedures:
        found = procedure.part(part)
        if found is None or found.count < limits["least_calls"] or not procedure.waited:
            continue
        share_of_all, own = facts.share(found.total) or 0.0, found.total / procedure.waited
        if (
            share_of_all < limits["latency_share"]
            or own < limits["part_share"]
            or found.median < limits["median_ms"] * 1e6
        ):
            continue
        rpcs, frames = _slowest(facts, procedure)
        numbers = [number for number in _sums(facts, procedure) if number]
        moved = procedure.call_bytes if part == "reads" else procedure.reply_bytes
        evidence = [
            f"{size(moved * 1e9 / found.total)}/s while an RPC's RDMA {what} last, {percent(own)} of its latency"
        ]
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
        waited = delayed >= 0.05 * found.count
        yield Cause(
            f"{label(procedure.key)}: {percent(share_of_all)} of all latency are RDMA {what},"
            f" median {duration(found.median)}",
            found.count,
            share_of_all,
            "the latency of all RPCs",
            None,
            tuple(evidence),
            tuple(numbers[:5]),
            rpcs,
            frames,
            0.5 if waited else 0.85,
            ("packets were retransmitted, and the wait for that is in it",) if waited else (),
            Severity.WARNING if waited else None,
        )


@detector(
    "read-phase",
    "Fetching data from the client takes most of the time",
    Severity.PROBLEM,
    "parts of the latency of each procedure; transport health",
    PHASE,
    (
        "rdmascope transport FILE: RDMA Reads outstanding and how many may be, path MTU, delay of Read responses",
        "initiator depth and responder resources of the connection: with a depth of 1 each Read costs a round trip",
        "bandwidth and load of the client's sending side: its memory, its PCIe slot, its port",
    ),
)
def read_phase(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The server fetches a call's data by RDMA Reads from the client's memory (Read chunks), and that took longer than
    all the rest. The client's host does not take part; its network card, the way, and how many Reads the server may
    have outstanding decide.
    """
    yield from _phase(facts, limits, "reads", "Reads")


@detector(
    "write-phase",
    "Returning data to the client takes most of the time",
    Severity.PROBLEM,
    "parts of the latency of each procedure; transport health",
    PHASE,
    (
        "rdmascope transport FILE: path MTU, congestion, retransmissions",
        "bandwidth and load of the client's receiving side and of the server's port: several may send to one client",
        "whether the server sends as it reads from disk: then its disks set the pace",
    ),
)
def write_phase(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """From the first to the last packet of the RDMA Writes by which the server returns data, more time went by than in
    all the rest of the RPC.
    """
    yield from _phase(facts, limits, "writes", "Writes")


@detector(
    "slow-connection",
    "One connection is slower than the others between the same hosts",
    Severity.PROBLEM,
    "latency of the same procedures on each connection",
    {
        "least_connections": (2, "connections between the same addresses with enough RPCs"),
        "least_calls": (100, "RPCs of a connection that are compared"),
        "factor": (3, "how many times as long as on the others"),
    },
    (
        "rdmascope transport FILE --connection N: what its transport did",
        "the way that its UDP source port or queue pair is hashed to: one bad link among several",
        "which receive queue or processor serves it on either host",
    ),
)
def slow_connection(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Connections between the same two hosts (nconnect, sessions with several channels, several mounts) carry the same
    kinds of calls. On one of them the same procedures take several times as long as on the others, so neither the
    server's disks nor the client explain it, but the way of this one or what serves it.
    """
    totals = facts.rpcs.totals()
    ends: dict[tuple[str, str], list[int]] = defaultdict(list)
    for conversation in facts.conversations:
        one, other = conversation.connection.endpoints
        ends[one.address, other.address].append(conversation.connection.number)
    for numbers in ends.values():
        if len(numbers) < limits["least_connections"]:
            continue
        known = set(numbers)
        calls: dict[object, dict[int, tuple[float, float]]] = defaultdict(dict)
        for (number, key), total in totals.items():
            if number in known and not key.backward:
                calls[key][number] = total
        together = [
            (by_number, sum(one[0] for one in by_number.values()), sum(one[1] for one in by_number.values()))
            for by_number in calls.values()
        ]
        for number in numbers:
            compared = took = expected = others = 0.0
            for by_number, all_calls, all_time in together:
                mine = by_number.get(number)
                if mine is None:
                    continue
                rest_calls = all_calls - mine[0]
                if rest_calls < mine[0] / 10 or not rest_calls:
                    continue
                compared += mine[0]
                others += rest_calls
                took += mine[1]
                expected += mine[0] * (all_time - mine[1]) / rest_calls
            if compared < limits["least_calls"] or others < limits["least_calls"] or took < limits["factor"] * expected:
                continue
            yield Cause(
                f"{facts.ends(number)}: RPCs take {took / expected:.1f} times as long as on the"
                f" {'other' if len(numbers) == 2 else f'{len(numbers) - 1} others'}",
                round(compared),
                facts.share(took - expected),
                "the latency of all RPCs",
                None,
                (f"mean {duration(took / compared)} instead of {duration(expected / compared)}, {compared:,.0f} RPCs",),
                (number,),
                confidence=0.85,
            )


@detector(
    "unequal-connections",
    "Connections between the same hosts are used unequally",
    Severity.WARNING,
    "RPCs on each connection",
    {
        "least_connections": (2, "connections between the same addresses that are open at the same time"),
        "least_calls": (1000, "RPCs on all of them"),
        "share": (0.9, "share of them on one, where there are two; more of them: the excess over an equal share"),
    },
    (
        "nconnect and the policy by which the client chooses a connection",
        "rdmascope report FILE: what ended or delays the others",
    ),
)
def unequal_connections(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A client opened several connections to one server at the same time so that they share the load, and nearly all
    RPCs went over one.
    """
    ends: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
    for conversation in facts.conversations:
        connection = conversation.connection
        if conversation.protocol == "rpcrdma" and not connection.refused:
            client, server = connection.endpoints
            ends[client.address, server.address, connection.service_port].append(connection.number)
    for numbers in ends.values():
        connections = [facts.by_number[number].connection for number in numbers]
        begin = max(one.first_time for one in connections)
        end = min(one.last_time for one in connections)
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
                f"{percent(carried[busiest] / total)} of the RPCs of {len(numbers)} connections are on one",
                carried[busiest],
                carried[busiest] / total,
                "the RPCs of these connections",
                None,
                (f"{facts.ends(busiest)}: {plural(carried[busiest], 'RPC')}",),
                (busiest, *(number for number in numbers if number != busiest)),
                confidence=0.7,
                weakened_by=("the other connections may belong to mounts that nothing used",),
            )
