"""What a live capture waits for, and the packets around it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from playbook.commands import LOSS, PROGRAM, objects, run, unpacked

DEADLINE = 120


def watched(*options: str | Path, status: int = 1) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*PROGRAM, "live", "-", "--json", *map(str, options)],
        input=unpacked(LOSS),
        capture_output=True,
        timeout=DEADLINE,
    )
    assert done.returncode == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def triggers(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in records if one["type"] == "trigger"]


def slow(limit: int) -> list[dict[str, Any]]:
    return [one for one in objects("rpcs", LOSS) if one["waiting_ns"] > limit]


def test_the_first_slow_rpc_ends_it() -> None:
    records = watched("--until-slower-than", "300ms")
    (found,) = triggers(records)
    wanted = slow(300_000_000)
    assert found["rpc"] == wanted[0]["number"] == 23 and found["waiting_ns"] > 300_000_000
    assert (found["trigger"], found["file"]) == ("slower-than", None)
    assert records[-1]["ended_by"] == "trigger" and records[-1]["triggers"] == 1


def test_nothing_slow_is_status_0() -> None:
    records = watched("--until-slower-than", "3600s", status=0)
    assert not triggers(records) and (records[-1]["ended_by"], records[-1]["triggers"]) == ("end", 0)


def test_a_condition() -> None:
    (found,) = triggers(watched("--until-where", "latency_ns > 300e6 AND \"procedure\" = 'COMPOUND'"))
    assert (found["trigger"], found["words"]) == ("condition", "latency_ns > 300e6 AND \"procedure\" = 'COMPOUND'")
    assert found["rpc"] in {one["number"] for one in slow(300_000_000)}


def test_the_packets_around_it_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "slow.pcapng"
    (found,) = triggers(
        watched("--until-where", "latency_ns > 300e6", "--before", "2s", "--after", "1s", "--write", kept)
    )
    assert found["file"] == str(kept)
    (info,) = objects("info", str(kept))
    first, last = info["first_time_ns"], info["last_time_ns"]
    assert found["time_ns"] - 2_000_000_000 <= first < found["time_ns"] <= last <= found["time_ns"] + 1_000_000_000
    theirs = [one for one in objects("rpcs", LOSS) if one["number"] == found["rpc"]]
    assert theirs[0]["xid"] in {one["xid"] for one in objects("rpcs", str(kept))}
    # All the frames of that time, and no others.
    times = [one["time_ns"] for one in objects("packets", LOSS)]
    assert len([one for one in times if first <= one <= last]) == len(objects("packets", str(kept)))


def test_the_file_is_bounded(tmp_path: Path) -> None:
    kept = tmp_path / "slow.pcapng"
    watched("--until-slower-than", "300ms", "--before", "3600s", "--ring-size", "1MB", "--write", kept)
    assert 0 < kept.stat().st_size < 1_200_000


def test_every_time_a_file_of_its_own_and_a_command(tmp_path: Path) -> None:
    kept, log = tmp_path / "slow.pcapng", tmp_path / "log"
    command = f'echo "$RDMASCOPE_FILE" >> {log}; echo "$RDMASCOPE_TRIGGER" >> {log}'
    around = ("--before", "100ms", "--after", "100ms", "--write", kept, "--ring-files", "2", "--exec", command)
    records = watched("--until-slower-than", "20ms", "--every", *around, status=0)
    found = triggers(records)
    assert len(found) > 1 and records[-1]["triggers"] == len(found)
    assert sum(1 + one["others"] for one in found) == len(slow(20_000_000))
    names = sorted(path.name for path in tmp_path.glob("slow_*.pcapng"))
    assert len(names) <= 2 and names[-1] == Path(found[-1]["file"]).name
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until and (not log.exists() or len(log.read_text().splitlines()) < 2):
        time.sleep(0.05)
    assert log.read_text().splitlines()[0] in {one["file"] for one in found}
    ran = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert ran and all(one in found for one in ran)


def test_an_earlier_file_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "slow.pcapng"
    for _ in range(2):
        watched("--until-slower-than", "300ms", "--before", "1s", "--write", kept)
    assert len(list(tmp_path.glob("slow_00001_*.pcapng"))) == 1 and kept.exists()


def test_for_people_it_is_one_line(tmp_path: Path) -> None:
    kept = tmp_path / "slow.pcapng"
    options = ["--until-slower-than", "300ms", "--before", "1s", "--write", str(kept)]
    done = subprocess.run([*PROGRAM, "live", "-", *options], input=unpacked(LOSS), capture_output=True)
    assert done.returncode == 1 and "slower than 300 ms; its packets: " + str(kept) in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--before", "1s"], "--before and --after say what --write keeps"),
        (["--every"], "--every, --before, --after and --exec go with --until"),
        (["--until-where", "latancy_ms > 1"], "--until-where 'latancy_ms > 1': no column 'latancy_ms'"),
        (["--until-where", "SELECT 1"], "a condition over the columns of rpcs, and no query"),
        (["--until-slower-than", "soon"], "'soon' is no duration"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], complaint: str) -> None:
    result = run("live", "-", *arguments, stdin=b"")
    assert (result.exit_code, result.stdout) == (2, "") and complaint in result.stderr
