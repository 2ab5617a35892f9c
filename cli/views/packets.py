"""One line per packet, in the columns that tshark has."""

from __future__ import annotations

from rdmascope.dissect.records.packet_info import Shown
from rdmascope.dissect.units import seconds

PROTOCOL_STYLES = {"RPCoRDMA": "cyan", "NFS": "green", "NFS_CB": "magenta"}


def header_line(place_width: int = 0) -> str:
    """``place_width``: of a column that says in which of several files frames are."""
    place = f"{'file:frame':<{place_width}} " if place_width else ""
    return f"{place}{'No.':>7} {'Time':>12} {'Source':>15}   {'Destination':<15} {'Protocol':<8} {'Length':>6} Info"


def packet_line(frame: int, time: int, wire: int, source: str, destination: str, shown: Shown) -> str:
    """``time``: nanoseconds since the first frame; ``wire``: bytes of the frame."""
    protocol, info = shown
    return f"{frame:>7} {seconds(time):>12} {source:>15} → {destination:<15} {protocol:<8} {wire:>6} {info}"


def comment_line(comment: str) -> str:
    """A comment in the file about the packet above."""
    return f"{'':>7} {comment}"
