"""``rdmascope browse`` on a terminal: what it refuses, and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual import events

from playbook.browsing import Browsing, browse
from playbook.commands import EVERYTHING, PROGRAM, run
from playbook.terminal import LEFT, PATIENCE, Terminal


def browsing(folder: Path, *arguments: str) -> Terminal:
    return Terminal([*PROGRAM, "browse", EVERYTHING, *arguments], folder)


def children(pid: int) -> Iterator[int]:
    return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


SHOWN = {"f": "empty: all", "?": "back to the list"}
"""What stands there after a key."""


@pytest.mark.parametrize("keys", ["q", "\x03", "fq\x03\x03", "?\x03\x03"])
def test_quitting_puts_the_terminal_back(tmp_path: Path, keys: str) -> None:
    terminal = browsing(tmp_path)
    terminal.until("FSINFO")
    for key in keys:
        terminal.press(key)
        if key in SHOWN:
            terminal.until(SHOWN[key])
    assert terminal.ended() == 0
    assert LEFT in terminal.text and "Traceback" not in terminal.text
    assert not [*tmp_path.iterdir()]


def test_a_signal_ends_it_and_puts_the_terminal_back(tmp_path: Path) -> None:
    terminal = browsing(tmp_path)
    terminal.until("FSINFO")
    workers = [*children(terminal.process.pid)]
    assert len(workers) == 3
    terminal.process.terminate()
    assert terminal.ended() == 128 + signal.SIGTERM
    assert LEFT in terminal.text and not [*tmp_path.iterdir()]
    assert not any(Path(f"/proc/{one}").exists() for one in workers)


def test_a_signal_just_before_it_waits_for_a_message_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(browsing: Browsing) -> None:
        event: asyncio.Event = browsing.app._message_queue.ready_event
        signals = [signal.SIGTERM]

        def before_it_waits() -> asyncio.AbstractEventLoop:
            """Where wait() has seen no message, and is not yet among those that wait."""
            if signals:
                browsing.app.end(128 + signals.pop())
            return asyncio.get_running_loop()

        monkeypatch.setattr(event, "_get_loop", before_it_waits)
        browsing.app.post_message(events.Callback(lambda: None))
        end = time.monotonic() + PATIENCE
        while browsing.app.return_code is None and time.monotonic() < end:
            await asyncio.sleep(0.05)
        event.clear()
        event.set()  # Whatever was lost, it ends.
        assert browsing.app.return_code == 128 + signal.SIGTERM and not signals

    browse(EVERYTHING, run)


def test_a_terminal_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    terminal = browsing(tmp_path)
    terminal.until("FSINFO")
    workers = [*children(terminal.process.pid)]
    os.close(terminal.master)
    assert terminal.process.wait(PATIENCE) == 128 + signal.SIGHUP
    assert not [*tmp_path.iterdir()]
    assert not any(Path(f"/proc/{one}").exists() for one in workers)


def test_what_it_leaves_when_it_is_killed_goes_too(tmp_path: Path) -> None:
    terminal = browsing(tmp_path)
    terminal.until("FSINFO")
    process = terminal.process.pid
    held = os.open(os.readlink(f"/proc/{process}/fd/1"), os.O_RDWR | os.O_NOCTTY)  # As its shell would.
    terminal.process.kill()
    assert terminal.process.wait(PATIENCE) == -signal.SIGKILL
    terminal.until(LEFT)
    end = time.monotonic() + PATIENCE
    while [*tmp_path.iterdir()]:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.close(held)
    assert "\x1b[?1003l" in terminal.text


def test_a_filter_to_begin_with(tmp_path: Path) -> None:
    terminal = browsing(tmp_path, "--where", "procedure = 'READLINK'")
    terminal.until("/sym")
    terminal.press("q")
    assert terminal.ended() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((EVERYTHING,), "browse needs a terminal"),
        (("-",), "standard input is the keyboard"),
    ],
)
def test_what_it_needs(arguments: tuple[str, ...], words: str) -> None:
    ended = run("browse", *arguments)
    assert ended.exit_code == 2 and words in ended.stderr and len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("where", ["nothing = 1", "("])
def test_a_filter_that_is_none(tmp_path: Path, where: str) -> None:
    terminal = browsing(tmp_path, "--where", where)
    assert terminal.ended() == 2 and "--where" in terminal.text and LEFT not in terminal.text
    assert not [*tmp_path.iterdir()]
