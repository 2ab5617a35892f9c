"""``rdmascope export --to capture``: the frames of some RPCs as a capture of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from playbook.commands import objects, run, unpacked
from playbook.samples import SAMPLES

EVERYTHING = str(SAMPLES / "rxe-nfs-all.pcap.zst")
IWARP = str(SAMPLES / "siw-nfs-all.pcap.zst")

SAID = ("_ws.malformed", "frame.time_epoch", "frame.len", "frame.protocols")


def numbers(*filters: str) -> list[int]:
    return [record["xid"] for record in objects("rpcs", EVERYTHING, *filters)]


@pytest.mark.parametrize(
    "filters",
    [
        ("--where", "latency_ns > 30e6", "--procedure", "READ"),
        ("--procedure", "WRITE", "--client", "10.77.0.2"),
        ("--errors",),
        ("--connection", "2", "--slower-than", "41ms"),
    ],
)
def test_the_filters_are_those_of_rpcs(filters: tuple[str, ...], tmp_path: Path) -> None:
    out = str(tmp_path / "out.pcapng")
    (said,) = objects("export", "--to", "capture", EVERYTHING, *filters, "-o", out)
    found = [record["xid"] for record in objects("rpcs", out)]
    assert sorted(found) == sorted(numbers(*filters))  # What is left out may hold up what is behind it.
    assert said["rpcs"] == len(found) > 0


def test_numbers_add_to_the_filters(tmp_path: Path) -> None:
    out = str(tmp_path / "out.pcapng")
    run("export", "--to", "capture", EVERYTHING, "--where", "latency_ns > 200e6", "--rpc", "1", "--rpc", "2", "-o", out)
    wanted = {*numbers("--where", "latency_ns > 200e6"), *numbers()[:2]}
    assert {record["xid"] for record in objects("rpcs", out)} == wanted


def test_a_connection_alone_is_taken_with_all_its_packets(tmp_path: Path) -> None:
    out = str(tmp_path / "out.pcapng")
    run("export", "--to", "capture", EVERYTHING, "--connection", "3", "-o", out)
    (connection,) = (record for record in objects("report", out) if record["type"] == "connection")
    original = next(record for record in objects("report", EVERYTHING) if record.get("number") == 3)
    for end in ("active", "passive"):
        assert connection[end]["packets"] == original[end]["packets"]


def test_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    result = run("export", "--to", "capture", "-", "--rpc", "3", "-o", str(out), stdin=unpacked(EVERYTHING))
    assert result.exit_code == 0 and result.stdout.startswith(f"{out}: 1 RPC of 1 connection in ")
    assert [record["xid"] for record in objects("rpcs", str(out))] == numbers()[2:3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which RPCs?"),
        (("--rpc", "1000"), "no RPC 1000"),
        (("--connection", "99"), "no connection 99"),
        (("--where", "latency_ns > 1e15"), "passes the filter"),
        (("--where", "nonsense = 1"), "nonsense"),
        (("--rule", "no-such-thing"), "no rule and no detector"),
        (("--rule", "V1-CREDIT-EXCEEDED"), "nothing is found by"),
    ],
)
def test_what_cannot_be_extracted(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = run("export", "--to", "capture", EVERYTHING, *arguments, "-o", str(tmp_path / "out.pcapng"))
    assert result.exit_code == 2 and said in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out.pcapng").exists()


def test_the_capture_is_not_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "in.pcap"
    source.write_bytes(unpacked(EVERYTHING))
    result = run("export", "--to", "capture", str(source), "--rpc", "1", "-o", str(source))
    assert result.exit_code == 2 and "would overwrite" in result.stderr
    assert source.read_bytes() == unpacked(EVERYTHING)


def test_a_damaged_capture_gives_what_was_read_of_it(tmp_path: Path) -> None:
    source, out = tmp_path / "in.pcap", str(tmp_path / "out.pcapng")
    source.write_bytes(unpacked(EVERYTHING)[:2_000_000])
    result = run("export", "--to", "capture", str(source), "--procedure", "READ", "-o", out)
    assert result.exit_code == 2 and "truncated in frame" in result.stderr
    assert result.stdout.startswith(f"{out}: {len(objects('rpcs', out))} RPCs of 1 connection in ")
    assert len(objects("rpcs", out)) > 3


def shown(capture: str, *fields: str) -> list[list[str]]:
    """What tshark says of each frame."""
    wanted = [word for field in fields for word in ("-e", field)]
    command = ["tshark", "-r", capture, "-T", "fields", *wanted]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split("\t") for line in listed.splitlines()]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("sample", [EVERYTHING, IWARP])
def test_tshark_reads_it_as_it_reads_the_original(sample: str, tmp_path: Path) -> None:
    source, out = tmp_path / "in.pcap", str(tmp_path / "out.pcapng")
    source.write_bytes(unpacked(sample))
    (said,) = objects("export", "--to", "capture", str(source), "--procedure", "READ,WRITE", "-o", out)
    original = {number: rest for number, *rest in shown(str(source), "frame.number", *SAID)}
    rows = shown(out, "frame.comment", *SAID)
    assert len(rows) == said["frames"]
    # It calls replies malformed whose results came by RDMA Write; and so in both.
    assert all(rest == original[comment.removeprefix("frame ")] for comment, *rest in rows)


def test_json_is_one_object(tmp_path: Path) -> None:
    result = run("export", "--to", "capture", EVERYTHING, "--rpc", "1", "-o", str(tmp_path / "out.pcapng"), "--json")
    assert json.loads(result.stdout)["output"] == str(tmp_path / "out.pcapng")


def test_an_anonymous_capture_is_judged_as_the_original(tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    result = run("export", "--to", "capture", EVERYTHING, "--where", "number > 0", "--anonymize", "-o", str(out))
    assert result.exit_code == 0 and "left out" not in result.stderr
    verdicts = [
        [
            (one["rule"], one["connection"], one["endpoint"], one["violated"])
            for one in objects("audit", path, "--fail-on", "never")
            if one["type"] == "verdict" and one["violated"]
        ]
        for path in (EVERYTHING, str(out))
    ]
    assert verdicts[0] == verdicts[1] != []
    assert not [word for word in (b"hello", b"r1m", b"rather-long", bytes([10, 77, 0, 1])) if word in out.read_bytes()]
