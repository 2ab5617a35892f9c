"""A client of an export in memory: calls by name, results as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from rdmascope.captures.peer import rpc
from rdmascope.captures.peer.endpoint import service, whole
from rdmascope.captures.peer.nfs_server.export import Export
from rdmascope.captures.peer.nfs_server.file_system import NfsStatus
from rdmascope.captures.peer.rpc import decoded, encoded
from rdmascope.dissect.onc.rpc_header import NFS, reply_header
from rdmascope.dissect.onc.shapes.nfs4 import COMPOUND4ARGS, COMPOUND4RES
from rdmascope.dissect.onc.shapes.rfc1813 import NFS3

from .xdr_encode import NUMBERS

PROCEDURES = {shape.name: number for number, shape in NFS3.items()}

Op = tuple[str, dict[str, Any]]


class Results(NamedTuple):
    """Of a COMPOUND."""

    status: NfsStatus
    each: list[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        assert self.status == NfsStatus.OK, self
        return self.each[-1]


def op(name: str, **arguments: Any) -> Op:
    return name, arguments


@dataclass
class FileClient:
    """Calls with fresh XIDs, unless one is given."""

    export: Export
    xids: Any = field(default_factory=lambda: count(1))
    client: int = 0
    session: bytes = bytes(16)
    sequences: dict[int, int] = field(default_factory=dict)
    """The last sequence ID of each slot."""

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
        head = rpc.call_head(next(self.xids) if xid is None else xid, NFS, 3, number)
        error, data = self.reply(head + (encoded(shape.arguments, arguments) if shape.arguments else b""))
        assert error == ""
        assert shape.results is not None
        results, end = decoded(shape.results, data)
        assert end == len(data)
        return results

    # NFSv4

    def compound(self, *operations: Op, minor: int = 1, tag: bytes = b"", xid: int | None = None) -> Results:
        """The results of a COMPOUND."""
        arguments = {
            "tag": tag,
            "minorversion": minor,
            "argarray": [{"argop": NUMBERS[name], **args} for name, args in operations],
        }
        head = rpc.call_head(next(self.xids) if xid is None else xid, NFS, 4, service.COMPOUND)
        error, data = self.reply(head + encoded(COMPOUND4ARGS, arguments))
        assert error == ""
        return self.results(data, tag)

    def results(self, data: bytes, tag: bytes = b"") -> Results:
        found, end = decoded(COMPOUND4RES, data)
        assert (end, found["tag"]) == (len(data), tag)
        assert found["status"] == (found["resarray"][-1]["status"] if found["resarray"] else found["status"])
        return Results(NfsStatus(found["status"]), found["resarray"])

    def begin(self, owner: bytes = b"client.example", verifier: bytes = b"verifier", **limits: int) -> None:
        """A session, as a mount does."""
        who = {"co_verifier": verifier, "co_ownerid": owner}
        made = self.compound(op("EXCHANGE_ID", eia_clientowner=who)).last
        channel = {"ca_maxrequestsize": 1 << 21, "ca_maxresponsesize": 1 << 21, "ca_maxresponsesize_cached": 4096}
        channel |= {"ca_maxoperations": 8, "ca_maxrequests": 4, **limits}
        self.client = made["eir_clientid"]
        created = self.compound(
            op(
                "CREATE_SESSION",
                csa_clientid=self.client,
                csa_sequence=made["eir_sequenceid"],
                csa_fore_chan_attrs=channel,
                csa_back_chan_attrs=channel,
            )
        )
        self.session = created.last["csr_sessionid"]
        self.sequences = {}

    def sequence(self, slot: int = 0, again: bool = False, cached: int = 0) -> Op:
        self.sequences[slot] = self.sequences.get(slot, 0) + (not again)
        return op(
            "SEQUENCE",
            sa_sessionid=self.session,
            sa_sequenceid=self.sequences[slot],
            sa_slotid=slot,
            sa_highest_slotid=slot,
            sa_cachethis=cached,
        )

    def v4(self, *operations: Op) -> Results:
        """On slot 0, with its next sequence ID; SEQUENCE itself is left out of the results."""
        status, found = self.compound(self.sequence(), *operations)
        assert found[0]["status"] == 0
        return Results(status, found[1:])

    def open(
        self, name: bytes, *, create: bool = True, access: int = 3, owner: bytes = b"owner", **how: Any
    ) -> Results:
        """OPEN in the root, and GETFH."""
        openhow = {"opentype": 1, "how": {"mode": 0, "createattrs": {"mode": 0o644}, **how}} if create else {}
        return self.v4(
            op("PUTROOTFH"),
            op("OPEN", share_access=access, owner={"owner": owner}, openhow=openhow, claim={"claim": 0, "file": name}),
            op("GETFH"),
        )
