"""NFS version 3 calls and results (RFC 1813); DDP-eligible items after RFC 8267, 3.1."""

from __future__ import annotations

from .rpc import Call, Reply, item, opaque, u32, u64

PROGRAM, VERSION = 100003, 3
OK, NOENT, IO = 0, 2, 5
FH = bytes(range(32))


def fattr(size: int = 4096) -> bytes:
    """fattr3 (2.6)."""
    return u32(1, 0o644, 1, 1000, 100) + u64(size, size) + u32(0, 0) + u64(7, 99) + u32(*range(6))


def post_op(present: bool = True) -> bytes:
    return u32(1) + fattr() if present else u32(0)


def wcc() -> bytes:
    return u32(0) + post_op()


def null() -> Call:
    return Call(PROGRAM, VERSION, 0)


def null_reply() -> Reply:
    return Reply()


def getattr_(fh: bytes = FH) -> Call:
    return Call(PROGRAM, VERSION, 1, (opaque(fh),))


def getattr_reply() -> Reply:
    return Reply((u32(OK) + fattr(),))


def read(offset: int, count: int, fh: bytes = FH) -> Call:
    return Call(PROGRAM, VERSION, 6, (opaque(fh) + u64(offset) + u32(count),))


def read_reply(data: bytes, eof: bool = False, attributes: bool = True) -> Reply:
    return Reply((u32(OK) + post_op(attributes) + u32(len(data), eof), *item(data)))


def read_failed(status: int = IO) -> Reply:
    return Reply((u32(status) + post_op(),))


def write(offset: int, data: bytes, fh: bytes = FH) -> Call:
    return Call(PROGRAM, VERSION, 7, (opaque(fh) + u64(offset) + u32(len(data), 2), *item(data)))


def write_reply(count: int) -> Reply:
    return Reply((u32(OK) + wcc() + u32(count, 2) + b"verifier",))


def readlink(fh: bytes = FH) -> Call:
    return Call(PROGRAM, VERSION, 5, (opaque(fh),))


def readlink_reply(path: bytes) -> Reply:
    return Reply((u32(OK) + post_op(), *item(path)))


def symlink(name: bytes, path: bytes, fh: bytes = FH) -> Call:
    return Call(PROGRAM, VERSION, 10, (opaque(fh) + opaque(name) + u32(0, 0, 0, 0, 0, 0), *item(path)))


def symlink_reply() -> Reply:
    return Reply((u32(OK) + u32(1) + opaque(FH) + post_op() + wcc(),))


def readdirplus(count: int = 65536, fh: bytes = FH) -> Call:
    return Call(PROGRAM, VERSION, 17, (opaque(fh) + u64(0) + bytes(8) + u32(count, count),))


def readdirplus_reply(names: list[bytes]) -> Reply:
    """A long reply without a DDP-eligible item."""
    entries = b"".join(
        u32(1) + u64(number) + opaque(name) + u64(number) + post_op() + u32(1) + opaque(FH)
        for number, name in enumerate(names, 1)
    )
    return Reply((u32(OK) + post_op() + bytes(8) + entries + u32(0, 1),))
