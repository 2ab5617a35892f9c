"""Two captures beside each other, as records.  Times in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from ..diagnosis.facts import Statement
from ..link.capture_points import CommonTraffic, LonePackets
from ..measure.comparison import Change, Costs, Phases, Run, SameTraffic
from ..percentiles import Distribution
from ..transport.connection import WITHOUT_RDMA
from ..verify.second_opinion import Comparison, Difference
from .schema import Record, RecordType, objects, record

SPREAD = {
    "min_ns": ("integer", "the least"),
    "median_ns": ("integer", "the median"),
    "p99_ns": ("integer", "99 of 100 are no longer"),
    "max_ns": ("integer", "the greatest"),
}
PHASES = {
    "rpcs": ("integer", "RPCs with call and reply at both points"),
    **objects("waited", "object", "from a call's first packet to its reply's last, at the client's point", SPREAD),
    "waited_mean_ns": ("number", "their mean, which is the sum of the following"),
    "server_mean_ns": ("number", "at the server's point, without RDMA Reads"),
    "there_mean_ns": ("number", "the calls' way from the client's point to the server's, by the offset of the clocks"),
    "back_mean_ns": ("number", "the replies' way, likewise"),
    "reads_network_mean_ns": ("number", "how much longer RDMA Reads took at the server's point than at the client's"),
    "writes_network_mean_ns": ("number", "RDMA Writes, and waiting for retransmissions, at the server's point"),
    "client_mean_ns": ("number", "RDMA Reads at the client's point: how long the client took to answer them"),
}
RUN = {
    "rpcs": ("integer", "RPCs"),
    "failed": ("integer", "RPCs whose reply reports an error"),
    **objects("latency", "object|null", "null: none is known", SPREAD),
    "call_bytes": ("integer", "bytes of the RPC calls"),
    "reply_bytes": ("integer", "bytes of the RPC replies"),
    "chunk_bytes": ("integer", "bytes of both, transferred by RDMA Read and Write"),
}
COSTS = {
    "waited_mean_ns": ("number", "mean time of an RPC; procedures of both runs have equal weights"),
    "server_mean_ns": ("number", "of this, at the server; includes the network if network_mean_ns is null"),
    "network_mean_ns": ("number|null", "from the capture point to the server and back, and in transfers"),
    "retransmission_delay_mean_ns": ("number", "waiting for retransmissions"),
    "retransmitted": ("integer", "packets or segments retransmitted"),
    "client_kernel_mean_ns": ("number|null", "time in the client's kernel, from its trace"),
    "throughput_bytes_per_second": ("number", "calls and replies, while any RPC was outstanding"),
}
_FRAMES = "array of integer"

TYPES: dict[str, RecordType] = {
    "points": RecordType(
        "Two captures of the same traffic, at two points.",
        "`compare`, `report`",
        {
            "client_capture": ("string", "the capture that calls pass first"),
            "server_capture": ("string", "the other one"),
            "packets_at_both": ("integer", "packets that both show"),
            "compared_whole": ("boolean", "all packets were compared, not only those at the beginning"),
            "clock_offset_ns": ("integer", "the server's clock less the client's, at the beginning"),
            "clock_offset_error_ns": ("integer|null", "how far the offset may be wrong; null: from one direction"),
            "clock_drift_ppm": (
                "number|null",
                "drift of the server's clock in parts per million; 0: none is certain; null: not known",
            ),
            "clock_drift_error_ppm": ("number|null", "how far the drift may be wrong"),
            "transit_to_server_ns": ("integer|null", "median time of a packet to the server's point"),
            "transit_to_client_ns": ("integer|null", "median time back"),
            "lost_to_server_frames": (_FRAMES, "at the client's point alone, and sent by clients"),
            "missed_by_server_frames": (_FRAMES, "at the client's point alone, though they passed the server's"),
            "lost_to_client_frames": (_FRAMES, "at the server's point alone, and sent by servers"),
            "missed_by_client_frames": (_FRAMES, "at the server's point alone, though they passed the client's"),
            "rpcs_only_client": ("integer", "RPCs with call and reply at the client's point alone"),
            "rpcs_only_server": ("integer", "at the server's point alone"),
            **objects("phases", "object|null", "all RPCs together; null: none is whole at both points", PHASES),
        },
    ),
    "points_procedure": RecordType(
        "Where the time of one procedure's RPCs went, between two capture points.",
        "`compare`, `report`",
        {
            "procedure": ("string", "program, version and procedure, or the operations of a COMPOUND"),
            **objects("phases", "object", "its RPCs", PHASES),
        },
    ),
    "points_rpc": RecordType(
        "An RPC that two capture points saw: when, and where its time went.",
        "`compare --rpcs`, `report`",
        {
            "procedure": ("string", "program, version and procedure, or the operations of a COMPOUND"),
            "xid": ("integer", "its XID"),
            "client_rpc": ("integer", "its number in the client's capture"),
            "server_rpc": ("integer", "its number in the server's capture"),
            "client_time_ns": ("integer", "the call's first packet at the client's point, by the clock there"),
            "server_time_ns": ("integer", "the call's first packet at the server's point, by the clock there"),
            "client_latency_ns": ("integer", "latency at the client's point: the sum of the five parts"),
            "server_latency_ns": ("integer", "latency at the server's point"),
            "server_ns": ("integer", "at the server's point, without RDMA Reads"),
            "there_ns": ("integer", "the call's way to the server's point, by the offset of the clocks"),
            "back_ns": ("integer", "the reply's way, likewise"),
            "way_error_ns": ("integer|null", "how far either may be wrong; their sum is right"),
            "reads_network_ns": ("integer", "how much longer RDMA Reads took at the server's point"),
            "writes_network_ns": ("integer", "RDMA Writes, and waiting for retransmissions, at the server's point"),
            "client_ns": ("integer", "RDMA Reads at the client's point"),
        },
    ),
    "runs": RecordType(
        "Two captures of different traffic.",
        "`compare`",
        {
            "before": ("string", "the first capture"),
            "after": ("string", "the second"),
            "seconds_before": ("number", "duration of the first, from its first frame to its last"),
            "seconds_after": ("number", "duration of the second"),
            **objects("costs", "object|null", "where time went, if only one run is over RDMA; else null", {
                f"{run}_{name}": (type, f"{meaning}, in the {which} run")
                for run, which in (("before", "first"), ("after", "second")) for name, (type, meaning) in COSTS.items()
            }),
            **objects("diagnosis", "array of object", "statements in only one run's diagnosis, the worst each", {
                "run": ("string", "before or after: the run that has it"),
                "kind": ("string", "the detector"),
                "severity": ("string", "problem, warning or note"),
                "title": ("string", "what is wrong, in general"),
                "text": ("string", "what is wrong in this run"),
            }),
            **objects("settings", "array of object", "settings that the ends agreed on, if they differ", {
                "name": ("string", "name of the setting"),
                "before": ("array of string", "values it has on any connection of the first capture"),
                "after": ("array of string", "values in the second capture"),
            }),
            **objects("rules", "array of object", "rules of the audit that one run alone broke", {
                "rule": ("string", "its id"),
                "role": ("string", "client or server"),
                "violations_before": ("integer", "in the first run"),
                "violations_after": ("integer", "in the second"),
            }),
        },
    ),
    "runs_procedure": RecordType(
        "One procedure in two runs.",
        "`compare`",
        {
            "procedure": ("string", "program, version and procedure, or the operations of a COMPOUND"),
            **objects("before", "object", "in the first run", RUN),
            **objects("after", "object", "in the second", RUN),
            "chance": (
                "number|null",
                "probability that latencies differ as much by chance (Mann-Whitney test, two-sided); null: "
                "fewer than 8 in one of the runs",
            ),
            "slower_share": (
                "number|null",
                "share of pairs, an RPC of each run, in which the second run's took longer; ties count half",
            ),
            "significant": ("boolean", "chance is below 0.01"),
        },
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PointsCompared:
    """Two captures of the same traffic."""

    client: str
    """The capture nearer to the clients."""
    server: str
    common: CommonTraffic
    """``client`` is its first point."""
    whole: bool
    """All packets were compared, not only those at the beginning of the captures."""
    rpcs: SameTraffic
    at_client: LonePackets
    """What the client's capture alone shows."""
    at_server: LonePackets


@dataclass(frozen=True, slots=True)
class RunsCompared:
    """Two captures of different traffic."""

    before: str
    after: str
    seconds: tuple[float, float]
    """From the first frame to the last, of each."""
    procedures: list[Change]
    vanished: list[Statement]
    """What the diagnosis of the first alone has, of each kind the worst."""
    appeared: list[Statement]
    """What that of the second alone has."""
    settings: list[tuple[str, Sequence[str], Sequence[str]]]
    """Name, values before and after, of those that differ."""
    rules: list[tuple[str, str, int, int]]
    """Id of a rule, role of the end, violations before and after, of those that one run has and the other has not."""
    transports: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Transports that carried NFS, for each run."""
    costs: tuple[Costs, Costs] | None = None
    """Costs of NFS over RDMA and without it; None if both runs are alike in that, or have no procedure in common."""

    @property
    def rdma(self) -> tuple[bool, bool]:
        """Whether RDMA carried NFS, in each."""
        first, second = (any(name not in WITHOUT_RDMA for name in transport) for transport in self.transports)
        return first, second


def points_records(points: PointsCompared, each: bool = False) -> Iterator[Record]:
    """The captures, then each procedure; with ``each`` then the RPCs one by one."""
    common = points.common
    yield record(
        "points",
        client_capture=points.client,
        server_capture=points.server,
        packets_at_both=common.both,
        compared_whole=points.whole,
        clock_offset_ns=common.offset,
        clock_offset_error_ns=common.error,
        clock_drift_ppm=None if common.clocks.drift_error is None else round(common.clocks.drift * 1e6, 3),
        clock_drift_error_ppm=None if common.clocks.drift_error is None else round(common.clocks.drift_error * 1e6, 3),
        transit_to_server_ns=common.transit[0],
        transit_to_client_ns=common.transit[1],
        lost_to_server_frames=points.at_client.lost.tolist(),
        missed_by_server_frames=points.at_client.missed.tolist(),
        lost_to_client_frames=points.at_server.lost.tolist(),
        missed_by_client_frames=points.at_server.missed.tolist(),
        rpcs_only_client=points.rpcs.only_client,
        rpcs_only_server=points.rpcs.only_server,
        phases=points.rpcs.total and _phases(points.rpcs.total),
    )
    for procedure in points.rpcs.procedures:
        yield record("points_procedure", procedure=procedure.name, phases=_phases(procedure))
    for rpc in points.rpcs.each() if each else ():
        yield record(
            "points_rpc",
            procedure=rpc.name,
            xid=rpc.xid,
            client_rpc=rpc.client_number,
            server_rpc=rpc.server_number,
            client_time_ns=rpc.client_time,
            server_time_ns=rpc.server_time,
            client_latency_ns=rpc.waited,
            server_latency_ns=rpc.at_server,
            server_ns=rpc.server,
            there_ns=rpc.there,
            back_ns=rpc.back,
            way_error_ns=common.error,
            reads_network_ns=rpc.read_network,
            writes_network_ns=rpc.write_network,
            client_ns=rpc.client,
        )


def _phases(phases: Phases) -> Record:
    return {
        "rpcs": phases.rpcs,
        "waited": _distribution(phases.waited),
        "waited_mean_ns": phases.waited.mean,
        "server_mean_ns": phases.server,
        "there_mean_ns": phases.there,
        "back_mean_ns": phases.back,
        "reads_network_mean_ns": phases.read_network,
        "writes_network_mean_ns": phases.write_network,
        "client_mean_ns": phases.client,
    }


def _distribution(latency: Distribution | None) -> Record | None:
    if latency is None:
        return None
    return {"min_ns": latency.minimum, "median_ns": latency.median, "p99_ns": latency.p99, "max_ns": latency.maximum}


def runs_records(runs: RunsCompared) -> Iterator[Record]:
    """The runs and what differs, then each procedure."""
    yield record(
        "runs",
        before=runs.before,
        after=runs.after,
        seconds_before=runs.seconds[0],
        seconds_after=runs.seconds[1],
        costs=None
        if runs.costs is None
        else {
            f"{run}_{name}": value
            for run, cost in zip(("before", "after"), runs.costs, strict=True)
            for name, value in zip(COSTS, cost, strict=True)
        },
        diagnosis=[
            {
                "run": run,
                "kind": statement.kind,
                "severity": statement.severity.value,
                "title": statement.title,
                "text": statement.cause.text,
            }
            for run, statements in (("before", runs.vanished), ("after", runs.appeared))
            for statement in statements
        ],
        settings=[
            {"name": name, "before": list(before), "after": list(after)} for name, before, after in runs.settings
        ],
        rules=[
            {"rule": rule, "role": role, "violations_before": before, "violations_after": after}
            for rule, role, before, after in runs.rules
        ],
    )
    for procedure in runs.procedures:
        yield record(
            "runs_procedure",
            procedure=procedure.name,
            before=_run(procedure.before),
            after=_run(procedure.after),
            chance=procedure.chance,
            slower_share=procedure.slower,
            significant=procedure.significant,
        )


def _run(run: Run) -> Record:
    return {
        "rpcs": run.rpcs,
        "failed": run.failed,
        "latency": _distribution(run.latency),
        "call_bytes": run.call_bytes,
        "reply_bytes": run.reply_bytes,
        "chunk_bytes": run.chunk_bytes,
    }


def difference_record(difference: Difference) -> Record:
    return record(
        "difference",
        what=difference.what.replace(" ", "_"),
        frame=difference.frame,
        field=difference.field,
        rdmascope=None if difference.ours is None else list(difference.ours),
        wireshark=None if difference.theirs is None else list(difference.theirs),
        right=difference.right.lower(),
        explained=difference.explained,
        reason=difference.reason or None,
        reference=difference.reference or None,
    )


def verification_record(file: str, tshark: str, comparison: Comparison, agree: bool) -> Record:
    """Whether both agree about a file, and about what; ``tshark``: its version."""
    return record(
        "verification",
        file=file,
        tshark=tshark,
        agree=agree,
        field_names=sorted(comparison.names),
        compared={what.replace(" ", "_"): asdict(tally) for what, tally in comparison.tallies.items()},
    )
