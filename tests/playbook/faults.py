"""What goes wrong, as functions from the list of packets to a new list.

Those of the capture are the same for packets and TCP segments; on the wire, tcp_faults is for the latter.

There are two sorts.  On the wire: lose(), lose_response(), refuse(), ghost(), mark(), corrupt(); where the
endpoints react, what they send then is in the list.  In the capture: drop(), cut(), snap(), swap(),
duplicate(): no endpoint noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from . import packets as p
from .packets import PSN_MASK, REQUESTS, Packet
from .tcp import TcpSegment
from .wire import Connection, Wire, build, responses

Packets = list[Packet]
Sent = TypeVar("Sent", Packet, TcpSegment)


def where(packets: list[Sent], **wanted: object) -> list[int]:
    """Indices of the packets whose fields have the values given."""
    return [
        index
        for index, packet in enumerate(packets)
        if all(getattr(packet, name) == value for name, value in wanted.items())
    ]


def behind(psn: int, other: int) -> bool:
    """``psn`` comes before ``other`` (serial arithmetic of 24 bits)."""
    return (psn - other) & PSN_MASK >= 1 << 23


# In the capture


def drop(packets: list[Sent], indices: Iterable[int]) -> list[Sent]:
    """The packets existed, but were not recorded."""
    gone = set(indices)
    return [packet for index, packet in enumerate(packets) if index not in gone]


def cut(packets: list[Sent], count: int) -> list[Sent]:
    """The capture began after the first ``count`` packets."""
    return packets[count:]


def snap(packets: list[Sent], length: int) -> list[Sent]:
    """The capture keeps ``length`` bytes of each frame."""
    return [replace(packet, snaplen=length) for packet in packets]


def swap(packets: list[Sent], index: int, distance: int = 1) -> list[Sent]:
    """The packet was recorded ``distance`` places late."""
    rest = packets[:index] + packets[index + 1 :]
    return rest[: index + distance] + packets[index : index + 1] + rest[index + distance :]


def duplicate(packets: list[Sent], index: int, distance: int = 0) -> list[Sent]:
    """The packet was recorded twice, ``distance`` places apart."""
    at = index + 1 + distance
    return packets[:at] + packets[index : index + 1] + packets[at:]


# On the wire


def corrupt(packets: Packets, index: int) -> Packets:
    """A payload byte was changed on the way (of a packet without payload, the invariant CRC itself)."""
    return [*packets[:index], replace(packets[index], corrupt=True), *packets[index + 1 :]]


def ghost(packets: list[Sent], index: int, distance: int) -> list[Sent]:
    """The network delivers the packet a second time, ``distance`` packets later."""
    at = min(len(packets), index + 1 + distance)
    copy = replace(packets[index], copy=packets[index].copy + 1, time=packets[at - 1].time + 100)
    return packets[:at] + [copy] + packets[at:]


def mark(wire: Wire, packets: Packets, index: int) -> Packets:
    """A switch marks the packet (congestion experienced) and its receiver answers with a CNP."""
    marked = replace(packets[index], ecn=3)
    connection = wire.connections[marked.connection - 1]
    cnp = build(connection, 1 - marked.sender, "cnp", p.CNP, 0, payload=bytes(16))
    cnp = replace(cnp, becn=True, time=marked.time + 5_000)
    return [*packets[:index], marked, cnp, *packets[index + 1 :]]


def lose(
    wire: Wire,
    packets: Packets,
    index: int,
    *,
    answer: str = "nak",
    recorded: bool = True,
    delay: int = 50_000,
) -> Packets:
    """A Send, Write or READ request packet never arrives and its sender goes back to it.

    ``answer``: 'nak' sequence error, where a later packet of the sender shows the gap (else a timeout);
    'timeout'; 'rnr' the receiver was not ready (the packet arrived, but was refused).  ``recorded``: the
    capture point is before the loss.  Other indices make no sense and return the list as it is.
    """
    lost = packets[index]
    if lost.kind not in REQUESTS:
        return packets
    until = index + 1
    while until < len(packets) and not (
        packets[until].connection == lost.connection and packets[until].sender != lost.sender
    ):
        until += 1
    burst: dict[int, Packet] = {}
    for packet in packets[index:until]:
        if packet.connection == lost.connection and packet.kind in REQUESTS:
            burst[packet.psn] = packet
    again = sorted(burst.values(), key=lambda packet: (packet.psn - lost.psn) & PSN_MASK)
    again = [packet for packet in again if not behind(packet.psn, lost.psn)]
    time = packets[until - 1].time
    insert: Packets = []
    connection = wire.connections[lost.connection - 1]
    if answer == "rnr" or (answer == "nak" and len(again) > 1):
        syndrome = p.NAK_SEQUENCE if answer == "nak" else p.RNR_NAK | 14
        time += 5_000
        insert.append(_nak(connection, 1 - lost.sender, lost.psn, syndrome, time))
        time += delay if answer == "nak" else 1_000_000
    else:
        time += 4_000_000
    for packet in again:
        time += 900
        insert.append(replace(packet, time=time, copy=packet.copy + 1, corrupt=False))
    kept = packets[:until] if recorded else packets[:index] + packets[index + 1 : until]
    return kept + insert + put_off(packets[until:], time)


def lose_response(wire: Wire, packets: Packets, index: int, *, recorded: bool = True, delay: int = 50_000) -> Packets:
    """A READ response never arrives: its requester asks again from there on, and for all it asked since."""
    lost = packets[index]
    if lost.kind != "response":
        return packets
    connection = wire.connections[lost.connection - 1]
    requester = 1 - lost.sender
    until = index + 1
    while until < len(packets) and not (
        packets[until].connection == lost.connection and packets[until].sender == requester
    ):
        until += 1
    op = wire.operations[lost.operation]
    time = packets[until - 1].time + delay
    resumed = build(
        connection,
        requester,
        "read",
        p.READ_REQUEST,
        lost.psn,
        p.reth(op.address + lost.at, op.handle, len(op.data) - lost.at),
        operation=op.number,
        at=lost.at,
        ack_request=True,
    )
    insert = [replace(resumed, time=time, copy=1)]
    asked = [(op, lost.at)]
    seen: set[int] = set()
    for packet in packets[:until]:
        later = not behind(packet.psn, (op.psn + op.packets) & PSN_MASK)
        if packet.connection != lost.connection or packet.sender != requester or not later:
            continue
        if packet.kind in REQUESTS and packet.psn not in seen and packet.operation > op.number:
            seen.add(packet.psn)
            time += 900
            insert.append(replace(packet, time=time, copy=packet.copy + 1, corrupt=False))
            if packet.kind == "read":
                asked.append((wire.operations[packet.operation], 0))
    for again, start in asked:
        for packet in responses(connection, again, start):
            time += 900
            insert.append(replace(packet, time=time, copy=1))
    done = {again.number for again, _ in asked}
    rest = [packet for packet in packets[until:] if packet.kind != "response" or packet.operation not in done]
    kept = packets[:until] if recorded else packets[:index] + packets[index + 1 : until]
    return kept + insert + put_off(rest, time)


def refuse(wire: Wire, packets: Packets, index: int, syndrome: int = p.NAK_ACCESS) -> Packets:
    """The receiver of the request refuses it for good: everything on the connection ends with its NAK."""
    refused = packets[index]
    connection = wire.connections[refused.connection - 1]
    nak = _nak(connection, 1 - refused.sender, refused.psn, syndrome, refused.time + 3_000)
    rest = [packet for packet in packets[index + 1 :] if packet.connection != refused.connection]
    return [*packets[: index + 1], nak, *rest]


# The order of things


def interleave(wire: Wire, packets: list[Sent], rng: random.Random) -> list[Sent]:
    """Connections run at the same time, each in its own order.

    Those that use one queue pair number, or TCP port, of one client after each other stay behind each other.
    """
    lanes: dict[tuple[str, int, int | None], list[Sent]] = {}
    for packet in reversed(packets):
        client = wire.connections[packet.connection - 1].ends[0]
        lanes.setdefault((client.address, client.qpn, client.port), []).append(packet)
    times = [packet.time for packet in packets]
    merged: list[Sent] = []
    left = list(lanes.values())
    while left:
        lane = rng.choice(left)
        for _ in range(min(len(lane), rng.randrange(1, 4))):
            merged.append(lane.pop())
        left = [lane for lane in left if lane]
    return [replace(packet, time=time) for packet, time in zip(merged, times, strict=True)]


def choose(packets: Packets, rng: random.Random, wanted: Callable[[Packet], bool]) -> int | None:
    """The index of some packet of that sort."""
    found = [index for index, packet in enumerate(packets) if wanted(packet)]
    return rng.choice(found) if found else None


def _nak(connection: Connection, sender: int, psn: int, syndrome: int, time: int) -> Packet:
    msn = connection.ends[sender].msn
    nak = build(connection, sender, "nak", p.ACKNOWLEDGE, psn, p.aeth(syndrome, msn))
    return replace(nak, time=time)


def put_off(packets: list[Sent], time: int) -> list[Sent]:
    """The packets moved to after ``time``, gaps kept."""
    if not packets or packets[0].time > time:
        return packets
    shift = time - packets[0].time + 1_000
    return [replace(packet, time=packet.time + shift) for packet in packets]
