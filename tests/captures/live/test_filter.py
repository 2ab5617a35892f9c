"""The kernel's own filter machine runs the program, on a socket pair, so no privilege is needed."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from collections.abc import Iterator

import pytest

from playbook import Capture, Wire, wrap
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.shapes import read
from playbook.wrap import Raw
from rdmascope.captures import CaptureError
from rdmascope.captures.live.ring import MAX_PORTS, SO_ATTACH, Filter
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's filters")


class Machine:
    """A datagram socket with a filter: what it drops does not arrive."""

    def __init__(self, program: bytes) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        code = ctypes.create_string_buffer(program)
        attached = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
        self.far.setsockopt(socket.SOL_SOCKET, SO_ATTACH, attached)
        self.far.setblocking(False)

    def kept(self, frame: bytes) -> int | None:
        """How many bytes of it; None: dropped."""
        self.near.send(frame)
        try:
            return len(self.far.recv(1 << 17))
        except BlockingIOError:
            return None

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def machine() -> Iterator[Machine]:
    one = Machine(Filter((20049,)).program(262144, cooked=False))
    yield one
    one.close()


def roce(address: str = "10.0.0.2", server: str = "10.0.0.1") -> list[bytes]:
    wire = Wire(seed=1)
    read(wire.connect(address, server))
    return [frame.data for frame in Capture(wire).frames]


def iwarp(port: int = 20049, address: str = "10.0.0.2", server: str = "10.0.0.1") -> list[bytes]:
    wire = IwarpWire(seed=1)
    read(wire.connect(address, server, port))
    return [frame.data for frame in IwarpCapture(wire).frames]


def tagged(frame: bytes, *kinds: int) -> bytes:
    tags = b"".join(struct.pack(">HH", kind, 7) for kind in kinds)
    return frame[:12] + tags + frame[12:]


IPV6 = ("fd00::2", "fd00::1")


@pytest.mark.parametrize(
    "frames", [roce(), roce(*IPV6), iwarp(), iwarp(20049, *IPV6)], ids=["4", "6", "TCP 4", "TCP 6"]
)
@pytest.mark.parametrize(
    "tags", [(), (0x8100,), (0x88A8, 0x8100), (0x9100, 0x8100)], ids=["", "VLAN", "QinQ", "old QinQ"]
)
def test_rdma_is_kept_behind_up_to_two_tags(machine: Machine, frames: list[bytes], tags: tuple[int, ...]) -> None:
    for frame in frames:
        assert machine.kept(tagged(frame, *tags)) == len(frame) + 4 * len(tags)


def test_rocev1_is_kept(machine: Machine) -> None:
    for frame in roce():
        one = wrap.rocev1(frame)
        assert machine.kept(one) == len(one)


def test_what_is_kept_is_what_the_decoder_takes(machine: Machine) -> None:
    """Nothing that locate finds is dropped, unless a tunnel is around it; other TCP and UDP are."""
    addresses = AddressTable()
    for frame in [*roce(), *roce(*IPV6)]:
        assert len(locate(wrap.batch([Raw(frame, 0)]), addresses)) == (machine.kept(frame) is not None)


def changed(frame: bytes, at: int, value: bytes) -> bytes:
    return frame[:at] + value + frame[at + len(value) :]


@pytest.mark.parametrize(
    "name, frame",
    [
        ("another UDP port", changed(roce()[0], 36, b"\x12\xb8")),
        ("the port as the source", changed(changed(roce()[0], 34, b"\x12\xb7"), 36, b"\x00\x35")),
        ("another EtherType", changed(roce()[0], 12, b"\x08\x06")),
        ("another protocol", changed(roce()[0], 23, b"\x01")),
        ("a later fragment", changed(roce()[0], 20, b"\x20\x10")),
        ("three tags", tagged(roce()[0], 0x8100, 0x8100, 0x8100)),
        ("another TCP port", iwarp(2049)[0]),
        ("IPv6, a later fragment", changed(roce(*IPV6)[0], 20, b"\x2c")[:54] + bytes([17, 0, 0, 9]) + bytes(60)),
        ("nothing", bytes(14)),
        ("a cut frame", roce()[0][:30]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_rest_is_dropped(machine: Machine, name: str, frame: bytes) -> None:
    assert machine.kept(frame) is None


def test_an_ipv6_extension_header_is_looked_behind(machine: Machine) -> None:
    for frame in roce(*IPV6):
        for kind, header in ((0, bytes([17, 1]) + bytes(14)), (44, bytes([17, 0, 0, 1]) + bytes(4))):
            extended = frame[:20] + bytes([kind]) + frame[21:54] + header + frame[54:]
            assert machine.kept(extended) == len(extended)


def test_a_first_fragment_is_kept(machine: Machine) -> None:
    frame = changed(roce()[0], 20, b"\x20\x00")
    assert machine.kept(frame) == len(frame)


@pytest.mark.parametrize(
    "ports, all_tcp, kept", [((20049, 2049), False, True), ((), True, True), ((20049,), False, False)]
)
def test_ports(ports: tuple[int, ...], all_tcp: bool, kept: bool) -> None:
    machine = Machine(Filter(ports, all_tcp).program(262144, cooked=False))
    assert all((machine.kept(frame) is not None) == kept for frame in iwarp(2049))
    machine.close()


@pytest.mark.parametrize(
    "wrapped", [wrap.vxlan, wrap.geneve, wrap.gre, wrap.mpls_of_ip, wrap.ip_in_ip], ids=lambda one: one.__name__
)
def test_tunnels_are_kept_when_they_are_asked_for(wrapped) -> None:  # type: ignore[no-untyped-def]
    plain, open_ = (
        Machine(Filter((20049,), tunnels=tunnels).program(262144, cooked=False)) for tunnels in (False, True)
    )
    for frame in roce():
        inside = wrapped(frame)
        assert plain.kept(inside) is None
        assert open_.kept(inside) == len(inside)
    plain.close()
    open_.close()


def test_frames_are_truncated_at_the_snaplen() -> None:
    machine = Machine(Filter((20049,)).program(100, cooked=False))
    assert {machine.kept(frame) for frame in roce() if len(frame) > 100} == {100}
    machine.close()


def test_as_many_ports_as_there_is_room_for() -> None:
    ports = tuple(range(1000, 1000 + MAX_PORTS))
    machine = Machine(Filter(ports, tunnels=True).program(262144, cooked=False))
    assert machine.kept(iwarp(ports[-1])[0]) is not None
    assert machine.kept(iwarp(ports[-1] + 1)[0]) is None
    machine.close()
    with pytest.raises(CaptureError, match="65 ports are more than the 64"):
        Filter((*ports, 1)).program(1, cooked=True)
