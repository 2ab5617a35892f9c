"""Captures in, frames out: what was written comes back, and damage loses nothing before it."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import lz4.frame
import pytest
import zstandard
from hypothesis import given, strategies as st

from rdmascope.captures import CaptureError, Limits, PcapngWriter, open_capture

TINY = Limits(frames=3, bytes=100, window=16)
"""Records straddle windows, and batches end everywhere."""

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "lz4": lz4.frame.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@dataclass(frozen=True)
class Frame:
    data: bytes
    time: int = 1_700_000_000_123_456_789
    more: int = 0
    """Bytes on the wire that were not captured."""
    link_type: int = 1
    interface: int = 0


def pcap(frames: list[Frame], order: str = "<", magic: int = 0xA1B2C3D4, link_type: int = 1) -> bytes:
    unit = 1 if magic == 0xA1B23C4D else 1000
    out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link_type)
    for frame in frames:
        seconds, fraction = divmod(frame.time, 10**9)
        size = len(frame.data)
        out += struct.pack(order + "IIII", seconds, fraction // unit, size, size + frame.more) + frame.data
    return out


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str, *options: bytes) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + b"".join(options))


def interface(order: str, *options: bytes, link_type: int = 1, snaplen: int = 0) -> bytes:
    return block(order, 1, struct.pack(order + "HHI", link_type, 0, snaplen) + b"".join(options))


def enhanced(order: str, frame: Frame, ticks: int, *options: bytes) -> bytes:
    size = len(frame.data)
    head = struct.pack(order + "IIIII", frame.interface, ticks >> 32, ticks & 0xFFFFFFFF, size, size + frame.more)
    return block(order, 6, head + frame.data + bytes(-size % 4) + b"".join(options))


def obsolete(order: str, frame: Frame, ticks: int) -> bytes:
    size = len(frame.data)
    head = struct.pack(order + "HHIIII", frame.interface, 7, ticks >> 32, ticks & 0xFFFFFFFF, size, size + frame.more)
    return block(order, 2, head + frame.data)


def simple(order: str, frame: Frame) -> bytes:
    return block(order, 3, struct.pack(order + "I", len(frame.data) + frame.more) + frame.data)


def read(path: str, limits: Limits | None = None) -> tuple[list[Frame], CaptureError | None]:
    """Every frame, and the error that ended them; frame numbers and the shape of the batches are checked."""
    frames: list[Frame] = []
    limits = limits or Limits()
    try:
        with open_capture(path, limits) as capture:
            for batch in capture.batches():
                assert 0 < len(batch) <= limits.frames
                assert not batch.data.flags.writeable
                for row in batch.rows:
                    at, size = int(row["offset"]), int(row["captured"])
                    assert row["number"] == len(frames) + 1
                    data = batch.data[at : at + size].tobytes()
                    assert len(data) == size
                    more = int(row["original"]) - size
                    frames.append(Frame(data, int(row["time"]), more, int(row["link_type"]), int(row["interface"])))
    except CaptureError as error:
        assert "\n" not in str(error)
        return frames, error
    return frames, None


@contextmanager
def stored(data: bytes) -> Iterator[str]:
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.name


@contextmanager
def piped(data: bytes) -> Iterator[str]:
    """A path that cannot be mapped, and gives what is written at its other end."""
    reader, writer = os.pipe()

    def write() -> None:
        with open(writer, "wb") as file:
            file.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)
        thread.join()


micro = 1000
frames_of = st.builds(
    Frame,
    st.binary(max_size=60),
    st.integers(0, 2**32 * 10**6 - 1).map(lambda time: time * micro),
    st.integers(0, 2000),
)
magics = st.sampled_from([0xA1B2C3D4, 0xA1B23C4D])
orders = st.sampled_from(["<", ">"])
compressions = st.sampled_from(sorted(COMPRESS))
containers = st.sampled_from([stored, piped])
sizes = st.sampled_from([Limits(), TINY])


@given(st.lists(frames_of, max_size=9), orders, magics, compressions, containers, sizes)
def test_pcap_comes_back(
    frames: list[Frame],
    order: str,
    magic: int,
    compression: str,
    contained: Callable[[bytes], AbstractContextManager[str]],
    limits: Limits,
) -> None:
    with contained(COMPRESS[compression](pcap(frames, order, magic))) as path:
        assert read(path, limits) == (frames, None)


resolutions = st.sampled_from(
    [(b"", 10**6)]
    + [(bytes([n]), 10**n) for n in (0, 3, 6, 7, 9, 10, 12, 19)]
    + [(bytes([0x80 | n]), 2**n) for n in (0, 1, 10, 20, 32, 33, 34, 50)]
)
"""if_tsresol, and units in a second."""


@st.composite
def pcapngs(draw: st.DrawFn) -> tuple[bytes, list[Frame]]:
    """A file of several sections, and the frames in it."""
    out, frames, described = b"", [], 0
    for _ in range(draw(st.integers(1, 3))):
        order = draw(orders)
        comment = option(order, 1, b"a comment")
        out += section(order, comment, option(order, 0, b""))
        own: list[tuple[int, int, int]] = []
        for _ in range(draw(st.integers(0, 8))):
            kind = draw(st.sampled_from(["interface", "enhanced", "enhanced", "obsolete", "simple", "other"]))
            if kind == "interface" or (not own and kind != "other"):
                (resolution, units), offset = draw(resolutions), draw(st.sampled_from([0, 0, 5, -5, 10**9]))
                link_type = draw(st.sampled_from([1, 101, 276]))
                options = [option(order, 2, b"mlx5_0"), comment]
                options += [option(order, 9, resolution)] if resolution else []
                options += [option(order, 14, struct.pack(order + "q", offset))] if offset else []
                options += draw(st.sampled_from([[], [option(order, 0, b"")]]))
                out += interface(order, *options, link_type=link_type)
                own.append((link_type, units, offset))
            if kind == "other":
                out += block(order, draw(st.sampled_from([4, 5, 0x0BAD, 0x40000BAD])), draw(st.binary(max_size=30)))
                continue
            which = 0 if kind == "simple" else draw(st.integers(0, len(own) - 1))
            link_type, units, offset = own[which]
            ticks = draw(st.integers(0, min(2**64 - 1, 2**33 * units)))
            more = draw(st.sampled_from([0, 0, 1400]))
            data = draw(st.binary(max_size=60))
            if kind == "simple":
                frame = Frame(data, 0, 0, link_type, 0)
                out += simple(order, frame)
            else:
                time = ticks * 10**9 // units + offset * 10**9
                time = min(max(time, -(2**63)), 2**63 - 1)
                frame = Frame(data, time, more, link_type, which)
                out += obsolete(order, frame, ticks) if kind == "obsolete" else enhanced(order, frame, ticks, comment)
            frames.append(Frame(frame.data, frame.time, frame.more, frame.link_type, described + which))
        described += len(own)
    return out, frames


@given(pcapngs(), compressions, containers, sizes)
def test_pcapng_comes_back(
    capture: tuple[bytes, list[Frame]],
    compression: str,
    contained: Callable[[bytes], AbstractContextManager[str]],
    limits: Limits,
) -> None:
    data, frames = capture
    with contained(COMPRESS[compression](data)) as path:
        assert read(path, limits) == (frames, None)


def test_what_is_known_about_a_pcap() -> None:
    data = pcap([Frame(bytes(60))], ">", 0xA1B23C4D, 276)
    with stored(data) as path, open_capture(path) as capture:
        assert (capture.format, capture.compression, capture.byte_order) == ("pcap", "", "big")
        assert (capture.link_types, capture.snaplen) == ((276,), 65535)
        assert capture.position == 24
        assert [len(batch) for batch in capture.batches()] == [1]
        assert capture.position == capture.size == len(data)


def test_what_is_known_about_a_pcapng() -> None:
    names = option("<", 2, b"ens1"), option("<", 9, b"\x09"), option("<", 14, struct.pack("<q", -3))
    plain = section("<") + interface("<", *names, snaplen=96) + interface("<", link_type=113, snaplen=128)
    data = gzip.compress(plain)
    with stored(data) as path, open_capture(path) as capture:
        assert (capture.format, capture.compression, capture.byte_order) == ("pcapng", "gzip", "little")
        assert list(capture.batches()) == []
        one, two = capture.interfaces
        assert (one.name, one.units, one.offset, one.snaplen) == ("ens1", 10**9, -3, 96)
        assert (two.name, two.units, two.offset, two.link_type) == ("", 10**6, 0, 113)
        assert (capture.link_types, capture.snaplen) == ((1, 113), 128)
        assert capture.position == capture.size == len(data)


def test_the_steps_of_its_time_stamps_are_those_of_interfaces_with_frames() -> None:
    resolutions = b"\x09", b"\x03", b""
    data = section("<") + b"".join(interface("<", *[option("<", 9, one)] * len(one)) for one in resolutions)
    data += b"".join(enhanced("<", Frame(bytes(60), interface=at), 7) for at in (0, 1))
    with stored(data) as path, open_capture(path) as capture:
        assert len(list(capture.batches())) == 1
        assert capture.time_steps == {1, 1_000_000}
        assert [one.time_step for one in capture.interfaces] == [1, 1_000_000, 1_000]
    with stored(pcap([Frame(bytes(60))])) as path, open_capture(path) as capture:
        assert capture.time_steps == {1_000}


def test_a_simple_packet_block_is_as_long_as_the_snaplen() -> None:
    frame = Frame(bytes(range(50)), more=1450)
    data = section("<") + interface("<", snaplen=50) + simple("<", frame)
    with stored(data) as path:
        assert read(path) == ([Frame(frame.data, 0, 1450)], None)


def test_data_outlives_the_capture() -> None:
    frames = [Frame(bytes([n]) * 5000) for n in range(200)]
    with stored(pcap(frames)) as path:
        with open_capture(path, Limits(frames=7)) as capture:
            batches = list(capture.batches())
        for batch in batches:
            for number, at in zip(batch.rows["number"].tolist(), batch.rows["offset"].tolist(), strict=True):
                assert batch.data[at : at + 5000].tobytes() == frames[number - 1].data


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_the_first_batch_comes_soon_where_it_is_waited_for(form: str) -> None:
    frames = [Frame(bytes([n])) for n in range(50)]
    data = pcap(frames) if form == "pcap" else section("<") + interface("<") + b"".join(simple("<", f) for f in frames)
    with stored(data) as path, open_capture(path, Limits(frames=2, max_frames=10)) as capture:
        batches = list(capture.batches())
    assert [len(batch) for batch in batches] == [2, 4, 8, 10, 10, 10, 6]
    assert [number for batch in batches for number in batch.rows["number"].tolist()] == list(range(1, 51))


def test_standard_input() -> None:
    frames = [Frame(bytes([n]) * n) for n in range(50)]
    script = """
from rdmascope.captures import open_capture
with open_capture("-") as capture:
    print(capture.size, sum(int(batch.rows["captured"].sum()) for batch in capture.batches()))
"""
    for compress in COMPRESS.values():
        data = compress(pcap(frames))
        reported = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=True)
        assert reported.stdout.split() == [b"None", b"1225"]


def test_a_live_pipe_gives_frames_before_it_ends() -> None:
    reader, writer = os.pipe()
    os.write(writer, pcap([Frame(b"first"), Frame(b"second")]))
    with open_capture(f"/dev/fd/{reader}") as capture:
        batches = capture.batches()
        assert len(next(batches)) == 2
        os.write(writer, pcap([Frame(b"third")])[24:])
        assert next(batches).rows["number"].tolist() == [3]
        os.close(writer)
        assert list(batches) == []
    os.close(reader)


# Damage.

FEW = [Frame(b"one"), Frame(b"", more=4), Frame(bytes(range(70))), Frame(b"four")]
SPANS = [0, 24, 24 + 19, 24 + 19 + 16, 24 + 19 + 16 + 86]
"""Where each frame of pcap(FEW) starts."""


def whole(data: bytes, cut: int) -> int:
    """Frames of pcap(FEW) that are complete in its first ``cut`` bytes."""
    return sum(cut >= end for end in [*SPANS[2:], len(data)])


@pytest.mark.parametrize("limits", [Limits(), TINY])
def test_pcap_truncated_anywhere(limits: Limits) -> None:
    data = pcap(FEW, magic=0xA1B23C4D)
    for cut in range(len(data)):
        with stored(data[:cut]) as path:
            frames, error = read(path, limits)
        assert frames == FEW[: whole(data, cut)]
        assert (error is None) == (cut in SPANS[1:]), cut


MIXED = [Frame(b"one"), Frame(b"two!", more=3), Frame(b"", 0), Frame(b"four", link_type=113, interface=1)]
PARTS = [
    section(">", option(">", 1, b"hello")),
    interface(">", option(">", 9, b"\x09")),
    enhanced(">", MIXED[0], MIXED[0].time, option(">", 1, b"note")),
    block(">", 5, bytes(20)),
    obsolete(">", MIXED[1], MIXED[1].time),
    simple(">", MIXED[2]),
    section("<"),
    interface("<", option("<", 9, b"\x09"), link_type=113),
    enhanced("<", Frame(b"four"), MIXED[3].time),
]
HOLD_FRAMES = [2, 4, 5, 8]


@pytest.mark.parametrize("limits", [Limits(), TINY])
def test_pcapng_truncated_anywhere(limits: Limits) -> None:
    data = b"".join(PARTS)
    ends = [sum(map(len, PARTS[: n + 1])) for n in range(len(PARTS))]
    for cut in range(len(data) + 1):
        with stored(data[:cut]) as path:
            frames, error = read(path, limits)
        assert frames == MIXED[: sum(ends[n] <= cut for n in HOLD_FRAMES)]
        assert (error is None) == (cut in ends), cut


@pytest.mark.parametrize("compression", ["gzip", "xz", "zstd"])
def test_compressed_truncated_anywhere(compression: str) -> None:
    data = COMPRESS[compression](pcap(FEW, magic=0xA1B23C4D))
    for cut in range(len(data)):
        with stored(data[:cut]) as path:
            frames, error = read(path)
        assert error is not None
        assert frames == FEW[: len(frames)]


@pytest.mark.parametrize("compression", ["gzip", "xz", "zstd"])
def test_a_truncated_stream_gives_what_it_held(compression: str) -> None:
    frames = [Frame(os.urandom(1000), n * micro) for n in range(400)]
    data = COMPRESS[compression](pcap(frames))
    with stored(data[: len(data) * 9 // 10]) as path:
        got, error = read(path)
    assert got == frames[: len(got)]
    assert len(got) > 250
    held = 24 + len(got) * 1016
    assert str(error).endswith(
        f"the {compression} stream is truncated in frame {len(got) + 1}, at byte {held} of the unpacked capture"
    )


@pytest.mark.parametrize("compression", ["gzip", "xz", "zstd"])
def test_a_corrupt_stream_gives_what_it_held(compression: str) -> None:
    frames = [Frame(os.urandom(1000), n * micro) for n in range(400)]
    data = bytearray(COMPRESS[compression](pcap(frames)))
    data[len(data) * 3 // 4 : len(data) * 3 // 4 + 2000] = bytes(2000)
    with stored(bytes(data)) as path:
        got, error = read(path)
    assert f"the {compression} stream is corrupt" in str(error)
    assert got[:150] == frames[:150]


@pytest.mark.parametrize("compression", ["gzip", "xz", "zstd"])
def test_several_members_are_one_capture(compression: str) -> None:
    data = pcap(FEW, magic=0xA1B23C4D)
    padding = bytes(8) if compression != "zstd" else b""
    compress = COMPRESS[compression]
    with stored(compress(data[:31]) + compress(data[31:]) + padding) as path:
        assert read(path) == (FEW, None)


@given(st.data(), st.sampled_from(["pcap", "pcapng"]), compressions, sizes)
def test_changed_bytes_lose_nothing_before_them(
    data: st.DataObject, kind: str, compression: str, limits: Limits
) -> None:
    plain = pcap(FEW, magic=0xA1B23C4D) if kind == "pcap" else b"".join(PARTS)
    changed = bytearray(COMPRESS[compression](plain))
    places = data.draw(st.lists(st.integers(0, len(changed) - 1), min_size=1, max_size=3))
    for at in places:
        changed[at] = data.draw(st.integers(0, 255))
    with stored(bytes(changed)) as path:
        frames, _ = read(path, limits)
    if not compression and kind == "pcap" and min(places) >= 24:
        safe = whole(plain, min(places))
        assert frames[:safe] == FEW[:safe]


@given(
    st.sampled_from([b"", pcap([]), section("<"), section(">") + interface(">"), b"\x1f\x8b\x08", b"\xfd7zXZ\0"]),
    st.binary(max_size=200),
    sizes,
)
def test_random_bytes_raise_nothing_else(start: bytes, rest: bytes, limits: Limits) -> None:
    with stored(start + rest) as path:
        read(path, limits)


def raised(data: bytes) -> str:
    with stored(data) as path:
        return str(read(path)[1]).removeprefix(f"{path}: ")


LONG = struct.pack("<IIII", 0, 0, 0x7FFFFFF0, 60)
ORPHAN = enhanced("<", Frame(b"abcd", interface=3), 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"frame,time\n1,0.0\n", "not a capture but a text file"),
        ("Größe\n".encode() * 11, "not a capture but a text file"),
        (b"PK\x03\x04" + bytes(40), "not a capture but a Zip archive; unpack it first"),
        (bytes(40), "not a capture but something that begins with the bytes 00 00 00 00"),
        (gzip.compress(b"text\n" * 20, mtime=0), "not a capture but a text file"),
        (gzip.compress(gzip.compress(pcap(FEW))), "not a capture but something compressed twice"),
        (pcap(FEW)[:20], "truncated in the file header, at byte 0: only 20 of its 24 bytes are there"),
        (pcap(FEW)[:30], "truncated in frame 1, at byte 24: only 6 bytes of it are there"),
        (pcap(FEW)[:-1], "truncated in frame 4, at byte 145: only 19 of its 20 bytes are there"),
        (
            pcap(FEW) + LONG,
            "damaged at byte 165: frame 5 claims 2147483632 bytes, more than the 262144 possible",
        ),
        (
            section("<") + interface("<") + ORPHAN,
            "damaged at byte 48: the block of frame 1 names an interface that was not described",
        ),
        (
            section("<") + interface("<") + enhanced("<", Frame(b"a"), 0) + bytes(12),
            "damaged at byte 84: a block of type 0 claims a length of 0 bytes",
        ),
        (
            section("<")[:-4] + bytes(4),
            "damaged at byte 0: a section header gives its length as 28 in front and 0 behind",
        ),
    ],
)
def test_one_clear_line(data: bytes, message: str) -> None:
    assert raised(data).startswith(message)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"missing\.pcap: no such file"):
        open_capture(tmp_path / "missing.pcap")
    with pytest.raises(CaptureError, match=": is a directory"):
        open_capture(tmp_path)
    with pytest.raises(CaptureError, match="null byte"):
        open_capture("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret.pcap"
    path.write_bytes(pcap(FEW))
    path.chmod(0)
    with pytest.raises(CaptureError, match=r"secret\.pcap: no permission to read it"):
        open_capture(path)


# The writer.


@given(st.lists(st.builds(Frame, st.binary(max_size=60), st.integers(0, 2**63 - 1), st.integers(0, 99))))
def test_what_the_writer_wrote_comes_back(frames: list[Frame]) -> None:
    file = io.BytesIO()
    writer = PcapngWriter(file, 1)
    for number, frame in enumerate(frames):
        size = len(frame.data) + frame.more
        writer.write(frame.time, frame.data, size if frame.more else None, f"n° {number}" if number % 2 else None)
    with stored(file.getvalue()) as path:
        assert read(path) == (frames, None)
