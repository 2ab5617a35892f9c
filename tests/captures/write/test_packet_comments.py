"""Comments of exported packets lead back to the RPC and its frames; tshark reads them."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from playbook.commands import LOSS, objects, run
from rdmascope import read
from rdmascope.captures.wireshark.second_opinion import find_tshark
from rdmascope.captures.write import export
from rdmascope.captures.write.export import MAX_NOTED, SEGMENT, FindingNotes, printable, ranges
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply


def comments(path: Path) -> list[str]:
    """Of every packet, as tshark gives them; line breaks are ' | '."""
    arguments = [find_tshark().path, "-r", str(path), "-T", "fields", "-e", "frame.comment"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return [line.replace("\\n", " | ") for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("comments") / "out.pcapng"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "MAX_RUNS", 1 << 16)
        assert run("export", LOSS, "-o", str(path)).exit_code == 0
    return comments(path)


def test_every_packet_of_a_message_names_its_rpc_and_its_frames(said: list[str]) -> None:
    frames: dict[tuple[int, str], set[int]] = defaultdict(set)
    for comment in said:
        if not comment.startswith("RPC "):
            continue
        words = comment.partition(" | ")[0].split(", ")
        listed = ", ".join(words[3:]).removeprefix("RDMA frames ").removeprefix("RDMA frame ")
        if listed != "no RDMA frame":
            for run_of_frames in listed.split(", "):
                low, _, high = run_of_frames.partition("-")
                frames[int(words[0][4:]), words[1]].update(range(int(low), int(high or low) + 1))
    expected: dict[tuple[int, str], set[int]] = {}
    for rpc in read(LOSS):
        for kind, message in (("call", reassembled_call(rpc)), ("reply", reassembled_reply(rpc))):
            if message is not None:
                expected[rpc.number, kind] = {extent.frame for extent in message.extents} - {0}
    assert frames == expected
    assert max(map(len, frames.values())) > 60


def test_the_first_packet_says_everything(said: list[str]) -> None:
    for one in objects("rpcs", LOSS):
        about = [comment for comment in said if comment.startswith(f"RPC {one['number']}, ") and " | NFS" in comment]
        assert len(about) == (one["call_frame"] is not None) + (one["reply_frame"] is not None)
        for comment in about:
            assert one["state"] in comment
            latency = one["latency_ns"] is not None and ", reply, " in comment
            assert (" | latency " in comment) == latency
    read_chunk = "Read chunk at position 180: 2 segments, 256 KiB advertised, 256 KiB transferred by "
    assert any(read_chunk in comment for comment in said)
    assert any("packets of this RPC retransmitted" in comment for comment in said)


def test_findings_are_where_they_belong(said: list[str]) -> None:
    for one in read(LOSS).findings():
        place = f"RPC {one.rpc}, " if one.rpc else f"rdmascope: connection {one.connection.number}, "
        noted = [comment for comment in said if comment.startswith(place) and one.rule.id in comment]
        assert noted or sum(comment.count(" by the ") for comment in said if comment.startswith(place)) >= MAX_NOTED


def test_without_comments_only_connections_have_them(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    assert run("export", LOSS, "-o", str(path), "--no-comments").exit_code == 0
    found = {comment.partition(" ")[0] for comment in comments(path)}
    assert found == {"", "rdmascope:", "truncated:"}


def test_long_lists_of_frames_say_how_many_and_the_last(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    assert run("export", LOSS, "-o", str(path)).exit_code == 0
    assert any(" frames)" in comment and ", … " in comment for comment in comments(path))


def test_a_filter_leaves_the_others_out(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    assert run("export", LOSS, "-o", str(path), "--where", "latency_ns > 100e6").exit_code == 0
    chosen = {one["number"] for one in objects("rpcs", LOSS, "--where", "latency_ns > 100e6")}
    found = {int(comment.split(",")[0][4:]) for comment in comments(path) if comment.startswith("RPC ")}
    assert found == chosen


@given(st.integers(0, 4 * SEGMENT))
def test_ranges_cover_a_message_once(length: int) -> None:
    found = ranges(length)
    assert found[0][0] == 0 and found[-1][1] == length
    assert all(one[1] == other[0] for one, other in pairwise(found))
    assert len(found) == -(-(length + 4) // SEGMENT)


@given(st.text())
def test_nothing_from_the_wire_is_a_control_character(text: str) -> None:
    assert all(one.isprintable() or one == "\n" for one in printable(text))


def test_nothing_is_noted_of_what_has_no_finding() -> None:
    assert FindingNotes().of_rpc(1) == FindingNotes().of_connection(1) == ""
