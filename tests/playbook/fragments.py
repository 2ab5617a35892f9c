"""A frame divided into IP fragments, as a router does it (RFC 791, 3.2), or a host (RFC 8200, 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from .packets import Frame


def fragmented(frame: Frame, cuts: Sequence[int] = (), identification: int | None = None) -> list[Frame]:
    """Fragments of an Ethernet frame with an IP packet, cut at these bytes behind the IP header, or in the middle.

    ``cuts`` are multiples of eight.  ``identification``: of the packet; where None, IPv4's own.
    """
    link, packet = frame.data[:14], frame.data[14:]
    six = packet[0] >> 4 == 6
    head, body = packet[: 40 if six else 20], packet[40 if six else 20 :]
    if not six and identification is None:
        identification = int.from_bytes(head[4:6])
    edges = sorted({0, *(cuts or [len(body) // 16 * 8]), len(body)})
    parts: list[Frame] = []
    for start, end in pairwise(edges):
        more = end < len(body)
        if six:
            header = bytes([head[6], 0]) + (start | more).to_bytes(2) + (identification or 0).to_bytes(4)
            length = (len(header) + end - start).to_bytes(2)
            data = head[:4] + length + b"\x2c" + head[7:] + header + body[start:end]
        else:
            place = (start // 8 | more << 13).to_bytes(2)
            data = head[:2] + (20 + end - start).to_bytes(2) + (identification or 0).to_bytes(2) + place + head[8:]
            data += body[start:end]
        parts.append(replace(frame, data=link + data, original=len(link + data)))
    return parts
