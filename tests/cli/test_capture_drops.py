"""What a capture says of its own losses comes first, in every command that judges."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from playbook import Wire, call, nfs3, reply
from playbook.capture import write_pcap
from playbook.commands import PROGRAM, SAMPLES, run
from playbook.packets import Frame
from playbook.terminal import Terminal
from rdmascope.captures.read.open import open_capture

JUDGING = ("report", "diagnose", "audit", "transport")
WORDS = "the capture lost 870 frames (97%): what is missing may be these, not the network's loss"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """RPCs in a pcapng whose interface statistics say that most frames were dropped."""
    wire = Wire(mtu=1024, seed=1)
    connection = wire.connect()
    for _ in range(6):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    path = tmp_path_factory.mktemp("drops") / "drops.pcapng"
    frames = wire.frames()
    body = struct.pack("<IHHQ", 0x1A2B3C4D, 1, 0, 0xFFFFFFFFFFFFFFFF)
    blocks = [(0x0A0D0D0A, body), (1, struct.pack("<HHIHHBxxxHH", 1, 0, 0, 9, 1, 9, 0, 0))]
    for one in frames:
        data = one.data + bytes(-len(one.data) % 4)
        head = struct.pack("<IIIII", 0, one.time >> 32, one.time & 0xFFFFFFFF, len(one.data), len(one.data))
        blocks.append((6, head + data))
    counters = struct.pack("<HHQHHQHH", 4, 8, 900, 5, 8, 870, 0, 0)
    blocks.append((5, struct.pack("<III", 0, 0, 0) + counters))
    written = bytearray()
    for kind, content in blocks:
        size = len(content) + 12
        written += struct.pack("<II", kind, size) + content + struct.pack("<I", size)
    path.write_bytes(bytes(written))
    return str(path)


@pytest.mark.parametrize("command", JUDGING)
def test_drops_are_said_first(capture: str, command: str) -> None:
    result = run(command, capture)
    assert WORDS in result.stderr.splitlines()[0]
    if command in ("report", "diagnose"):
        assert WORDS in " ".join("\n".join(result.stdout.splitlines()[:5]).split())


@pytest.mark.parametrize("command", JUDGING)
def test_on_a_terminal_they_are_said_once(
    capture: str, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "cat")
    terminal = Terminal([*PROGRAM, command, capture], tmp_path)
    assert terminal.ended() == 0
    text = " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", terminal.text).split())
    assert text.count("the capture lost 870 frames") == 1


def test_a_stream_that_ends_with_its_drops(capture: str) -> None:
    text = Path(capture).read_bytes()
    page, lines = (
        subprocess.run([*PROGRAM, "live", "-", *more], input=text, stdout=subprocess.PIPE, timeout=120).stdout.decode()
        for more in ((), ("--json",))
    )
    assert WORDS in " ".join(" ".join(page.splitlines()[:5]).split())
    assert "870 of 897 frames dropped by the kernel" in " ".join(page.split())
    records = [json.loads(line) for line in lines.splitlines()]
    (whole,) = [one for one in records if one["type"] == "capture"]
    assert whole["dropped_frames"] == records[-1]["kernel_dropped"] == 870


def test_json_has_them(capture: str) -> None:
    records = [json.loads(line) for line in run("report", "--json", capture).stdout.splitlines()]
    (whole,) = [one for one in records if one["type"] == "capture"]
    assert whole["dropped_frames"] == 870
    (note,) = [one for one in whole["diagnosis"] if one["kind"] == "capture-dropped"]
    assert note["severity"] == "note"


def test_other_statements_are_weakened(capture: str) -> None:
    records = [json.loads(line) for line in run("diagnose", "--json", capture).stdout.splitlines()]
    assert all(WORDS in one["weakened_by"] for one in records if one.get("severity") in ("problem", "warning"))


@pytest.mark.parametrize("command", ["report", "audit", "diagnose"])
def test_a_capture_of_one_direction_says_so_first(tmp_path: Path, command: str) -> None:
    wire = Wire(mtu=1024, seed=1)
    connection = wire.connect()
    for _ in range(6):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    frames = wire.frames()
    source = frames[-1].data[26:30]
    path = tmp_path / "half.pcap"
    write_pcap([one for one in frames if one.data[26:30] == source], path)
    lines = run(command, str(path)).stdout.splitlines()
    assert any("1 connection with packets of one end only" in line for line in lines[:8])


@pytest.mark.parametrize("length", [90, 150])
@pytest.mark.parametrize("command", ["report", "audit", "diagnose", "transport", "files"])
def test_a_truncated_capture_says_so_first(tmp_path: Path, command: str, length: int) -> None:
    wire = Wire(mtu=1024, seed=1)
    connection = wire.connect()
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    path = tmp_path / "short.pcap"
    write_pcap([replace(one, data=one.data[:length]) for one in wire.frames()], path)
    lines = run(command, str(path)).stdout.splitlines()
    assert any("truncated by the capture" in line for line in lines[:8])
    assert ("  nothing wrong was found in what was captured" in lines) == (command == "report")


def snapped(folder: Path, length: int) -> Path:
    """A mount of NFSv4.1, as a snap length leaves it."""
    path, sample = folder / "short.pcap", SAMPLES / "loss-siw.pcap.zst"
    with open_capture(str(sample)) as capture:
        frames = [batch.frame(number) for batch in capture.batches() for number in batch.rows["number"].tolist()]
    write_pcap([Frame(frame.time, frame.data[:length], frame.original) for frame in frames], path)
    return path


@pytest.mark.parametrize("command", [["compare", "{0}", "{1}"], ["sessions", "{0}"]])
def test_so_do_comparisons_and_sessions(tmp_path: Path, command: list[str]) -> None:
    path, sample = snapped(tmp_path, 250), SAMPLES / "loss-siw.pcap.zst"
    ended = run(*(word.format(path, sample) for word in command))
    assert "truncated by the capture" in " ".join(ended.stdout.splitlines()[:2]), ended.output
    records = map(json.loads, run(*(word.format(path, sample) for word in command), "--json").stdout.splitlines())
    limits = [
        (one["file"], one["frames"], one["truncated_frames"], one["dropped_frames"])
        for one in records
        if one["type"] == "capture_limits"
    ]
    assert limits == [(str(path), 2419, 1612, 0), (str(sample), 2419, 0, 0)][: len(command) - 1]


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (180, "no NFSv4 client, session or state in what is left of its frames"),
        (200, "not in the capture, before the capture or in a truncated frame"),
        (220, "whether it was confirmed is not known: frames are truncated"),
    ],
)
def test_sessions_guesses_nothing_of_truncated_frames(tmp_path: Path, length: int, words: str) -> None:
    assert words in " ".join(run("sessions", str(snapped(tmp_path, length))).stdout.split())
