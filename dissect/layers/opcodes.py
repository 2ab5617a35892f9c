"""InfiniBand transport opcodes and the codes of the Acknowledge Extended Transport Header, as tables.

Sections are those of the InfiniBand Architecture Specification, volume 1 ("IBA").  The tables are plain
Python; the NumPy arrays behind them answer the same questions for a whole column of opcodes at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..named_tuple import NamedTuple

BTH_BYTES = 12
"""IBA 9.2."""
ICRC_BYTES = 4
"""IBA 7.8.1."""

HEADER_BYTES = {
    "DETH": 8,  # IBA 9.3.2
    "RETH": 16,  # IBA 9.3.3
    "AtomicETH": 28,  # IBA 9.3.4
    "AETH": 4,  # IBA 9.3.5
    "AtomicAckETH": 8,  # IBA 9.3
    "ImmDt": 4,  # IBA 9.3
    "IETH": 4,  # IBA 9.3
    "XRCETH": 4,  # IBA annex A14
    "FETH": 4,  # IBA annex A19
    "CNPPadding": 16,  # IBA annex A17
}


class Opcode(NamedTuple):
    """One row of the opcode table."""

    value: int
    name: str
    headers: tuple[str, ...]
    """Extended headers behind the BTH, in wire order."""
    role: str
    """'request', 'response' or 'notification'."""
    position: str
    """Which packet of its message it is: 'first', 'middle', 'last' or 'only'."""

    @property
    def transport(self) -> str:
        """RC, UC, UD, XRC or CNP."""
        return self.name.split(" ")[0]

    @property
    def header_bytes(self) -> int:
        """Bytes of extended headers."""
        return sum(HEADER_BYTES[header] for header in self.headers)


_REQUEST, _RESPONSE = "request", "response"
_FIRST, _MIDDLE, _LAST, _ONLY = "first", "middle", "last", "only"

# fmt: off
_TABLE = (
    # Reliable Connection, IBA 9.2.1
    Opcode(0x00, "RC SEND First",                    (),                       _REQUEST,  _FIRST),
    Opcode(0x01, "RC SEND Middle",                   (),                       _REQUEST,  _MIDDLE),
    Opcode(0x02, "RC SEND Last",                     (),                       _REQUEST,  _LAST),
    Opcode(0x03, "RC SEND Last with Immediate",      ("ImmDt",),               _REQUEST,  _LAST),
    Opcode(0x04, "RC SEND Only",                     (),                       _REQUEST,  _ONLY),
    Opcode(0x05, "RC SEND Only with Immediate",      ("ImmDt",),               _REQUEST,  _ONLY),
    Opcode(0x06, "RC RDMA WRITE First",              ("RETH",),                _REQUEST,  _FIRST),
    Opcode(0x07, "RC RDMA WRITE Middle",             (),                       _REQUEST,  _MIDDLE),
    Opcode(0x08, "RC RDMA WRITE Last",               (),                       _REQUEST,  _LAST),
    Opcode(0x09, "RC RDMA WRITE Last with Immediate", ("ImmDt",),              _REQUEST,  _LAST),
    Opcode(0x0A, "RC RDMA WRITE Only",               ("RETH",),                _REQUEST,  _ONLY),
    Opcode(0x0B, "RC RDMA WRITE Only with Immediate", ("RETH", "ImmDt"),       _REQUEST,  _ONLY),
    Opcode(0x0C, "RC RDMA READ Request",             ("RETH",),                _REQUEST,  _ONLY),
    Opcode(0x0D, "RC RDMA READ Response First",      ("AETH",),                _RESPONSE, _FIRST),
    Opcode(0x0E, "RC RDMA READ Response Middle",     (),                       _RESPONSE, _MIDDLE),
    Opcode(0x0F, "RC RDMA READ Response Last",       ("AETH",),                _RESPONSE, _LAST),
    Opcode(0x10, "RC RDMA READ Response Only",       ("AETH",),                _RESPONSE, _ONLY),
    Opcode(0x11, "RC Acknowledge",                   ("AETH",),                _RESPONSE, _ONLY),
    Opcode(0x12, "RC ATOMIC Acknowledge",            ("AETH", "AtomicAckETH"), _RESPONSE, _ONLY),
    Opcode(0x13, "RC CmpSwap",                       ("AtomicETH",),           _REQUEST,  _ONLY),
    Opcode(0x14, "RC FetchAdd",                      ("AtomicETH",),           _REQUEST,  _ONLY),
    Opcode(0x16, "RC SEND Last with Invalidate",     ("IETH",),                _REQUEST,  _LAST),
    Opcode(0x17, "RC SEND Only with Invalidate",     ("IETH",),                _REQUEST,  _ONLY),
    # Memory Placement Extensions, IBA annex A19
    Opcode(0x1C, "RC FLUSH",                         ("FETH", "RETH"),         _REQUEST,  _ONLY),
    Opcode(0x1D, "RC ATOMIC WRITE",                  ("RETH",),                _REQUEST,  _ONLY),
    # Unreliable Connection, IBA 9.2.1
    Opcode(0x20, "UC SEND First",                    (),                       _REQUEST,  _FIRST),
    Opcode(0x21, "UC SEND Middle",                   (),                       _REQUEST,  _MIDDLE),
    Opcode(0x22, "UC SEND Last",                     (),                       _REQUEST,  _LAST),
    Opcode(0x23, "UC SEND Last with Immediate",      ("ImmDt",),               _REQUEST,  _LAST),
    Opcode(0x24, "UC SEND Only",                     (),                       _REQUEST,  _ONLY),
    Opcode(0x25, "UC SEND Only with Immediate",      ("ImmDt",),               _REQUEST,  _ONLY),
    Opcode(0x26, "UC RDMA WRITE First",              ("RETH",),                _REQUEST,  _FIRST),
    Opcode(0x27, "UC RDMA WRITE Middle",             (),                       _REQUEST,  _MIDDLE),
    Opcode(0x28, "UC RDMA WRITE Last",               (),                       _REQUEST,  _LAST),
    Opcode(0x29, "UC RDMA WRITE Last with Immediate", ("ImmDt",),              _REQUEST,  _LAST),
    Opcode(0x2A, "UC RDMA WRITE Only",               ("RETH",),                _REQUEST,  _ONLY),
    Opcode(0x2B, "UC RDMA WRITE Only with Immediate", ("RETH", "ImmDt"),       _REQUEST,  _ONLY),
    # Unreliable Datagram, IBA 9.2.1
    Opcode(0x64, "UD SEND Only",                     ("DETH",),                _REQUEST,  _ONLY),
    Opcode(0x65, "UD SEND Only with Immediate",      ("DETH", "ImmDt"),        _REQUEST,  _ONLY),
    # Congestion Notification Packet of RoCEv2, IBA annex A17
    Opcode(0x81, "CNP",                              ("CNPPadding",),          "notification", _ONLY),
    # Extended Reliable Connection, IBA annex A14: requests carry an XRCETH, responses do not
    Opcode(0xA0, "XRC SEND First",                   ("XRCETH",),              _REQUEST,  _FIRST),
    Opcode(0xA1, "XRC SEND Middle",                  ("XRCETH",),              _REQUEST,  _MIDDLE),
    Opcode(0xA2, "XRC SEND Last",                    ("XRCETH",),              _REQUEST,  _LAST),
    Opcode(0xA3, "XRC SEND Last with Immediate",     ("XRCETH", "ImmDt"),      _REQUEST,  _LAST),
    Opcode(0xA4, "XRC SEND Only",                    ("XRCETH",),              _REQUEST,  _ONLY),
    Opcode(0xA5, "XRC SEND Only with Immediate",     ("XRCETH", "ImmDt"),      _REQUEST,  _ONLY),
    Opcode(0xA6, "XRC RDMA WRITE First",             ("XRCETH", "RETH"),       _REQUEST,  _FIRST),
    Opcode(0xA7, "XRC RDMA WRITE Middle",            ("XRCETH",),              _REQUEST,  _MIDDLE),
    Opcode(0xA8, "XRC RDMA WRITE Last",              ("XRCETH",),              _REQUEST,  _LAST),
    Opcode(0xA9, "XRC RDMA WRITE Last with Immediate", ("XRCETH", "ImmDt"),    _REQUEST,  _LAST),
    Opcode(0xAA, "XRC RDMA WRITE Only",              ("XRCETH", "RETH"),       _REQUEST,  _ONLY),
    Opcode(0xAB, "XRC RDMA WRITE Only with Immediate", ("XRCETH", "RETH", "ImmDt"), _REQUEST, _ONLY),
    Opcode(0xAC, "XRC RDMA READ Request",            ("XRCETH", "RETH"),       _REQUEST,  _ONLY),
    Opcode(0xAD, "XRC RDMA READ Response First",     ("AETH",),                _RESPONSE, _FIRST),
    Opcode(0xAE, "XRC RDMA READ Response Middle",    (),                       _RESPONSE, _MIDDLE),
    Opcode(0xAF, "XRC RDMA READ Response Last",      ("AETH",),                _RESPONSE, _LAST),
    Opcode(0xB0, "XRC RDMA READ Response Only",      ("AETH",),                _RESPONSE, _ONLY),
    Opcode(0xB1, "XRC Acknowledge",                  ("AETH",),                _RESPONSE, _ONLY),
    Opcode(0xB2, "XRC ATOMIC Acknowledge",           ("AETH", "AtomicAckETH"), _RESPONSE, _ONLY),
    Opcode(0xB3, "XRC CmpSwap",                      ("XRCETH", "AtomicETH"),  _REQUEST,  _ONLY),
    Opcode(0xB4, "XRC FetchAdd",                     ("XRCETH", "AtomicETH"),  _REQUEST,  _ONLY),
    Opcode(0xB6, "XRC SEND Last with Invalidate",    ("XRCETH", "IETH"),       _REQUEST,  _LAST),
    Opcode(0xB7, "XRC SEND Only with Invalidate",    ("XRCETH", "IETH"),       _REQUEST,  _ONLY),
)
# fmt: on

OPCODES = {row.value: row for row in _TABLE}
"""The table by opcode; opcodes that are not in it are reserved or belong to a manufacturer."""

OPCODE_NAMES = {row.value: row.name for row in _TABLE}


CNP = 0x81

_SERVICES = {
    0: "RC",
    1: "UC",
    2: "DC or RD",
    3: "UD",
    4: "reserved",
    5: "XRC",
    6: "manufacturer's",
    7: "manufacturer's",
}
"""By the upper three bits of an opcode (IBA 9.2.1).

Nothing is known to send Reliable Datagrams, whose opcodes Mellanox uses for its Dynamically Connected transport; where
that has which headers is not published.
"""


def transport_service(value: int) -> str:
    """The transport service of a BTH opcode: 'RC', 'UC', 'DC or RD', 'UD', 'XRC', 'CNP', or whose opcodes they are."""
    return "CNP" if value == CNP else _SERVICES[value >> 5]


def is_foreign(values: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which opcodes belong to a transport service that is not decoded beyond the BTH."""
    services = values >> 5
    foreign: NDArray[np.bool_] = (services == 2) | ((services == 4) & (values != CNP)) | (services > 5)
    return foreign


def opcode_name(value: int) -> str:
    """The name of a BTH opcode; 'opcode 0x15 (reserved)', 'DC or RD opcode 0x44 (not decoded)' where it has none."""
    if value in OPCODE_NAMES:
        return OPCODE_NAMES[value]
    service = transport_service(value)
    if service in ("DC or RD", "manufacturer's"):
        return f"{service} opcode 0x{value:02x} (not decoded)"
    return f"opcode 0x{value:02x} (reserved)"


def verb(value: int) -> str:
    """What a request of this BTH opcode is part of: 'Send', 'RDMA Write', 'RDMA Read', 'Atomic'."""
    if IS_WRITE[value]:
        return "RDMA Write"
    if IS_READ_REQUEST[value]:
        return "RDMA Read"
    return "Atomic" if IS_ATOMIC[value] else "Send"


def _where(*words: str, role: str = "", position: str = "") -> NDArray[np.bool_]:
    """A 256-entry table: the opcodes whose name holds one of the words, of that role and position."""
    table = np.zeros(256, np.bool_)
    for row in _TABLE:
        named = not words or any(word in row.name for word in words)
        if named and role in ("", row.role) and position in ("", row.position):
            table[row.value] = True
    return table


def _holding(header: str) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    for row in _TABLE:
        table[row.value] = header in row.headers
    return table


def _offsets(header: str) -> NDArray[np.int64]:
    """Where an extended header starts, counted from the BTH; 0 where the opcode has none."""
    table = np.zeros(256, np.int64)
    for row in _TABLE:
        if header in row.headers:
            before = row.headers[: row.headers.index(header)]
            table[row.value] = BTH_BYTES + sum(HEADER_BYTES[name] for name in before)
    return table


def _header_bytes() -> NDArray[np.int64]:
    table = np.zeros(256, np.int64)
    for row in _TABLE:
        table[row.value] = row.header_bytes
    return table


# Lookup tables of 256 entries, indexed by opcode.

KNOWN = _where()
EXTENDED_BYTES = _header_bytes()
"""Bytes of all extended headers."""
OFFSET = {header: _offsets(header) for header in HEADER_BYTES}
"""By header name: offset of the header from the BTH, 0 where the opcode does not have it."""

HAS_RETH = _holding("RETH")
HAS_AETH = _holding("AETH")
HAS_DETH = _holding("DETH")
HAS_IMMDT = _holding("ImmDt")
HAS_IETH = _holding("IETH")
HAS_ATOMICETH = _holding("AtomicETH")

IS_REQUEST = _where(role="request")
IS_RESPONSE = _where(role="response")
IS_FIRST = _where(position="first")
IS_MIDDLE = _where(position="middle")
IS_LAST = _where(position="last")
IS_ONLY = _where(position="only")

IS_SEND = _where(" SEND ")
IS_WRITE = _where("RDMA WRITE")
IS_READ_REQUEST = _where("READ Request")
IS_READ_RESPONSE = _where("READ Response")
IS_ACKNOWLEDGE = _where("RC Acknowledge")
"""Acknowledge packets; ATOMIC Acknowledge is not among them."""
IS_ATOMIC = _where("CmpSwap", "FetchAdd")
IS_ATOMIC_RESPONSE = _where("ATOMIC Acknowledge")
IS_RC = np.arange(256) >> 5 == 0
"""Reliable Connection: the upper three bits of the opcode name the transport service."""
"""The Congestion Notification Packet's opcode."""

# The AETH syndrome: bit 7 reserved, bits 6-5 say what it is, bits 4-0 are the value (IBA 9.7.5.2).

ACK, RNR_NAK, RESERVED_SYNDROME, NAK = range(4)

NAK_CODES = {  # IBA 9.7.5.2
    0: "PSN Sequence Error",
    1: "Invalid Request",
    2: "Remote Access Error",
    3: "Remote Operational Error",
    4: "Invalid RD Request",
}

# fmt: off
RNR_TIMER_MS = (  # IBA 9.7.5.2
    655.36, 0.01,  0.02,  0.03,  0.04,  0.06,  0.08,  0.12,
    0.16,   0.24,  0.32,  0.48,  0.64,  0.96,  1.28,  1.92,
    2.56,   3.84,  5.12,  7.68,  10.24, 15.36, 20.48, 30.72,
    40.96,  61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
)
"""How long the requester is asked to wait, in milliseconds, by the timer field of an RNR NAK."""

CREDITS = (  # IBA 9.7.7
    0,    1,    2,    3,    4,     6,     8,     12,
    16,   24,   32,   48,   64,    96,    128,   192,
    256,  384,  512,  768,  1024,  1536,  2048,  3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768, None,
)
"""End-to-end credits by the value of an ACK syndrome; None: the responder does not count credits."""
# fmt: on


def syndrome_kind(syndrome: int) -> int:
    """ACK, RNR_NAK, RESERVED_SYNDROME or NAK."""
    return syndrome >> 5 & 3


def syndrome_name(syndrome: int) -> str:
    """The syndrome in words: 'ACK', 'ACK, 16 credits', 'RNR NAK, 0.64 ms', 'NAK, PSN Sequence Error'."""
    kind, value = syndrome_kind(syndrome), syndrome & 0x1F
    if kind == ACK:
        credit = CREDITS[value]
        return "ACK" if credit is None else f"ACK, {credit} credits"
    if kind == RNR_NAK:
        return f"RNR NAK, {RNR_TIMER_MS[value]:g} ms"
    if kind == NAK:
        return f"NAK, {NAK_CODES.get(value, f'code {value}')}"
    return f"reserved syndrome 0x{syndrome:02x}"


PATH_MTU = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
"""Payload bytes by the path MTU code of CM messages and queue pair attributes (IBA 12.7)."""
