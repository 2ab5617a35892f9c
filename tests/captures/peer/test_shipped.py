"""The scripts that ship, and the files that are written of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.peer.shipped import MAX_BYTES, read_script, shipped_scripts


def test_a_shipped_script_is_found_by_its_name() -> None:
    for name, text in shipped_scripts().items():
        assert read_script(name) == text
        assert "[[connection]]" in text


def test_a_script_of_its_own_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("title = 'x'")
    assert read_script(str(path)) == "title = 'x'"


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no such file"), (b"\xff", "no UTF-8"), (b" " * (MAX_BYTES + 1), "longer than")]
)
def test_what_is_no_script_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "other.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CaptureError, match=message):
        read_script(str(path))
