"""RDMAP opcodes and the codes of a Terminate, as tables (RFC 5040, 5041, 5044, 6581 and 7306)."""

from __future__ import annotations

from ..named_tuple import NamedTuple

MPA_VERSION, MPA_ENHANCED_VERSION = 1, 2
"""Revisions of the MPA Request and Reply (RFC 5044, 7.1.1; RFC 6581, 6)."""
REQUEST_KEY = b"MPA ID Req Frame"
REPLY_KEY = b"MPA ID Rep Frame"
"""RFC 5044, 7.1.1."""

SEND_QUEUE, READ_QUEUE, TERMINATE_QUEUE, ATOMIC_QUEUE = range(4)
QUEUE_NAMES = {
    SEND_QUEUE: "Send",  # RFC 5040, 4.2
    READ_QUEUE: "Read Request",  # RFC 5040, 4.2
    TERMINATE_QUEUE: "Terminate",  # RFC 5040, 4.2
    ATOMIC_QUEUE: "Atomic Response",  # RFC 7306, 4.2
}

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE, TERMINATE = range(8)
IMMEDIATE, IMMEDIATE_SE, ATOMIC_REQUEST, ATOMIC_RESPONSE = range(8, 12)


class RdmapOpcode(NamedTuple):
    """One row of the opcode table."""

    value: int
    name: str
    queue: int | None
    """DDP queue number; None: tagged."""
    header: str
    """Layer behind the DDP header, '' for none."""


# fmt: off
_TABLE = (
    # RFC 5040, 4.2
    RdmapOpcode(WRITE,              "Write",                       None,            ""),
    RdmapOpcode(READ_REQUEST,       "Read Request",                READ_QUEUE,      "RDMAPReadRequest"),
    RdmapOpcode(READ_RESPONSE,      "Read Response",               None,            ""),
    RdmapOpcode(SEND,               "Send",                        SEND_QUEUE,      ""),
    RdmapOpcode(SEND_INVALIDATE,    "Send with Invalidate",        SEND_QUEUE,      ""),
    RdmapOpcode(SEND_SE,            "Send with SE",                SEND_QUEUE,      ""),
    RdmapOpcode(SEND_SE_INVALIDATE, "Send with SE and Invalidate", SEND_QUEUE,      ""),
    RdmapOpcode(TERMINATE,          "Terminate",                   TERMINATE_QUEUE, "RDMAPTerminate"),
    # RFC 7306, 4.2
    RdmapOpcode(IMMEDIATE,          "Immediate Data",              SEND_QUEUE,      "RDMAPImmediateData"),
    RdmapOpcode(IMMEDIATE_SE,       "Immediate Data with SE",      SEND_QUEUE,      "RDMAPImmediateData"),
    RdmapOpcode(ATOMIC_REQUEST,     "Atomic Request",              READ_QUEUE,      "RDMAPAtomicRequest"),
    RdmapOpcode(ATOMIC_RESPONSE,    "Atomic Response",             ATOMIC_QUEUE,    "RDMAPAtomicResponse"),
)
# fmt: on

OPCODES = {row.value: row for row in _TABLE}
OPCODE_NAMES = {row.value: row.name for row in _TABLE}
SENDS = frozenset({SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE})
INVALIDATING = frozenset({SEND_INVALIDATE, SEND_SE_INVALIDATE})

HEADER_BYTES = {
    "DDPTagged": 14,  # RFC 5041, 4.2
    "DDPUntagged": 18,  # RFC 5041, 4.3
    "RDMAPReadRequest": 28,  # RFC 5040, 4.4
    "RDMAPTerminate": 4,  # RFC 5040, 4.8; without what is quoted
    "RDMAPImmediateData": 8,  # RFC 7306, 6.2
    "RDMAPAtomicRequest": 52,  # RFC 7306, 5.2.1
    "RDMAPAtomicResponse": 12,  # RFC 7306, 5.2.2
}

ATOMIC_NAMES = {0: "FetchAdd", 1: "Swap", 2: "CmpSwap"}
"""RFC 7306, 5.2.1."""

RDMA_LAYER, DDP_LAYER, LLP_LAYER = range(3)
LAYER_NAMES = {RDMA_LAYER: "RDMA", DDP_LAYER: "DDP", LLP_LAYER: "LLP"}
"""RFC 5040, 4.8."""

ERROR_TYPES = {
    # RFC 5040, 4.8
    (RDMA_LAYER, 0): "Local Catastrophic Error",
    (RDMA_LAYER, 1): "Remote Protection Error",
    (RDMA_LAYER, 2): "Remote Operation Error",
    # RFC 5041, 7.2
    (DDP_LAYER, 0): "Local Catastrophic Error",
    (DDP_LAYER, 1): "Tagged Buffer Error",
    (DDP_LAYER, 2): "Untagged Buffer Error",
    # RFC 5044, 8
    (LLP_LAYER, 0): "MPA Error",
}
"""By layer and error type."""

_RDMA_ERRORS = {  # RFC 5040, 4.8
    0x00: "Invalid STag",
    0x01: "Base or bounds violation",
    0x02: "Access rights violation",
    0x03: "STag not associated with RDMAP Stream",
    0x04: "TO wrap",
    0x05: "Invalid RDMAP version",
    0x06: "Unexpected OpCode",
    0x07: "Catastrophic error, localized to RDMAP Stream",
    0x08: "Catastrophic error, global",
    0x09: "STag cannot be Invalidated",
    0xFF: "Unspecific Error",
}
ERROR_CODES = {
    (RDMA_LAYER, 1): _RDMA_ERRORS,
    (RDMA_LAYER, 2): _RDMA_ERRORS,
    (DDP_LAYER, 1): {  # RFC 5041, 7.2
        0x00: "Invalid STag",
        0x01: "Base or bounds violation",
        0x02: "STag not associated with DDP Stream",
        0x03: "TO wrap",
        0x04: "Invalid DDP version",
    },
    (DDP_LAYER, 2): {  # RFC 5041, 7.2
        0x01: "Invalid QN",
        0x02: "Invalid MSN - no buffer available",
        0x03: "Invalid MSN - MSN range is not valid",
        0x04: "Invalid MO",
        0x05: "DDP Message too long for available buffer",
        0x06: "Invalid DDP version",
    },
    (LLP_LAYER, 0): {
        0x01: "TCP connection closed, terminated or lost",  # RFC 5044, 8
        0x02: "MPA CRC error",  # RFC 5044, 8
        0x03: "MPA Marker and ULPDU Length field mismatch",  # RFC 5044, 8
        0x04: "Invalid MPA Request Frame or MPA Reply Frame",  # RFC 5044, 8
        0x05: "Local Catastrophic Error",  # RFC 6581, 8
        0x06: "Insufficient IRD Resources",  # RFC 6581, 8
        0x07: "No Matching RTR Option",  # RFC 6581, 8
    },
}
"""By layer and error type, then by error code.  A local catastrophic error has no codes."""


def opcode_name(opcode: int) -> str:
    return OPCODE_NAMES.get(opcode, f"opcode 0x{opcode:x}")


def layer_name(layer: int) -> str:
    return LAYER_NAMES.get(layer, f"layer 0x{layer:x}")


def error_type_name(layer: int, error_type: int) -> str:
    return ERROR_TYPES.get((layer, error_type), f"error type 0x{error_type:x}")


def error_code_name(layer: int, error_type: int, code: int) -> str:
    """'' where the error type has no codes and this is none."""
    codes = ERROR_CODES.get((layer, error_type))
    if codes is None and not code:
        return ""
    return (codes or {}).get(code, f"error code 0x{code:02x}")


def terminate_name(layer: int, error_type: int, code: int) -> str:
    """A Terminate in words: 'RDMA, Remote Protection Error, Invalid STag'."""
    words = layer_name(layer), error_type_name(layer, error_type), error_code_name(layer, error_type, code)
    return ", ".join(word for word in words if word)
