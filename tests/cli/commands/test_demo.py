"""A capture to begin with, and the pages of the documentation."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

import pytest

from playbook.commands import LOSS, run

DOCS = Path(__file__).parents[3] / "docs"


def test_the_capture_is_put_here_once_and_overwrites_nothing(tmp_path: Path) -> None:
    with chdir(tmp_path):
        for _ in range(2):
            done = run("demo")
            assert done.exit_code == 0
            assert (tmp_path / "loss-rxe.pcap.zst").read_bytes() == Path(LOSS).read_bytes()
        for words in [line.split()[1:] for line in done.stdout.splitlines()[1:]]:
            assert run(*words).exit_code in (0, 1)
        (tmp_path / "loss-rxe.pcap.zst").write_bytes(b"mine")
        refused = run("demo")
        assert (refused.exit_code, refused.stdout) == (2, "") and "is another file" in refused.stderr
        assert (tmp_path / "loss-rxe.pcap.zst").read_bytes() == b"mine"


@pytest.mark.parametrize("topic", ["questions", "questions.md"])
def test_a_page(topic: str) -> None:
    assert run("help", topic).stdout == (DOCS / "questions.md").read_text()


def test_all_pages_are_listed_in_the_order_to_read_and_a_wrong_name_gets_the_near_ones() -> None:
    listed = [line.split(maxsplit=1) for line in run("help").stdout.splitlines()]
    pages = [page for page in DOCS.glob("*.md") if page.stem != "index"]
    assert sorted(listed) == sorted([page.stem, page.read_text().partition("\n")[0][2:]] for page in pages)
    assert [name for name, _ in listed[:5]] == ["first-minutes", "capturing", "causes", "questions", "sharing"]
    refused = run("help", "question")
    assert refused.exit_code == 2 and "did you mean questions?" in refused.stderr
