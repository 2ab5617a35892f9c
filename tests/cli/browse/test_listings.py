"""Lines of the lists: what the commands say of the same noun."""

from __future__ import annotations

import pytest

from rdmascope.cli.browse.listings import LISTINGS, ListingLayout, Row
from rdmascope.dissect.records.tables import TABLES

FILE: Row = {
    "handle_hash": 0x62D40C52, "path": "/export/a", "removed_path": None, "file_type": "file", "size_bytes": 2048,
    "least_size_bytes": 2048, "reads": 1200, "read_bytes": 4096, "writes": 0, "written_bytes": 0,
    "median_latency_ns": 1_000_000, "p99_latency_ns": None,
}  # fmt: skip
CONNECTION: Row = {
    "number": 3, "transport": "RoCEv2", "protocol": "rpcrdma", "client": "fd00::2", "server": "fd00::1",
    "service_port": 20049, "client_bytes": 1024, "server_bytes": None, "client_retransmitted_packets": 1200,
    "server_retransmitted_packets": None, "client_missing_packets": 0, "server_missing_packets": 0, "ended_by": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "size", "path"),
    [
        ({}, "2.00 KiB", "/export/a"),
        ({"size_bytes": None}, "≥ 2.00 KiB", "/export/a"),
        ({"size_bytes": None, "least_size_bytes": None}, "-", "/export/a"),
        ({"file_type": "directory"}, "-", "/export/a/"),
        ({"removed_path": "/export/b"}, "2.00 KiB", "/export/b (removed)"),
        ({"path": None}, "2.00 KiB", "?"),
    ],
)
def test_a_file_as_files_has_it(changed: Row, size: str, path: str) -> None:
    line = LISTINGS["files"].line({**FILE, **changed}, ListingLayout(0, 120)).plain
    assert line.startswith(f"0x62d40c52 {size:>10} ") and line.endswith(f"  {path}")
    assert " 1,200 " in line and line.count(" - ") >= 3


def test_a_connection_as_report_has_it() -> None:
    line = LISTINGS["connections"].line(CONNECTION, ListingLayout(0, 120))
    assert "fd00::2         → [fd00::1]:20049" in line.plain and " 1,200 " in line.plain
    assert line.spans[0].style == "yellow"


PACKET: Row = {
    "frame": 46, "time_ns": 8_116_181_000, "source": "10.77.0.2", "destination": "10.77.0.1", "protocol": "NFS",
    "length_bytes": 126, "info": "V3 NULL Call",
}  # fmt: skip


@pytest.mark.parametrize(("noun", "row", "last"), [("packets", PACKET, "V3 NULL Call"), ("files", FILE, "/export/a")])
def test_few_columns_have_what_says_most(noun: str, row: Row, last: str) -> None:
    for width, most in ((40, 36), (80, 70), (160, 100)):
        layout = ListingLayout(0, width)
        line, heading = LISTINGS[noun].line(row, layout).plain, LISTINGS[noun].heading(layout)
        assert line.endswith(last) and len(line) < most
        named = heading.split()[-1]
        assert line.index(last) == heading.index(named) and named in TABLES[noun].headings


def test_40_columns_have_the_procedure_of_rpcs() -> None:
    for width, names in (
        (40, ["RPC", "latency"]),
        (60, ["RPC", "time", "latency"]),
        (77, ["RPC", "time", "conn", "latency"]),
    ):
        heading = LISTINGS["rpcs"].heading(ListingLayout(0, width))
        assert heading.split() == [*names, "procedure", "path"]
        assert width - heading.index("procedure") > len("NFSv4.1 WRITE GETATTR")
