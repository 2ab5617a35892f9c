"""RPCs are the same whatever carries the frames: tunnels of mirror ports, ERF, RoCEv1 and native InfiniBand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from playbook import wrap
from playbook.wrap import ERF, INFINIBAND, TUNNELS, Raw, batch
from rdmascope.captures import open_capture
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.layers.icrc import icrc_ok, vcrc_ok
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.duplicates import DUPLICATE
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Rpc

SAMPLE = Path(__file__).parents[3] / "captures" / "samples" / "longcall-rxe.pcap.zst"


@cache
def recorded() -> tuple[Raw, ...]:
    """The frames of a real capture that are RoCEv2 over IPv4."""
    frames: list[Raw] = []
    with open_capture(SAMPLE) as capture:
        for part in capture.batches():
            for row in part.rows:
                start = int(row["offset"])
                data = part.data[start : start + int(row["captured"])].tobytes()
                if wrap.transport(data) is not None:
                    frames.append(Raw(data, int(row["time"])))
    return tuple(frames)


def analyzed(frames: Iterable[Raw], size: int = 50) -> tuple[Analyzer, list[Rpc]]:
    analyzer = Analyzer()
    rpcs: list[Rpc] = []
    every = list(frames)
    for at in range(0, len(every), size):
        rpcs += analyzer.feed(batch(every[at : at + size], at + 1))
    return analyzer, rpcs + analyzer.finish()


def reported(rpcs: Iterable[Rpc]) -> list[tuple[Any, ...]]:
    """Everything of RPCs that does not depend on what is beneath the BTH."""
    out = []
    for rpc in rpcs:
        call, reply = reassembled_call(rpc), reassembled_reply(rpc)
        out.append(
            (
                rpc.number, rpc.xid, rpc.state, rpc.name, rpc.status, rpc.connection.number,
                call and (call.pieces, call.complete), reply and (reply.pieces, reply.complete),
                rpc.latency, rpc.call and rpc.call.frame, rpc.reply and rpc.reply.frame,
                [(chunk.kind, chunk.transferred) for chunk in rpc.chunks],
            )
        )  # fmt: skip
    return out


@cache
def expected() -> tuple[Analyzer, list[tuple[Any, ...]]]:
    analyzer, rpcs = analyzed(recorded())
    assert any(rpc.state == "complete" for rpc in rpcs)
    return analyzer, reported(rpcs)


def rewrapped(wrapping: Callable[[bytes], bytes], link_type: int = 1) -> list[Raw]:
    return [Raw(wrapping(frame.data), frame.time, link_type) for frame in recorded()]


def verdicts(frames: FrameBatch) -> tuple[set[bool | None], set[bool | None]]:
    rows = decode(frames, locate(frames, AddressTable())).rows
    return set(icrc_ok(frames, rows)), set(vcrc_ok(frames, rows))


@pytest.mark.parametrize("name", TUNNELS)
def test_tunnels(name: str) -> None:
    frames = rewrapped(TUNNELS[name])
    analyzer, rpcs = analyzed(frames)
    assert not analyzer.skipped
    assert reported(rpcs) == expected()[1]
    assert [str(c.endpoints[0]) for c in analyzer.connections] == [
        str(c.endpoints[0]) for c in expected()[0].connections
    ]
    assert {c.transport for c in analyzer.connections} == {"RoCEv2"}
    assert verdicts(batch(frames))[0] == {True}


def erf_with_extensions(frame: bytes) -> bytes:
    return wrap.erf(wrap.infiniband(frame), extensions=3)


def erf_ethernet(frame: bytes) -> bytes:
    return wrap.erf(frame + bytes(4), kind=2)


def same_subnet(frame: bytes) -> bytes:
    return wrap.infiniband_routed(frame, (1, 1))


@pytest.mark.parametrize(
    ("wrapping", "link_type", "transport", "addresses", "crcs"),
    [
        (wrap.rocev1, 1, "RoCEv1", {"10.77.0.1", "10.77.0.2"}, ({True}, {None})),
        (lambda f: wrap.erspan3(wrap.rocev1(f)), 1, "RoCEv1", {"10.77.0.1", "10.77.0.2"}, ({True}, {None})),
        (wrap.infiniband, INFINIBAND, "InfiniBand", {"LID 1", "LID 2"}, ({True}, {True})),
        (lambda f: wrap.infiniband(f)[:-2], INFINIBAND, "InfiniBand", {"LID 1", "LID 2"}, ({True}, {None})),
        (
            wrap.infiniband_routed,
            INFINIBAND,
            "InfiniBand",
            {"fd00::1:a4d:1:0:0", "fd00::2:a4d:2:0:0"},
            ({True}, {True}),
        ),
        (lambda f: wrap.erf(wrap.infiniband(f)), ERF, "InfiniBand", {"LID 1", "LID 2"}, ({True}, {True})),
        (erf_with_extensions, ERF, "InfiniBand", {"LID 1", "LID 2"}, ({True}, {True})),
        (erf_ethernet, ERF, "RoCEv2", {"10.77.0.1", "10.77.0.2"}, ({True}, {None})),
    ],
)
def test_transports(
    wrapping: Callable[[bytes], bytes],
    link_type: int,
    transport: str,
    addresses: set[str],
    crcs: tuple[set[bool | None], set[bool | None]],
) -> None:
    frames = rewrapped(wrapping, link_type)
    analyzer, rpcs = analyzed(frames)
    assert not analyzer.skipped
    assert reported(rpcs) == expected()[1]
    assert {c.transport for c in analyzer.connections} == {transport}
    assert {end.address for c in analyzer.connections for end in c.endpoints} == addresses
    assert verdicts(batch(frames)) == crcs


def test_inside_a_subnet_ports_have_lids() -> None:
    """Whether a packet carries a GRH there is the sender's choice, and no other endpoint."""
    mixed = [same_subnet if n % 3 else wrap.infiniband for n in range(len(recorded()))]
    frames = [
        Raw(wrapping(frame.data), frame.time, INFINIBAND) for wrapping, frame in zip(mixed, recorded(), strict=True)
    ]
    analyzer, rpcs = analyzed(frames)
    assert {end.address for c in analyzer.connections for end in c.endpoints} == {"LID 1", "LID 2"}
    assert reported(rpcs) == expected()[1]
    assert verdicts(batch(frames)) == ({True}, {True})


@pytest.mark.parametrize("at", [9, 20, -3, -1])
def test_damage_is_seen_by_the_checksums(at: int) -> None:
    packet = bytearray(wrap.infiniband(recorded()[5].data))
    packet[at] ^= 4
    icrcs, vcrcs = verdicts(batch([Raw(bytes(packet), 0, INFINIBAND)]))
    assert vcrcs == {False}
    assert icrcs == ({True} if at == -1 else {False})


def test_the_virtual_lane_is_not_in_the_icrc() -> None:
    packet = bytearray(wrap.infiniband(recorded()[5].data))
    packet[0] ^= 0x70
    assert verdicts(batch([Raw(bytes(packet), 0, INFINIBAND)])) == ({True}, {False})


def lrh_only(following: int) -> bytes:
    return wrap.lrh(following, 40, 1, 2) + bytes(40)


UD = bytes([0x64, 0, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1]) + bytes(8)


@pytest.mark.parametrize(
    ("data", "link_type", "what"),
    [
        (lrh_only(0), INFINIBAND, "InfiniBand raw packet"),
        (lrh_only(1), INFINIBAND, "InfiniBand raw packet"),
        (lrh_only(3), INFINIBAND, "InfiniBand, malformed"),
        (lrh_only(2)[:5], INFINIBAND, "InfiniBand, header truncated"),
        (wrap.lrh(2, 12, 1, 2) + bytes(12), INFINIBAND, "InfiniBand, too short"),
        (b"\x01" + lrh_only(2)[1:], INFINIBAND, "InfiniBand, malformed"),
        (wrap.lrh(2, 52, 1, 2) + UD + b"\x08\x00\0\0" + wrap.ipv4(bytes(8), 6), INFINIBAND, "IP over InfiniBand"),
        (wrap.lrh(2, 60, 1, 2) + UD + b"\x08\x06\0\0" + bytes(36), INFINIBAND, "IP over InfiniBand"),
        (wrap.erf(bytes(40), kind=5), ERF, "ERF record type 5"),
        (wrap.erf(bytes(40))[:12], ERF, "ERF record, truncated"),
        (wrap.MAC[:12] + b"\x89\x15" + wrap.grh(bytes(4), bytes(16), bytes(16)) + bytes(8), 1, "RoCEv1, too short"),
        (bytes(60), 242, "IP over InfiniBand"),
        (wrap.outer(b"\x40\0\x65\x58" + bytes(40), 47), 1, "GRE"),
        (wrap.outer(b"\x10\0\x88\xbe\0\0\0\0" + bytes(60), 47), 1, "ERSPAN"),
        (wrap.MAC[:12] + b"\x88\x47" + wrap.mpls(bytes(60)), 1, "MPLS"),
        (wrap.outer(wrap.udp(bytes(60), 4789), 17), 1, "UDP port 4789"),
        (wrap.vxlan(wrap.outer(bytes(20), 6)), 1, "TCP"),
        (wrap.gre(wrap.outer(bytes(20), 6))[:30], 1, "truncated before UDP"),
    ],
)  # fmt: skip
def test_what_holds_no_packet_is_counted(data: bytes, link_type: int, what: str) -> None:
    located = locate(batch([Raw(data, 0, link_type)]), AddressTable())
    assert not len(located)
    assert located.skipped == {what: 1}


def test_nesting_has_an_end() -> None:
    frame = recorded()[0].data
    for _ in range(20):
        frame = wrap.gre(frame)
    located = locate(batch([Raw(frame, 0)]), AddressTable())
    assert not len(located)
    assert located.skipped == {"more than 8 packets inside each other": 1}


def test_what_a_tunnel_holds_ends_with_it() -> None:
    """An inner length cannot reach into what stands behind the outer packet."""
    frame = bytearray(wrap.vxlan(recorded()[3].data))
    short = int.from_bytes(frame[16:18], "big") - 4
    frame[16:18] = short.to_bytes(2, "big")
    located = locate(batch([Raw(bytes(frame), 0)]), AddressTable())
    assert int(located.available[0]) == int(located.length[0]) - 4


wrappings = st.sampled_from([*TUNNELS.values(), wrap.rocev1])


@given(st.data())
def test_any_bytes_are_counted_once(data: st.DataObject) -> None:
    frames = []
    for _ in range(data.draw(st.integers(1, 4))):
        frame = bytearray(data.draw(wrappings)(recorded()[data.draw(st.integers(0, 30))].data))
        if data.draw(st.booleans()):
            frame = bytearray(wrap.erf(wrap.infiniband(recorded()[0].data), extensions=data.draw(st.integers(0, 20))))
        for _ in range(data.draw(st.integers(0, 3))):
            frame[data.draw(st.integers(0, min(len(frame) - 1, 120)))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(frame)))
        link_type = data.draw(st.sampled_from([1, ERF, INFINIBAND, 113, 276, 101]))
        frames.append(Raw(bytes(frame[:cut]), 0, link_type, original=len(frame)))
    whole = batch(frames)
    located = locate(whole, AddressTable())
    assert len(located) + sum(located.skipped.values()) == len(frames)
    ends = (whole.rows["offset"] + whole.rows["captured"])[located.rows]
    assert (located.bth + located.available <= np.maximum(ends, located.bth)).all()
    rows = decode(whole, located).rows
    icrc_ok(whole, rows)
    vcrc_ok(whole, rows)


# The same packet on two interfaces


def sll2(frame: bytes, interface: int) -> bytes:
    return b"\x08\0\0\0" + interface.to_bytes(4, "big") + bytes(12) + frame[14:]


def sll(frame: bytes, direction: int) -> bytes:
    return bytes([0, direction]) + bytes(12) + b"\x08\0" + frame[14:]


def doubled(delay: int, first: Callable[[bytes], Raw], second: Callable[[bytes], Raw]) -> list[Raw]:
    frames = []
    for frame in recorded():
        frames.append(first(frame.data)._replace(time=frame.time))
        frames.append(second(frame.data)._replace(time=frame.time + delay))
    return sorted(frames, key=lambda frame: frame.time)


def as_sll2(interface: int) -> Callable[[bytes], Raw]:
    return lambda data: Raw(sll2(data, interface), 0, 276)


def as_sll(direction: int) -> Callable[[bytes], Raw]:
    return lambda data: Raw(sll(data, direction), 0, 113)


def on_interface(interface: int) -> Callable[[bytes], Raw]:
    return lambda data: Raw(data, 0, 1, interface)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (as_sll2(2), as_sll2(5)),
        (as_sll(0), as_sll(4)),
        (as_sll(4), as_sll(4)),
        (on_interface(0), on_interface(1)),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_packet_on_two_interfaces_counts_once(
    first: Callable[[bytes], Raw], second: Callable[[bytes], Raw], size: int
) -> None:
    frames = doubled(3_000, first, second)
    analyzer, rpcs = analyzed(frames, size)
    assert analyzer.skipped == {DUPLICATE: len(recorded())}
    assert analyzer.packets == len(recorded())
    assert [rpc[1:5] + rpc[6:8] for rpc in reported(rpcs)] == [rpc[1:5] + rpc[6:8] for rpc in expected()[1]]
    assert not any(sum(one.retransmitted_packets) for one in analyzer.connections)


@pytest.mark.parametrize(
    ("first", "second", "delay"),
    [
        (as_sll2(2), as_sll2(2), 3_000),  # the same interface
        (as_sll(4), as_sll(4), 100_000),
        (on_interface(1), on_interface(1), 3_000),
        (as_sll2(2), as_sll2(5), 4_000_000),  # time apart
        (on_interface(0), on_interface(1), 4_000_000),
    ],
)
def test_retransmissions_are_no_duplicates(
    first: Callable[[bytes], Raw], second: Callable[[bytes], Raw], delay: int
) -> None:
    other = Raw(b"", recorded()[0].time - 10**9, 1, 7)
    analyzer, _ = analyzed([other, *doubled(delay, first, lambda data: second(wrap.sent_again(data)))])
    assert DUPLICATE not in analyzer.skipped
    assert analyzer.packets == 2 * len(recorded())


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_retransmission_seen_on_both_interfaces_counts_as_one(size: int) -> None:
    frames = []
    for frame in recorded():
        for delay, interface in ((0, 0), (2_000, 1), (300_000, 0), (302_000, 1)):
            data = wrap.sent_again(frame.data) if delay > 2_000 else frame.data
            frames.append(Raw(data, frame.time + delay, 1, interface))
    analyzer, _ = analyzed(sorted(frames, key=lambda one: one.time), size)
    assert analyzer.skipped == {DUPLICATE: 2 * len(recorded())}
    assert analyzer.packets == 2 * len(recorded())
