"""Words of the info column for single values."""

from __future__ import annotations

from .shapes.rfc1813 import CREATEMODE3
from .shapes.rfc7530 import ACCESS4

TO_END_OF_FILE = (1 << 64) - 1
"""A length (RFC 8881, 18.10)."""

MAX_NAME = 255
"""Characters of a file name that are shown."""

_STABLE = {0: "UNSTABLE", 1: "DATA_SYNC", 2: "FILE_SYNC"}
_TYPES = {
    1: "file",  # ftype3 (RFC 1813, 2.5)
    2: "directory",
    3: "block device",
    4: "character device",
    5: "symbolic link",
    6: "socket",
    7: "fifo",
}


def printable_name(raw: memoryview | bytes) -> str:
    """The first characters of a file name."""
    text = bytes(raw[: 4 * MAX_NAME]).decode("utf-8", "backslashreplace")[:MAX_NAME]
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def stable_word(stable: int) -> str:
    """'FILE_SYNC'."""
    return _STABLE.get(stable) or f"stable {stable}"


def length_words(length: int) -> str:
    """' Len: 4096', ' Len: to end of file'."""
    return f" Len: {'to end of file' if length == TO_END_OF_FILE else length}"


def _rights(mask: int) -> str:
    """'READ LOOKUP' (RFC 1813, 3.3.4; RFC 8881, 18.1; RFC 8276, 8.6)."""
    names = [name.removeprefix("ACCESS4_") for bit, name in ACCESS4.flags.items() if mask & bit]
    rest = mask & ~sum(ACCESS4.flags)
    return " ".join([*names, f"{rest:#x}"] if rest else names)


def check_words(mask: int) -> str:
    """What ACCESS asks for: ' Check: READ LOOKUP'."""
    return f" Check: {_rights(mask) or 'nothing'}"


def allowed_words(asked: int, allowed: int) -> str:
    """What it answers: ' Allowed: READ Denied: MODIFY'; ``asked`` of the call, or what the server supports of that."""
    denied = _rights(asked & ~allowed)
    return f" Allowed: {_rights(allowed) or 'nothing'}" + (f" Denied: {denied}" if denied else "")


def create_words(mode: int) -> str:
    """' Mode: EXCLUSIVE' (RFC 1813, 3.3.8)."""
    return f" Mode: {CREATEMODE3.values.get(mode, mode)}"


def type_word(type: int) -> str:
    return _TYPES.get(type) or f"type {type}"


def attribute_words(type: int, mode: int, uid: int, gid: int) -> str:
    """', file mode: 0644 uid: 0 gid: 0'."""
    return f", {type_word(type)} mode: 0{mode:o} uid: {uid} gid: {gid}"
