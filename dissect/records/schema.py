"""The machine behind every record: its type, and the version of that type's layout.

A record names its layout in ``schema`` ("rdmascope.rpc/3") and the type in ``type`` ("rpc").  A version changes when a
name goes away or changes its meaning, not when one is added.
"""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
"""What becomes a JSON object."""

VERSIONS = {
    "audit": 1,
    "batch": 1,
    "batch_capture": 1,
    "capture": 1,
    "capture_point": 1,
    "connection": 2,
    "credits": 3,
    "detector": 1,
    "difference": 1,
    "evicted": 1,
    "export": 1,
    "exported_table": 1,
    "extract": 1,
    "fault": 2,
    "file": 1,
    "finding": 1,
    "frame": 1,
    "group": 2,
    "gss_context": 1,
    "histogram": 1,
    "info": 2,
    "interval": 2,
    "live": 1,
    "manifest": 1,
    "mount_counters": 1,
    "nfs_client": 1,
    "nfs_data_server": 1,
    "nfs_delegation": 1,
    "nfs_session": 1,
    "nfs_slot_event": 1,
    "nfs_wait": 1,
    "nfsd_counters": 1,
    "packet": 2,
    "points": 1,
    "points_procedure": 1,
    "points_rpc": 1,
    "probe": 1,
    "probe_check": 1,
    "probe_client": 1,
    "probe_echo": 1,
    "probe_program": 2,
    "probe_round": 1,
    "probe_served": 1,
    "probe_server": 1,
    "probe_suite": 1,
    "probe_summary": 1,
    "probe_version": 1,
    "procedure": 3,
    "rpc": 3,
    "rule": 2,
    "runs": 1,
    "runs_procedure": 1,
    "script": 1,
    "service_level": 2,
    "slowest": 4,
    "statement": 1,
    "synth": 1,
    "synth_key": 1,
    "throughput": 1,
    "transfer": 2,
    "transport": 3,
    "trigger": 1,
    "undecoded": 1,
    "verdict": 2,
    "verification": 1,
}
"""Version of each type's layout."""


def wide(name: str, value: int | None) -> Record:
    """A field of 64 bits, and its hexadecimal string: not every reader of JSON has integers beyond 53 bits."""
    return {name: value, f"{name}_hex": None if value is None else f"{value:#018x}"}


def schema(type: str) -> str:
    """The name of a type's layout: 'rdmascope.rpc/3'."""
    return f"rdmascope.{type}/{VERSIONS[type]}"


def record(type: str, **fields: Any) -> Record:
    """The fields, and before them what they are."""
    return {"schema": schema(type), "type": type, **fields}
