"""Temporary folders of processes that were killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rdmascope.captures.write.stale_tempdirs import folder_of_process


def test_what_the_killed_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "rdmascope-other").mkdir()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        folder, _ = folder_of_process()
        Path(folder, "tables").write_text("rows")
        os.write(writing, b"x")
        signal.pause()
    os.read(reading, 1)
    ours, lock = folder_of_process()
    assert len([*tmp_path.iterdir()]) == 3
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    again, other = folder_of_process()
    assert {one.name for one in tmp_path.iterdir()} == {"rdmascope-other", Path(ours).name, Path(again).name}
    for one in (reading, writing, lock, other):
        os.close(one)
