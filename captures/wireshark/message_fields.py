"""Calls and replies beside Wireshark's, field by field: as ONC RPC over TCP, which tshark dissects in full."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from html import unescape
from typing import NamedTuple

from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.onc.rpc_header import GssCredential
from rdmascope.dissect.onc.shapes.decode import SparseBytes
from rdmascope.dissect.onc.shapes.messages import MessageTree, call_tree, reply_tree
from rdmascope.dissect.rpcrdma.rpcs import DUPLICATE_REPLY, Rpc
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.verify.frame_fields import Values
from rdmascope.dissect.verify.rpc_fields import PROTOCOLS, FieldDifference, ShownField, ShownMessage, compared_fields
from rdmascope.dissect.verify.second_opinion import FIELD, ComparisonTally, Difference

from ..errors import CaptureError
from ..write.export import TcpExport
from ..write.output import named_spool
from ..write.tcp_export import messages_of, stream_pair
from .tshark import TWO_PASSES, Tshark

_FIELD = re.compile(rb'\s*<field name="([^"]*)"')
_ATTRIBUTE = re.compile(rb' (hide|size|pos|value|unmaskedvalue|show)="([^"]*)"')
_MALFORMED = b"_ws.malformed"


def shown_messages(tshark: Tshark, path: str) -> Generator[ShownMessage, None, None]:
    """The RPC messages in a capture of ONC RPC over TCP, a message a packet at most, in its order.

    Raises CaptureError where tshark fails.
    """
    command = [tshark.path, "-n", TWO_PASSES, "-r", path, "-Y", "rpc", "-T", "pdml", "-J", " ".join(PROTOCOLS)]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise CaptureError(f"{tshark.path}: {error.strerror}") from None
    with process:
        assert process.stdout is not None
        try:
            yield from _messages(process.stdout)
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode:
        raise CaptureError(f"{tshark} failed with exit status {process.returncode}")


def _messages(lines: Iterable[bytes]) -> Generator[ShownMessage, None, None]:
    """Each field is one line of PDML."""
    found: list[dict[bytes, bytes]] = []
    malformed = False
    for line in lines:
        field = _FIELD.match(line)
        if field is not None:
            given = dict(_ATTRIBUTE.findall(line))
            if given.get(b"hide") != b"yes":
                given[b"name"] = field[1]
                found.append(given)
        elif line.startswith(b"</packet>"):
            message = _message(found, malformed)
            if message is not None:
                yield message
            found, malformed = [], False
        if _MALFORMED in line:
            malformed = True


def _message(found: list[dict[bytes, bytes]], malformed: bool) -> ShownMessage | None:
    xid = next((one for one in found if one[b"name"] == b"rpc.xid"), None)
    kind = next((one for one in found if one[b"name"] == b"rpc.msgtyp"), None)
    if xid is None or kind is None:
        return None
    first = int(xid.get(b"pos", b"0"))
    fields = tuple(
        ShownField(
            one[b"name"].decode(),
            int(one.get(b"pos", b"0")) - first,
            bytes.fromhex((one.get(b"unmaskedvalue") or one.get(b"value") or b"").decode()),
            unescape(one.get(b"show", b"").decode()) if one[b"name"].endswith(b"hash") else "",
        )
        for one in found
        if b"value" in one and one[b"name"] not in (b"num", b"len", b"caplen", b"timestamp", b"filtered")
    )
    return ShownMessage(int(xid[b"value"], 16), kind.get(b"show") == b"1", fields, malformed)


MAX_NODES = 1 << 20
"""Values of a message; Wireshark lists all of them."""
WIDE = 8
"""Bytes that are one number; longer values are given as words."""


class _Exported(NamedTuple):
    """One message, and what its results are decoded by."""

    frame: int
    xid: int
    reply: bool
    program: int | None
    version: int | None
    procedure: int | None
    gss: GssCredential | None


class MessageFields:
    """Fed the RPCs of a capture, then compares; a context manager.  Messages of which bytes are missing are left out.

    Attributes:
        tally: how many fields were compared.
        names: Wireshark's names of those that were.
    """

    def __init__(self) -> None:
        self.tally = ComparisonTally()
        self.names: set[str] = set()
        self._export = TcpExport()
        self._messages: list[_Exported] = []
        self._nfs: set[int] = set()
        self._connections: dict[int, Connection] = {}

    def __enter__(self) -> MessageFields:
        return self

    def __exit__(self, *_: object) -> None:
        self._export.close()

    def add(self, rpc: Rpc) -> None:
        """An RPC that ended, and still holds its bytes."""
        if rpc.call is None or rpc.state == DUPLICATE_REPLY:
            return
        if rpc.program == NFS:
            self._nfs.add(rpc.connection.number)
        for is_call, sender, time, message in messages_of(rpc):
            if message is None or not message.complete:
                return  # Without the call, Wireshark does not know what a reply answers.
            self._connections[rpc.connection.number] = rpc.connection
            self._export.add(rpc.connection.number, sender, time, message.length, message.pieces)
            frame = rpc.call_frame if is_call else rpc.reply_frame
            self._messages.append(
                _Exported(frame, rpc.xid, not is_call, rpc.program, rpc.version, rpc.procedure, rpc.gss)
            )

    def compare(self, tshark: Tshark) -> Iterator[Difference]:
        """Every difference, in the order of time."""
        if not self._messages:
            return
        with named_spool("messages.pcapng") as (path, file):
            pairs = [stream_pair(one, number in self._nfs) for number, one in sorted(self._connections.items())]
            self._export.write(file, pairs)
            file.flush()
            waiting: dict[tuple[int, bool], deque[int]] = defaultdict(deque)
            for index in self._export.order():
                one = self._messages[index]
                waiting[one.xid, one.reply].append(index)
            with closing(shown_messages(tshark, path)) as shown:
                for message in shown:
                    same = waiting.get((message.xid, message.reply))
                    if same:
                        yield from self._compared(same.popleft(), message)
        for index in sorted(index for same in waiting.values() for index in same):
            one = self._messages[index]
            self.tally.compared += 1
            self.tally.unexplained += 1
            yield Difference(FIELD, one.frame, "rpc", (one.xid,), None)

    def _compared(self, index: int, shown: ShownMessage) -> Iterator[Difference]:
        one = self._messages[index]
        found = compared_fields(_tree(one, self._export.message(index)), shown)
        self.names |= found.names
        self.tally.compared += found.compared
        self.tally.equal += found.compared - len(found.differences)
        for difference in found.differences:
            explained = bool(difference.reason)
            self.tally.explained += explained
            self.tally.unexplained += not explained
            yield _difference(one.frame, difference)


def _tree(one: _Exported, data: bytes) -> MessageTree:
    found = SparseBytes([(0, data)], len(data))
    if not one.reply:
        return call_tree(found, MAX_NODES)
    return reply_tree(found, one.program, one.version, one.procedure, one.gss, MAX_NODES)


def _difference(frame: int, found: FieldDifference) -> Difference:
    right = "rdmascope" if found.reason else "undecided"
    ours, theirs = _values(found.ours), _values(found.theirs)
    return Difference(FIELD, frame, found.name, ours, theirs, right, found.reason, found.reference)


def _values(data: bytes | None) -> Values | None:
    if data is None:
        return None
    if len(data) <= WIDE:
        return (int.from_bytes(data),)
    return tuple(int.from_bytes(data[at : at + 4]) for at in range(0, len(data), 4))
