"""All RPCs of a session as ONC RPC over TCP in a pcapng file."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc
from rdmascope.dissect.transport.connection import Connection

from ..session.listeners import WatchedAudit
from ..session.session import Session
from ..tables.condition import ChosenRpcs, Condition, chosen
from .export import TcpExport, TcpStreamPair, ranges
from .output import check_outputs, open_output
from .packet_comments import FindingNotes, message_comments

NFS_TCP_PORT = 2049

FIRST_CLIENT_PORT, CLIENT_PORTS = 32768, 28232
"""The range that Linux takes ephemeral ports from."""


class Exported(NamedTuple):
    """What was written."""

    messages: int
    incomplete: int
    """Messages of which bytes are missing, written truncated."""
    skipped: int
    """Messages left out because bytes of them are missing."""
    not_reconstructed: int
    """Messages left out because they are no RPC messages."""
    packets: int


def export_tcp(
    session: Session,
    output: Path | BinaryIO,
    skip_incomplete: bool = False,
    condition: Condition | None = None,
    comments: bool = True,
) -> Exported:
    """Write every call and reply of a session.  Raises CaptureError where ``output`` is what is read.

    ``comments``: every packet says which RPC and frames it came from, and what the audit found.
    """
    return export_tcp_of_each([(session, "")], session.paths, output, skip_incomplete, condition, comments)


def export_tcp_of_each(
    sessions: Iterable[tuple[Session, str]],
    paths: Sequence[str],
    output: Path | BinaryIO,
    skip_incomplete: bool = False,
    condition: Condition | ChosenRpcs | None = None,
    comments: bool = True,
) -> Exported:
    """The same of several sessions, whose RPCs and connections are numbered over all of them, together.

    With each comes the name of its capture, which connections have in their comments.  ``paths``: all that they read.
    """
    directory: Path | None = None
    if isinstance(output, Path):
        check_outputs([output], paths)
        directory = output.parent
    export = TcpExport(directory)
    skipped = lost = 0
    nfs: set[int] = set()
    connections: dict[int, Connection] = {}
    """Those with messages, evicted ones too."""
    notes = FindingNotes()
    names: dict[int, str] = {}
    """By connection."""

    def rpcs() -> Iterator[Rpc]:
        for session, name in sessions:
            for rpc in _judged(session, condition, notes) if comments else chosen(session, condition):
                if name:
                    names[rpc.connection.number] = f"; {name}"
                yield rpc

    try:
        for rpc in rpcs():
            if rpc.program == NFS:
                nfs.add(rpc.connection.number)
            for is_call, sender, time, message in messages_of(rpc):
                if message is None:
                    lost += 1
                    continue
                if skip_incomplete and not message.complete:
                    skipped += 1
                    continue
                said = message_comments(rpc, is_call, message, ranges(message.length)) if comments else ()
                number = rpc.connection.number
                connections[number] = rpc.connection
                export.add(number, sender, time, message.length, message.pieces, message.gaps, said, rpc.number)
        pairs = [
            stream_pair(one, number in nfs, names.get(number, "") + notes.of_connection(number))
            for number, one in sorted(connections.items())
        ]
        with open_output(output, paths) if isinstance(output, Path) else nullcontext(output) as file:
            packets = export.write(file, pairs, notes.of_rpc)
        return Exported(len(export), export.incomplete, skipped, lost, packets)
    finally:
        export.close()


def export_record(output: str, exported: Exported) -> Record:
    """What was written, as a record."""
    return record("export", output=output, **exported._asdict())


def messages_of(rpc: Rpc) -> list[tuple[bool, int, int, Reassembled | None]]:
    """Of the call and the reply, as far as they were seen: whether it is the call, the endpoint that sent it, the time,
    and the contents."""
    found: list[tuple[bool, int, int, Reassembled | None]] = []
    halves: tuple[tuple[bool, Callable[[Rpc], Reassembled | None]], ...] = (
        (True, reassembled_call),
        (False, reassembled_reply),
    )
    for is_call, reassemble in halves:
        message = rpc.call if is_call else rpc.reply
        if message is not None:
            operation = message.operation
            time = operation.first_time if is_call else operation.last_time
            found.append((is_call, operation.initiator, time, reassemble(rpc)))
    return found


def _judged(session: Session, condition: Condition | ChosenRpcs | None, notes: FindingNotes) -> Iterator[Rpc]:
    """The chosen RPCs; on the way, the audit's findings go to ``notes``."""
    auditor = Auditor(examples=0)
    session.watch(WatchedAudit(auditor, notes.add))
    for table in session.tables(auditor.evict):
        yield from table if condition is None else condition.selected(table, session)
        del table
        auditor.forget(session.analyzer.last_time or 0)
    auditor.finish(session.analyzer.conversations)


def stream_pair(connection: Connection, nfs: bool, remark: str = "") -> TcpStreamPair:
    """The connection as TCP; ``nfs``: it carried NFS; ``remark``: what its comment ends with."""
    client, server = connection.endpoints
    number = connection.number
    return TcpStreamPair(
        number=number,
        client=_ip(client.address, number, 0),
        server=_ip(server.address, number, 1),
        client_port=FIRST_CLIENT_PORT + (number - 1) % CLIENT_PORTS,
        server_port=NFS_TCP_PORT if nfs else connection.service_port or NFS_TCP_PORT,
        first_time=connection.first_time,
        last_time=connection.last_time,
        comment=f"rdmascope: connection {number}, {connection.transport} {client} to {server}{remark}",
    )


def _ip(address: str, connection: int, end: int) -> str:
    """The address, or one made up (fd00::/8) where the transport has no IP addresses."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return f"fd00::{connection & 0xFFFF:x}:{end + 1:x}"
