"""A data set in panes: lists of all its captures, and what is chosen from the capture behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from playbook.browsing import Browsing, browse
from playbook.commands import EVERYTHING, objects, run, unpacked
from playbook.fleets import make_fleet
from rdmascope.captures import CaptureError
from rdmascope.cli.browse.filling import BrowsedCapture, exported, written
from rdmascope.dissect.rpcrdma.analyzer import Options


def test_lists_are_of_all_captures_and_the_rest_of_the_one_that_has_it(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path)

    async def tree_has(b: Browsing, *words: str) -> None:
        await b.until(lambda: all(any(one in line for line in b.lines("tree")) for one in words))

    async def steps(b: Browsing) -> None:
        assert b.app.total == len(objects("rpcs", fleet.data_set)) == b.app.listed.count
        for _, paths, before in fleet.captures:
            number = before.rpcs + 4
            b.app.go_to("rpcs", number)
            await tree_has(b, f"RPC {number} ", Path(paths[0]).name)
            await b.until(lambda: len(b.lines("ladder")) > 1)
            printed = run("show", fleet.data_set, "--rpc", str(number)).stdout
            first = b.lines("ladder")[1].split()[0]
            assert int(first) > before.frames and f" {first} " in printed
            b.app.go_to("packets", int(first))
            await tree_has(b, f"frame {first} is ", f"belongs to RPC {number}")
            b.app.go_to("connections", before.connections + 1)
            await tree_has(b, f"number: {before.connections + 1}", "its row")
        files = objects("sql", fleet.data_set, "SELECT number, path FROM files WHERE path IS NOT NULL ORDER BY number")
        b.app.go_to("files", files[-1]["number"])
        await b.until(lambda: any(files[-1]["path"] in line for line in b.lines("tree")))
        output = tmp_path / "slow.pcapng"
        b.app.feed.look("write", str(output), frozenset(), "latency_ns > 50e6", latest=False)
        await b.until(lambda: any("slow.pcapng" in words and "RPC" in words for words in b.said))
        slow = objects("rpcs", fleet.data_set, "--where", "latency_ns > 50e6")
        assert len(objects("rpcs", str(output))) >= len({one["xid"] for one in slow}) > 0

    browse(fleet.data_set, steps)


def test_what_was_written_is_said_before_what_could_not_be_read(tmp_path: Path) -> None:
    cut, output = tmp_path / "cut.pcap", str(tmp_path / "out.pcapng")
    cut.write_bytes(unpacked(EVERYTHING)[:2_000_000])
    fleet = make_fleet(tmp_path)
    (gone, *_), _ = fleet.of("web2")
    Path(gone).unlink()
    behind = BrowsedCapture((fleet.data_set,), Options(), data_set=fleet.data_set)
    for job, said, problem in (
        (
            written(BrowsedCapture((str(cut),), Options()), output, frozenset({1}), ""),
            "1 RPC in ",
            "truncated in frame",
        ),
        (written(behind, output, frozenset(), "number < 3 OR connection > 4"), " RPCs in ", "web2: .*no such file"),
        (exported(behind, output, ""), output, "web2: .*no such file"),
    ):
        assert said in (next(job) or "")
        with pytest.raises(CaptureError, match=problem):
            next(job)
