"""Where the frames of several files are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from playbook import Capture, Wire, nfs3, write_pcap
from playbook.rpcrdma import call, reply
from rdmascope import Place, read
from rdmascope.captures.read.merge import Places
from rdmascope.cli.main import main


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), max_size=8))
def test_every_frame_is_found_in_its_file(batches: list[list[int]]) -> None:
    """Each batch names the file of each of its frames."""
    places, seen, truth = Places(), dict.fromkeys(range(4), 0), [Place("", 0)]
    for batch in batches:
        files = list(dict.fromkeys(batch))
        mixed = np.array([files.index(file) for file in batch], np.uint8)
        places.add([(f"{file}.pcap", seen[file] + 1) for file in files], mixed)
        for file in batch:
            seen[file] += 1
            truth.append(Place(f"{file}.pcap", seen[file]))
    assert [places.find(number) for number in range(1, len(truth))] == truth[1:]
    assert places.find(0) is places.find(len(truth)) is None


def test_files_that_follow_each_other_take_no_memory() -> None:
    places = Places()
    for batch in range(100):
        places.add([("a.pcap", batch * 10 + 1)], np.zeros(10, np.uint8))
    assert len(places._stretches) == 1
    assert places.find(777) == Place("a.pcap", 777)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two RPCs; the first is called in one file and answered in the other."""
    wire = Wire()
    talk = wire.connect()
    for _ in range(2):
        reply(call(talk, nfs3.null()), nfs3.null_reply())
    frames = Capture(wire).frames
    calls = [rpc.call_frame for rpc in _whole(tmp_path, frames)]
    cut = (calls[0] or 0) + 0
    write_pcap(frames[:cut], tmp_path / "a.pcap")
    write_pcap(frames[cut:], tmp_path / "b.pcap")
    return tmp_path


def _whole(path: Path, frames: list) -> list:  # type: ignore[type-arg]
    whole = path / "whole.pcap"
    write_pcap(frames, whole)
    try:
        return list(read(whole).rpcs())
    finally:
        whole.unlink()


def test_the_library_and_the_commands_say_where_frames_are(folder: Path) -> None:
    with read(folder) as capture:
        first, second = capture.rpcs()
        assert first.call_frame and first.reply_frame and second.call_frame
        cut = first.call_frame
        assert capture.place(cut) == Place(str(folder / "a.pcap"), cut)
        assert capture.place(first.reply_frame) == Place(str(folder / "b.pcap"), first.reply_frame - cut)
        assert capture.place(1 << 40) is None

    def run(*arguments: str) -> str:
        result = CliRunner(env={"COLUMNS": "200"}).invoke(main, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    record = json.loads(run("rpcs", str(folder), "--json").splitlines()[0])
    assert record["call_place"] == {"file": str(folder / "a.pcap"), "frame": cut}
    assert record["reply_place"] == {"file": str(folder / "b.pcap"), "frame": first.reply_frame - cut}
    assert record["call_last_place"] == record["call_place"]
    words = f"a.pcap:{cut}-b.pcap:{first.reply_frame - cut}"
    assert words in run("rpcs", str(folder)).splitlines()[1]
    assert f"are {words}" in run("show", str(folder), "--rpc", "1")
    assert run("packets", str(folder), "--frame", str(cut + 1)).splitlines()[1].startswith("b.pcap:1 ")
    assert json.loads(run("show", str(folder), "--frame", str(cut + 1), "--json"))["place"]["frame"] == 1


def test_one_file_needs_no_places(folder: Path) -> None:
    path = str(folder / "a.pcap")
    result = CliRunner().invoke(main, ["rpcs", path, "--json"])
    assert "_place" not in result.stdout and result.stdout
    capture = read(path)
    assert capture.place(1) == Place(path, 1)
    assert capture.place(1 << 40) is None
