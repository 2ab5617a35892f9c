"""Deals out what was decoded, all that two hosts say to each other to one worker; and what cannot be divided.

A connection, its CM exchange, and the flows among which its partner is looked for are of one pair of hosts.  TCP, in
which iWARP is looked for, is dealt out likewise, by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rdmascope.dissect.arrays import Int64s, Rows, take
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.frame_decoder import DecodedFrames
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import IcrcCheck
from rdmascope.dissect.link.tcp import locate_tcp
from rdmascope.dissect.transport.connection import Registry
from rdmascope.dissect.transport.iwarp.observer import IwarpObserver

from ..errors import CaptureError
from ..read.open import open_capture


def carries_iwarp(path: str, ports: frozenset[int]) -> bool:
    """Whether one of the TCP connections in a capture is iWARP, in a pass of its own; ``ports``: of the service."""
    addresses, observer = AddressTable(), IwarpObserver(Registry([]), ports)
    try:
        with open_capture(path) as capture:
            for batch in capture.batches():
                observer.feed(batch.data, locate_tcp(batch, locate(batch, addresses).tcp, observer.addresses))
                if observer.connections:
                    return True
    except CaptureError:  # Which the other pass comes to, too.
        pass
    observer.finish()
    return bool(observer.connections)


class Partition:
    """Which worker has which pair of hosts."""

    def __init__(self, workers: int) -> None:
        self._owners: dict[int, int] = {}
        """By both address ids."""
        self._tcp_owners: dict[int, int] = {}
        self._dealt = [0] * workers
        """Packets of each worker so far."""

    def deal(self, decoded: DecodedFrames) -> list[DecodedFrames]:
        """A batch for each worker; its frames are those that tell the number and the times of all."""
        packets = decoded.packets
        rows, icrc = packets.rows, packets.icrc
        worker = self._worker(rows, self._owners)
        tcp_worker = self._worker(decoded.segments, self._tcp_owners)
        frames = decoded.batch.rows
        times = frames["time"]
        telling = np.unique([int(times.argmin()), int(times.argmax()), len(frames) - 1])
        few = replace(decoded.batch, rows=take(frames, telling), comments={})
        dealt: list[DecodedFrames] = []
        for number in range(len(self._dealt)):
            mine = (worker == number).nonzero()[0]
            share = replace(
                packets,
                rows=take(rows, mine),
                skipped=packets.skipped if not number else {},
                frames=None,
                icrc=IcrcCheck(icrc.verified, _among(icrc.wrong, mine), _among(icrc.damaged, mine)),
            )
            dealt.append(DecodedFrames(few, share, take(decoded.segments, (tcp_worker == number).nonzero()[0])))
        return dealt

    def _worker(self, rows: Rows, owners_of: dict[int, int]) -> Int64s:
        source, destination = rows["source"].astype(np.int64), rows["destination"].astype(np.int64)
        pairs = np.minimum(source, destination) << 32 | np.maximum(source, destination)
        distinct, which, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        owners = np.zeros(len(distinct), np.int64)
        new: list[tuple[int, int, int]] = []
        for index, (pair, count) in enumerate(zip(distinct.tolist(), counts.tolist(), strict=True)):
            owner = owners_of.get(pair)
            if owner is None:
                new.append((-count, index, pair))
                continue
            owners[index] = owner
            self._dealt[owner] += count
        for count, index, pair in sorted(new):
            owner = owners_of[pair] = owners[index] = self._dealt.index(min(self._dealt))
            self._dealt[owner] -= count
        found: Int64s = owners[which]
        return found


def _among(indices: Int64s, mine: Int64s) -> Int64s:
    """Those indices of rows that are ``mine``, counted among these."""
    if not len(indices):
        return indices
    found: Int64s = mine.searchsorted(indices[np.isin(indices, mine)])
    return found
