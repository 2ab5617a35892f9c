"""Runs of packets verified in one call say what each packet by itself says."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from hypothesis import example, given, strategies as st

from rdmascope.dissect.layers.icrc import MAX_BRIDGE, MIN_PACKETS, RESIDUE, RUN_BYTES, bridge, find_right

HEADER = 40
START = crc32(b"\xff" * 8)
MASK = np.frombuffer(bytes(HEADER - 4) + b"\xff" * 4, np.uint8)
"""The last word of each header does not count."""

Laid = tuple[int, bytes, bool]
"""Bytes in front of a packet, its bytes without CRC, and whether it is damaged on the way."""

PACKETS = st.lists(
    st.tuples(
        st.sampled_from((0, 3, 4, 30, 33, MAX_BRIDGE, MAX_BRIDGE + 1, 900)),
        st.binary(min_size=HEADER, max_size=HEADER + 300),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


def lay(packets: list[Laid]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A file with the packets, where they begin and end, and what counts of their headers."""
    file, begin, end = bytearray(b"file"), [], []
    for gap, packet, damaged in packets:
        file += b"\xa5" * gap
        begin.append(len(file))
        counts = bytes(np.frombuffer(packet[:HEADER], np.uint8) | MASK) + packet[HEADER:]
        right = crc32(counts, START).to_bytes(4, "little")
        file += packet + (bytes((right[0] ^ 1,)) + right[1:] if damaged else right)
        end.append(len(file))
    data = np.frombuffer(bytes(file), np.uint8)
    headers = np.array([data[at : at + HEADER] | MASK for at in begin])
    return data, np.array(begin), np.array(end), headers


@given(st.integers(4, MAX_BRIDGE), st.integers(0, 0xFFFFFFFF))
def test_a_bridge_leads_to_any_start(size: int, start: int) -> None:
    assert len(bridge(size, start)) == size
    assert crc32(bridge(size, start), RESIDUE) == start


@given(PACKETS)
@example([(30, bytes(HEADER), False)] * 9 + [(30, bytes(HEADER), True)] + [(30, bytes(HEADER), False)] * 9)
def test_a_damaged_packet_is_never_called_right(packets: list[Laid]) -> None:
    right = find_right(*lay(packets), START)
    assert not any(right & [damaged for _, _, damaged in packets])


@given(
    st.lists(st.tuples(st.sampled_from((4, 30, 33)), st.binary(min_size=HEADER, max_size=400)), min_size=MIN_PACKETS)
)
def test_right_packets_side_by_side_are_all_found(packets: list[tuple[int, bytes]]) -> None:
    assert find_right(*lay([(gap, packet, False) for gap, packet in packets]), START).all()


def test_runs_end_where_other_frames_stand_between_and_where_they_grow_long() -> None:
    packet = bytes(range(HEADER)) * 100
    packets = [(30, packet, False)] * (3 * RUN_BYTES // len(packet))
    apart = [(900, packet, False), *[(30, packet, False)] * (MIN_PACKETS - 2)]
    right = find_right(*lay([*packets, *apart, (900, packet, True)]), START)
    assert right[: len(packets)].all()
    assert not right[len(packets) :].any()
