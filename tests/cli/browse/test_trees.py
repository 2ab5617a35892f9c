"""The tree of what is chosen: the picture that other commands print, folded and walked through."""

from __future__ import annotations

from functools import partial

import pytest

from playbook.browsing import Browsing, browse
from playbook.commands import run
from rdmascope.cli.browse.lines_pane import BytesPane

SAMPLE = "captures/samples/rxe-nfs-all.pcap.zst"


def test_the_tree_of_an_rpc_is_that_of_show() -> None:
    async def steps(b: Browsing) -> None:
        b.app.go_to("rpcs", 16)
        await b.until(lambda: any("READLINK3res" in line for line in b.lines("tree")))
        await b.until(lambda: len(b.lines("ladder")) > 1)
        printed = run("show", SAMPLE, "--rpc", "16").stdout
        ladder = [line.split()[0] for line in b.lines("ladder")[1:]]
        assert ladder == ["104", "105", "106", "107", "108", "109", "113"]
        for line in b.lines("tree"):
            shown = line.strip(" ▾▸→").replace("  RPC-over-RDMA version", "\nRPC-over-RDMA version").split("\n")
            for part in shown:
                if not part.startswith(("chunk", "reply 0x", "0x")):  # As wide as there is room.
                    assert part.strip() in printed, part
        assert "data: /a/long/target/path/for/readlink/test" in " ".join(b.lines("tree"))

    browse(SAMPLE, steps)


def test_the_chosen_field_is_marked_in_the_bytes() -> None:
    async def steps(b: Browsing) -> None:
        b.app.go_to("rpcs", 16)
        await b.until(lambda: any("READLINK3res" in line for line in b.lines("tree")))
        await b.press("2")
        for words, field, digits in (
            ("rdma_credit 128", (8, 12), "00000080"),
            ("handle 0x00000879", (48, 64), "000008790000100034a82abb1fe95000"),
        ):
            place = next(at for at, line in enumerate(b.lines("tree")) if words in line)
            b.app.chosen_tree.move_to(place)
            await b.until(partial(lambda field: b.app.bytes.field == ("call's transport header", *field), field))
            line = b.app.bytes.line(b.app.bytes.cursor)
            marked = [line.plain[one.start : one.end] for one in line.spans if one.style == "reverse"]
            assert "".join(marked[::2]) == digits  # Beside each byte its letter is marked, too.
        place = next(at for at, line in enumerate(b.lines("tree")) if "data: /a/long" in line)
        b.app.chosen_tree.move_to(place)
        await b.press("enter")
        pane = b.app.query_one(BytesPane)
        assert b.app.focused is pane and pane.display
        assert pane.field == ("reply", 116, 160)
        line = pane.line(pane.cursor)
        assert line.plain.startswith("  000070") or line.plain.startswith("  000074")
        marked_letters = "".join(line.plain[one.start : one.end] for one in line.spans if one.style == "reverse")
        assert marked_letters.startswith("00") and "2f61" in pane.line(pane.cursor + 1).plain

    browse(SAMPLE, steps)


@pytest.mark.parametrize(
    ("noun", "commands"), [("connections", ("report", "transport")), ("files", ("files", "files"))]
)
def test_the_tree_of_a_noun_is_its_picture(noun: str, commands: tuple[str, str]) -> None:
    async def steps(b: Browsing) -> None:
        b.app.list_noun(noun)
        await b.until(lambda: any("its row" in line for line in b.lines("tree")))
        lines = [line.split() for line in b.lines("tree")]
        picture = lines[: lines.index(["▾", "its", "row"])]
        for command, line in zip(commands, (picture[1], picture[-1]), strict=True):
            assert " ".join(line[:2]) in " ".join(run(command, SAMPLE).stdout.split())
        assert ["number:", "1"] in lines

    browse(SAMPLE, steps)


def test_folding_a_tree() -> None:
    async def steps(b: Browsing) -> None:
        b.app.go_to("rpcs", 16)
        await b.until(lambda: any("READLINK3res" in line for line in b.lines("tree")))
        await b.press("2")
        tree = b.app.chosen_tree
        tree.move_to(next(at for at, line in enumerate(b.lines("tree")) if "call's transport header" in line))
        lines = tree.count
        await b.press("left")
        assert tree.count == lines - 9 and tree.line(tree.cursor).plain.startswith("▸")
        await b.press("enter")
        assert tree.count == lines
        await b.press("h", "l")
        assert tree.count == lines
        await b.press("l")
        assert "rdma_xid" in tree.line(tree.cursor).plain
        await b.press("h")
        assert "transport header" in tree.line(tree.cursor).plain
        tree.move_to(next(at for at, line in enumerate(b.lines("tree")) if "mtype CALL" in line))
        end = tree.line(tree.cursor).plain[-6:]
        assert end not in b.screen()
        await b.press("l", "l")
        assert end in b.screen() and "mtype CALL" in tree.line(tree.cursor).plain
        await b.press("h", "h")
        assert tree.left == 0 and "mtype CALL" in tree.line(tree.cursor).plain
        await b.press("escape")
        assert b.app.focused is b.app.listed

    browse(SAMPLE, steps)
