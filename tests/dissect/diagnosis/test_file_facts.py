"""Names of files in statements: what they are called now, and were before."""

from __future__ import annotations

from rdmascope.dissect.diagnosis.file_facts import FileFacts
from rdmascope.dissect.onc.file_operations import NAMED, REMOVED, RENAMED, ROOT, FileEvent

SERVER, TOP, FILE = "10.0.0.1", b"top", b"file"


def facts(*names: bytes, removed: bool = False) -> str:
    """What a file is called that had these names, one after the other."""
    found = FileFacts()
    paths = found.table.names
    paths.learn(SERVER, FileEvent(ROOT, TOP, name=b"/export"), 1)
    for at, (before, name) in enumerate(zip((b"", *names), names, strict=False), 2):
        if before:
            paths.learn(SERVER, FileEvent(RENAMED, None, TOP, before, to_directory=TOP, to_name=name), at)
        else:
            paths.learn(SERVER, FileEvent(NAMED, FILE, TOP, name), at)
    if removed:
        paths.learn(SERVER, FileEvent(REMOVED, None, TOP, names[-1]), 100)
    file = found.table.file(SERVER, FILE)
    found.files[file.number] = file
    return found.path(file.number)


def test_the_latest_name_with_those_before() -> None:
    assert facts(b"one") == "/export/one"
    assert facts(b"one", b"two") == "/export/two (earlier /export/one)"
    assert facts(b"one", b"two", b"three") == "/export/three (earlier /export/two, /export/one)"
    many = facts(b"one", b"two", b"three", b"four")
    assert many == "/export/four (earlier /export/three, /export/two and 1 more)"


def test_a_removed_file_and_one_without_a_name() -> None:
    assert facts(b"one", b"two", removed=True) == "/export/two (removed later)"
    assert facts().startswith("file handle 0x")
