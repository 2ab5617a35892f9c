"""Formats beside pcap, what a pcapng tells beside its frames, several files as one, and files that grow."""

from __future__ import annotations

import gzip
import lzma
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from hypothesis import given, strategies as st

from playbook.wrap import erf
from rdmascope.captures import CaptureError, Follow, Limits, PcapngWriter, open_capture, open_captures
from rdmascope.captures.read.pcapng import InterfaceStatistics
from rdmascope.captures.read.streams import compression_of, decompress

from .test_open import Frame, block, enhanced, interface, option, pcap, section

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
TINY = Limits(frames=3, bytes=200, window=64)
needs_editcap = pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap is not installed")

Read = list[tuple[int, bytes, int]]
"""Time, bytes, interface."""


def read(*paths: Path, limits: Limits | None = None, follow: Follow | None = None) -> tuple[Read, str]:
    """The frames of some files, numbered through, and what was wrong."""
    frames: Read = []
    try:
        with open_captures([str(path) for path in paths], limits, follow) as capture:
            for batch in capture.batches():
                for row in batch.rows:
                    at = int(row["offset"])
                    assert row["number"] == len(frames) + 1
                    data = batch.data[at : at + int(row["captured"])].tobytes()
                    frames.append((int(row["time"]), data, int(row["interface"])))
    except CaptureError as error:
        assert "\n" not in str(error)
        return frames, str(error)
    return frames, ""


def frame(number: int, at: int | None = None) -> Frame:
    return Frame(b"%06d" % number * 3, START + (number * 1000 if at is None else at))


def numbers(frames: Read) -> list[int]:
    return [int(data[:6]) for _, data, _ in frames]


# ERF


def erf_records(count: int) -> list[bytes]:
    return [erf(bytes([n]) * (20 + n), extensions=n % 3, time=START + n * SECOND) for n in range(count)]


@pytest.mark.parametrize("count", [1, 2, 19, 50])
@pytest.mark.parametrize("limits", [None, TINY])
def test_erf_records_are_frames(tmp_path: Path, count: int, limits: Limits | None) -> None:
    path = tmp_path / "one.erf"
    path.write_bytes(b"".join(erf_records(count)))
    frames, problem = read(path, limits=limits)
    assert not problem
    assert [data for _, data, _ in frames] == erf_records(count)
    assert [when for when, _, _ in frames] == [START + n * SECOND for n in range(count)]
    with open_capture(path) as capture:
        assert (capture.format, capture.link_types) == ("ERF", (197,))


def test_a_truncated_erf_file_gives_its_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "cut.erf"
    path.write_bytes(b"".join(erf_records(5))[:-9])
    frames, problem = read(path)
    assert len(frames) == 4
    assert "truncated in record 5" in problem


def test_an_impossible_erf_record_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "bad.erf"
    records = erf_records(30)
    records[25] = records[25][:10] + b"\0\x03" + records[25][12:]
    path.write_bytes(b"".join(records))
    frames, problem = read(path)
    assert len(frames) == 25
    assert "record 26 claims a length of 3 bytes" in problem


@given(st.binary(min_size=8, max_size=200))
def test_no_bytes_are_taken_for_erf_that_do_not_add_up(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    frames, problem = read(path)
    assert problem or sum(len(one) for _, one, _ in frames) == len(data)


# Conversion


@needs_editcap
@pytest.mark.parametrize("compress", [bytes, lz4.frame.compress])
def test_a_snoop_capture_is_converted(tmp_path: Path, compress: type[bytes]) -> None:
    source, target = tmp_path / "a.pcap", tmp_path / "a.snoop"
    source.write_bytes(pcap([Frame(bytes([n]) * 60, START + n * 1000) for n in range(9)]))
    subprocess.run(["editcap", "-F", "snoop", source, target], check=True, capture_output=True)
    target.write_bytes(compress(target.read_bytes()))
    assert read(target) == read(source)
    with open_capture(target) as capture:
        assert capture.format == "snoop"


@needs_editcap
def test_a_damaged_snoop_capture_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.snoop"
    path.write_bytes(b"snoop\0\0\0" + bytes(3))
    frames, problem = read(path)
    assert not frames
    assert "bad.snoop: editcap cannot read this snoop capture" in problem


@needs_editcap
@pytest.mark.parametrize("compress", [gzip.compress, lz4.frame.compress, zstandard.compress, lzma.compress])
def test_what_a_few_kilobytes_unpack_to_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    written: list[int] = []
    monkeypatch.setattr("rdmascope.captures.read.open.MAX_UNPACKED", 1 << 20)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: written.append(1))
    path = tmp_path / "bomb.snoop"
    path.write_bytes(compress(b"snoop\0\0\0" + bytes(4 << 20)))
    frames, problem = read(path)
    assert not frames and not written
    assert problem.endswith(
        "bomb.snoop: this snoop capture holds more than 1 MiB; save it unpacked, and read that file"
    )


@needs_editcap
def test_a_plain_file_is_converted_whatever_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdmascope.captures.read.open.MAX_UNPACKED", 100)
    source, target = tmp_path / "a.pcap", tmp_path / "a.snoop"
    source.write_bytes(pcap([Frame(bytes([n]) * 60, START + n * 1000) for n in range(9)]))
    subprocess.run(["editcap", "-F", "snoop", source, target], check=True, capture_output=True)
    assert read(target) == read(source)


@pytest.mark.parametrize("compress", [gzip.compress, lz4.frame.compress, zstandard.compress, lzma.compress])
def test_unpacking_takes_memory_by_the_piece(compress: Callable[[bytes], bytes]) -> None:
    packed = compress(bytes(64 << 20))
    kind = compression_of(packed)
    biggest = total = 0
    for piece in decompress("a bomb", kind, iter([packed])):
        assert piece is not None
        biggest, total = max(biggest, len(piece)), total + len(piece)
    assert total == 64 << 20 and biggest <= 32 << 20


def test_without_editcap_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "a.snoop"
    path.write_bytes(b"snoop\0\0\0" + bytes(30))
    assert read(path)[1].endswith("a snoop capture; it takes editcap to read it, which comes with Wireshark")


# What a pcapng tells beside its frames


def reported(order: str) -> bytes:
    end = option(order, 0, b"")
    counters = [option(order, code, struct.pack(order + "Q", value)) for code, value in ((4, 100), (5, 7), (7, 9))]
    names = struct.pack(order + "HH", 1, 9) + bytes([10, 77, 0, 1]) + b"nfs1\0" + bytes(3) + bytes(4)
    return b"".join(
        (
            section(order, option(order, 1, "für die Prüfung\x1b[31m".encode()), option(order, 4, b"dumpcap 4.0"), end),
            interface(order, option(order, 2, b"mlx5_0"), option(order, 11, b"\0udp port 4791"), end, link_type=1),
            interface(order, option(order, 8, struct.pack(order + "Q", 10**11)), end, link_type=1),
            block(order, 10, struct.pack(order + "II", 0x544C534B, 5) + b"CLIENT\0\0"),
            block(order, 4, names),
            enhanced(order, frame(1), START // 1000, option(order, 2, bytes(4)), option(order, 1, b"look\nhere"), end),
            enhanced(order, frame(2), START // 1000, option(order, 4, struct.pack(order + "Q", 3)), end),
            block(order, 0x0BAD, struct.pack(order + "I", 32473) + b"data"),
            enhanced(order, frame(3), START // 1000, option(order, 1, b"a"), option(order, 1, b"b")),
            block(order, 5, struct.pack(order + "III", 0, 0, 0) + b"".join(counters) + end),
            block(order, 0x77, b"something new"),
        )
    )


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("limits", [None, TINY])
def test_a_pcapng_holds_more_than_frames(tmp_path: Path, order: str, limits: Limits | None) -> None:
    path = tmp_path / "reported.pcapng"
    path.write_bytes(reported(order))
    comments: dict[int, str] = {}
    with open_capture(path, limits) as capture:
        for batch in capture.batches():
            comments |= batch.comments
        about = capture.section
        first, second = capture.interfaces
    assert comments == {1: "look here", 3: "b"}
    assert about.comments == ["für die Prüfung [31m"]
    assert about.application == "dumpcap 4.0"
    assert (first.name, first.filter, second.speed) == ("mlx5_0", "udp port 4791", 10**11)
    assert about.statistics == {0: InterfaceStatistics(received=100, dropped=7, os_dropped=9)}
    assert about.lost == {0: 3}
    assert about.passed_over == {
        "name resolution": 1, "decryption secrets": 1, "custom": 1, "interface statistics": 1, "type 0x77": 1,
    }  # fmt: skip


@given(st.data())
def test_damaged_options_harm_no_frame(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    rest = data.draw(st.binary(max_size=60))
    rest += bytes(-len(rest) % 4)
    path = tmp_path_factory.getbasetemp() / "options"
    path.write_bytes(section("<", rest) + interface("<", rest) + enhanced("<", frame(1), 5, rest))
    assert numbers(read(path)[0]) == [1]


# Several files as one


def write(path: Path, frames: Sequence[Frame]) -> Path:
    if path.suffix == ".pcapng":
        with path.open("wb") as file:
            writer = PcapngWriter(file, 1)
            for one in frames:
                writer.write(one.time, one.data)
    else:
        path.write_bytes(pcap(list(frames), magic=0xA1B23C4D))
    return path


@given(st.lists(st.integers(0, 4), max_size=60), st.booleans(), st.booleans())
def test_files_are_merged_by_time(
    tmp_path_factory: pytest.TempPathFactory, owners: list[int], small: bool, compressed: bool
) -> None:
    """Frame n is in file owners[n]; whatever overlaps what, they come in order."""
    directory = tmp_path_factory.mktemp("merge")
    for owner in range(5):
        mine = [frame(number) for number, whose in enumerate(owners) if whose == owner]
        path = write(directory / f"{owner}.{'pcapng' if owner % 2 else 'pcap'}", mine)
        if compressed and owner == 2:
            path.write_bytes(lz4.frame.compress(path.read_bytes()))
    frames, problem = read(directory, limits=TINY if small else None)
    assert not problem
    assert numbers(frames) == list(range(len(owners)))


def test_a_ring_is_one_capture_on_one_interface(tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path / f"capture_{part:05d}_20260101120000.pcapng", [frame(part * 10 + n) for n in range(10)])
    frames, problem = read(tmp_path)
    assert not problem
    assert numbers(frames) == list(range(30))
    assert {place for _, _, place in frames} == {0}


def test_capture_points_that_overlap_are_distinguished(tmp_path: Path) -> None:
    a = write(tmp_path / "a.pcap", [frame(n) for n in range(0, 20, 2)])
    b = write(tmp_path / "b.pcap", [frame(n) for n in range(1, 20, 2)])
    later = write(tmp_path / "c.pcap", [frame(n) for n in range(20, 30)])
    frames, _ = read(later, b, a)
    assert numbers(frames) == list(range(30))
    places = [place for _, _, place in frames]
    assert places[:20:2] != places[1:20:2]
    assert len(set(places[::2][:10])) == len(set(places[1:20:2])) == len(set(places[20:])) == 1


def test_times_that_go_back_inside_a_file_stay_in_its_order(tmp_path: Path) -> None:
    a = write(tmp_path / "a.pcap", [frame(0), frame(4), frame(2), frame(8)])
    b = write(tmp_path / "b.pcap", [frame(1), frame(3), frame(9)])
    frames, _ = read(a, b, limits=TINY)
    assert sorted(numbers(frames)) == [0, 1, 2, 3, 4, 8, 9]
    assert [n for n in numbers(frames) if n in (0, 4, 2, 8)] == [0, 4, 2, 8]


def test_damage_in_one_file_loses_nothing_of_the_others(tmp_path: Path) -> None:
    a = write(tmp_path / "a.pcap", [frame(n) for n in range(0, 20, 2)])
    a.write_bytes(a.read_bytes()[:-5])
    b = write(tmp_path / "b.pcap", [frame(n) for n in range(1, 20, 2)])
    frames, problem = read(a, b)
    assert numbers(frames) == [n for n in range(20) if n != 18]
    assert "a.pcap: truncated" in problem


def test_what_is_no_capture_in_a_directory_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "a.pcap", [frame(1)])
    (tmp_path / "README").write_text("a note about it")
    (tmp_path / "empty.pcap").touch()
    (tmp_path / ".hidden").write_text("x")
    with open_captures([str(tmp_path)]) as capture:
        assert sum(len(batch) for batch in capture.batches()) == 1
        assert sorted(getattr(capture, "passed_over", [])) == [
            f"{tmp_path}/README: not a capture but a text file",
            f"{tmp_path}/empty.pcap: is empty",
        ]


def test_what_cannot_be_merged(tmp_path: Path) -> None:
    a = write(tmp_path / "a.pcap", [frame(1)])
    (tmp_path / "nothing").mkdir()
    note = tmp_path / "note"
    note.write_text("a note about it")
    assert "standard input cannot be merged" in read(a, Path("-"))[1]
    assert "no file in this directory" in read(tmp_path / "nothing")[1]
    assert "note: not a capture but a text file" in read(note, note)[1]
    frames, problem = read(a, note, tmp_path / "missing")
    assert numbers(frames) == [1]
    assert problem == f"{note}: not a capture but a text file (and 1 other file)"
    assert "only a single file can be followed" in read(a, a, follow=Follow(0))[1]


# Files that grow


@pytest.mark.parametrize("suffix", [".pcap", ".pcapng"])
def test_a_file_is_followed_while_it_grows(tmp_path: Path, suffix: str) -> None:
    whole = write(tmp_path / f"whole{suffix}", [frame(n) for n in range(40)]).read_bytes()
    growing = tmp_path / "growing"
    growing.write_bytes(b"")
    done = threading.Event()

    def grow() -> None:
        for at in range(0, len(whole), 97):
            with growing.open("ab") as file:
                file.write(whole[at : at + 97])
        done.set()

    writer = threading.Thread(target=grow)
    frames: Read = []
    with growing.open("ab") as file:
        file.write(whole[:60])
    with open_captures([str(growing)], follow=Follow(stop=lambda: len(frames) == 40)) as capture:
        whole = whole[60:]
        writer.start()
        for batch in capture.batches():
            frames += [(0, batch.data[int(row["offset"]) :][:6].tobytes(), 0) for row in batch.rows]
    writer.join()
    assert done.is_set()
    assert numbers(frames) == list(range(40))


def test_a_record_that_is_not_written_yet_is_no_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [frame(n) for n in range(5)])
    path.write_bytes(path.read_bytes()[:-4])
    frames, problem = read(path, follow=Follow(0))
    assert numbers(frames) == [0, 1, 2, 3]
    assert not problem


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "xz": lzma.compress,
    "lz4": lz4.frame.compress,
}
compressed = pytest.mark.parametrize("compression", COMPRESSIONS)


@compressed
@pytest.mark.parametrize("members", [1, 7], ids=["one stream", "a member at a time"])
def test_a_compressed_file_is_followed_while_it_grows(tmp_path: Path, compression: str, members: int) -> None:
    """Written by a compressor that is fed by the capture, or appended to by one that is run again and again."""
    whole = pcap([frame(n) for n in range(40)])
    size = -(-len(whole) // members)
    compress = COMPRESSIONS[compression]
    stored = b"".join(compress(whole[at : at + size]) for at in range(0, len(whole), size))
    growing = tmp_path / "growing"
    growing.write_bytes(stored[:40])

    def grow() -> None:
        for at in range(40, len(stored), 97):
            with growing.open("ab") as file:
                file.write(stored[at : at + 97])

    writer = threading.Thread(target=grow)
    frames: Read = []
    writer.start()
    with open_captures([str(growing)], follow=Follow(stop=lambda: len(frames) == 40)) as capture:
        assert capture.compression == compression  # type: ignore[union-attr]
        for batch in capture.batches():
            frames += [(0, batch.data[int(row["offset"]) :][:6].tobytes(), 0) for row in batch.rows]
    writer.join()
    assert numbers(frames) == list(range(40))


@compressed
def test_a_stream_that_is_not_written_to_its_end_is_no_damage(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a.pcap"
    first, second = (COMPRESSIONS[compression](part) for part in (pcap([frame(1)]), pcap([frame(2)])[24:]))
    path.write_bytes(first + second[:-3])
    frames, problem = read(path, follow=Follow(0))
    assert (numbers(frames)[:1], problem) == ([1], "")
    assert "stream is truncated" in read(path)[1]


def test_damage_to_a_followed_stream_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap.gz"
    stored = bytearray(gzip.compress(pcap([frame(n) for n in range(9)])))
    stored[-6] ^= 1
    path.write_bytes(stored)
    frames, problem = read(path, follow=Follow(0))
    assert len(frames) == 9
    assert "the gzip stream is corrupt" in problem


def test_space_that_was_never_written_to_holds_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "preallocated.pcap"
    frames = [frame(number) for number in range(1, 4)]
    path.write_bytes(pcap(frames) + bytes(16 * 100))
    found, damage = read(path)
    assert (len(found), damage) == (103, "")
    path.write_bytes(pcap(frames) + bytes(16 * 5000))
    found, damage = read(path)
    assert len(found) == 3
    assert "zeros in place of frame 4: space that was never written to" in damage


def test_a_time_before_1970_is_written_as_1970(tmp_path: Path) -> None:
    path = tmp_path / "old.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file, 1)
        for time in -(1 << 63), -1, 5:
            writer.write(time, b"frame")
    assert [time for time, _, _ in read(path)[0]] == [0, 0, 5]
