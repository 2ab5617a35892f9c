"""``rdmascope live --browse``: the lists grow with what a stream brings, and are held still."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from playbook.browsing import Browsing
from playbook.commands import run
from rdmascope.captures import open_capture
from rdmascope.captures.live import CaptureSettings, Keep
from rdmascope.captures.live.session import bounded
from rdmascope.cli.browse.live_app import LiveBrowseApp, LiveFeed, WatchedDevice
from rdmascope.cli.reading import analyzer_options

SAMPLE = "captures/samples/rxe-nfs-all.pcap.zst"
RPCS, FIRST_PART = 237, 1000
"""RPCs of the sample, and its frames that come before a pause."""


class Stream:
    """A named pipe, and the frames that go into it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "stream"
        os.mkfifo(self.path)
        self._pipe = os.open(self.path, os.O_RDWR)
        header = bytes.fromhex("4d3cb2a1 0200 0400 00000000 00000000 00000400 01000000")
        os.write(self._pipe, header)
        self._frames: list[bytes] = []
        with open_capture(SAMPLE) as capture:
            for batch in capture.batches():
                for row in batch.rows:
                    start, size = int(row["offset"]), int(row["captured"])
                    second, rest = divmod(int(row["time"]), 1_000_000_000)
                    fields = (second, rest, size, int(row["original"]))
                    head = b"".join(one.to_bytes(4, "little") for one in fields)
                    self._frames.append(head + batch.data[start : start + size].tobytes())
        self.frames = len(self._frames)
        self._sent = 0

    async def send(self, until: int | None = None) -> None:
        """The next frames, up to this one."""
        part = b"".join(self._frames[self._sent : until])
        self._sent = self.frames if until is None else until
        await asyncio.get_running_loop().run_in_executor(None, self._write, part)

    def _write(self, part: bytes) -> None:
        while part:
            part = part[os.write(self._pipe, part) :]


Steps = Callable[[Browsing, LiveBrowseApp, Stream], Awaitable[None]]


def watch(folder: Path, steps: Steps, size: int = 100_000_000, files: int = 2, paused: bool = False) -> None:
    stream = Stream(folder)
    options = bounded(analyzer_options((), None))
    watched = WatchedDevice(str(stream.path), CaptureSettings(()), options, Keep("kept", size, files))

    async def run_steps() -> None:
        with closing(LiveFeed(watched)) as feed:
            app = LiveBrowseApp(feed, paused)
            async with app.run_test(size=(160, 50)) as pilot:
                await steps(Browsing(app, pilot), app, stream)

    asyncio.run(run_steps())


def listed(app: LiveBrowseApp) -> list[int]:
    rows = (app.listed.row(index) for index in range(app.listed.count))
    return [row["number"] for row in rows if row is not None]


def test_the_list_grows_and_its_end_is_followed(tmp_path: Path) -> None:
    async def steps(b: Browsing, app: LiveBrowseApp, stream: Stream) -> None:
        await b.until(lambda: "nothing yet" in b.status)
        await stream.send(FIRST_PART)
        await b.until(lambda: app.watched.frames == FIRST_PART and app.listed.count)
        await b.until(lambda: app.listed.cursor == app.listed.count - 1)
        early = app.listed.count
        await stream.send()
        await b.until(lambda: app.listed.count == RPCS)
        assert app.listed.cursor == RPCS - 1 and 0 < early < RPCS
        assert listed(app) == [*range(1, RPCS + 1)]
        await b.until(lambda: "dropped: unknown · kept: RPCs from 1, packets from frame 1" in b.screen())
        assert "live" in b.status
        await b.press("g")
        await b.until(lambda: "READLINK" in " ".join(b.lines("list")) and len(b.lines("ladder")) > 1)

    watch(tmp_path, steps)


def test_pause_holds_it_still(tmp_path: Path) -> None:
    async def steps(b: Browsing, app: LiveBrowseApp, stream: Stream) -> None:
        await stream.send(FIRST_PART)
        await b.until(lambda: app.watched.frames == FIRST_PART and app.listed.count)
        await b.press("p")
        assert "paused" in b.status
        await stream.send()
        await b.until(lambda: app.watched.frames == stream.frames)
        held = app.feed.tables.count("rpcs")
        await b.until(lambda: app.listed.count == held)
        assert held < RPCS
        await b.press("p")
        await b.until(lambda: app.listed.count == RPCS and "live" in b.status)

    watch(tmp_path, steps)


def test_it_can_begin_paused(tmp_path: Path) -> None:
    async def steps(b: Browsing, app: LiveBrowseApp, stream: Stream) -> None:
        await stream.send()
        await b.until(lambda: app.watched.frames == stream.frames)
        assert not app.listed.count and "paused" in b.status
        await b.press("p")
        await b.until(lambda: app.listed.count == RPCS)

    watch(tmp_path, steps, paused=True)


def test_a_filter_goes_for_what_comes(tmp_path: Path) -> None:
    async def steps(b: Browsing, app: LiveBrowseApp, stream: Stream) -> None:
        condition = "procedure = 'READ'"
        expected = [int(line.split()[0]) for line in run("rpcs", SAMPLE, "--where", condition).stdout.splitlines()[1:]]
        await b.press("f")
        await b.type(condition)
        await b.press("enter")
        await stream.send()
        await b.until(lambda: app.total == RPCS)
        await b.until(lambda: listed(app) == expected)

    watch(tmp_path, steps)


def test_following_goes_on_with_what_comes(tmp_path: Path) -> None:
    async def steps(b: Browsing, app: LiveBrowseApp, stream: Stream) -> None:
        await stream.send(FIRST_PART)
        await b.until(lambda: app.watched.frames == FIRST_PART and app.listed.count)
        await b.press("p", "g", "x", "end", "enter")  # Its connection.
        await b.until(lambda: " · filter connection = 1" in b.status)
        await b.press("p")
        await stream.send()
        report = [json.loads(line) for line in run("rpcs", SAMPLE, "--json").stdout.splitlines()]
        expected = [one["number"] for one in report if one["connection"] == 1]
        await b.until(lambda: listed(app) == expected)

    watch(tmp_path, steps)


def test_other_lists_and_the_diagnosis(tmp_path: Path) -> None:
    async def steps(b: Browsing, app: LiveBrowseApp, stream: Stream) -> None:
        await stream.send()
        await b.until(lambda: app.listed.count == RPCS)
        packets = len(run("packets", SAMPLE).stdout.splitlines()) - 1
        files = int(run("sql", SAMPLE, "SELECT count(*) FROM files", "--csv").stdout.split()[1])
        findings = sum('"finding"' in line for line in run("audit", SAMPLE, "--json").stdout.splitlines())
        for noun, rows in {"packets": packets, "connections": 11, "files": files, "findings": findings}.items():
            await b.press("tab")
            await b.until(partial(lambda noun, rows: (app.listed.noun, app.listed.count) == (noun, rows), noun, rows))
        await b.press("5")
        await b.until(lambda: any("grace period" in line for line in b.lines("diagnosis")))

    watch(tmp_path, steps)


def test_what_is_no_longer_kept_is_said(tmp_path: Path) -> None:
    async def steps(b: Browsing, app: LiveBrowseApp, stream: Stream) -> None:
        await stream.send()
        await b.until(lambda: app.listed.count == RPCS and app.feed.capture.frames_before)
        await b.until(lambda: f"packets from frame {(app.feed.capture.frames_before or 0) + 1:,}" in b.screen())
        before = app.feed.capture.frames_before or 0
        await b.press("p", "g")
        await b.until(lambda: any("kept no more" in line for line in b.lines("tree")))
        await b.press("G", "k")
        number = (app.listed.chosen or {})["number"]
        await b.until(lambda: app.chosen_tree.border_title == f"RPC {number}" and len(b.lines("ladder")) > 1)
        frames = {int(line.split()[0]) for line in b.lines("ladder")[1:]}
        assert (app.listed.chosen or {})["call_frame"] in frames and min(frames) > before

    watch(tmp_path, steps, size=200_000)
