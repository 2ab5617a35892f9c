"""Which DDP and RDMAP headers are legal, by their control octets, queue and length."""

from __future__ import annotations

import numpy as np

from ...layers.iwarp_codes import HEADER_BYTES, OPCODES

TAGGED, LAST = 0x80, 0x40
"""Bits of the DDP control octet (RFC 5041, 4.1)."""
DDP_VERSION = 1
RDMAP_VERSION = 1

TAGGED_HEADER, UNTAGGED_HEADER = HEADER_BYTES["DDPTagged"], HEADER_BYTES["DDPUntagged"]
READ_REQUEST_HEADER = HEADER_BYTES["RDMAPReadRequest"]

_FIXED = {"RDMAPReadRequest", "RDMAPImmediateData", "RDMAPAtomicRequest", "RDMAPAtomicResponse"}
"""Nothing follows these headers."""

QUEUES = {  # opcode of an untagged message: (queue number, ULPDU bytes where they are fixed)
    row.value: (row.queue, UNTAGGED_HEADER + HEADER_BYTES[row.header] if row.header in _FIXED else None)
    for row in OPCODES.values()
    if row.queue is not None
}

LEGAL = np.zeros(1 << 16, np.bool_)
"""By DDP and RDMAP control octets as one number."""
for _last in (0, LAST):
    for _opcode in range(12):
        _control = (0 if _opcode in QUEUES else TAGGED) | _last | DDP_VERSION
        LEGAL[_control << 8 | RDMAP_VERSION << 6 | _opcode] = True

QUEUE = np.zeros(16, np.uint32)
FIXED = np.zeros(16, np.int32)
"""ULPDU bytes; 0 where they vary."""
for _opcode, (_queue, _size) in QUEUES.items():
    QUEUE[_opcode], FIXED[_opcode] = _queue, _size or 0
