"""RPC messages written as ONC RPC over TCP in pcapng, so that every tool that knows NFS reads them; other exporters.

Each message gets a record mark (RFC 5531, 11) and goes, in segments of at most ``SEGMENT`` bytes, into the TCP
stream of its connection, with right sequence and acknowledgement numbers and checksums, between a handshake and
a FIN.  A segment with bytes that the capture does not have is truncated before the first of them, as by a snaplen.
"""

from __future__ import annotations

import ipaddress
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from struct import Struct
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.arrays import Int64s, Rows, stretches, take
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.audit.rule import Finding
from rdmascope.dissect.layers.oncrpc_codes import LAST_FRAGMENT
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import NFS, procedure_label, program_label
from rdmascope.dissect.plugged import failure, origin
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpc_table import FLAG_TRUNCATED, STATES, ProcedureNames, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Extent, Reassembled, Rpc
from rdmascope.dissect.transport.connection import ENDS, Connection
from rdmascope.dissect.units import duration, plural, size

from ..errors import CaptureError
from ..session.listeners import DividedAudit
from ..session.session import Session
from ..tables.condition import ChosenRpcs, Condition
from .output import check_outputs, open_output, spool
from .pcapng_writer import PcapngWriter

MAX_RUNS = 12
"""Runs of frames that are listed."""
MAX_CHUNKS = 8
"""Chunks that are listed."""
MAX_NOTED = 4
"""Findings that an RPC, or a connection, has in comments."""
MAX_ABOUT = 1 << 16
"""RPCs and connections with findings that are remembered."""
PARTS = "call", "Reads", "server", "Writes", "reply", "waiting for retransmissions"
"""What the parts of a latency are called."""


def message_comments(rpc: Rpc, is_call: bool, message: Reassembled, ranges: Iterable[tuple[int, int]]) -> list[str]:
    """A comment for each range [start, end) of a call or reply, which a packet has.

    The first says everything, the others which RPC they belong to, and all of them the RDMA frames they came from.
    """
    extents = message.extents
    starts = [extent.start for extent in extents]
    comments = []
    for start, end in ranges:
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        frames = _frames(extents[max(first - 1, 0) : last] if len(extents) > 1 else extents, start)
        comments.append(_head(rpc.number, is_call, rpc.connection.number, frames))
    about = "\n".join(_about(rpc, is_call))
    comments[0] += f"\n{about}"
    return [printable(comment) for comment in comments]


def _head(rpc: int, is_call: bool, connection: int, frames: object) -> str:
    """``frames``: as ``_frames`` says them, or the number of a single one."""
    came = f"RDMA frame{frames}" if frames else "no RDMA frame"
    return f"RPC {rpc}, {'call' if is_call else 'reply'}, connection {connection}, {came}"


@lru_cache(maxsize=1024)
def _outcome(names: ProcedureNames, state: str, status: str) -> str:
    program, version, minor_version, _, operations, name = names
    called = f"{program_label(program, version, minor_version)} {procedure_label(name, operations)}"
    return f"{called}: {state}" if status in ("", "OK") else f"{called}: {state}, {status}"


def _waited(latency: Sequence[int]) -> str:
    """``latency``: as ``Latency`` has it."""
    total, *times = latency
    whole = duration(total)
    parts = [
        f"{name} {whole if time == total else duration(time)}" for name, time in zip(PARTS, times, strict=True) if time
    ]
    return f"latency {whole}: {', '.join(parts)}" if parts else f"latency {whole}"


def _about(rpc: Rpc, is_call: bool) -> list[str]:
    names = ProcedureNames(rpc.program, rpc.version, rpc.minor_version, rpc.procedure, rpc.operations, rpc.name)
    lines = [_outcome(names, rpc.state, rpc.status)]
    chunks = [chunk for chunk in rpc.chunks if (chunk.kind == "read") == is_call]
    lines += [_chunk(chunk) for chunk in chunks[:MAX_CHUNKS]]
    if len(chunks) > MAX_CHUNKS:
        lines.append(f"{len(chunks) - MAX_CHUNKS:,} more chunks")
    if not is_call and rpc.latency is not None:
        lines.append(_waited(rpc.latency))
    if retransmissions := rpc.retransmissions:
        unit = "segment" if rpc.connection.of_tcp else "packet"
        lines.append(f"{plural(retransmissions, unit)} of this RPC retransmitted")
    lines += [f"damage: {damage}" for damage in rpc.damage[:MAX_NOTED]]
    return lines


def _chunk(chunk: ChunkUse) -> str:
    name = {"read": "Read chunk", "write": "Write chunk"}.get(chunk.kind, "Reply chunk")
    at = "" if chunk.position is None else f" at position {chunk.position}"
    words = f"{name}{at}: {plural(len(chunk.segments), 'segment')}, {size(chunk.advertised)} advertised"
    words += f", {size(chunk.transferred)} transferred"
    if chunk.returned is not None:
        words += f", {size(chunk.returned)} returned"
    operations = [operation for use in chunk.segments for operation in use.operations]
    if operations:
        kind = "RDMA Read" if chunk.kind == "read" else "RDMA Write"
        first = min(operation.first_frame for operation in operations)
        last = max(operation.last_frame for operation in operations)
        words += f" by {plural(len(operations), kind)} in frames {first}-{last}"
    return words


def _frames(extents: Sequence[Extent], start: int) -> str:
    """' 120' or 's 120-134, 140': those that carried the extents from ``start`` on."""
    if len(extents) == 1 and extents[0].frame and extents[0].start + extents[0].length > start:
        return f" {extents[0].frame}"
    numbers = sorted({extent.frame for extent in extents if extent.frame and extent.start + extent.length > start})
    if not numbers:
        return ""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs[:MAX_RUNS])
    if len(runs) > MAX_RUNS:
        words += f", … {numbers[-1]} ({len(numbers):,} frames)"
    return f" {words}" if len(numbers) == 1 else f"s {words}"


class FindingNotes:
    """Findings of the audit by RPC and connection: give ``add`` every finding."""

    def __init__(self) -> None:
        self._rpcs: dict[int, list[str]] = {}
        self._connections: dict[int, list[str]] = {}

    def add(self, finding: Finding) -> None:
        notes, number = self._rpcs, finding.rpc
        if number is None:
            notes, number = self._connections, finding.connection.number
        if number not in notes and len(notes) >= MAX_ABOUT:
            return
        listed = notes.setdefault(number, [])
        if len(listed) < MAX_NOTED:
            listed.append(
                f"{finding.severity}: {finding.rule.id}, by the {ENDS[finding.endpoint]}: {printable(finding.observed)}"
            )

    def of_rpc(self, number: int) -> str:
        """Lines about an RPC, each behind a line break; '' where nothing was found."""
        return _behind(self._rpcs.get(number))

    def of_connection(self, number: int) -> str:
        """Lines about a connection that are about none of its RPCs."""
        return _behind(self._connections.get(number))


def _behind(notes: list[str] | None) -> str:
    return "\n".join(("", *notes)) if notes else ""


def printable(text: str) -> str:
    """Without control characters but line breaks: some of it came from the wire."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


LINKTYPE_RAW = 101

SEGMENT = 65_160
"""Payload bytes of a full segment; with headers it is below the 65,535 that an IP packet may have."""

MAX_GAP = 1 << 20
"""Bytes of a gap that is written as truncated segments; segments inside a longer one are left out."""

FIN, SYN, PSH, ACK = 0x01, 0x02, 0x08, 0x10
EVENTS = 1 << 12
"""Whose times are numbers of Python's at a time."""
WINDOW = 1 << 18
"""Bytes of what waits that are read at a time."""
INITIAL_SEQUENCE = 1_000_000_000, 2_000_000_000

_IPV4 = Struct(">BBHHHBBH")  # RFC 791, 3.1, before the addresses
_IPV6 = Struct(">IHBB")  # RFC 8200, 3, before the addresses
_TCP = Struct(">HHIIHHHH")  # RFC 9293, 3.1
_SYN_OPTIONS = Struct(">BBH BBB B").pack(2, 4, 65_495, 3, 3, 14, 0)
"""Maximum segment size and window scale (RFC 9293, 3.7.1; RFC 7323, 2.2), padded."""
_WINDOW = 65_535

_OPEN, _MESSAGE, _CLOSE = range(3)


@dataclass(frozen=True, slots=True)
class TcpStreamPair:
    """A connection as it shall appear: addresses are IP addresses, times nanoseconds."""

    number: int
    client: str
    server: str
    client_port: int
    server_port: int
    first_time: int
    last_time: int
    comment: str


class WholeMessages(NamedTuple):
    """Messages in columns, each whole and in one packet."""

    conversations: Sequence[int]
    senders: Sequence[int]
    """0 for the client."""
    times: Sequence[int]
    """Nanoseconds since the Unix epoch."""
    contents: Sequence[bytes]
    comments: Sequence[str]
    """Comments of the packets; empty if they have none."""
    rpcs: Sequence[int]

    def part(self, first: int, end: int) -> WholeMessages:
        return WholeMessages(*[column[first:end] for column in self])  # type: ignore[arg-type]


class TcpExport:
    """Collects messages in any order, then writes them in the order of time.

    Their bytes wait in a temporary file in ``directory``, not in memory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.incomplete = 0
        """Messages of which bytes are missing."""
        self._spool = spool(directory)
        self._comments = spool(directory)
        self._comment_ends = array("q")
        self._rpcs = array("q")
        self._end = self._position = 0
        self._times = array("q")
        self._starts = array("q")
        self._conversations = array("q")
        self._senders = array("b")
        self._missing: dict[int, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._times)

    def add(
        self,
        conversation: int,
        sender: int,
        time: int,
        length: int,
        pieces: Iterable[tuple[int, bytes]],
        gaps: Sequence[tuple[int, int]] = (),
        comments: Sequence[str] = (),
        rpc: int = 0,
    ) -> None:
        """Take one whole RPC message of ``length`` bytes: ``sender`` is 0 for the client, ``gaps`` [start, end) are of
        unknown bytes, ``pieces`` the others and their offsets; ``comments``: of its packets, see ``ranges``."""
        if gaps:
            self._missing[len(self)] = sorted(gaps)
            self.incomplete += 1
        self._put(self._end, (LAST_FRAGMENT | length).to_bytes(4, "big"))
        for offset, data in pieces:
            self._put(self._end + 4 + offset, data)
        self._note((conversation,), (sender,), (time,), (length,), ("\0".join(comments),), (rpc,))

    def add_whole(self, messages: WholeMessages) -> None:
        """Take many messages, each complete and in one packet."""
        lengths = [*map(len, messages.contents)]
        marks = (np.array(lengths, np.int64) | LAST_FRAGMENT).astype(">u4").tobytes()
        marked = zip(range(0, len(marks), 4), messages.contents, strict=True)
        self._put(self._end, b"".join([part for at, content in marked for part in (marks[at : at + 4], content)]))
        self._note(
            messages.conversations,
            messages.senders,
            messages.times,
            lengths,
            messages.comments or [""] * len(lengths),
            messages.rpcs,
        )

    def _note(
        self,
        conversations: Sequence[int],
        senders: Sequence[int],
        times: Sequence[int],
        lengths: Sequence[int],
        comments: Sequence[str],
        rpcs: Sequence[int],
    ) -> None:
        """Take messages whose bytes are written."""
        self._conversations.extend(conversations)
        self._senders.extend(senders)
        self._times.extend(times)
        self._rpcs.extend(rpcs)
        *starts, self._end = accumulate([4 + length for length in lengths], initial=self._end)
        self._starts.extend(starts)
        said = [comment.encode() for comment in comments]
        self._comments.write(b"".join(said))
        before = self._comment_ends[-1] if self._comment_ends else 0
        self._comment_ends.extend(before + end for end in accumulate(map(len, said)))

    def _put(self, at: int, data: bytes) -> None:
        if at != self._position:  # Each seek empties the buffer.
            self._spool.seek(at)
        self._spool.write(data)
        self._position = at + len(data)

    def write(
        self,
        file: BinaryIO,
        conversations: Sequence[TcpStreamPair],
        remark: Callable[[int], str] | None = None,
    ) -> int:
        """Write a pcapng; returns the number of packets.  Conversations without a message are left out.

        ``remark`` gives what is added to the first comment of an RPC's messages.
        """
        used = set(self._conversations)
        streams = {
            conversation.number: TcpPackets(conversation)
            for conversation in conversations
            if conversation.number in used
        }
        self._spool.truncate(self._end)  # also where the last message ends in missing bytes
        self._spool.flush()
        self._comments.flush()
        messages, comments = ReadWindow(self._spool), ReadWindow(self._comments)
        starts = array("q", [*self._starts, self._end])
        packets = 0
        writer = PcapngWriter(file, LINKTYPE_RAW)
        for time, what, which in self._events(streams):
            if what == _MESSAGE:
                stream = streams[self._conversations[which]]
                start, end = starts[which], starts[which + 1]
                gaps = [(4 + low, 4 + high) for low, high in self._missing[which]] if which in self._missing else ()
                said = self._comments_of(comments, which, remark)
                written = stream.message(self._senders[which], partial(messages.read, start), end - start, gaps, said)
            else:
                written = streams[which].handshake() if what == _OPEN else streams[which].finish()
            for packet, length, comment in written:
                writer.write(time, packet, length, comment)
                packets += 1
        return packets

    def order(self) -> list[int]:
        """The messages in the order in which they are written, by the order in which they were added."""
        return np.argsort(np.array(self._times, np.int64), kind="stable").tolist()  # type: ignore[no-any-return]

    def message(self, number: int) -> bytes:
        """A message that was added, without the record mark; zeros in place of unknown bytes."""
        start = self._starts[number] + 4
        end = self._starts[number + 1] if number + 1 < len(self) else self._end
        self._spool.flush()
        return os.pread(self._spool.fileno(), end - start, start)

    def close(self) -> None:
        self._spool.close()
        self._comments.close()

    def _comments_of(self, written: ReadWindow, which: int, remark: Callable[[int], str] | None) -> list[str]:
        start = self._comment_ends[which - 1] if which else 0
        length = self._comment_ends[which] - start
        comments = written.read(start, 0, length).decode().split("\0") if length else []
        if remark is not None and comments:
            comments[0] += remark(self._rpcs[which])
        return comments

    def _events(self, streams: dict[int, TcpPackets]) -> Iterator[tuple[int, int, int]]:
        """``(time, what, which)`` in the order of time; what: a conversation's number or a message's index."""
        times = np.frombuffer(self._times, np.int64) if len(self) else np.empty(0, np.int64)
        owners = np.frombuffer(self._conversations, np.int64) if len(self) else np.empty(0, np.int64)
        bounds: list[tuple[int, int, int]] = []
        order = np.argsort(owners, kind="stable")
        numbers, starts = np.unique(owners[order], return_index=True)
        earliest = np.minimum.reduceat(times[order], starts).tolist() if len(starts) else []
        latest = np.maximum.reduceat(times[order], starts).tolist() if len(starts) else []
        for number, low, high in zip(numbers.tolist(), earliest, latest, strict=True):
            bounds.append((min(streams[number].conversation.first_time, low), _OPEN, number))
            bounds.append((max(streams[number].conversation.last_time, high), _CLOSE, number))
        extra = np.array(bounds, np.int64).reshape(-1, 3)
        every = np.concatenate((times, extra[:, 0]))
        what = np.concatenate((np.full(len(times), _MESSAGE), extra[:, 1]))
        which = np.concatenate((np.arange(len(times)), extra[:, 2]))
        order = np.lexsort((what, every))
        for first in range(0, len(order), EVENTS):
            part = order[first : first + EVENTS]
            yield from zip(every[part].tolist(), what[part].tolist(), which[part].tolist(), strict=True)


class ReadWindow:
    """Reads a file mostly from one end to the other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._start, self._window = file.fileno(), 0, b""

    def read(self, base: int, low: int, high: int) -> bytes:
        """Bytes [base + low, base + high)."""
        start, size = base + low, high - low
        at = start - self._start
        if at < 0 or at + size > len(self._window):
            if size > WINDOW // 4:
                return os.pread(self._file, size, start)
            self._start, at = max(start - WINDOW // 2, 0), min(start, WINDOW // 2)
            self._window = os.pread(self._file, WINDOW, self._start)
        return self._window[at : at + size]


Written = list[tuple[bytes, int, str | None]]
"""For each packet, the captured bytes, its true length, and a comment."""


class TcpPackets:
    """One TCP connection: numbers its bytes and builds its packets."""

    def __init__(self, conversation: TcpStreamPair) -> None:
        self.conversation = conversation
        ends = ipaddress.ip_address(conversation.client), ipaddress.ip_address(conversation.server)
        self._version = 4 if all(end.version == 4 for end in ends) else 6
        addresses = [
            end.packed if end.version == self._version else bytes(10) + b"\xff\xff" + end.packed for end in ends
        ]
        self._sum = int.from_bytes(b"".join(addresses)) % 0xFFFF
        """The checksum over the words of both addresses."""
        self._between = b"".join(addresses), b"".join(addresses[::-1])
        """Sender and receiver, by sender."""
        ports = conversation.client_port, conversation.server_port
        self._ports = ports, ports[::-1]
        self._next = list(INITIAL_SEQUENCE)

    def handshake(self) -> Written:
        return [
            self._packet(0, SYN, _SYN_OPTIONS, 1, comment=self.conversation.comment),
            self._packet(1, SYN | ACK, _SYN_OPTIONS, 1),
            self._packet(0, ACK),
        ]

    def finish(self) -> Written:
        return [self._packet(0, FIN | ACK, taken=1), self._packet(1, FIN | ACK, taken=1), self._packet(0, ACK)]

    def message(
        self,
        sender: int,
        read: Callable[[int, int], bytes],
        length: int,
        gaps: Sequence[tuple[int, int]],
        comments: Sequence[str] = (),
    ) -> Written:
        """The segments of one record of ``length`` bytes, each truncated before its first unknown byte.

        ``read`` gives bytes [start, end) of it, zeros in place of unknown ones; ``comments``: of the segments.
        """
        if length <= SEGMENT and not gaps:
            comment = comments[0] if comments else None
            return [self._packet(sender, ACK | PSH, read(0, length), length, comment=comment)]
        packets = []
        gap = 0
        for number, at in enumerate(range(0, length, SEGMENT)):
            until = min(at + SEGMENT, length)
            while gap < len(gaps) and gaps[gap][1] <= at:
                gap += 1
            known = until if gap == len(gaps) else min(until, max(at, gaps[gap][0]))
            flags = ACK | PSH if until == length else ACK
            said = [comments[number]] if number < len(comments) else []
            said += [] if known == until else ["truncated: what follows is not in the RDMA capture"]
            if known == at and gaps[gap][0] <= at and gaps[gap][1] >= until and gaps[gap][1] - gaps[gap][0] > MAX_GAP:
                self._next[sender] += until - at
                continue
            comment = "\n".join(said) or None
            packets.append(self._packet(sender, flags, read(at, until), until - at, known - at, comment))
        return packets

    def _packet(
        self,
        sender: int,
        flags: int,
        data: bytes = b"",
        taken: int = 0,
        captured: int | None = None,
        comment: str | None = None,
    ) -> tuple[bytes, int, str | None]:
        """``data``: payload, or the options of SYN; it takes so many sequence numbers."""
        ports = self._ports[sender]
        sequence = self._next[sender] & 0xFFFFFFFF
        self._next[sender] += taken
        acknowledged = self._next[1 - sender] & 0xFFFFFFFF if flags & ACK else 0
        head = 20 + len(data) >> 2 << 12 | flags if flags & SYN else 5 << 12 | flags
        length = 20 + len(data)
        # The words of what comes before the checksum, and those of the pseudo-header (RFC 9293, 3.1).
        words = self._sum + length + 6 + ports[0] + ports[1] + sequence + acknowledged + head + _WINDOW
        tcp = _TCP.pack(*ports, sequence, acknowledged, head, _WINDOW, checksum(data, words), 0)
        if self._version == 6:
            ip = _IPV6.pack(6 << 28, length, 6, 64)
        else:
            summed = checksum(b"", self._sum + 0x4500 + 20 + length + 0x4000 + 0x4006)
            ip = _IPV4.pack(0x45, 0, 20 + length, 0, 0x4000, 64, 6, summed)
        packet = b"".join((ip, self._between[sender], tcp, data if captured is None else data[:captured]))
        return packet, len(ip) + len(self._between[sender]) + length, comment


def ranges(length: int) -> list[tuple[int, int]]:
    """The ranges [start, end) of a message of so many bytes that its packets have, one after the other."""
    return [(max(at - 4, 0), min(at + SEGMENT, length + 4) - 4) for at in range(0, length + 4, SEGMENT)]


def checksum(data: bytes, more: int = 0) -> int:
    """The Internet checksum (RFC 1071); ``more`` is added to the words."""
    number = int.from_bytes(data)
    number = more + (number << 8 if len(data) % 2 else number)
    # Words of 16 bits add up as their number does modulo 0xFFFF, but that zero is said by all ones.
    return 0xFFFF if not number else 0xFFFF - (number % 0xFFFF or 0xFFFF)


NFS_TCP_PORT = 2049

FIRST_CLIENT_PORT, CLIENT_PORTS = 32768, 28232
"""The range that Linux takes ephemeral ports from."""


class Exported(NamedTuple):
    """Counts of what was written."""

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
    """Write every call and reply of several sessions into one file, with RPCs and connections numbered over all. Each
    session comes with the name of its capture, for the comments. ``paths``: all files that they read.
    """
    directory: Path | None = None
    if isinstance(output, Path):
        check_outputs([output], paths)
        directory = output.parent
    export = TcpExport(directory)
    skipped = lost = 0
    nfs: set[int] = set()
    connections: dict[int, Connection] = {}
    """Connections with messages, evicted ones too."""
    notes = FindingNotes()
    names: dict[int, str] = {}
    """By connection."""

    def add(table: RpcTable) -> None:
        """Its messages, RPC by RPC, each run of those that are whole at once."""
        sent = _sent_whole(table)
        rows, places = take(table.only_rows, sent), table.row_places[sent]
        whole = _whole_messages(table, rows, comments)
        procedures = table.names.procedures
        for number, procedure in {*zip(rows["connection"].tolist(), rows["procedure"].tolist(), strict=True)}:
            connections[number] = table.conversation(number).connection
            if procedures[procedure].program == NFS:
                nfs.add(number)
        others = iter(table.selected(~np.bincount(places, minlength=len(table)).astype(np.bool_)))
        before = 0
        for begin, end in pairwise([*stretches(places - np.arange(len(places))).tolist(), len(places)]):
            first = int(places[begin])
            for rpc in islice(others, first - before):
                add_rpc(rpc)
            export.add_whole(whole.part(2 * begin, 2 * end))
            before = first + end - begin
        for rpc in others:
            add_rpc(rpc)

    def add_rpc(rpc: Rpc) -> None:
        nonlocal skipped, lost
        number = rpc.connection.number
        if rpc.program == NFS:
            nfs.add(number)
        for is_call, sender, time, message in messages_of(rpc):
            if message is None:
                lost += 1
                continue
            if skip_incomplete and not message.complete:
                skipped += 1
                continue
            said = message_comments(rpc, is_call, message, ranges(message.length)) if comments else ()
            connections[number] = rpc.connection
            export.add(number, sender, time, message.length, message.pieces, message.gaps, said, rpc.number)

    try:
        for session, name in sessions:
            before = {*connections}
            for table in _tables(session, condition, notes if comments else None):
                add(table)
                del table
            names |= {number: f"; {name}" for number in connections.keys() - before if name}
        pairs = [
            stream_pair(connection, number in nfs, names.get(number, "") + notes.of_connection(number))
            for number, connection in sorted(connections.items())
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
    """The call and the reply, as far as they were seen: whether it is the call, the endpoint that sent it, the time,
    and the contents."""
    messages: list[tuple[bool, int, int, Reassembled | None]] = []
    halves: tuple[tuple[bool, Callable[[Rpc], Reassembled | None]], ...] = (
        (True, reassembled_call),
        (False, reassembled_reply),
    )
    for is_call, reassemble in halves:
        message = rpc.call if is_call else rpc.reply
        if message is not None:
            operation = message.operation
            time = operation.first_time if is_call else operation.last_time
            messages.append((is_call, operation.initiator, time, reassemble(rpc)))
    return messages


def _sent_whole(table: RpcTable) -> NDArray[np.bool_]:
    """Which row RPCs are not truncated and have no chunks, but a latency, waited for no retransmission, and have call
    and reply in one packet each here."""
    rows = table.only_rows
    if not len(table.data):
        return np.zeros(len(rows), np.bool_)
    lengths = np.column_stack((rows["call_inline"], rows["reply_inline"]))
    return (  # type: ignore[no-any-return]
        (rows["chunks"] < 0)
        & (rows["flags"] & FLAG_TRUNCATED == 0)
        & (rows["latency"] >= 0)
        & (rows["retransmissions"] == 0)
        & (rows["latency_retransmission"] == 0)
        & (rows["call_frame"] == rows["call_last_frame"])
        & (rows["reply_first_frame"] == rows["reply_frame"])
        & (lengths.min(axis=1) > 0)
        & (lengths.max(axis=1) <= SEGMENT - 4)
    )


def _whole_messages(table: RpcTable, rows: Rows, comments: bool) -> WholeMessages:
    """The calls and replies of rows that were sent whole, in turn."""

    def in_turn(*names: str) -> Int64s:
        return np.column_stack([rows[name] for name in names]).ravel().astype(np.int64)

    ends = in_turn("call_at", "reply_at") + in_turn("call_send", "reply_send")
    places = zip((ends - in_turn("call_inline", "reply_inline")).tolist(), ends.tolist(), strict=True)
    data = table.data.data
    senders = in_turn("caller", "caller")
    senders[1::2] ^= 1
    numbers, connections = in_turn("number", "number").tolist(), in_turn("connection", "connection").tolist()
    said: list[str] = []
    if comments:
        procedures, statuses = table.names.procedures, table.names.statuses
        outcomes = [
            printable(_outcome(procedures[procedure], STATES[state], statuses[status][0]))
            for procedure, state, status in zip(*[rows[name].tolist() for name in _OUTCOME], strict=True)
        ]
        frames, totals = in_turn("call_frame", "reply_frame").tolist(), rows["latency"].tolist()
        for at, (outcome, total, server) in enumerate(
            zip(outcomes, totals, rows["latency_server"].tolist(), strict=True)
        ):
            number, connection = numbers[2 * at], connections[2 * at]
            call, reply = frames[2 * at : 2 * at + 2]
            said.append(f"{_head(number, True, connection, f' {call}')}\n{outcome}")
            waited = _waited((total, 0, 0, server, 0, 0, 0))
            said.append(f"{_head(number, False, connection, f' {reply}')}\n{outcome}\n{waited}")
    times = in_turn("call_time", "reply_end").tolist()
    return WholeMessages(
        connections, senders.tolist(), times, [data[low:high].tobytes() for low, high in places], said, numbers
    )


_OUTCOME = "procedure", "state", "status"


def _tables(
    session: Session, condition: Condition | ChosenRpcs | None, notes: FindingNotes | None
) -> Iterator[RpcTable]:
    """The chosen RPCs; on the way, the audit's findings go to ``notes``."""
    auditor = None
    if notes is not None:
        session.needs_packets()
        auditor = Auditor(examples=0)
        session.watch(DividedAudit(auditor, notes.add))
    for table in session.tables(None if auditor is None else auditor.evict):
        yield table if condition is None else condition.selected(table, session)
        del table
        if auditor is not None:
            auditor.forget(session.analyzer.last_time or 0)
    if auditor is not None:
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


Write = Callable[[Iterator[Rpc], BinaryIO], None]


class Exporter(NamedTuple):
    """A function that writes RPCs, and the plug-in that brought it."""

    write: Write
    plugin: str

    def run(self, rpcs: Iterator[Rpc], file: BinaryIO) -> None:
        """Raises CaptureError where it fails: what it wrote until then is not whole."""
        try:
            self.write(rpcs, file)
        except (CaptureError, OSError):
            raise
        except Exception as error:
            words = failure(self.plugin, self.write.__name__, error).partition("; left out")[0]
            raise CaptureError(words) from error


EXPORTERS: dict[str, Exporter] = {}


def exporter(name: str) -> Callable[[Write], Write]:
    """Register the function below: it is given the RPCs as they end, and the file to write."""

    def register(write: Write) -> Write:
        if name in EXPORTERS:
            raise ValueError(f"there is an exporter {name} already")
        EXPORTERS[name] = Exporter(write, origin())
        return write

    return register
