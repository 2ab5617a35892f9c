"""Mount roots from MNT of MOUNT over TCP, which NFS over RDMA is mounted by (RFC 1813, appendix I; RFC 5531, 11).

Segments that are one whole record each, as clients and mountd send them; nothing is put together of several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Bytes, Rows, take, words_at
from ..layers.oncrpc_codes import CALL, LAST_FRAGMENT, REPLY
from ..link.addresses import AddressTable
from ..onc.programs import MOUNT
from ..onc.xdr import words3

if TYPE_CHECKING:
    from .file_names import MountRoot

SHORTEST, LONGEST = 28, 1400
"""Bytes of a record, with its mark, that is looked at."""
MAX_OUTSTANDING = 1024
MAX_ROOTS = 1 << 14
_PROGRAM = 12
"""Offset of the program in a call; version and procedure follow."""


class TcpMounts:
    """Fed the TCP segments of batches of frames; never raises on what they hold."""

    def __init__(self, addresses: AddressTable) -> None:
        self.roots: list[MountRoot] = []
        """In the order of replies."""
        self._addresses = addresses
        self._calls: dict[tuple[int, int, int, int, bytes], bytes] = {}
        """By client and server, with their ports, and XID."""

    def feed(self, data: Bytes, segments: Rows) -> None:
        """``segments``: SEGMENT rows of a batch, whose offsets are in ``data``."""
        size = segments["captured"]
        rows = take(segments, (size >= SHORTEST) & (size <= LONGEST))
        if len(rows):
            rows = take(rows, words_at(data, rows["payload"]) == LAST_FRAGMENT - 4 + rows["captured"].astype(np.int64))
        if len(rows):
            self._take(data, rows)

    def _take(self, data: Bytes, rows: Rows) -> None:
        names = "source", "source_port", "destination", "destination_port", "payload", "captured", "time"
        from ..onc.file_operations import MNT  # Only here: most captures have no such record, and would wait for it.

        for source, port, destination, other_port, payload, length, time in zip(
            *(rows[name].tolist() for name in names), strict=True
        ):
            record = bytes(data[payload + 4 : payload + length])
            xid, kind = record[:4], int.from_bytes(record[4:8])
            program, _, procedure = words3(memoryview(record), _PROGRAM)
            if kind == CALL and (program, procedure) == (MOUNT, MNT):
                if len(self._calls) >= MAX_OUTSTANDING:
                    del self._calls[next(iter(self._calls))]
                self._calls[source, port, destination, other_port, xid] = record
            elif kind == REPLY:
                call = self._calls.pop((destination, other_port, source, port, xid), None)
                if call is not None:
                    self._answered(call, record, source, time)

    def _answered(self, call: bytes, reply: bytes, server: int, time: int) -> None:
        from ..onc.file_operations import file_events
        from .file_names import MountRoot

        for event in file_events(call, reply).events:
            if len(self.roots) < MAX_ROOTS:
                self.roots.append(MountRoot(self._addresses.name(server), event, time))
