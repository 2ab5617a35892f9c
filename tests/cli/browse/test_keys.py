"""Every key of ``rdmascope browse``, by what it changes."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from playbook.browsing import Browsing, browse, browsing
from playbook.commands import objects, run
from rdmascope.cli.browse.app import BrowseApp, KeyLine
from rdmascope.cli.browse.filling import BrowseFeed
from rdmascope.cli.browse.lines_pane import KEYS, MOVING, help_text

SAMPLE = "captures/samples/rxe-nfs-all.pcap.zst"


def numbers(b: Browsing) -> list[int]:
    """Of the RPCs in the list."""
    rows = (b.app.listed.row(index) for index in range(b.app.listed.count))
    return [row["number"] for row in rows if row is not None]


def lists(b: Browsing, noun: str, count: int) -> bool:
    return (b.app.listed.noun, b.app.listed.count) == (noun, count)


def test_the_list_has_the_lines_of_rpcs_and_is_walked_through() -> None:
    async def steps(b: Browsing) -> None:
        listed = [line.strip() for line in b.lines("list")]
        printed = [line.strip() for line in run("rpcs", SAMPLE, columns=157).stdout.splitlines()[1:]]
        assert len(listed) == len(printed) == 237
        # A pipe gets all operations of a COMPOUND, and the status in a column.
        assert [line.split()[:5] for line in listed] == [line.split()[:5] for line in printed]
        assert b.status.startswith("RPCs 1 of 237")
        await moving(b)

    browse(SAMPLE, steps)


async def moving(b: Browsing) -> None:
    listed = b.app.listed
    for keys, place in (
        (["down"], 1), (["j"], 2), (["up"], 1), (["k"], 0), (["G"], 236), (["g"], 0), (["end"], 236), (["home"], 0),
        (["pagedown"], listed.rows_shown), (["pageup"], 0), (["space"], listed.rows_shown), (["ctrl+b"], 0),
        (["ctrl+f"], listed.rows_shown), (["home", "ctrl+d"], listed.rows_shown // 2), (["ctrl+u"], 0),
    ):  # fmt: skip
        await b.press(*keys)
        assert listed.cursor == place, keys
        assert listed.top <= listed.cursor < listed.top + listed.rows_shown
    await b.press("right")
    assert listed.left == 8
    await b.press("h")
    assert listed.left == 0
    await b.press("l", "left")
    assert listed.left == 0


def test_the_list_can_be_walked_through_before_anything_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for put_off in ("complete", "look"):
        monkeypatch.setattr(BrowseFeed, put_off, lambda *_, **__: None)
    monkeypatch.setattr(BrowseApp, "_renew_strip", lambda self: None)

    async def run() -> None:
        async with browsing(SAMPLE, whole=False) as b:
            await b.until(lambda: b.status == "RPCs 1 of 237 · reading paths and places")
            await b.press("G")
            assert b.app.listed.chosen is not None and b.app.listed.chosen["number"] == 237
            assert b.lines("list")[-1].split()[0] == "237"
            b.app._sort_by("latency")
            await b.until(lambda: numbers(b)[:1] != [1])
            assert sorted(numbers(b)) == [*range(1, 238)]

    asyncio.run(run())


def test_lists_follow_each_other() -> None:
    async def steps(b: Browsing) -> None:
        report = [json.loads(line) for line in run("report", SAMPLE, "--json").stdout.splitlines()]
        connections = sum(one["type"] == "connection" for one in report)
        (files,) = objects("sql", SAMPLE, "SELECT count(*) AS n FROM files")
        packets = len(run("packets", SAMPLE).stdout.splitlines()) - 1
        for listed in (
            ("packets", packets), ("connections", connections), ("files", files["n"]),
            ("findings", 36), ("rpcs", 237),
        ):  # fmt: skip
            await b.press("tab")
            await b.until(partial(lists, b, *listed))
        await b.until(lambda: b.app.finished >= {"packets", "connections", "files", "findings", "rpcs"})
        await b.press("shift+tab")
        await b.until(lambda: b.app.listed.noun == "findings" and b.app.listed.count == 36)

    browse(SAMPLE, steps)


def test_find() -> None:
    async def steps(b: Browsing) -> None:
        await b.press("slash")
        await b.type("readlink")
        await b.press("enter")
        await b.until(lambda: b.app.listed.cursor)
        first = b.app.listed.cursor
        await b.until(lambda: "READLINK" in b.lines("list")[first])
        await b.press("slash", "enter")
        await b.until(lambda: b.app.listed.cursor != first)
        await b.until(lambda: "READLINK" in b.lines("list")[b.app.listed.cursor])
        await b.press("slash")
        await b.type("nowhere-at-all")
        await b.press("enter")
        await b.until(lambda: any("nowhere in this list" in one for one in b.said))

    browse(SAMPLE, steps)


def test_filter_passes_what_where_does() -> None:
    condition = "latency_ns > 44e6 and operations like '%OPEN%'"

    async def steps(b: Browsing) -> None:
        expected = [int(line.split()[0]) for line in run("rpcs", SAMPLE, "--where", condition).stdout.splitlines()[1:]]
        await b.press("f")
        await b.type(condition)
        await b.press("enter")
        await b.until(lambda: numbers(b) == expected)
        assert f"filter {condition}" in b.status
        await b.press("tab")
        await b.until(lambda: "packets" in b.app.finished and b.app.listed.count)
        await b.until(
            lambda: {(b.app.listed.row(at) or {}).get("rpc") for at in range(b.app.listed.count)} == {*expected}
        )
        await b.press("F")
        await b.until(lambda: b.app.listed.count > 3000)
        await b.press("shift+tab")
        await b.until(lambda: b.app.listed.count == 237)
        # These columns come behind the rows.
        used = "file = 2 and call_place_frame > 100 and path is not null"
        expected = [one["number"] for one in objects("sql", SAMPLE, f"SELECT number FROM rpcs WHERE {used}")]
        await b.press("f")
        b.app.screen.query_one("#typed", Input).value = used
        await b.press("enter")
        await b.until(lambda: numbers(b) == expected)
        assert expected

    browse(SAMPLE, steps)


def test_a_filter_is_completed_and_what_is_none_is_said_where_it_is_typed() -> None:
    async def steps(b: Browsing) -> None:
        def typed() -> str:
            return b.app.screen.query_one("#typed", Input).value

        for text, problem in ("latency_mss > 1", "no column"), ("1 = 1; drop table rpcs", "no query"):
            await b.press("f")
            await b.type(text)
            await b.press("enter")
            assert problem in b.screen() and len(b.app.screen_stack) == 2
            await b.press("escape")
            assert len(b.app.screen_stack) == 1 and b.app.listed.count == 237
        await b.press("f")
        await b.type("latency_n")
        await b.press("tab")
        assert typed() == "latency_ns"
        for wanted, given in (
            ("pro", "procedure"),
            ("client = ", "client = '10.77.0.2'"),
            ("path = '/export/hel", "path = '/export/hello.txt'"),
            ("READL", "procedure = 'READLINK'"),
            ("procedure = 'GETAT", "procedure = 'GETATTR'"),
        ):
            b.app.screen.query_one("#typed", Input).value = ""
            await b.type(wanted)
            await b.press("tab")
            assert typed() == given

    browse(SAMPLE, steps)


def test_sort() -> None:
    async def steps(b: Browsing) -> None:
        def latencies() -> list[int]:
            rows = (b.app.listed.row(at) for at in range(b.app.listed.count))
            return [row["latency_ns"] for row in rows if row is not None and row["latency_ns"] is not None]

        await b.press("s", "enter")
        await b.until(lambda: "by latency ↓" in b.status and latencies() == sorted(latencies(), reverse=True))
        await b.press("s", "enter")
        await b.until(lambda: "by latency ↑" in b.status and latencies() == sorted(latencies()))
        assert len(latencies()) > 200

    browse(SAMPLE, steps)


def test_next_error_and_finding() -> None:
    async def steps(b: Browsing) -> None:
        failed = {int(line.split()[0]) for line in run("rpcs", SAMPLE, "--errors").stdout.splitlines()[1:]}
        audited = [json.loads(line) for line in run("audit", SAMPLE, "--json", "--examples", "99").stdout.splitlines()]
        wrong = sorted(failed | {one["rpc"] for one in audited if one["type"] == "finding" and one["rpc"]})

        def chosen() -> int:
            return int((b.app.listed.chosen or {})["number"])

        for number in wrong[:3]:
            await b.press("n")
            await b.until(partial(lambda number: chosen() == number, number))
        await b.press("N")
        await b.until(lambda: chosen() == wrong[1])

    browse(SAMPLE, steps)


def test_follow() -> None:
    async def steps(b: Browsing) -> None:
        b.app.go_to("rpcs", 16)
        await b.press("x", "enter")
        await b.until(lambda: numbers(b) == [16])
        assert "filter xid = " in b.status
        await b.press("F")
        await b.until(lambda: b.app.listed.count == 237)
        await b.press("x", "down", "enter")
        await b.until(lambda: 1 <= b.app.listed.count < 237)
        assert all((b.app.listed.row(at) or {})["path"] == "/export/sym" for at in range(b.app.listed.count))

    browse(SAMPLE, steps)


def test_mark_and_write(tmp_path: Path) -> None:
    async def steps(b: Browsing) -> None:
        await b.press("m", "j", "m")
        assert b.app.listed.marked == {1, 3} and "2 marked" in b.status
        assert [line[0] for line in b.lines("list")[:4]] == ["◆", " ", "◆", " "]
        await b.press("m", "M")
        assert not b.app.listed.marked and "marked" not in b.status
        b.app.go_to("rpcs", 16)
        await b.press("m", "w")
        b.app.screen.query_one("#typed", Input).value = ""
        await b.type(str(tmp_path / "part.pcapng"))
        await b.press("enter")
        await b.until(lambda: any("1 RPC" in one for one in b.said))

    browse(SAMPLE, steps)
    assert len(run("rpcs", str(tmp_path / "part.pcapng")).stdout.splitlines()) == 2


def test_write_what_is_filtered(tmp_path: Path) -> None:
    async def steps(b: Browsing) -> None:
        await b.until(lambda: b.app.listed.count == 5)
        await b.press("w")
        b.app.screen.query_one("#typed", Input).value = ""
        await b.type(SAMPLE)
        await b.press("enter")
        assert "is there already" in b.screen()
        b.app.screen.query_one("#typed", Input).value = str(tmp_path / "reads.pcapng")
        await b.press("enter")
        await b.until(lambda: any("5 RPCs" in one for one in b.said))

    browse(SAMPLE, steps, where="version = 3 and procedure = 'READ'")


def test_nothing_to_write_is_said_once() -> None:
    async def steps(b: Browsing) -> None:
        await b.until(lambda: b.app.total)
        await b.press("w", "m", "w")
        assert b.said == ["no RPC is marked, and none passes the filter"]
        assert b.app.chosen_tree.border_title == "RPC"

    browse(SAMPLE, steps, where="procedure = 'none'")


def test_wireshark_gets_what_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "wireshark"
    program.write_text(
        f'#!/bin/sh\ncp "$2" {tmp_path}/given.pcapng.part\nmv {tmp_path}/given.pcapng.part {tmp_path}/given\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    async def steps(b: Browsing) -> None:
        await b.press("m", "o")
        await b.until((tmp_path / "given").exists)

    browse(SAMPLE, steps)
    assert (tmp_path / "given").read_bytes()[:4] == b"\n\r\r\n"


def test_without_wireshark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    async def steps(b: Browsing) -> None:
        await b.press("o")
        await b.until(lambda: any("not installed" in one for one in b.said))

    browse(SAMPLE, steps)


def test_copy() -> None:
    async def steps(b: Browsing) -> None:
        b.app.go_to("rpcs", 16)
        await b.press("y", "down", "down", "down", "enter")
        assert b.app.clipboard == str(0x34A82ABB)
        await b.press("y", "down", "down", "down", "down", "enter")
        assert b.app.clipboard == "0x34a82abb"
        await b.until(lambda: any("READLINK3res" in line for line in b.lines("tree")))
        await b.press("2")
        b.app.chosen_tree.move_to(next(at for at, line in enumerate(b.lines("tree")) if "data: /a/long" in line))
        await b.press("y", "enter")
        assert b.app.clipboard == "/a/long/target/path/for/readlink/test"

    browse(SAMPLE, steps)


def test_panes_and_zoom_and_the_end() -> None:
    async def steps(b: Browsing) -> None:
        for key, name in (
            ("2", "tree"),
            ("3", "ladder"),
            ("4", "bytes"),
            ("5", "diagnosis"),
            ("0", "strip"),
            ("1", "list"),
        ):
            await b.press(key)
            assert b.app.focused is not None and b.app.focused.id == name and b.app.focused.display
        await b.press("z")
        assert not b.app.strip.display and not b.app.query_one("#below").display and b.app.listed.display
        await b.press("4")
        assert not b.app.listed.display and b.app.query_one("#bytes").display
        await b.press("z")
        assert b.app.listed.display and b.app.strip.display
        await b.press("ctrl+c")
        assert b.app._exit

    browse(SAMPLE, steps)


def test_brush() -> None:
    async def steps(b: Browsing) -> None:
        await b.press("0", "home", "shift+right", "shift+right", "enter")
        await b.until(lambda: 0 < b.app.listed.count < 237)
        timeline = b.app.strip.timeline
        assert timeline is not None
        assert b.app.listed.count == sum(one.calls for one in timeline.intervals[:3]) and " · time " in b.status
        assert f"s: {b.app.listed.count} RPCs" in b.screen().splitlines()[0]
        await b.press("F")
        assert "RPCs" not in b.screen().splitlines()[0]
        await b.until(lambda: b.app.listed.count == 237)
        await b.press("G", "enter")
        await b.until(lambda: b.app.listed.count == timeline.intervals[-1].calls)

    browse(SAMPLE, steps)


def test_a_brush_stays_where_it_is_in_time() -> None:
    async def steps(b: Browsing) -> None:
        strip = b.app.strip
        await b.press("0", "end")
        assert strip.border_title == strip.title() != ""
        await b.press("shift+left", "enter")
        await b.until(lambda: 0 < b.app.listed.count < 237)
        brushed, status, before = b.app.narrowing, b.status, strip.timeline
        await b.pilot.resize_terminal(100, 50)
        await b.until(lambda: strip.timeline != before)
        timeline = strip.timeline
        assert timeline is not None and len(timeline.intervals) <= strip.columns
        first = timeline.first + strip.begin * timeline.width
        assert brushed.first is not None and first <= brushed.first < first + timeline.width
        assert strip.end == len(timeline.intervals) - 1
        assert b.app.narrowing == brushed and b.status == status

    browse(SAMPLE, steps)


def test_diagnosis_leads_to_its_evidence() -> None:
    async def steps(b: Browsing) -> None:
        assert any("grace period" in line for line in b.lines("diagnosis"))
        await b.press("5")
        b.app.diagnosis.move_to(next(at for at, line in enumerate(b.lines("diagnosis")) if "→ RPC 90" in line))
        await b.press("enter")
        await b.until(lambda: (b.app.listed.chosen or {})["number"] == 90)
        assert b.app.focused is b.app.listed
        await b.press("5")
        b.app.diagnosis.move_to(next(at for at, line in enumerate(b.lines("diagnosis")) if "frame 1059" in line))
        await b.press("enter")
        await b.until(lambda: b.app.listed.noun == "packets" and (b.app.listed.chosen or {}).get("frame") == 1059)

    browse(SAMPLE, steps)


def test_a_finding_leads_to_its_rpc() -> None:
    async def steps(b: Browsing) -> None:
        await b.press("shift+tab")
        await b.until(lambda: b.app.listed.noun == "findings" and b.app.listed.count)
        await b.until(lambda: any("the rule PD-INVALIDATE-AGREED" in line for line in b.lines("tree")))
        await b.press("enter")
        await b.until(lambda: b.app.listed.noun == "rpcs" and (b.app.listed.chosen or {}).get("number") == 24)

    browse(SAMPLE, steps)


def test_help_theme_and_quit() -> None:
    async def steps(b: Browsing) -> None:
        await b.press("question_mark")
        for key in KEYS:
            assert key.meaning in b.screen()
        await b.press("escape")
        dark = b.app.current_theme.dark
        await b.press("t")
        assert b.app.current_theme.dark != dark
        await b.press("q")
        assert b.app._exit

    browse(SAMPLE, steps, size=(80, 24))


def test_help_fits_and_names_every_key() -> None:
    lines = help_text(KEYS).plain.splitlines()
    assert len(lines) <= 20 and max(map(len, lines)) <= 76
    assert len(lines) >= (len(KEYS) + len(MOVING)) // 2


def test_every_key_is_in_the_palette() -> None:
    async def steps(b: Browsing) -> None:
        offered = [one.title for one in b.app.get_system_commands(b.app.screen)]
        assert len(offered) == len(KEYS) and all(key.shown in title for key, title in zip(KEYS, offered, strict=True))
        await b.press("ctrl+p")
        await b.type("diagnosis")
        await b.press("enter", "enter")
        await b.until(lambda: b.app.focused is not None and b.app.focused.id == "diagnosis")

    browse(SAMPLE, steps)


def test_the_mouse() -> None:
    async def steps(b: Browsing) -> None:
        listed, strip = b.app.listed, b.app.strip
        await b.pilot.click("#list", offset=(20, 6))
        assert listed.cursor == 4 and b.app.focused is listed
        await b.until(lambda: b.app.chosen_tree.border_title == "RPC 5")
        await b.pilot.click("#list", offset=(20, 6))
        assert b.app.focused is not None and b.app.focused.id == "tree"
        column = listed.heading().plain.index("latency")  # type: ignore[union-attr]
        await b.pilot.click("#list", offset=(column, 1))
        await b.until(lambda: "by latency ↓" in b.status)
        top = listed.top
        await b.pilot._post_mouse_events([events.MouseScrollDown], "#list", offset=(20, 6), button=0)
        await b.until(lambda: listed.top > top)
        await b.pilot.mouse_down("#strip", offset=(18, 2))
        await b.pilot.hover("#strip", offset=(20, 2))
        await b.pilot.mouse_up("#strip", offset=(20, 2))
        timeline = strip.timeline
        assert timeline is not None
        await b.until(lambda: listed.count == sum(one.calls for one in timeline.intervals[:3]))

    browse(SAMPLE, steps)


def test_it_opens_on_the_diagnosis_where_something_is_wrong() -> None:
    async def diagnosed(b: Browsing) -> None:
        await b.until(lambda: b.app.beside == "diagnosis")
        assert b.app.diagnosis.display and any("hung 61.8 s" in line for line in b.lines("diagnosis"))

    async def healthy(b: Browsing) -> None:
        await b.until(lambda: any("nothing wrong" in line for line in b.lines("diagnosis")))
        assert b.app.beside == "ladder"

    browse("captures/samples/loss-rxe.pcap.zst", diagnosed)
    browse("captures/samples/meta-rxe.pcap.zst", healthy)


def test_the_key_line_has_what_matters_first() -> None:
    line = str(KeyLine(KEYS).render())
    assert all(f" {key} " in line[:80] for key in ("q", "?", "Tab", "/", "f", "n", "5")), line
