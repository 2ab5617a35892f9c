"""What --write leaves: whole files, of bounded number and size, each with its own count of drops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from playbook import Capture, Wire, frame_batch, frame_batches
from playbook.shapes import read
from rdmascope.captures import CaptureError, open_capture, open_captures
from rdmascope.captures.live import Device, Keep, Keeper
from rdmascope.captures.write.pcapng_writer import enhanced_blocks
from rdmascope.dissect.frames import FRAME, FrameBatch


class Source:
    """An interface that counts."""

    device = Device("rxe0", "rxe", "eth0")
    link_type = 1
    snaplen = 262144
    words = "udp dst port 4791"

    def __init__(self) -> None:
        self.received = self.dropped = 0

    def fileno(self) -> int:
        return 0

    def read(self) -> FrameBatch | None:
        return None

    def refuse(self) -> None: ...

    def count(self) -> None:
        self.received += 100
        self.dropped += 3

    def close(self) -> None: ...


def batches(count: int) -> list[FrameBatch]:
    wire = Wire(seed=1)
    connection = wire.connect()
    for _ in range(count):
        read(connection)
        wire.pause(1_000_000_000)
    frames = Capture(wire).frames
    return frame_batches(frames, range(0, len(frames), 10))


def frames_of(paths: list[Path]) -> list[bytes]:
    with open_captures([str(path) for path in paths]) as capture:
        return [
            batch.data[int(row["offset"]) : int(row["offset"]) + int(row["captured"])].tobytes()
            for batch in capture.batches()
            for row in batch.rows
        ]


def test_one_file_is_what_was_fed(tmp_path: Path) -> None:
    path = tmp_path / "kept.pcapng"
    keeper = Keeper(Keep(str(path)), Source(), "test 1")
    fed = batches(5)
    for batch in fed:
        keeper.write(batch)
    keeper.close()
    with open_capture(path) as capture:
        found = list(capture.batches())
        reported = capture.section
        interface = capture.interfaces[0]
    times = np.concatenate([batch.rows["time"] for batch in fed])
    assert np.concatenate([batch.rows["time"] for batch in found]).tolist() == times.tolist()
    assert frames_of([path]) == [
        batch.data[int(row["offset"]) : int(row["offset"]) + int(row["captured"])].tobytes()
        for batch in fed
        for row in batch.rows
    ]
    assert (interface.name, interface.units, reported.application) == ("eth0", 1_000_000_000, "test 1")
    assert interface.filter == "udp dst port 4791"
    assert (reported.statistics[0].received, reported.statistics[0].os_dropped) == (100, 3)


def test_the_ring_is_bounded_and_every_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "ring.pcapng"
    keeper = Keeper(Keep(str(path), size=20_000, files=3), Source(), "test")
    fed = batches(20)
    for batch in fed:
        keeper.write(batch)
    keeper.close()
    full = sorted(tmp_path.glob("ring_*.pcapng"))
    assert len(full) == 2
    assert keeper.ring.removed > 0
    assert all(20_000 <= one.stat().st_size < 60_000 for one in full)
    everything = [
        batch.data[int(row["offset"]) : int(row["offset"]) + int(row["captured"])].tobytes()
        for batch in fed
        for row in batch.rows
    ]
    kept = frames_of([*full, path])
    assert everything[-len(kept) :] == kept
    for one in [*full, path]:
        with open_capture(one) as capture:
            list(capture.batches())
            assert (capture.section.statistics[0].received, capture.section.statistics[0].os_dropped) == (100, 3)


def test_a_batch_that_is_larger_than_a_file_is_spread_over_several(tmp_path: Path) -> None:
    path = tmp_path / "ring.pcapng"
    keeper = Keeper(Keep(str(path), size=20_000, files=100), Source(), "test")
    wire = Wire(seed=1)
    connection = wire.connect()
    for _ in range(10):
        read(connection)
    frames = Capture(wire).frames
    keeper.write(frame_batch(frames))
    keeper.close()
    full = sorted(tmp_path.glob("ring_*.pcapng"))
    assert len(full) > 3
    assert all(20_000 <= one.stat().st_size < 30_000 for one in full)
    assert frames_of([*full, path]) == [frame.data for frame in frames]


def test_a_file_ends_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "ring.pcapng"
    keeper = Keeper(Keep(str(path), seconds=4), Source(), "test")
    for batch in batches(10):
        keeper.write(batch)
    keeper.close()
    assert 2 <= len(list(tmp_path.glob("ring_*.pcapng"))) <= 3


def test_a_second_run_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    path = tmp_path / "ring.pcapng"
    other = tmp_path / "ring_of_mine_00001_20261122000000.pcapng"
    other.write_bytes(b"kept")
    fed = batches(20)
    half = len(fed) // 2
    removed = 0
    for run in (fed[:half], fed[half:]):
        keeper = Keeper(Keep(str(path), size=20_000, files=4), Source(), "test")
        for batch in run:
            keeper.write(batch)
        keeper.close()
        removed += keeper.ring.removed
    full = sorted(tmp_path.glob("ring_0*.pcapng"))
    numbers = [int(one.name.split("_")[1]) for one in full]
    assert numbers == [removed + 1, removed + 2, removed + 3]
    kept = frames_of([*full, path])
    everything = [
        batch.data[int(row["offset"]) : int(row["offset"]) + int(row["captured"])].tobytes()
        for batch in fed
        for row in batch.rows
    ]
    assert everything[-len(kept) :] == kept
    assert other.read_bytes() == b"kept"


@pytest.mark.parametrize("contents", [b"", b"no capture"])
def test_what_is_no_capture_is_overwritten(contents: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ring.pcapng"
    path.write_bytes(contents)
    keeper = Keeper(Keep(str(path)), Source(), "test")
    keeper.write(batches(1)[0])
    keeper.close()
    assert [one.name for one in tmp_path.iterdir()] == ["ring.pcapng"]
    assert frames_of([path])


def test_a_ring_of_one_file_keeps_nothing_of_the_run_before(tmp_path: Path) -> None:
    path = tmp_path / "one.pcapng"
    for _ in range(2):
        keeper = Keeper(Keep(str(path), files=1), Source(), "test")
        keeper.write(batches(1)[0])
        keeper.close()
    assert [one.name for one in tmp_path.iterdir()] == ["one.pcapng"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such directory"):
        Keeper(Keep(str(tmp_path / "none" / "x.pcapng")), Source(), "test")


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 1 << 62), st.integers(0, 200)), max_size=12))
def test_blocks_of_any_frames_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, frames: list[tuple[bytes, int, int]]
) -> None:
    rows = np.zeros(len(frames), FRAME)
    at = 3
    for index, (data, time, more) in enumerate(frames):
        rows[index] = (index + 1, time, at, len(data), len(data) + more, 1, 0)
        at += len(data) + 5
    memory = np.zeros(at + 1, np.uint8)
    for row, (frame, _, _) in zip(rows, frames, strict=True):
        memory[int(row["offset"]) : int(row["offset"]) + len(frame)] = np.frombuffer(frame, np.uint8)
    path = tmp_path_factory.mktemp("blocks") / "x.pcapng"
    keeper = Keeper(Keep(str(path)), Source(), "test")
    assert len(enhanced_blocks(memory, rows)) == sum(32 + -(-len(frame) // 4) * 4 for frame, _, _ in frames)
    if frames:
        keeper.write(FrameBatch(memory, rows))
    keeper.close()
    with open_capture(path) as capture:
        found = list(capture.batches())
    read_back = [
        (one.data[int(row["offset"]) : int(row["offset"]) + int(row["captured"])].tobytes(), int(row["time"]))
        for one in found
        for row in one.rows
    ]
    assert read_back == [(frame, time) for frame, time, _ in frames]
    assert [int(row["original"]) for one in found for row in one.rows] == [len(f) + more for f, _, more in frames]
