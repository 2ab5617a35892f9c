"""A second process reads and decodes; what comes out is the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result

from rdmascope.captures import CaptureError
from rdmascope.captures.read import read_ahead
from rdmascope.captures.read.read_ahead import ahead
from rdmascope.cli.main import main

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"


def gone(pid: int) -> bool:
    """The child has ended, and needs not be waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_another_process_does_the_work() -> None:
    def work() -> Iterator[tuple[int, bytes]]:
        for number in range(5):
            yield os.getpid(), bytes([number]) * (number << 21)  # The last is larger than a slot.

    found = list(ahead(work))
    assert [data for _, data in found] == [bytes([number]) * (number << 21) for number in range(5)]
    (child,) = {pid for pid, _ in found}
    assert child != os.getpid()
    assert gone(child)


def test_what_it_raises_comes_behind_what_it_made() -> None:
    def work() -> Iterator[int]:
        yield 1
        raise CaptureError("damaged at byte 7")

    items = ahead(work)
    assert next(items) == 1
    with pytest.raises(CaptureError, match="damaged at byte 7"):
        next(items)


def test_it_ends_with_its_reader() -> None:
    def work() -> Iterator[int]:
        while True:
            yield os.getpid()

    items = ahead(work)
    child = next(items)
    assert not gone(child)
    items.close()  # type: ignore[attr-defined]
    assert gone(child)


def test_one_that_was_killed_is_noticed() -> None:
    def work() -> Iterator[int]:
        yield os.getpid()
        os.kill(os.getpid(), signal.SIGKILL)
        yield 0

    items = ahead(work)
    next(items)
    with pytest.raises(ChildProcessError, match="killed"):
        next(items)


def test_one_that_is_killed_within_an_item_is_noticed() -> None:
    def work() -> Iterator[tuple[int, bytes]]:
        yield os.getpid(), b""
        yield os.getpid(), bytes(64 << 20)  # more than a pipe holds

    items = ahead(work)
    child, _ = next(items)
    os.kill(child, signal.SIGKILL)
    with pytest.raises(ChildProcessError, match="killed"):
        next(items)


def test_without_another_process_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", none_left)
    assert list(ahead(lambda: iter([os.getpid()]))) == [os.getpid()]


def reported(path: Path, *arguments: str) -> Result:
    return CliRunner(env={"RDMASCOPE_TRACEBACK": "1"}).invoke(main, [*arguments, str(path)])


@pytest.fixture
def reads_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small file and machine are.  Were it this process that reads, it would get nothing."""
    here, sent = os.getpid(), read_ahead._sent
    monkeypatch.setattr(read_ahead, "AHEAD_FROM", 0)
    monkeypatch.setattr(read_ahead, "processors", lambda: 2)
    monkeypatch.setattr(read_ahead, "_sent", lambda *who: iter(()) if os.getpid() == here else sent(*who))


def plain(sample: str) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress((SAMPLES / f"{sample}.pcap.zst").read_bytes())


@pytest.mark.parametrize("sample", ["longcall-rxe", "ipv6-rxe", "siw-nfs-all", "loss-rxe", "meta-rxe"])
@pytest.mark.parametrize("command", [("report", "--json"), ("rpcs", "--json"), ("audit",)], ids=" ".join)
def test_the_result_is_the_same(
    sample: str, command: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "plain.pcap"
    path.write_bytes(plain(sample))
    expected = reported(path, *command)
    request.getfixturevalue("reads_ahead")
    found = reported(path, *command)
    assert found.output == expected.output
    assert found.exit_code == expected.exit_code


def test_damage_is_reported_behind_what_was_whole(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(plain("longcall-rxe")[:-100])
    expected = reported(path, "report", "--json")
    request.getfixturevalue("reads_ahead")
    found = reported(path, "report", "--json")
    assert found.output == expected.output
    assert found.exit_code == expected.exit_code == 2
    assert "truncated in frame" in found.output
