"""A mirror of two ports, or a merge of two captures, gives each packet twice: it counts once, as sent once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Capture, Frame, Wire, call, nfs3, reply, wrap
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.samples import SAMPLES
from playbook.wrap import Raw, sent_again
from rdmascope.captures.read.open import open_capture
from rdmascope.dissect.link.duplicates import LEAST_MERGED, LEAST_MIRRORED, MIRRORED, SAME_HEADER, SAMPLED
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

CALLS = 60


def conversation(wire: Wire | IwarpWire) -> list[Frame]:
    conn = wire.connect()
    for _ in range(CALLS):
        reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    return (IwarpCapture(wire) if isinstance(wire, IwarpWire) else Capture(wire)).frames


def repeated(frames: list[Frame], times: int, wait: int) -> list[Frame]:
    """Each of them so many times, one ``wait`` (ns) behind the other."""
    every = [replace(frame, time=frame.time + copy * wait) for frame in frames for copy in range(times)]
    return sorted(every, key=lambda frame: frame.time)


def analyzed(frames: list[Frame], size: int) -> tuple[Analyzer, list[str]]:
    analyzer, states = Analyzer(), list[str]()
    for batch in frame_batches(frames, range(size, len(frames), size)):
        states += [rpc.state for rpc in analyzer.feed(batch)]
    return analyzer, states + [rpc.state for rpc in analyzer.finish()]


def recorded(name: str) -> list[Raw]:
    """The frames of a sample."""
    frames = []
    with open_capture(SAMPLES / f"{name}.pcap.zst") as capture:
        for batch in capture.batches():
            for row in batch.rows:
                start = int(row["offset"])
                data = batch.data[start : start + int(row["captured"])].tobytes()
                frames.append(Raw(data, int(row["time"])))
    return frames


def seen(frames: list[Raw]) -> object:
    """The RPCs of a capture, and what was sent again."""
    analyzer = Analyzer()
    rpcs = sorted(analyzer.feed(wrap.batch(frames)) + analyzer.finish(), key=lambda rpc: rpc.number)
    healths = [analyzer.health(connection.number) for connection in analyzer.connections]
    return (
        [(rpc.connection.number, rpc.number, rpc.xid, rpc.state, rpc.status, rpc.latency) for rpc in rpcs],
        [(health.causes, [one.retransmitted for one in health.directions]) for health in healths],
    )


def by_the_network(analyzer: Analyzer) -> int:
    return analyzer.health(1).causes.get("duplicate", 0)


@pytest.mark.parametrize("size", [10_000, 128, 127, 25])
@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("transport", [Wire, IwarpWire])
def test_mirrored_packets_count_once(transport: type[Wire | IwarpWire], size: int, times: int) -> None:
    frames = conversation(transport())
    analyzer, states = analyzed(repeated(frames, times, 1000), size)
    assert states == ["complete"] * CALLS
    # With little to go by at first, some were taken for the network's own copies.
    copies = (times - 1) * len(frames)
    assert copies - LEAST_MIRRORED - size % 10_000 <= analyzer.mirrored <= copies
    assert [one.retransmitted.packets for one in analyzer.health(1).directions] == [0, 0]
    if transport is Wire:
        assert analyzer.packets == times * len(frames) - analyzer.mirrored
    if size == 10_000:
        assert analyzer.mirrored == copies
        assert not by_the_network(analyzer)
    assert analyzer.skipped[MIRRORED] == analyzer.mirrored


@pytest.mark.parametrize("transport", [Wire, IwarpWire])
def test_what_is_sent_again_later_is_no_mirror(transport: type[Wire | IwarpWire]) -> None:
    frames = conversation(transport())
    again = [replace(frame, time=frame.time + SAME_HEADER + 1000, data=sent_again(frame.data)) for frame in frames]
    analyzer, _ = analyzed(sorted([*frames, *again], key=lambda frame: frame.time), 10_000)
    assert not analyzer.mirrored
    if transport is IwarpWire:  # The ICRC covers the identification; the checksum of TCP does not.
        assert sum(one.retransmitted.packets for one in analyzer.health(1).directions) > CALLS


@pytest.mark.parametrize(
    ("name", "delay"),
    [
        *((name, delay) for name in ("loss-rxe", "loss-siw") for delay in (100_000, 5_000_000, 250_000_000)),
        *(("nconnect-rxe", delay) for delay in (100_000, 5_000_000)),
        ("siw-nfs-all", 3_000_000_000),
    ],
)
@pytest.mark.parametrize("interface", [0, 1])
def test_merged_captures_of_two_points_are_those_of_one(name: str, interface: int, delay: int) -> None:
    """With every retransmission: it comes twice at each of them."""
    frames = recorded(name)
    there = [raw._replace(time=raw.time + delay, interface=interface) for raw in frames]
    merged = sorted([*frames, *there], key=lambda raw: raw.time)
    assert seen(merged) == seen(frames)


def test_captures_that_overlap_in_a_part_only() -> None:
    frames = recorded("loss-rxe")
    fifth = len(frames) // 5
    there = [raw._replace(time=raw.time + 5_000_000) for raw in frames[2 * fifth :]]
    analyzer = Analyzer()
    analyzer.feed(wrap.batch(sorted([*frames[: 3 * fifth], *there], key=lambda raw: raw.time)))
    assert analyzer.mirrored == fifth


@pytest.mark.parametrize("transport", [Wire, IwarpWire])
def test_a_few_copies_are_the_networks(transport: type[Wire | IwarpWire]) -> None:
    frames = conversation(transport())
    few = [*frames[:-40], *repeated(frames[-40:], 2, 1000)]
    analyzer, states = analyzed(few, 10_000)
    assert states == ["complete"] * CALLS
    assert not analyzer.mirrored
    assert by_the_network(analyzer)


@pytest.mark.parametrize("size", [10_000, 128, 25])
def test_merged_captures_in_batches_of_any_size(size: int) -> None:
    frames = recorded("loss-siw")
    merged = sorted([*frames, *(raw._replace(time=raw.time + 5_000_000) for raw in frames)], key=lambda raw: raw.time)
    analyzer = Analyzer()
    for at in range(0, len(merged), size):
        analyzer.feed(wrap.batch(merged[at : at + size], at + 1))
    assert len(frames) - 4 * SAMPLED * LEAST_MERGED - size % 10_000 <= analyzer.mirrored <= len(frames)


def test_captures_that_were_appended_are_not_merged() -> None:
    """Though the second has the packets of the first, and later times."""
    frames = recorded("loss-siw")
    there = [raw._replace(time=raw.time + 250_000_000) for raw in frames]
    for later in (there, [raw._replace(time=raw.time + frames[-1].time - frames[0].time) for raw in there]):
        analyzer = Analyzer()
        analyzer.feed(wrap.batch([*frames, *later]))
        assert not analyzer.mirrored


def test_one_identification_of_all_proves_nothing() -> None:
    frames = [replace(one, data=one.data[:18] + b"\0\7" + one.data[20:]) for one in conversation(IwarpWire())]
    analyzer, _ = analyzed(repeated(frames, 2, 300_000), 10_000)
    assert not analyzer.mirrored
    assert sum(one.retransmitted.packets for one in analyzer.health(1).directions) > CALLS


def test_a_batch_that_has_no_room_for_an_ip_header() -> None:
    """Of truncated InfiniBand packets, one in each."""
    lrh, size = wrap.lrh(2, 40, 1, 2), 20
    for psn in range(100):
        packet = lrh + bytes([100, 0, 0xFF, 0xFF]) + (5).to_bytes(4, "big") + psn.to_bytes(4, "big")
        analyzer = Analyzer()
        analyzer.feed(wrap.batch([Raw(packet[:size], 0, wrap.INFINIBAND, original=40)]))
        assert analyzer.packets == 1
