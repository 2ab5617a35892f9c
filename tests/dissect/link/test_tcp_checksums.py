"""TCP checksums in columns, against sums made word by word."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.link.tcp import RIGHT, SEGMENT, UNKNOWN, WRONG, verify_checksums

FAULTS = "none", "wrong", "offloaded", "truncated"

segments = st.tuples(
    st.sampled_from((4, 6)),
    st.integers(0, 10).map(lambda words: 20 + 4 * words),
    st.one_of(st.binary(max_size=40), st.integers(0, 9000).map(lambda size: b"\x5a\xff\x01" * (size // 3))),
    st.sampled_from(FAULTS),
    st.integers(0, 9),
)


def words(octets: bytes) -> int:
    """The sum of the 16-bit words, padded with zero, modulo 65,535."""
    padded = octets + bytes(len(octets) % 2)
    return sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2)) % 0xFFFF


@given(st.lists(segments, min_size=1, max_size=8))
def test_verdicts_and_sums_of_payloads(several: list[tuple[int, int, bytes, str, int]]) -> None:
    octets = bytearray()
    rows = np.zeros(len(several), SEGMENT)
    rows["sum"] = -1
    expected: list[tuple[int, int]] = []
    for row, (version, size, payload, fault, before) in zip(rows, several, strict=True):
        octets += bytes(before)
        row["version"], row["ip"] = version, len(octets)
        addresses = bytes(range(1, 9 if version == 4 else 33))
        octets += bytes(12 if version == 4 else 8) + addresses
        pseudo = words(addresses + bytes((0, 6)) + (size + len(payload)).to_bytes(2, "big"))
        header = bytearray(range(size))
        header[16:18] = bytes(2)
        right = 0xFFFF - (pseudo + words(bytes(header)) + words(payload)) % 0xFFFF
        checksum = {"wrong": right ^ 0x5555, "offloaded": pseudo}.get(fault, right)
        header[16:18] = checksum.to_bytes(2, "big")
        row["header"], row["checksum"] = len(octets), checksum
        octets += header
        row["payload"], row["length"] = len(octets), len(payload)
        octets += payload
        row["captured"] = len(payload) - (fault == "truncated" and len(payload) > 0)
        if not payload or fault == "truncated":
            expected.append((UNKNOWN, -1))
        else:
            correct = (checksum - right) % 0xFFFF == 0
            unfinished = (checksum - pseudo) % 0xFFFF == 0
            expected.append((RIGHT if correct else UNKNOWN if unfinished else WRONG, words(payload)))
    verify_checksums(np.frombuffer(bytes(octets), np.uint8), rows, np.arange(len(rows)))
    assert [(int(row["verdict"]), int(row["sum"])) for row in rows] == expected
