"""Two captures beside each other, as records.  Times in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from ..diagnosis.statement import Statement
from ..link.capture_points import CommonTraffic, LonePackets
from ..measure.comparison import Change, Phases, Run, SameTraffic
from ..percentiles import Distribution
from .schema import Record, record


class Points(Protocol):
    """Two captures of the same traffic: as ``captures.comparison`` has it."""

    @property
    def client(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def common(self) -> CommonTraffic: ...
    @property
    def whole(self) -> bool: ...
    @property
    def rpcs(self) -> SameTraffic: ...
    @property
    def at_client(self) -> LonePackets: ...
    @property
    def at_server(self) -> LonePackets: ...


class Runs(Protocol):
    """Two captures of different traffic."""

    @property
    def before(self) -> str: ...
    @property
    def after(self) -> str: ...
    @property
    def seconds(self) -> tuple[float, float]: ...
    @property
    def procedures(self) -> list[Change]: ...
    @property
    def vanished(self) -> list[Statement]: ...
    @property
    def appeared(self) -> list[Statement]: ...
    @property
    def settings(self) -> list[tuple[str, Sequence[str], Sequence[str]]]: ...
    @property
    def rules(self) -> list[tuple[str, str, int, int]]: ...


def points_records(found: Points, each: bool = False) -> Iterator[Record]:
    """The captures, then each procedure; with ``each`` then the RPCs one by one."""
    common = found.common
    yield record(
        "points",
        client_capture=found.client,
        server_capture=found.server,
        packets_at_both=common.both,
        compared_whole=found.whole,
        clock_offset_ns=common.offset,
        clock_offset_error_ns=common.error,
        clock_drift_ppm=None if common.clocks.drift_error is None else round(common.clocks.drift * 1e6, 3),
        clock_drift_error_ppm=None if common.clocks.drift_error is None else round(common.clocks.drift_error * 1e6, 3),
        transit_to_server_ns=common.transit[0],
        transit_to_client_ns=common.transit[1],
        lost_to_server_frames=found.at_client.lost.tolist(),
        missed_by_server_frames=found.at_client.missed.tolist(),
        lost_to_client_frames=found.at_server.lost.tolist(),
        missed_by_client_frames=found.at_server.missed.tolist(),
        rpcs_only_client=found.rpcs.only_client,
        rpcs_only_server=found.rpcs.only_server,
        phases=found.rpcs.total and _phases(found.rpcs.total),
    )
    for one in found.rpcs.procedures:
        yield record("points_procedure", procedure=one.name, phases=_phases(one))
    for rpc in found.rpcs.each() if each else ():
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


def _phases(one: Phases) -> Record:
    return {
        "rpcs": one.rpcs,
        "waited": _distribution(one.waited),
        "waited_mean_ns": one.waited.mean,
        "server_mean_ns": one.server,
        "there_mean_ns": one.there,
        "back_mean_ns": one.back,
        "reads_network_mean_ns": one.read_network,
        "writes_network_mean_ns": one.write_network,
        "client_mean_ns": one.client,
    }


def _distribution(one: Distribution | None) -> Record | None:
    if one is None:
        return None
    return {"min_ns": one.minimum, "median_ns": one.median, "p99_ns": one.p99, "max_ns": one.maximum}


def runs_records(found: Runs) -> Iterator[Record]:
    """The runs and what differs, then each procedure."""
    yield record(
        "runs",
        before=found.before,
        after=found.after,
        seconds_before=found.seconds[0],
        seconds_after=found.seconds[1],
        diagnosis=[
            {"run": run, "kind": one.kind, "severity": one.severity.value, "title": one.title, "text": one.cause.text}
            for run, statements in (("before", found.vanished), ("after", found.appeared))
            for one in statements
        ],
        settings=[
            {"name": name, "before": list(before), "after": list(after)} for name, before, after in found.settings
        ],
        rules=[
            {"rule": rule, "role": role, "violations_before": before, "violations_after": after}
            for rule, role, before, after in found.rules
        ],
    )
    for one in found.procedures:
        yield record(
            "runs_procedure",
            procedure=one.name,
            before=_run(one.before),
            after=_run(one.after),
            chance=one.chance,
            slower_share=one.slower,
            significant=one.significant,
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
