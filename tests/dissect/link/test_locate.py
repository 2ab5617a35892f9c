"""RoCEv2 packets in frames: every encapsulation, and every way in which a header can lie."""

from __future__ import annotations

import ipaddress
import struct
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.frames import FRAME, FrameBatch
from rdmascope.dissect.link.locate import AddressTable, Located, locate
from rdmascope.dissect.link.numbers import ETHERTYPES, PROTOCOLS
from rdmascope.dissect.link.tcp import locate_tcp
from rdmascope.dissect.link.walk import FIRST_FRAGMENT, walk_headers

ETHERNET, RAW, SLL, RAW4, RAW6, SLL2 = 1, 101, 113, 228, 229, 276
PACKET = bytes(range(12)) + b"payload." + b"icrc"


@dataclass(frozen=True)
class Frame:
    data: bytes
    link_type: int = ETHERNET
    original: int | None = None

    def cut(self, size: int) -> Frame:
        return replace(self, data=self.data[:size], original=len(self.data))


def udp(packet: bytes = PACKET, port: int = 4791, source: int = 49152, length: int | None = None) -> bytes:
    return struct.pack(">HHHH", source, port, 8 + len(packet) if length is None else length, 0) + packet


def ipv4(
    body: bytes,
    *,
    protocol: int = 17,
    options: bytes = b"",
    tos: int = 2,
    fragment: int = 0x4000,
    length: int | None = None,
    source: str = "10.77.0.1",
    destination: str = "10.77.0.2",
) -> bytes:
    size = 20 + len(options)
    total = size + len(body) if length is None else length
    head = struct.pack(">BBHHHBBH", 0x40 | size // 4, tos, total, 1, fragment, 64, protocol, 0)
    return head + b"".join(ipaddress.IPv4Address(a).packed for a in (source, destination)) + options + body


def ipv6(body: bytes, *, next_header: int = 17, ecn: int = 1, length: int | None = None) -> bytes:
    payload = len(body) if length is None else length
    head = struct.pack(">IHBB", 6 << 28 | ecn << 20 | 0xABCDE, payload, next_header, 64)
    return head + b"".join(ipaddress.IPv6Address(a).packed for a in ("fd77::1", "fd77::2")) + body


def ethernet(body: bytes, ethertype: int = 0x0800, tags: tuple[int, ...] = ()) -> Frame:
    outer = b"".join(struct.pack(">HH", tag, 42) for tag in tags)
    return Frame(bytes(12) + outer + struct.pack(">H", ethertype) + body)


def batch(frames: list[Frame]) -> FrameBatch:
    rows = np.zeros(len(frames), FRAME)
    gap = b"\xee" * 5
    at = 0
    for row, (number, frame) in zip(rows, enumerate(frames, 1), strict=True):
        at += len(gap)
        original = len(frame.data) if frame.original is None else frame.original
        row["number"], row["offset"], row["captured"] = number, at, len(frame.data)
        row["original"], row["link_type"] = original, frame.link_type
        at += len(frame.data)
    data = b"".join(gap + frame.data for frame in frames)
    return FrameBatch(np.frombuffer(data, np.uint8), rows)


def found(frames: list[Frame]) -> tuple[Located, list[tuple[object, ...]]]:
    """What locate says, with offsets counted from the start of each frame and addresses by name."""
    table = AddressTable()
    whole = batch(frames)
    located = locate(whole, table)
    starts = whole.rows["offset"][located.rows]
    numbers = located.rows, located.bth - starts, located.available, located.length
    names = ([table.name(i) for i in ids.tolist()] for ids in (located.source, located.destination))
    rest = located.source_port, located.ecn
    return located, list(zip(*numbers, *names, *rest, strict=True))


FOUR = ("10.77.0.1", "10.77.0.2")
SIX = ("fd77::1", "fd77::2")
HOP_BY_HOP = bytes([60, 1]) + bytes(14)  # 16 bytes, then destination options
DESTINATION = bytes([44, 0]) + bytes(6)  # 8 bytes, then a fragment header
ATOMIC = bytes([51, 0, 0, 0]) + bytes(4)  # the only fragment, then authentication
AUTHENTICATION = bytes([43, 4]) + bytes(22)  # 24 bytes, then routing
ROUTING = bytes([17, 2]) + bytes(22)  # 24 bytes, then UDP
CHAIN = HOP_BY_HOP + DESTINATION + ATOMIC + AUTHENTICATION + ROUTING


@pytest.mark.parametrize(
    ("frame", "bth", "addresses", "ecn"),
    [
        (ethernet(ipv4(udp())), 42, FOUR, 2),
        (ethernet(ipv4(udp()), tags=(0x8100,)), 46, FOUR, 2),
        (ethernet(ipv4(udp()), tags=(0x88A8, 0x8100)), 50, FOUR, 2),
        (ethernet(ipv4(udp()), tags=(0x9100, 0x88A8, 0x8100, 0x8100)), 58, FOUR, 2),
        (ethernet(ipv4(udp(), options=bytes(8))), 50, FOUR, 2),
        (ethernet(ipv4(udp(), options=bytes(40))), 82, FOUR, 2),
        (ethernet(ipv4(bytes([17, 4]) + bytes(22) + udp(), protocol=51)), 66, FOUR, 2),
        (ethernet(ipv6(udp()), 0x86DD), 62, SIX, 1),
        (ethernet(ipv6(udp()), 0x86DD, tags=(0x8100,)), 66, SIX, 1),
        (ethernet(ipv6(CHAIN + udp(), next_header=0), 0x86DD), 62 + len(CHAIN), SIX, 1),
        (Frame(bytes(14) + b"\x08\x00" + ipv4(udp()), SLL), 44, FOUR, 2),
        (Frame(bytes(14) + b"\x81\x00\x00\x07\x08\x00" + ipv4(udp()), SLL), 48, FOUR, 2),
        (Frame(b"\x08\x00" + bytes(18) + ipv4(udp()), SLL2), 48, FOUR, 2),
        (Frame(b"\x86\xdd" + bytes(18) + ipv6(udp()), SLL2), 68, SIX, 1),
        (Frame(ipv4(udp()), RAW), 28, FOUR, 2),
        (Frame(ipv6(udp()), RAW), 48, SIX, 1),
        (Frame(ipv4(udp()), 12), 28, FOUR, 2),
        (Frame(ipv4(udp()), RAW4), 28, FOUR, 2),
        (Frame(ipv6(udp()), RAW6), 48, SIX, 1),
    ],
)
@pytest.mark.parametrize("padding", [b"", b"\0" * 9])
def test_encapsulations(frame: Frame, bth: int, addresses: tuple[str, str], ecn: int, padding: bytes) -> None:
    located, rows = found([replace(frame, data=frame.data + padding)])
    assert rows == [(0, bth, len(PACKET), len(PACKET), *addresses, 49152, ecn)]
    assert not located.skipped
    assert not located.odd


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (ethernet(bytes(28), 0x0806), "ARP"),
        (ethernet(bytes(60), 0x8915), "RoCEv1, malformed"),
        (ethernet(bytes(60), 0x88B5), "ethertype 0x88b5"),
        (ethernet(bytes(60), 60), "IEEE 802.3"),
        (ethernet(ipv4(bytes(20), protocol=6)), "TCP"),
        (ethernet(ipv4(bytes(20), protocol=254)), "IP protocol 254"),
        (ethernet(ipv6(bytes(20), next_header=58), 0x86DD), "ICMPv6"),
        (ethernet(ipv4(udp(port=53))), "UDP port 53"),
        (ethernet(ipv4(udp(port=49152, source=53))), "UDP port 53"),
        (ethernet(ipv4(udp(port=49152, source=4791))), "UDP port 49152"),
        (ethernet(ipv4(udp(), fragment=0x2000)), FIRST_FRAGMENT),
        (ethernet(ipv4(udp(port=53), fragment=0x2000)), "IP fragment"),
        (ethernet(ipv4(udp(), fragment=1)), "IP fragment"),
        (ethernet(ipv6(bytes([17, 0, 0, 8]) + bytes(4) + udp(), next_header=44), 0x86DD), "IP fragment"),
        (ethernet(ipv6(bytes([17, 0, 0, 1]) + bytes(4) + udp(), next_header=44), 0x86DD), FIRST_FRAGMENT),
        (ethernet(ipv6(bytes([17, 0, 0, 1]) + bytes(4) + udp(port=53), next_header=44), 0x86DD), "IP fragment"),
        (ethernet(ipv4(udp()), 0x86DD), "malformed IP header"),
        (ethernet(b"\x44" + ipv4(udp())[1:]), "malformed IP header"),
        (Frame(ipv6(udp()), RAW4), "malformed IP header"),
        (Frame(bytes(20), RAW), "malformed IP header"),
        (Frame(bytes(80), 147), "link type 147"),
        (ethernet(b"", 0x8100, tags=(0x8100,) * 40), "more than 32 VLAN tags"),
        (
            ethernet(ipv6(bytes([0, 0, 0, 0, 0, 0, 0, 0]) * 40, next_header=0), 0x86DD),
            "too many extension headers",
        ),
        (ethernet(ipv4(bytes(40), protocol=60)), "IP protocol 60"),
        (ethernet(ipv4(udp(PACKET[:15]))), "UDP port 4791, too short"),
        (ethernet(ipv4(udp(length=7))), "UDP port 4791, too short"),
        (ethernet(ipv4(udp(length=0))), "UDP port 4791, too short"),
        (ethernet(ipv4(udp(), length=20)), "UDP port 4791, too short"),
        (ethernet(ipv4(udp(), length=0)), "UDP port 4791, too short"),
        (ethernet(ipv4(udp())).cut(41), "truncated before UDP"),
        (ethernet(ipv4(udp())).cut(10), "truncated before UDP"),
        (ethernet(ipv4(udp())).cut(0), "truncated before UDP"),
        (ethernet(ipv4(udp(port=53))).cut(38), "UDP port 53"),
        (ethernet(ipv4(bytes(20), protocol=6)).cut(34), "TCP"),
    ],
)
def test_everything_else_is_counted(frame: Frame, what: str) -> None:
    whole = ethernet(ipv4(udp()))
    located, rows = found([whole, frame, whole])
    assert [row[0] for row in rows] == [0, 2]
    assert located.skipped == {what: 1}
    assert locate(batch([frame]), AddressTable()).skipped == {what: 1}


@pytest.mark.parametrize("size", range(42, 42 + len(PACKET)))
def test_a_snaplen_leaves_the_true_length(size: int) -> None:
    located, rows = found([ethernet(ipv4(udp())).cut(size)])
    assert rows == [(0, 42, size - 42, len(PACKET), *FOUR, 49152, 2)]
    assert not located.odd


def test_a_packet_truncated_before_the_capture_keeps_the_length_that_udp_and_ip_agree_on() -> None:
    sliced = Frame(ethernet(ipv4(udp())).data[:50])
    located, rows = found([sliced])
    assert rows == [(0, 42, 8, len(PACKET), *FOUR, 49152, 2)]
    assert located.odd == {"IP packet longer than its frame": 1}


@pytest.mark.parametrize(
    ("frame", "length", "odd"),
    [
        (ethernet(ipv4(udp(length=500))), len(PACKET), "UDP length beyond the IP packet"),
        (ethernet(ipv4(udp(length=500), length=400)), len(PACKET), "UDP length beyond the IP packet"),
        (ethernet(ipv4(udp(length=500), length=900)), len(PACKET), "UDP length beyond the frame"),
        (ethernet(ipv4(udp(length=500), length=50)), 22, "UDP length beyond the IP packet"),
    ],
)
def test_contradicting_lengths_are_truncated_to_what_can_be(frame: Frame, length: int, odd: str) -> None:
    located, rows = found([frame])
    assert rows == [(0, 42, length, length, *FOUR, 49152, 2)]
    assert located.odd == {odd: 1}


def test_an_empty_batch() -> None:
    located, rows = found([])
    assert not rows
    assert not located.skipped


def test_addresses_are_numbered_once() -> None:
    table = AddressTable()
    one = locate(batch([ethernet(ipv4(udp())), ethernet(ipv6(udp()), 0x86DD)]), table)
    two = locate(batch([ethernet(ipv4(udp(), source="10.77.0.2", destination="10.77.0.1"))]), table)
    assert two.source[0] == one.destination[0]
    assert two.destination[0] == one.source[0]
    assert len(table) == 4
    mapped = ipaddress.IPv6Address("::ffff:10.77.0.1").packed
    assert table.id(mapped) == one.source[0]
    assert table.address(int(one.source[0])) == mapped
    assert table.id(ipaddress.IPv6Address("2001:db8::").packed) == 4
    assert table.name(4) == "2001:db8::"


# A reader that takes one frame after the other, one byte after the other.

TRUNCATED = "truncated before UDP"


class Skip(Exception):
    pass


def fragment_of(at: int, protocol: int, first: bool, data: bytes) -> str:
    port = int.from_bytes(data[at + 2 : at + 4]) if len(data) >= at + 4 else 0
    return FIRST_FRAGMENT if first and protocol == 17 and port == 4791 else "IP fragment"


def slow(frame: Frame) -> tuple[tuple[object, ...], str]:
    data = frame.data
    wire = len(data) if frame.original is None else max(frame.original, len(data))

    def number(at: int, size: int) -> int:
        if at + size > len(data):
            raise Skip(TRUNCATED)
        return int.from_bytes(data[at : at + size], "big")

    if frame.link_type in (ETHERNET, SLL, SLL2):
        at = {ETHERNET: 14, SLL: 16, SLL2: 20}[frame.link_type]
        number(0, at)
        ethertype = number(0 if frame.link_type == SLL2 else at - 2, 2)
        for _ in range(32):
            if ethertype not in (0x8100, 0x88A8, 0x9100):
                break
            ethertype = number(at + 2, 2)
            at += 4
        if ethertype in (0x8100, 0x88A8, 0x9100):
            raise Skip("more than 32 VLAN tags")
        if ethertype not in (0x0800, 0x86DD):
            name = ETHERTYPES.get(ethertype, f"ethertype 0x{ethertype:04x}")
            raise Skip("IEEE 802.3" if ethertype < 1536 else name)
        version = 4 if ethertype == 0x0800 else 6
    elif frame.link_type in (RAW, RAW4, RAW6):
        at = 0
        version = number(0, 1) >> 4
        if version not in {RAW: (4, 6), RAW4: (4,), RAW6: (6,)}[frame.link_type]:
            raise Skip("malformed IP header")
    else:
        raise Skip(f"link type {frame.link_type}")

    ip = at
    if number(ip, 1) >> 4 != version or (version == 4 and number(ip, 1) & 15 < 5):
        raise Skip("malformed IP header")
    number(ip, 20 if version == 4 else 40)
    if version == 4:
        if (fragment := number(ip + 6, 2)) & 0x3FFF:
            raise Skip(fragment_of(ip + (data[ip] & 15) * 4, data[ip + 9], not fragment & 0x1FFF, data))
        at, end, protocol = ip + (data[ip] & 15) * 4, ip + number(ip + 2, 2), data[ip + 9]
        ecn, first, width = data[ip + 1] & 3, 12, 4
    else:
        at, end, protocol = ip + 40, ip + 40 + number(ip + 4, 2), data[ip + 6]
        ecn, first, width = data[ip + 1] >> 4 & 3, 8, 16
    extensions = (0, 43, 44, 51, 60, 135, 139, 140) if version == 6 else (51,)
    for _ in range(32):
        if protocol not in extensions:
            break
        number(at, 8)
        if protocol == 44 and (fragment := number(at + 2, 2)) & 0xFFF9:
            raise Skip(fragment_of(at + 8, data[at], not fragment & 0xFFF8, data))
        size = {44: 8, 51: data[at + 1] * 4 + 8}.get(protocol, data[at + 1] * 8 + 8)
        protocol, at = data[at], at + size
    assume(protocol not in (4, 41, 47, 137))  # Tunnels, which are tested elsewhere.
    if protocol != 17:
        name = PROTOCOLS.get(protocol, f"IP protocol {protocol}")
        raise Skip("too many extension headers" if protocol in extensions else name)
    source, port = number(at, 2), number(at + 2, 2)
    if port != 4791:
        raise Skip(f"UDP port {port if source == 4791 else min(source, port)}")
    number(at, 8)
    bth, length, odd = at + 8, number(at + 4, 2) - 8, ""
    if min(length, end - bth) < 16:
        raise Skip("UDP port 4791, too short")
    if length > end - bth:
        length, odd = min(end, wire) - bth, "UDP length beyond the IP packet"
    elif length > wire - bth and length == end - bth:
        odd = "IP packet longer than its frame"
    elif length > wire - bth:
        length, odd = wire - bth, "UDP length beyond the frame"
    if length < 16:
        raise Skip("UDP port 4791, too short")
    addresses = []
    for start in (ip + first, ip + first + width):
        parsed = ipaddress.ip_address(data[start : start + width])
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        addresses.append(str(mapped or parsed))
    return (bth, max(0, min(len(data) - bth, length)), length, *addresses, source, ecn), odd


def one_of_these_extensions(body: bytes, kinds: list[int]) -> tuple[int, bytes]:
    following = 17
    for kind in reversed(kinds):
        size = 24 if kind == 51 else 8
        body = bytes([following, 4 if kind == 51 else 0]) + bytes(size - 2) + body
        following = kind
    return following, body


ports = st.sampled_from([4791, 4791, 4791, 53])
lies = st.one_of(st.none(), st.none(), st.integers(0, 200), st.integers(0, 65535))
bodies = st.builds(udp, st.binary(max_size=40), ports, st.sampled_from([49152, 4791, 53]), lies)
ipv4s = st.builds(
    ipv4,
    bodies,
    protocol=st.sampled_from([17, 17, 17, 6, 51, 60]),
    options=st.sampled_from([b"", b"", bytes(4), bytes(40)]),
    tos=st.integers(0, 255),
    fragment=st.sampled_from([0, 0x4000, 0x4000, 0x2000, 0x1FFF]),
    length=lies,
    source=st.sampled_from(["10.77.0.1", "10.77.0.3", "0.0.0.0"]),
)


@st.composite
def ipv6s(draw: st.DrawFn) -> bytes:
    kinds = draw(st.lists(st.sampled_from([0, 43, 44, 51, 60, 139]), max_size=4))
    following, body = one_of_these_extensions(draw(bodies), kinds)
    return ipv6(body, next_header=following, ecn=draw(st.integers(0, 3)), length=draw(lies))


@st.composite
def honest_frames(draw: st.DrawFn) -> Frame:
    version = draw(st.sampled_from([4, 6]))
    packet = draw(ipv4s if version == 4 else ipv6s())
    ethertype = draw(st.sampled_from([0x0800 if version == 4 else 0x86DD] * 5 + [0x0806, 0x88CC, 60]))
    link_type = draw(st.sampled_from([ETHERNET] * 4 + [RAW, RAW4, RAW6, SLL, SLL2, 147]))
    if link_type == SLL2:
        return Frame(ethertype.to_bytes(2, "big") + bytes(18) + packet, SLL2)
    if link_type in (ETHERNET, SLL):
        tags = draw(st.lists(st.sampled_from([0x8100, 0x88A8, 0x9100]), max_size=3))
        frame = ethernet(packet, ethertype, tuple(tags))
        return frame if link_type == ETHERNET else Frame(bytes(2) + frame.data, SLL)
    return Frame(packet, link_type)


@st.composite
def bent(draw: st.DrawFn, frame: Frame) -> Frame:
    """The frame, perhaps cut, lengthened, with a byte changed, or with a wrong length on the wire."""
    data = bytearray(frame.data)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        data[draw(st.integers(0, min(len(data) - 1, 70)))] = draw(st.integers(0, 255))
    original = draw(st.sampled_from([None, len(data), 0, 60, 4000]))
    size = draw(st.sampled_from([len(data)] * 3 + [draw(st.integers(0, len(data))), len(data) + 6]))
    return Frame(bytes(data[:size]).ljust(min(size, len(data) + 6), b"\x07"), frame.link_type, original)


@st.composite
def captures(draw: st.DrawFn) -> list[Frame]:
    """Frames of several shapes, or mostly of one."""
    shapes = draw(st.lists(honest_frames(), min_size=1, max_size=4))
    return [draw(bent(draw(st.sampled_from(shapes)))) for _ in range(draw(st.integers(1, 12)))]


def check_against_the_slow_reader(frames: list[Frame]) -> None:
    rows: list[tuple[object, ...]] = []
    skipped: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    for index, frame in enumerate(frames):
        try:
            row, strange = slow(frame)
        except Skip as what:
            skipped[str(what)] += 1
            continue
        rows.append((index, *row))
        odd.update([strange] if strange else [])
    located, fast = found(frames)
    assert fast == rows
    assert located.skipped == dict(skipped)
    assert located.odd == dict(odd)


def test_one_bad_length_does_not_touch_other_packets() -> None:
    bad, good = ethernet(ipv4(udp(length=500))), ethernet(ipv4(udp())).cut(50)
    _, rows = found([bad, good])
    assert rows[1] == (1, 42, 8, len(PACKET), *FOUR, 49152, 2)


@given(captures())
def test_equals_the_slow_reader(frames: list[Frame]) -> None:
    check_against_the_slow_reader(frames)


@given(
    st.lists(
        st.builds(
            Frame,
            st.binary(max_size=90),
            st.sampled_from([ETHERNET, RAW, RAW4, RAW6, SLL, SLL2, 147]),
            st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        ),
        max_size=8,
    )
)
def test_random_bytes_never_raise(frames: list[Frame]) -> None:
    located, _ = found(frames)
    assert len(located) + sum(located.skipped.values()) == len(frames)


@st.composite
def tcp_frames(draw: st.DrawFn) -> Frame:
    segment = struct.pack(">HHIIBBHHH", 700, 2049, 1, 2, draw(st.sampled_from((0x50, 0x80, 0x40))), 0x18, 9, 0, 0)
    body = segment + draw(st.binary(max_size=40))
    length = draw(st.none() | st.integers(0, 120))
    if draw(st.booleans()):
        fragment = draw(st.sampled_from((0x4000, 0x4000, 0x2000, 0x0003)))
        options = draw(st.sampled_from((b"", b"", bytes(4))))
        packet, kind = ipv4(body, protocol=6, options=options, fragment=fragment, length=length), 0x0800
    else:
        packet, kind = ipv6(body, next_header=6, length=length), 0x86DD
    frame = ethernet(packet, kind, tags=draw(st.sampled_from(((), (), (5,)))))
    return frame.cut(draw(st.integers(0, len(frame.data)))) if draw(st.booleans()) else frame


@settings(deadline=None)
@given(st.lists(tcp_frames() | honest_frames(), min_size=1, max_size=20))
def test_tcp_of_the_common_shape_is_where_its_headers_say(frames: list[Frame]) -> None:
    captured = batch(frames)
    walks: list[Rows] = []
    walk_headers(captured, np.arange(len(captured)), AddressTable(), Counter(), walks)
    located = locate(captured, AddressTable())
    expected = locate_tcp(captured, walks, AddressTable())
    assert locate_tcp(captured, located.tcp, AddressTable()).tolist() == expected.tolist()
