"""The records of whole captures hold together: they are JSON, and their sums agree."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rdmascope.captures import open_capture
from rdmascope.dissect.diagnosis.facts import Gathered, diagnose
from rdmascope.dissect.records.connection import connection_record, transport_record
from rdmascope.dissect.records.report import report_records
from rdmascope.dissect.records.rpc import full_fields
from rdmascope.dissect.records.rpc_lines import rpc_records
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"
NAMES = ("longcall-rxe", "bidir-rxe", "loss-rxe", "loss-siw", "v2-settles")
SIDES = ("active", "passive")


class Made(NamedTuple):
    """All that is recorded of one sample."""

    rpcs: list[dict[str, Any]]
    connections: list[dict[str, Any]]
    transports: list[dict[str, Any]]
    report: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.report if each["type"] == kind]


@cache
def made(name: str) -> Made:
    analyzer, gathered = Analyzer(), Gathered()
    statistics = gathered.statistics
    rpcs = []

    def take(ended: list[Any]) -> None:
        gathered.add_table(RpcTable([*ended]))
        for rpc, fields in zip(ended, rpc_records(RpcTable(ended)), strict=True):
            rpcs.append({**fields, **full_fields(rpc)})

    with open_capture(str(SAMPLES / f"{name}.pcap.zst")) as capture:
        for batch in capture.batches():
            take(analyzer.feed(batch))
    take(analyzer.finish())
    return Made(
        rpcs,
        [connection_record(one, statistics.connections.get(one.connection.number)) for one in analyzer.conversations],
        [transport_record(one, analyzer.health(one.connection.number)) for one in analyzer.conversations],
        list(report_records(facts := gathered.facts(analyzer), analyzer, diagnose(facts))),
    )


@pytest.mark.parametrize("name", NAMES)
class TestSample:
    def test_it_is_json(self, name: str) -> None:
        for group in made(name):
            assert json.loads(json.dumps(group, allow_nan=False)) == group

    def test_rpcs_carry_their_own_sizes_and_frames(self, name: str) -> None:
        assert made(name).rpcs
        for rpc in made(name).rpcs:
            call, reply = rpc["call"], rpc["reply"]
            assert rpc["call_frame"] == (call and call["first_frame"])
            assert rpc["reply_frame"] == (reply and reply["last_frame"])
            for message, size, by_read in ((call, rpc["call_bytes"], True), (reply, rpc["reply_bytes"], False)):
                chunks = [one["transferred"] for one in rpc["chunk_list"] if (one["kind"] == "read") is by_read]
                assert size == (message["inline_length"] if message else 0) + sum(chunks)

    def test_chunks_are_the_sum_of_their_segments(self, name: str) -> None:
        for rpc in made(name).rpcs:
            for chunk in rpc["chunk_list"]:
                for field in ("advertised", "transferred"):
                    assert chunk[field] == sum(segment[field] for segment in chunk["segments"])

    def test_the_parts_of_a_latency_add_up(self, name: str) -> None:
        for rpc in made(name).rpcs:
            if rpc["latency"] is not None:
                parts = dict(rpc["latency"])
                total = parts.pop("total_ns")
                assert sum(value for value in parts.values() if value is not None) == total

    def test_connections_and_procedures_count_the_same_rpcs(self, name: str) -> None:
        sample = made(name)
        (capture,) = sample.of("capture")
        assert capture["rpcs"] == len(sample.rpcs) == sum(capture["states"].values())
        assert capture["connections"] == len(sample.connections)
        backward = sum(rpc["direction"] == "backward" for rpc in sample.rpcs)
        assert sum(one["backward_rpcs"] for one in sample.connections) == backward
        for group in (sample.connections, sample.of("procedure")):
            assert sum(one["rpcs"] for one in group) == len(sample.rpcs)
            for field in ("call_bytes", "reply_bytes"):
                assert sum(one[field] for one in group) == sum(rpc[field] for rpc in sample.rpcs)
            assert sum(one["failed"] for one in group) == sum(rpc["failed"] for rpc in sample.rpcs)

    def test_the_report_repeats_the_records_of_its_connections(self, name: str) -> None:
        sample = made(name)
        assert sample.of("connection") == sample.connections
        assert sample.of("transport") == sample.transports

    def test_the_slowest_rpcs_are_the_records_of_these_rpcs(self, name: str) -> None:
        sample = made(name)
        by_number = {rpc["number"]: rpc for rpc in sample.rpcs}
        assert sample.of("slowest")
        for slow in sample.of("slowest"):
            rpc = by_number[slow["number"]]
            for field in (
                "connection", "xid", "procedure", "state", "status", "call_frame", "reply_frame", "call_bytes",
                "reply_bytes", "retransmitted_packets", "latency",
            ):  # fmt: skip
                assert slow[field] == rpc[field], field

    def test_an_endpoint_has_packets_or_segments(self, name: str) -> None:
        sample = made(name)
        for connection, transport in zip(sample.connections, sample.transports, strict=True):
            assert connection["number"] == transport["number"]
            iwarp = connection["transport"] in ("iWARP", "TCP")
            for side in SIDES:
                for one in (connection[side], transport[side]):
                    assert (one["packets"] is None) is iwarp
                    assert (one["segments"] is None) is not iwarp
                    assert (one["retransmitted_packets"] is None) is iwarp
                    assert (one["missing_packets"] is None) is iwarp
                sent, health = connection[side], transport[side]
                assert {field: health[field] for field in ("bytes", "packets", "segments", "retransmitted_bytes")} == {
                    field: sent[field] for field in ("bytes", "packets", "segments", "retransmitted_bytes")
                }

    def test_retransmissions_have_a_cause_each(self, name: str) -> None:
        for transport in made(name).transports:
            assert transport["retransmission_count"] == sum(transport["retransmissions_by_cause"].values())
            assert len(transport["retransmissions"]) <= transport["retransmission_count"]
            assert {one["cause"] for one in transport["retransmissions"]} <= set(transport["retransmissions_by_cause"])
