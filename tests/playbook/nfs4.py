"""NFS version 4 COMPOUNDs and callbacks (RFC 7530, 8881); DDP-eligible items after RFC 8267, 4.1."""

from __future__ import annotations

from dataclasses import dataclass

from .rpc import Call, Parts, Reply, item, opaque, u32, u64

PROGRAM, VERSION, COMPOUND = 100003, 4, 1
CALLBACK_PROGRAM = 0x40000000
OK, IO = 0, 5
FH = bytes(range(100, 128))
STATEID = u32(1) + bytes(range(12))
SESSION = bytes(range(16))


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: its number, and its arguments or its status and results."""

    number: int
    parts: Parts = ()
    status: int = OK


def _flat(ops: tuple[Op, ...], results: bool) -> Parts:
    parts: Parts = ()
    for op in ops:
        parts += (u32(op.number, op.status) if results else u32(op.number), *op.parts)
    return parts


def compound(*ops: Op, minor: int = 1, tag: bytes = b"") -> Call:
    return Call(PROGRAM, VERSION, COMPOUND, (opaque(tag) + u32(minor, len(ops)), *_flat(ops, False)))


def compound_reply(*ops: Op, tag: bytes = b"") -> Reply:
    return Reply((u32(ops[-1].status) + opaque(tag) + u32(len(ops)), *_flat(ops, True)))


def callback(*ops: Op, minor: int = 1) -> Call:
    return Call(CALLBACK_PROGRAM, 1, 1, (opaque(b"") + u32(minor, 0, len(ops)), *_flat(ops, False)))


def callback_of_4_0(procedure: int) -> tuple[Call, Reply]:
    """CB_NULL (0), or a CB_COMPOUND that recalls a delegation (1), and what the client answers."""
    if not procedure:
        return Call(CALLBACK_PROGRAM, 1, 0, ()), Reply()
    return callback(cb_recall(), minor=0), compound_reply(cb_recall_done())


def sequence(number: int = 1) -> Op:
    return Op(53, (SESSION + u32(number, 0, 0, 0),))


def sequence_done(number: int = 1) -> Op:
    return Op(53, (SESSION + u32(number, 0, 63, 63, 0),))


def putfh(fh: bytes = FH) -> Op:
    return Op(22, (opaque(fh),))


def putfh_done() -> Op:
    return Op(22)


def getattr_() -> Op:
    return Op(9, (u32(1, 1 << 4),))


def getattr_done(size: int = 4096) -> Op:
    return Op(9, (u32(1, 1 << 4) + opaque(u64(size)),))


def read(offset: int, count: int) -> Op:
    return Op(25, (STATEID + u64(offset) + u32(count),))


def read_done(data: bytes, eof: bool = False) -> Op:
    return Op(25, (u32(eof), *item(data)))


def failed(number: int, status: int = IO) -> Op:
    return Op(number, (), status)


def write(offset: int, data: bytes) -> Op:
    return Op(38, (STATEID + u64(offset) + u32(2), *item(data)))


def write_done(count: int) -> Op:
    return Op(38, (u32(count, 2) + b"verifier",))


def readlink() -> Op:
    return Op(27)


def readlink_done(path: bytes) -> Op:
    return Op(27, item(path))


def cb_sequence(number: int = 1) -> Op:
    return Op(11, (SESSION + u32(number, 0, 0, 0, 0),))


def cb_sequence_done(number: int = 1) -> Op:
    return Op(11, (SESSION + u32(number, 0, 0, 0),))


def cb_recall() -> Op:
    return Op(4, (STATEID + u32(0) + opaque(FH),))


def cb_recall_done() -> Op:
    return Op(4)
