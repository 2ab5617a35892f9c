"""Which files of a fleet are one capture, and of which host."""

from __future__ import annotations

from pathlib import Path

import pytest

from rdmascope.captures import CaptureError
from rdmascope.captures.fleet.batch import CaptureUnit, rotated_name, units


def files(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def found(*patterns: Path | str) -> dict[str, list[list[str]]]:
    """By host the names of the files of each capture."""
    hosts: dict[str, list[list[str]]] = {}
    for unit in units([str(one) for one in patterns]):
        hosts.setdefault(unit.host, []).append([Path(path).name for path in unit.paths])
    return hosts


def test_hosts_are_folders_or_names(tmp_path: Path) -> None:
    files(tmp_path, "web1/a.pcap", "web1/monday/b.pcapng.zst", "web2/a.pcap", "db.pcap", "web1/notes.txt")
    wanted = {"db": [["db.pcap"]], "web1": [["a.pcap"], ["b.pcapng.zst"]], "web2": [["a.pcap"]]}
    assert found(tmp_path) == wanted
    assert found(tmp_path / "**" / "*.pcap*") == wanted
    assert found(tmp_path / "web1" / "a.pcap", tmp_path / "db.pcap") == {"a": [["a.pcap"]], "db": [["db.pcap"]]}


def test_rotated_files_are_one_capture(tmp_path: Path) -> None:
    files(
        tmp_path / "web1", "a.pcap", "a.pcap1", "a.pcap2", "a.pcap10", "b.pcap.gz", "b.pcap1.gz", "c2.pcap", "c3.pcap"
    )
    files(tmp_path / "db", "ring_00001_20261121100000.pcapng", "ring_00002_20261121110000.pcapng")
    files(tmp_path / "db", "other_00001_20261121100000.pcapng")
    assert found(tmp_path) == {
        "web1": [["a.pcap", "a.pcap1", "a.pcap2", "a.pcap10"], ["b.pcap.gz", "b.pcap1.gz"], ["c2.pcap"], ["c3.pcap"]],
        "db": [
            ["other_00001_20261121100000.pcapng"],
            ["ring_00001_20261121100000.pcapng", "ring_00002_20261121110000.pcapng"],
        ],
    }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("d/x.pcap", "d/x.pcap"),
        ("d/x.pcap03", "d/x.pcap"),
        ("d/x.pcapng2.zst", "d/x.pcapng.zst"),
        ("d/x7.cap", "d/x7.cap"),
        ("d/x_00012_20261121100000.pcapng.gz", "d/x"),
        ("d/x.bin", "d/x.bin"),
    ],
)
def test_names(path: str, name: str) -> None:
    assert rotated_name(path) == name


def test_no_match_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no file matches"):
        units([str(tmp_path)])
    assert CaptureUnit("a", ("b",)).host == "a"
