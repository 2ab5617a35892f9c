"""Contents into a directory: nowhere else, and nothing but what was seen."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rdmascope.captures.write.file_copies import LARGEST, LONGEST_NAME, MANIFEST, SafeNames, Spool, Target, safe_name
from rdmascope.dissect.measure.files import (
    READ,
    WRITE,
    ContentRegion,
    Contents,
    ContentSource,
    File,
    FileTransfer,
    MissingRange,
)

SOURCE = ContentSource(READ, 1, 2, 1, 1, 2)


def contents(*stretches: tuple[int, bytes]) -> Contents:
    """Bytes at offsets."""
    stored = b"".join(data for _, data in stretches)
    found = Contents(lambda at, count: stored[at : at + count])
    at = 0
    for start, data in stretches:
        found.regions.append(ContentRegion(start, start + len(data), at, SOURCE, "", 0))
        at += len(data)
    return found


def transfer(
    file: File, kind: str, offset: int, data: bytes, when: int = 1, lost: tuple[MissingRange, ...] = ()
) -> FileTransfer:
    stretches = ((offset, memoryview(data)),) if data else ()
    return FileTransfer(kind, file, when, when + 1, offset, len(data), when, when, when, stretches, lost)


def test_holes_are_holes(tmp_path: Path) -> None:
    with Target(tmp_path / "out", "") as target:
        written = target.write("file", contents((1 << 20, b"abc"), (5 << 20, b"xyz")), 8 << 20)
    path = tmp_path / "out" / "file"
    data = bytes(1 << 20) + b"abc" + bytes((4 << 20) - 3) + b"xyz" + bytes((3 << 20) - 3)
    assert path.read_bytes() == data
    assert (written.length, written.problem) == (len(data), "")
    assert (written.sha256, written.md5) == (hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest())
    assert path.stat().st_blocks * 512 < len(data)


def test_a_file_that_claims_to_be_enormous(tmp_path: Path) -> None:
    with Target(tmp_path / "out", "") as target:
        first = target.write("sparse", contents((1 << 40, b"abc")), 1 << 40 | 3)
        assert (first.length, first.sha256) == (1 << 40 | 3, None)
        beyond = target.write("beyond", contents((0, b"abc"), (LARGEST - 1, b"abc")), LARGEST + 2)
        assert beyond.problem and beyond.sha256 is beyond.md5 is None
    assert (tmp_path / "out" / "beyond").open("rb").read(3) == b"abc"


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(FileExistsError, match="not empty"):
        Target(tmp_path, "")
    with Target(tmp_path, "", force=True) as target:
        target.write("new", contents((0, b"abc")), 3)
    assert (tmp_path / "mine").read_text() == "precious"


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    for name in "file", "link":
        with pytest.raises(NotADirectoryError):
            Target(tmp_path / name, "", force=True)


def test_links_in_the_directory_are_replaced_and_not_followed(tmp_path: Path) -> None:
    outside, directory = tmp_path / "outside", tmp_path / "out"
    outside.write_text("precious")
    directory.mkdir()
    (directory / "soft").symlink_to(outside)
    (directory / "hard").hardlink_to(outside)
    (directory / "dangling").symlink_to(tmp_path / "nowhere")
    with Target(directory, "", force=True) as target:
        for name in "soft", "hard", "dangling":
            target.write(name, contents((0, b"abc")), 3)
    assert outside.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    for name in "soft", "hard", "dangling":
        assert not (directory / name).is_symlink()
        assert (directory / name).read_bytes() == b"abc"


def test_neither_the_capture_nor_a_directory_is_replaced(tmp_path: Path) -> None:
    capture = tmp_path / "r1m"
    capture.write_text("capture")
    (tmp_path / "folder").mkdir()
    with Target(tmp_path, [str(capture)], force=True) as target:
        with pytest.raises(FileExistsError, match="capture"):
            target.create("r1m")
        with pytest.raises(IsADirectoryError):
            target.create("folder")
        for name in "", ".", "..", "../x", "/x", "folder/x":
            with pytest.raises(ValueError, match="name"):
                target.create(name)
    assert capture.read_text() == "capture"


def test_a_directory_that_stays_empty_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in "new", "old":
        with Target(tmp_path / name, ""):
            pass
    assert os.listdir(tmp_path) == ["old"]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=300), st.text(max_size=80).map(str.encode)), max_size=12))
def test_names_are_harmless_and_all_different(wire: list[bytes | None]) -> None:
    names = SafeNames()
    taken = [names.take(name, 7) for name in wire]
    assert len({name.casefold() for name in (*taken, MANIFEST)}) == len(taken) + 1
    for name in taken:
        assert name.isprintable()
        assert not set(name) & set('/\\:*?"<>|')
        assert name.strip(" .") == name
        assert name[0] not in ".-"
        assert ".." not in name
        assert len(name.encode()) <= LONGEST_NAME + len("-00000007-12")


@pytest.mark.parametrize(
    ("wire", "safe"),
    [
        (b"hello.txt", "hello.txt"),
        (b"/etc/passwd", "_etc_passwd"),
        (b"..", ""),
        (b"../../x", "____x"),
        (b".bashrc", "_bashrc"),
        (b"-rf", "_-rf"),
        (b"a\x1b[2Jb\n", "a_[2Jb_"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("größe".encode(), "größe"),
        ("a\u202egpj.exe".encode(), "a_gpj.exe"),
    ],
)
def test_a_name_keeps_what_is_harmless(wire: bytes, safe: str) -> None:
    assert safe_name(wire) == safe


def test_names_that_are_alike_get_the_hash_of_the_handle() -> None:
    names = SafeNames()
    assert [names.take(b"r1m", 0xA), names.take(b"R1M", 0xB), names.take(b"r1m", 0xB)] == [
        "r1m",
        "R1M-0000000b",
        "r1m-0000000b-2",
    ]
    assert names.take(None, 0xC) == "handle-0000000c"
    assert names.take(MANIFEST.encode(), 0xD) == "manifest.json-0000000d"


def test_transfers_wait_in_a_file_and_come_back_by_file(tmp_path: Path) -> None:
    one, two = File("server", b"one", number=1), File("server", b"two", number=2)
    with Spool(tmp_path) as spool:
        spool.add(transfer(two, READ, 0, b"second", 1))
        spool.add(transfer(one, WRITE, 2, b"first", 3))
        spool.add(transfer(two, WRITE, 0, b"SEC", 5))
        spool.add(transfer(one, READ, 1 << 64, b"beyond", 7))
        spool.add(transfer(two, WRITE, 4, b"", 9, (MissingRange(4, 5, "not captured"),)))
        found = {
            number: [(region.start, b"".join(known.bytes_of(region))) for region in known.regions]
            for number, known in spool.contents()
        }
        assert spool.lost == {2: [MissingRange(4, 5, "not captured")]}
    assert found == {1: [(2, b"first")], 2: [(0, b"SEC"), (3, b"o"), (5, b"d")]}
    assert os.listdir(tmp_path) == []
