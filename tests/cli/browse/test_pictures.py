"""Eight situations at two sizes: what is on the screen, and that it fits.

``python tests/cli/browse/test_pictures.py FOLDER`` draws them as SVG, to be looked at.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from playbook import Capture, Wire, call, nfs3, reply, write_pcap
from playbook.browsing import Browsing, browse, browsing
from playbook.commands import EVERYTHING

SIZES = ((80, 24), (160, 50))


async def begin(b: Browsing) -> None:
    await b.until(lambda: "complete" in " ".join(b.lines("tree")) and len(b.lines("ladder")) > 1)
    await b.until(lambda: "problem" in b.screen())  # The diagnosis comes from a pass of its own.


async def field(b: Browsing) -> None:
    b.app.go_to("rpcs", 16)
    await b.until(lambda: any("READLINK3res" in line for line in b.lines("tree")))
    await b.press("2")
    b.app.chosen_tree.move_to(next(at for at, line in enumerate(b.lines("tree")) if "data: /a/long" in line))
    await b.press("enter")


async def packets(b: Browsing) -> None:
    b.app.go_to("packets", 104)
    await b.until(lambda: any("Ethernet" in line for line in b.lines("tree")))
    await b.press("2")


async def findings(b: Browsing) -> None:
    await b.press("shift+tab")
    await b.until(lambda: any("the rule PD-INVALIDATE-AGREED" in line for line in b.lines("tree")))
    await b.press("2")


async def diagnosis(b: Browsing) -> None:
    await b.press("5", "j")


async def filtering(b: Browsing) -> None:
    await b.press("f")
    await b.type("client = ")


async def brushed(b: Browsing) -> None:
    b.app._sort_by("latency")
    await b.press("0", "home", "shift+right", "shift+right", "enter")
    await b.until(lambda: 0 < b.app.listed.count < 237)


async def help_page(b: Browsing) -> None:
    await b.press("question_mark")


SITUATIONS: dict[str, tuple[Callable[[Browsing], Awaitable[None]], tuple[str, ...]]] = {
    "begin": (begin, ("RPCs 1 of 237", "portmapv2 GETPORT", "p99", "1 problem")),
    "field": (field, ("000070", "READLINK")),
    "packets": (packets, ("packets ", "Ethernet", "104", "Info")),
    "findings": (findings, ("findings 1 of 36", "PD-INVALIDATE-AGREED", "level", "required")),
    "diagnosis": (diagnosis, ("1 problem", "grace period", "→ RPC 87")),
    "filtering": (filtering, ("Filter", "client = '10.77.0.2'")),
    "brushed": (brushed, ("by latency ↓", "time ")),
    "help": (help_page, ("next error or finding", "back to the list")),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_on_the_screen(name: str, size: tuple[int, int]) -> None:
    arrange, wanted = SITUATIONS[name]

    async def steps(b: Browsing) -> None:
        await arrange(b)
        lines = b.screen().splitlines()
        assert len(lines) == size[1]
        for words in wanted:
            assert any(words in line for line in lines), words
        # The narrow screen folds the panes below the list to one, the wide one has two of them.
        below = [pane for pane in (b.app.chosen_tree, b.app.ladder, b.app.bytes, b.app.diagnosis) if _seen(b, pane)]
        assert len(below) == (1 if size[0] < 120 else 2)

    browse(EVERYTHING, steps, size)


def test_a_small_screen_still_has_rows_and_a_tree() -> None:
    async def steps(b: Browsing) -> None:
        await b.press("2")
        await b.until(lambda: "portmapv2 GETPORT  complete" in b.screen() and not b.app.strip.display)
        assert len(b.screen().splitlines()) == 10 and b.app.listed.rows_shown >= 2
        await b.press("0")
        assert b.app.strip.display and "p99" in b.screen()
        await b.press("escape")
        assert not b.app.strip.display
        await b.press("question_mark")
        assert "this page" in b.screen() and "quit" not in b.screen()
        await b.press("end")
        await b.until(lambda: "back to the list" in b.screen())

    browse(EVERYTHING, steps, (40, 10))


def _seen(b: Browsing, pane: object) -> bool:
    return all(one.display for one in [pane, *pane.ancestors] if hasattr(one, "display"))  # type: ignore[attr-defined]


HOSTILE = "[red]\x1b[31m\x1b]0;x\x07\u202e[/nonsense\n[@click=app.quit]"


def test_names_from_the_wire_do_not_act(tmp_path: Path) -> None:
    wire = Wire()
    conn = wire.connect()
    reply(call(conn, nfs3.symlink(HOSTILE.encode(), HOSTILE.encode())), nfs3.symlink_reply())
    reply(call(conn, nfs3.readlink()), nfs3.readlink_reply(HOSTILE.encode()))
    path = tmp_path / "hostile.pcap"
    write_pcap(Capture(wire).frames, path)
    acts = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")

    async def steps(b: Browsing) -> None:
        for keys in (["2"], ["4"], ["1", "y"], ["escape", "x"], ["escape", "j"], ["2"], ["5"]):
            await b.press(*keys)
            await b.until(lambda: "\\x1b[31m" in b.screen() or b.app.focused is not b.app.chosen_tree)
            assert not acts.search(b.screen())
        await b.press("1", "f")
        await b.type("file_name = ")
        assert "\\x1b[31m" in b.screen() and not acts.search(b.screen())
        await b.press("tab", "enter")
        await b.until(lambda: b.app.listed.count == 1 and "file_name" in b.status)
        assert not acts.search(b.screen()) and not b.app._exit

    browse(path, steps)


async def draw(folder: Path) -> None:
    for name, (arrange, _) in SITUATIONS.items():
        for size in SIZES:
            async with browsing(EVERYTHING, size) as b:
                await arrange(b)
                await b.pilot.pause(0.5)
                (folder / f"{name}-{size[0]}x{size[1]}.svg").write_text(b.app.export_screenshot())


if __name__ == "__main__":
    asyncio.run(draw(Path(sys.argv[1])))
