"""TCP segments in IP fragments: joined where all fragments are there, whatever their order and wherever batches end."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from playbook import tcp_faults
from playbook.capture import frame_batches, write_pcap
from playbook.commands import objects
from playbook.fragments import fragmented
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.packets import Frame
from playbook.shapes import DATA, read, write
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.fragments import MAX_DATAGRAMS, TIMEOUT
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.tcp import locate_tcp
from rdmascope.dissect.link.walk import IP_FRAGMENT
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

STEPS = 1, 2, 3, 7, 1000


def conversation(*clients: str, server: str = "10.0.0.1", markers: bool = False) -> list[Frame]:
    """The frames of Reads and Writes, each client's behind the one before."""
    wire = IwarpWire(mss=1460)
    for client in clients or ("10.0.0.2",):
        connection = wire.connect(client, server, markers=(markers, markers))
        for _ in range(3):
            read(connection, DATA[:5000])
            write(connection, DATA[:5000])
    return IwarpCapture(wire).frames


def said(frames: list[Frame], step: int = 1000) -> tuple[list[tuple[object, ...]], Analyzer]:
    """What each RPC is and has, and the analyzer that says so."""
    analyzer = Analyzer()
    batches = frame_batches(frames, range(step, len(frames), step))
    rpcs = [rpc for batch in batches for rpc in analyzer.feed(batch)] + analyzer.finish()
    rpcs.sort(key=lambda rpc: rpc.number)
    rows: list[tuple[object, ...]] = [
        (rpc.number, rpc.connection.number, rpc.xid, rpc.state, rpc.contents, str(rpc.damage), rpc.notes)
        for rpc in rpcs
    ]
    return rows, analyzer


def divided(frames: list[Frame], cuts: tuple[int, ...] = ()) -> list[list[Frame]]:
    """Of each frame its fragments; of short ones the frame."""
    return [fragmented(one, cuts, at + 1) if len(one.data) > 1000 else [one] for at, one in enumerate(frames)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("recorded", [False, True])
def test_a_segment_in_fragments_counts_once(recorded: bool, step: int) -> None:
    wire = IwarpWire(mss=1460)
    connection = wire.connect(acks="packet")
    for _ in range(3):
        read(connection, DATA[:5000])
        write(connection, DATA[:5000])
    sent = wire.sent()
    large = [at for at, one in enumerate(sent) if len(one.payload) > 1000]
    frames = IwarpCapture(wire, tcp_faults.lose(wire, sent, large[4], recorded=recorded)).frames
    cut = [part for parts in divided(frames, (256, 512)) for part in parts]
    names = "segments", "original_captured", "original_missing", "reordered", "causes", "ack_delay", "requests_per_ack"
    healths = said(cut, step)[1].health(1), said(frames)[1].health(1)
    assert any(one.causes or one.reordered for one in healths[1].directions)
    for one, whole in zip(*(health.directions for health in healths), strict=True):
        assert {name: getattr(one, name) for name in names} == {name: getattr(whole, name) for name in names}


@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("cuts", [(), (256, 512), (40, 48, 56)])
@pytest.mark.parametrize("ends", [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")])
def test_all_that_is_in_fragments_is_found(ends: tuple[str, str], cuts: tuple[int, ...], markers: bool) -> None:
    frames = conversation(ends[0], server=ends[1], markers=markers)
    whole, _ = said(frames)
    assert {row[3] for row in whole} == {"complete"}
    parts = [part for one in divided(frames, cuts) for part in one]
    for step in (2, 1000) if markers else STEPS:
        rows, analyzer = said(parts, step)
        assert rows == whole
        assert not analyzer.skipped
        assert not any(ledger.counts or ledger.late for ledger in analyzer.connections[0].ledgers)


@pytest.mark.parametrize("ends", [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")])
def test_fragments_come_in_any_order(ends: tuple[str, str]) -> None:
    frames = conversation(ends[0], server=ends[1])
    whole, _ = said(frames)
    pieces = divided(frames, (256, 512))
    parts = [part for turn, one in enumerate(pieces) for part in (one[::-1] if turn % 2 else one[1:] + one[:1])]
    for step in STEPS:
        rows, analyzer = said(parts, step)
        assert rows == whole and not analyzer.skipped


def test_fragments_of_a_mapped_file_stay_where_they_are() -> None:
    """Batches of one file have the same bytes, of which none is copied."""
    frames = [part for one in divided(conversation()) for part in one]
    (file,) = frame_batches(frames, [])
    analyzer = Analyzer()
    for at in range(len(frames)):
        found = analyzer.decoder.take(FrameBatch(file.data, file.rows[at : at + 1]))
        assert found.batch.data is file.data
        analyzer.feed_table(found)
    analyzer.finish()
    assert not analyzer.skipped


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_missing_fragment_is_a_missing_segment(lost: int) -> None:
    frames = conversation()
    at = [at for at, one in enumerate(frames) if len(one.data) > 1000][4]
    without, _ = said(frames[:at] + frames[at + 1 :])
    assert {row[3] for row in without} == {"complete", "damaged"}
    part = fragmented(frames[at], (256, 512))
    del part[lost]
    for step in STEPS:
        rows, analyzer = said([*frames[:at], *part, *frames[at + 1 :]], step)
        assert rows == without
        assert analyzer.skipped == {IP_FRAGMENT: 2}


def test_connections_of_other_hosts_use_the_same_identification() -> None:
    frames = conversation("10.0.0.2"), conversation("10.0.0.3")
    turns = [one for both in zip(*frames, strict=True) for one in both]
    whole, _ = said(turns)
    pieces = [[fragmented(one, (256,), 7) if len(one.data) > 1000 else [one] for one in own] for own in frames]
    parts: list[Frame] = []
    for one, other in zip(*pieces, strict=True):
        parts += [part for both in zip(one, other, strict=False) for part in both]
        parts += one[len(other) :] + other[len(one) :]
    for step in STEPS:
        rows, analyzer = said(parts, step)
        assert rows == whole and not analyzer.skipped


def test_two_segments_at_once_of_the_same_hosts_and_identification_are_none() -> None:
    """Their fragments cannot be told apart: what a receiver joins has a wrong checksum."""
    frames = conversation()
    first, second = [at for at, one in enumerate(frames) if len(one.data) > 1400][3:5]
    without, _ = said([one for at, one in enumerate(frames) if at not in (first, second)])
    one, other = (fragmented(frames[at], (256,), 9) for at in (first, second))
    mixed = [one[0], other[0], one[1], other[1]]
    parts = [*frames[:first], *mixed, *frames[first + 1 : second], *frames[second + 1 :]]
    for step in STEPS:
        rows, analyzer = said(parts, step)
        assert rows == without
        assert analyzer.skipped == {IP_FRAGMENT: 4}


def test_an_identification_that_is_used_again_begins_anew() -> None:
    """The last fragment of the first one was lost."""
    frames = conversation()
    first, second = [at for at, one in enumerate(frames) if len(one.data) > 1400][3:5]
    without, _ = said([*frames[:first], *frames[first + 1 :]])
    parts = [*frames[:first], fragmented(frames[first], (256,), 9)[0], *frames[first + 1 : second]]
    parts += [*fragmented(frames[second], (256,), 9), *frames[second + 1 :]]
    for step in STEPS:
        rows, analyzer = said(parts, step)
        assert rows == without
        assert analyzer.skipped == {IP_FRAGMENT: 1}


@pytest.mark.parametrize("overlap", [-8, 8])
def test_what_overlaps_or_leaves_a_hole_is_no_segment(overlap: int) -> None:
    frames = conversation()
    at = [at for at, one in enumerate(frames) if len(one.data) > 1000][4]
    without, _ = said(frames[:at] + frames[at + 1 :])
    (first, _), (_, second) = fragmented(frames[at], (512,)), fragmented(frames[at], (512 + overlap,))
    rows, analyzer = said([*frames[:at], first, second, *frames[at + 1 :]])
    assert rows == without
    assert analyzer.skipped == {IP_FRAGMENT: 2}


def test_truncated_fragments_are_joined_without_their_checksum() -> None:
    frames = conversation()
    parts = [replace(part, data=part.data[:200]) for one in divided(frames, (512, 1024)) for part in one]
    rows, analyzer = said(parts)
    assert not analyzer.skipped
    assert [row[:3] for row in rows] == [
        row[:3] for row in said([replace(one, data=one.data[:200]) for one in frames])[0]
    ]


def test_fragments_wait_for_each_other_no_longer_than_their_receiver_does() -> None:
    frames = conversation()
    at = [at for at, one in enumerate(frames) if len(one.data) > 1000][4]
    one, two = fragmented(frames[at])
    without, _ = said(frames[:at] + frames[at + 1 :])
    late = [replace(part, time=part.time + TIMEOUT + 1) for part in (two, *frames[at + 1 :])]
    rows, analyzer = said([*frames[:at], one, *late])
    assert [row[3] for row in rows] == [row[3] for row in without]
    assert analyzer.skipped == {IP_FRAGMENT: 2}


def test_no_more_segments_wait_than_a_receiver_has_waiting() -> None:
    frames = conversation()
    long = next(one for one in frames if len(one.data) > 1000)
    lost = [fragmented(long, (), number)[1] for number in range(5000, 5000 + MAX_DATAGRAMS)]
    at = [at for at, one in enumerate(frames) if len(one.data) > 1000][4]
    one, two = fragmented(frames[at])
    for many, skipped in ((MAX_DATAGRAMS, MAX_DATAGRAMS + 2), (MAX_DATAGRAMS - 1, MAX_DATAGRAMS - 1)):
        _, analyzer = said([*frames[:at], one, *lost[:many], two, *frames[at + 1 :]])
        assert analyzer.skipped == {IP_FRAGMENT: skipped}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("ends", [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")])
def test_tshark_reads_the_same_in_fragments(ends: tuple[str, str], tmp_path: Path) -> None:
    pieces = divided(conversation(ends[0], server=ends[1]), (512, 1024))
    lost = [at for at, one in enumerate(pieces) if len(one) > 1][5]
    del pieces[lost][1]
    path = tmp_path / "fragments.pcap"
    write_pcap([part for turn, one in enumerate(pieces) for part in (one[::-1] if turn % 2 else one)], path)
    (*_, said) = objects("verify", "--headers", str(path))
    assert said["agree"] and said["compared"]["packet"]["equal"] > 30


def test_what_is_behind_the_ip_header_of_a_fragment_is_read_as_no_segment() -> None:
    parts = divided(conversation())
    frames = [part for of_frame in parts for part in of_frame]
    (batch,) = frame_batches(frames, ())
    addresses = AddressTable()
    rows = locate_tcp(batch, locate(batch, addresses).tcp, addresses)
    alone = [of_frame for of_frame in parts if len(of_frame) == 1]
    assert len(alone) < len(frames) and len(rows) == len(alone)
