"""Temporary folders of processes that were killed."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rdmascope.captures.errors import signals_to
from rdmascope.captures.write.stale_tempdirs import FolderOfProcess, folder_of_process


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


def test_a_signal_that_comes_while_a_folder_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, at_exit = tempfile.mkdtemp, list[Callable[[], object]]()

    def made(**words: str) -> str:
        folder = make(**words)
        signal.raise_signal(signal.SIGTERM)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", made)
    monkeypatch.setattr(atexit, "register", at_exit.append)
    with signals_to(lambda *_: sys.exit(143), signal.SIGTERM), pytest.raises(SystemExit):
        FolderOfProcess(str(tmp_path))
    assert len([*tmp_path.iterdir()]) == 1
    at_exit[0]()
    assert not [*tmp_path.iterdir()]
