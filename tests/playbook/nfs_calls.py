"""A client of an export in memory: calls by name, results as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rdmascope.captures.nfs_server.export import Export
from rdmascope.captures.synth.endpoint import service, whole
from rdmascope.captures.synth.xdr_values import decoded, encoded
from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.onc.rpc_header import reply_header
from rdmascope.dissect.onc.shapes.rfc1813 import NFS3

PROCEDURES = {shape.name: number for number, shape in NFS3.items()}


@dataclass
class FileClient:
    """Calls with fresh XIDs, unless one is given."""

    export: Export
    xids: Any = field(default_factory=lambda: count(1))

    @property
    def root(self) -> bytes:
        return self.export.files.handle(self.export.files.root)

    def reply(self, message: bytes) -> tuple[str, bytes]:
        """What the server refuses a call with, '' where it does not, and the results."""
        data = whole(self.export.answer(message))
        assert len(data) % 4 == 0
        header = reply_header(data, 0, len(data))
        assert header is not None
        assert header.xid == int.from_bytes(message[:4], "big")
        return header.error, data[header.body :]

    def v3(self, procedure: str, xid: int | None = None, **arguments: Any) -> Any:
        """The results of an NFSv3 call; ``from_`` is the argument "from"."""
        arguments = {one.rstrip("_"): value for one, value in arguments.items()}
        number = PROCEDURES[procedure]
        shape = NFS3[number]
        head = service.call_head(next(self.xids) if xid is None else xid, NFS, 3, number)
        error, data = self.reply(head + (encoded(shape.arguments, arguments) if shape.arguments else b""))
        assert error == ""
        assert shape.results is not None
        results, end = decoded(shape.results, data)
        assert end == len(data)
        return results
