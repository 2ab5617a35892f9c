"""The path of an RPC is the same whichever way it is asked for, though a much later reply has the name."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import rdmascope
from playbook import Capture, Wire, write_pcap
from playbook.commands import objects, run
from rdmascope.captures.read.merge import open_captures
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session import session
from rdmascope.cli.commands import rpcs

from ...dissect.measure.test_files import DATA, FILE, OTHER, SUB, lookup, read, rename
from ...dissect.measure.test_paths import mount

READS = 8
PATHS = ["/export/file"] * READS + [None, "/export/file", "/export/file", None, "/export/new"]


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Reads of a file whose name, and whose directory's, come last; read in small batches."""
    wire = Wire()
    conn = wire.connect()
    for _ in range(READS):
        read(conn, 0, DATA)
    read(conn, 0, DATA, handle=OTHER)
    lookup(conn, SUB, b"file", FILE)
    rename(conn, SUB, b"file", SUB, b"new")
    mount(conn, b"/export", SUB)
    read(conn, 0, DATA)
    path = tmp_path / "late.pcap"
    write_pcap(Capture(wire).frames, path)

    def small_batches(paths: Any, limits: Limits | None, follow: Any) -> Any:
        return open_captures(paths, Limits(frames=7), follow)

    monkeypatch.setattr(session, "open_captures", small_batches)
    return str(path)


@pytest.mark.parametrize("held", [0, 3, 1000])
@pytest.mark.parametrize("options", [(), ("--sort", "time"), ("--where", "xid <> 0")])
def test_rpcs(late: str, held: int, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpcs, "MAX_LATE", held)
    assert [one["path"] for one in objects("rpcs", late, "--json", *options)] == PATHS
    listed = run("rpcs", late, *options).stdout
    assert listed.count("/export/file") == READS + 2 and listed.count("/export/new") == 1


def test_show(late: str) -> None:
    for number, path in [*enumerate(PATHS, 1)][READS - 2 :]:
        (found,) = objects("show", late, "--rpc", str(number), "--json")
        assert found["path"] == path


def test_tables_and_conditions(late: str, tmp_path: Path) -> None:
    with rdmascope.read(late) as capture:
        assert capture.table("rpcs")["path"].tolist() == PATHS
        assert capture.sql("SELECT path FROM rpcs ORDER BY number")["path"].tolist() == PATHS
    named = objects("rpcs", late, "--json", "--where", "path = '/export/file'")
    assert len(named) == READS + 2
    saved = str(tmp_path / "late.duckdb")
    run("sql", late, "--save", saved)
    assert [one["path"] for one in objects("rpcs", saved, "--json")] == PATHS


def test_what_can_be_read_once_is_named_as_far_as_it_is_known(late: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for arguments in (("rpcs", str(pipe)), ("sql", str(pipe), "FROM rpcs")):
        writer = Thread(target=lambda: pipe.write_bytes(Path(late).read_bytes()))
        writer.start()
        listed = run(*arguments)
        writer.join()
        assert listed.exit_code == 0 and "/export/new" in listed.stdout


@pytest.mark.parametrize(("largest", "waits"), [(1 << 20, True), (100, False)])
def test_a_list_of_packets_waits_for_names_where_captures_are_small(
    largest: int, waits: bool, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_READ_FOR_NAMES", largest)
    calls = [line for line in run("packets", late).stdout.splitlines() if "READ Call" in line]
    assert any("/export/file" in line for line in calls[:READS]) == waits
    assert "/export/new" in calls[-1]
