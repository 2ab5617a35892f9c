"""Open files of NFSv4.1 and the stateids that stand for them (RFC 8881, 8.2 and 9.7)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from .status import NfsError, NfsStatus

READ, WRITE, BOTH = 1, 2, 3
"""OPEN4_SHARE_ACCESS and OPEN4_SHARE_DENY."""
MAX_OPENS = 10_000
ANONYMOUS = {"seqid": 0, "other": bytes(12)}
BYPASS = {"seqid": 0xFFFFFFFF, "other": b"\xff" * 12}
CURRENT = {"seqid": 1, "other": bytes(12)}
INVALID = {"seqid": 0xFFFFFFFF, "other": bytes(12)}
"""Special stateids (8.2.3)."""


@dataclass(slots=True, eq=False)
class OpenFile:
    client: int
    owner: bytes
    file: int
    """Number of the inode."""
    other: bytes
    access: int
    deny: int
    seqid: int = 1

    @property
    def stateid(self) -> dict[str, Any]:
        return {"seqid": self.seqid, "other": self.other}


class OpenTable:
    def __init__(self, instance: bytes) -> None:
        self._instance = instance
        self._opens: dict[bytes, OpenFile] = {}
        self._numbers = count(1)

    def open(self, client: int, owner: bytes, file: int, access: int, deny: int) -> OpenFile:
        """A new open, or more of the same owner's."""
        own = None
        for one in self._opens.values():
            if one.file != file:
                continue
            if (one.client, one.owner) == (client, owner):
                own = one
            elif access & one.deny or deny & one.access:
                raise NfsError(NfsStatus.SHARE_DENIED)
        if own is None:
            if len(self._opens) >= MAX_OPENS:
                raise NfsError(NfsStatus.DELAY)
            other = self._instance[:4] + next(self._numbers).to_bytes(8, "big")
            own = self._opens[other] = OpenFile(client, owner, file, other, access, deny)
            return own
        own.access |= access
        own.deny |= deny
        _advance(own)
        return own

    def find(self, client: int, stateid: dict[str, Any], file: int | None = None) -> OpenFile:
        """The open that a stateid names; a seqid of 0 means the latest."""
        found = self._opens.get(stateid["other"])
        if found is None or found.client != client or file not in (None, found.file):
            raise NfsError(NfsStatus.BAD_STATEID)
        if stateid["seqid"] and stateid["seqid"] != found.seqid:
            older = stateid["seqid"] < found.seqid
            raise NfsError(NfsStatus.OLD_STATEID if older else NfsStatus.BAD_STATEID)
        return found

    def downgrade(self, found: OpenFile, access: int, deny: int) -> None:
        if not access or access & ~found.access or deny & ~found.deny:
            raise NfsError(NfsStatus.INVAL)
        found.access, found.deny = access, deny
        _advance(found)

    def close(self, found: OpenFile) -> None:
        del self._opens[found.other]

    def drop_client(self, client: int) -> None:
        for one in [one for one in self._opens.values() if one.client == client]:
            del self._opens[one.other]

    def of_client(self, client: int) -> bool:
        return any(one.client == client for one in self._opens.values())


def _advance(found: OpenFile) -> None:
    found.seqid = found.seqid % 0xFFFFFFFF + 1
