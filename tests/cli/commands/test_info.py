"""``rdmascope info``, and what the other commands make of several files, comments and files that grow."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner, Result

from playbook import call, nfs3, wrap
from playbook.capture import write_pcap
from playbook.commands import rest_of
from playbook.iwarp import IwarpCapture, IwarpWire
from rdmascope.captures import PcapngWriter, open_capture
from rdmascope.cli.main import main

from ...captures.read.test_open import block, option

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"
LONG_CALLS = SAMPLES / "longcall-rxe.pcap.zst"
PROGRAM = [sys.executable, "-c", "from rdmascope.cli.main import main; main()"]


def run(*arguments: str | Path, columns: int = 120) -> Result:
    environment = {"COLUMNS": str(columns), "RDMASCOPE_TRACEBACK": "1"}
    return CliRunner(env=environment).invoke(main, [str(one) for one in arguments])


def about(*arguments: str | Path) -> list[dict[str, Any]]:
    result = run("info", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def frames() -> list[wrap.Raw]:
    found = []
    with open_capture(LONG_CALLS) as capture:
        for batch in capture.batches():
            for row in batch.rows:
                at = int(row["offset"])
                data = batch.data[at : at + int(row["captured"])].tobytes()
                found.append(wrap.Raw(data, int(row["time"])))
    return found


def write(path: Path, some: list[wrap.Raw], comments: dict[int, str] | None = None, snaplen: int = 0) -> Path:
    with path.open("wb") as file:
        writer = PcapngWriter(file, some[0].link_type, snaplen)
        for number, one in enumerate(some, 1):
            writer.write(one.time, one.data[: snaplen or None], len(one.data), (comments or {}).get(number))
    return path


def test_iwarp_that_is_known_only_at_the_end(tmp_path: Path) -> None:
    wire = IwarpWire(seed=1)
    call(wire.connect(cm=False), nfs3.getattr_())
    path = tmp_path / "one-call.pcap"
    write_pcap(IwarpCapture(wire).frames, path)
    (record,) = about(path)
    assert record["decoded"] == {"iWARP": record["frames"]} and not record["not_decoded"]


def test_the_facts_of_a_file() -> None:
    (record,) = about("--checksums", LONG_CALLS)
    whole = frames()
    assert record["schema"] == "rdmascope.info/1.0"
    assert (record["format"], record["compression"]) == ("pcap", "zstd")
    assert record["size"] == LONG_CALLS.stat().st_size
    assert record["unpacked_size"] == len(zstandard.ZstdDecompressor().stream_reader(LONG_CALLS.read_bytes()).read())
    assert record["frames"] == len(whole) == sum(record["decoded"].values()) + sum(record["not_decoded"].values())
    assert record["decoded"] == {
        "RoCEv2": sum(wrap.transport(one.data) is not None for one in whole),
        "RPC over TCP": sum(
            one.data[12:14] == b"\x08\x00" and one.data[23] == 6 for one in whole
        ),  # portmap's, MOUNT's
    }
    assert record["original_bytes"] == sum(len(one.data) for one in whole)
    assert record["duration_ns"] == whole[-1].time - whole[0].time
    assert record["truncated_frames"] == 0
    assert record["icrc"] == {"good": record["decoded"]["RoCEv2"], "wrong": 0, "not_checked": 0}
    assert record["bits_per_second"] == pytest.approx(record["original_bytes"] * 8e9 / record["duration_ns"])


def test_truncated_frames_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.pcapng", frames(), snaplen=100)
    (record,) = about(path)
    assert record["truncated_frames"] == sum(len(one.data) > 100 for one in frames())
    assert (record["snaplen"], record["longest_captured"]) == (100, 100)
    assert f"{record['truncated_frames']} frames" in run("info", path).stdout


def test_drops_are_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "drops.pcapng", frames())
    assert "not recorded in the file" in run("info", path).stdout
    counters = b"".join(option("<", code, struct.pack("<Q", value)) for code, value in ((4, 500), (5, 0), (7, 214)))
    with path.open("ab") as file:
        file.write(block("<", 5, struct.pack("<III", 0, 0, 0) + counters))
    (record,) = about(path)
    assert record["interfaces"][0]["dropped_by_os"] == 214
    assert record["other_blocks"] == {"interface statistics": 1}
    assert "214 by the operating system, of 500 received" in run("info", path).stdout


@pytest.mark.parametrize(
    ("wrapping", "link_type", "decoded"),
    [(wrap.rocev1, 1, "RoCEv1"), (wrap.infiniband, 247, "InfiniBand"), (wrap.vxlan, 1, "RoCEv2")],
)
def test_what_the_frames_hold(tmp_path: Path, wrapping: Any, link_type: int, decoded: str) -> None:
    some = [
        wrap.Raw(wrapping(one.data), one.time, link_type) for one in frames() if wrap.transport(one.data) is not None
    ]
    (record,) = about(write(tmp_path / "a.pcapng", some), "--checksums")
    assert record["decoded"] == {decoded: len(some)}
    assert record["icrc"]["good"] == len(some)
    assert record["vcrc"]["good"] == (len(some) if decoded == "InfiniBand" else 0)


@pytest.mark.parametrize("columns", [60, 80, 120, 160])
def test_the_page_fits(tmp_path: Path, columns: int) -> None:
    result = run("info", LONG_CALLS, columns=columns)
    assert result.exit_code == 0
    names = max(map(len, (str(LONG_CALLS), "x" * columns)))
    assert all(len(line) <= names for line in result.stdout.splitlines())
    assert "RoCEv2" in result.stdout


def test_a_directory_is_reported_file_by_file(tmp_path: Path) -> None:
    for name in ("b.pcapng", "a.pcapng"):
        write(tmp_path / name, frames()[:9])
    (tmp_path / "note.txt").write_text("nothing to capture")
    result = run("info", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.index("a.pcapng") < result.stdout.index("b.pcapng")
    assert "passed over" in result.stderr
    assert len(about(tmp_path)) == 2


def test_damage_is_reported_behind_what_was_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcapng", frames())
    path.write_bytes(path.read_bytes()[:-9])
    result = run("info", path, tmp_path / "missing", LONG_CALLS)
    assert result.exit_code == 2
    assert f"{len(frames()) - 1:,}" in result.stdout
    assert result.stdout.count("format") == 2
    first, second = result.stderr.splitlines()
    assert "a.pcapng: truncated" in first
    assert second.endswith("missing: no such file")


def test_comments_stand_below_their_packets(tmp_path: Path) -> None:
    some = [one for one in frames() if wrap.transport(one.data) is not None]
    path = write(tmp_path / "a.pcapng", some, {3: "the client\nwaits \x1b[31mhere"})
    lines = run("packets", path, "-c", "4").stdout.splitlines()
    assert lines[4].strip() == "the client waits [31mhere"
    records = [json.loads(line) for line in run("packets", path, "-c", "4", "--json").stdout.splitlines()]
    assert [record.get("comment") for record in records] == [None, None, "the client waits [31mhere", None]


def test_a_ring_is_one_capture(tmp_path: Path) -> None:
    some = frames()
    alone = run("rpcs", write(tmp_path / "whole.pcapng", some)).stdout

    def without_files(page: str) -> str:
        return re.sub(r"  (file:frames|capture_[-\w.:]+) +", "  ", page)

    ring = tmp_path / "ring"
    ring.mkdir()
    for part in range(4):
        cut = some[part * len(some) // 4 : (part + 1) * len(some) // 4]
        write(ring / f"capture_{part:05d}_20260101120000.pcapng", cut)
    found = run("rpcs", ring).stdout
    assert found != alone and without_files(found) == alone
    assert run("rpcs", *sorted(ring.iterdir(), reverse=True)).stdout == found


@pytest.mark.parametrize("command", ["report", "rpcs", "packets"])
def test_a_file_that_does_not_grow_any_more(tmp_path: Path, command: str) -> None:
    path = write(tmp_path / "a.pcapng", frames())
    followed = run(command, "--follow", "--idle", "0", path)
    assert followed.exit_code == 0
    assert followed.stdout == run(command, path).stdout


def test_idle_without_follow_is_refused() -> None:
    result = run("rpcs", LONG_CALLS, "--idle", "1s")
    assert result.exit_code != 0


def test_rpcs_are_reported_while_the_file_grows(tmp_path: Path) -> None:
    """Up to Ctrl-C, which ends the reading but not in failure."""
    whole = write(tmp_path / "whole.pcapng", frames()).read_bytes()
    growing = tmp_path / "growing.pcapng"
    growing.write_bytes(whole[: len(whole) // 2])
    with subprocess.Popen(
        [*PROGRAM, "rpcs", "--follow", str(growing)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        first = program.stdout.readline() + program.stdout.readline()
        with growing.open("ab") as file:
            file.write(whole[len(whole) // 2 :])
            file.flush()
            os.fsync(file.fileno())
        program.send_signal(signal.SIGINT)
        rest, errors = rest_of(program)
    assert program.returncode == 0, errors
    reported = (first + rest).decode().splitlines()
    assert sorted(reported) == sorted(run("rpcs", tmp_path / "whole.pcapng").stdout.splitlines())
