"""The packets of a capture with their info columns, batch by batch, without an object for each; and one record per
packet, with the RPC it belongs to.

``ListedPackets.objects`` makes objects of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, distinct, some, take
from ..frames import FrameBatch, Place
from ..layers import opcodes
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG, procedure_name
from ..layers.transports import TRANSPORTS
from ..link.addresses import AddressTable
from ..link.duplicates import DUPLICATE, MIRRORED
from ..link.frame_decoder import DecodedFrames
from ..link.locate import locate
from ..link.packets import FLAG_ACK_REQUEST, FLAG_SOLICITED, PACKET, decode
from ..measure.file_names import PathLearner
from ..measure.filters import MAX_FRAME, FrameRange, includes
from ..named_tuple import NamedTuple
from ..onc.compound import OperationSequences
from ..onc.rpc_header import NFS, NFS_CALLBACK, program_name
from ..onc.status import OK
from ..onc.summary import (
    Details,
    compound_details,
    compound_reply_details,
    is_compound,
    nfs3_details,
    nfs3_reply_details,
    other_call_words,
    other_reply_words,
    path_words,
    rights_asked,
    title,
)
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.outcome import named
from ..rpcrdma.rpc_fields import REPLY_HEADER, argument_places, message_places
from ..rpcrdma.rpc_table import ProcedureNames, RpcTable
from ..rpcrdma.rpcs import Rpc
from ..text_columns import (
    Decimal,
    Encoder,
    Hexadecimal,
    KnownTexts,
    Piece,
    Texts,
    chosen,
    chosen_words,
    joined,
    lines,
    words_of,
)
from ..transport.operations import Operation
from ..transport.rc.cm import read_cms
from ..transport.retransmissions import DUPLICATE as DUPLICATE_CAUSE
from ..units import count, size
from .packet_info import (
    BEGINS_SEND,
    GENERAL_SERVICES_QP,
    HAS_DETH,
    IS_ONLY,
    PROTOCOLS,
    alone_shown,
    call_shown,
    info_template,
    long_reply_words,
    management_info,
    reply_shown,
)
from .schema import Record, placed, record, schema

if TYPE_CHECKING:
    from ..transport.iwarp.segments import IwarpSegment
    from .packet_info import SegmentLines

MARK = "[retransmission] "
"""What their info columns begin with."""
_PSNS = (1 << 24) - 1


def retransmitted(rows: Rows, analyzer: Analyzer) -> NDArray[np.bool_]:
    """Which of PACKET rows, in the order of frames, the connection's health counts as retransmitted."""
    again = np.zeros(len(rows), np.bool_)
    if not len(rows):
        return again
    frames = rows["frame"].astype(np.int64)
    for conversation in analyzer.conversations:
        ends = conversation.connection.endpoints
        for initiator, ledger in enumerate(conversation.connection.ledgers):
            for retransmission in ledger:
                if not retransmission.frame or retransmission.cause == DUPLICATE_CAUSE:
                    continue
                asked = (retransmission.frame, retransmission.last_frame, retransmission.start, retransmission.end)
                runs = [(1 - initiator, opcodes.IS_REQUEST, asked)]
                runs += [(initiator, opcodes.IS_READ_RESPONSE, answer) for answer in retransmission.answers]
                for end, kind, (first_frame, last_frame, psn, behind) in runs:
                    low, high = frames.searchsorted((first_frame, last_frame + 1)).tolist()
                    if low < high:
                        part = rows[low:high]
                        receivers = set(part["destination"].tolist())
                        names = analyzer.addresses.name
                        numbers = [number for number in receivers if names(number) == ends[end].address]
                        there = np.isin(part["destination"], numbers) & (part["dest_qp"] == ends[end].qpn)
                        within = (part["psn"].astype(np.int64) - psn) & _PSNS < behind - psn
                        again[low:high] |= there & within & kind[part["opcode"]]
    return again


class PacketRpcs:
    """Is given the RPCs as they end."""

    def __init__(self) -> None:
        self.sends: dict[int, tuple[str, str, int]] = {}
        """Frame that begins a Send -> protocol, info column, and number of the RPC."""
        self.uses: dict[int, tuple[str, int]] = {}
        """Frame that begins an RDMA Read or Write -> what it transfers, and number of the RPC."""

    def note(self, rpc: Rpc, path: str | None = None) -> None:
        """Remember which packets the RPC is in; ``path``: of what it names."""
        if rpc.call is not None:
            self.sends[rpc.call.frame] = (*call_shown(rpc, path), rpc.number)
        if rpc.reply is not None:
            self.sends[rpc.reply.frame] = (*reply_shown(rpc, path), rpc.number)
        for chunk in rpc.chunks:
            self.use(
                rpc.number, chunk.kind, (operation for segment in chunk.segments for operation in segment.operations)
            )

    def use(self, number: int, kind: str, operations: Iterable[Operation]) -> None:
        """Remember that the operations transferred a chunk of RPC ``number``."""
        for operation in operations:
            self.uses[operation.first_frame] = f"RPC {number} {kind} chunk", number

    def forget(self, frame: int) -> None:
        """Frames up to this one are listed."""
        for known in (self.sends, self.uses):
            for number in [number for number in known if number <= frame]:
                del known[number]


def outstanding_calls(analyzer: Analyzer, learner: PathLearner, first: int, last: int) -> list[tuple[Rpc, str | None]]:
    """The calls in frames ``first`` to ``last`` that have no reply so far, with the paths of what they name."""
    calls = [named(rpc) for rpc in analyzer.outstanding() if rpc.call is not None and first <= rpc.call.frame <= last]
    return [(rpc, learner.path_of_call(rpc)) for rpc in calls]


def ends(analyzer: Analyzer) -> dict[tuple[str, int], Conversation]:
    """(address, queue pair) -> the conversation on the latest connection that ends there."""
    return {
        (end.address, end.qpn): conversation
        for conversation in analyzer.conversations
        for end in conversation.connection.endpoints
    }


def headers(rows: Rows) -> Iterator[SimpleNamespace]:
    """The fields of PACKET rows, one by one."""
    names = PACKET.names or ()
    for values in rows.tolist():
        header = SimpleNamespace()
        header.__dict__.update(zip(names, values, strict=True))
        yield header


class Packet(NamedTuple):
    """An RDMA packet, or a TCP segment of iWARP, and what is known of it."""

    frame: int
    """Number of its frame."""
    time: int
    """Nanoseconds since the Unix epoch."""
    wire: int
    """Bytes of the whole frame."""
    header: SimpleNamespace | None
    """The fields of an InfiniBand packet's headers; None for iWARP."""
    segment: IwarpSegment | None
    """A TCP segment of iWARP; None for InfiniBand."""
    source: str
    destination: str
    protocol: str
    """The uppermost protocol, as tshark calls it."""
    info: str
    """One line about it."""
    rpc: int | None
    """Number of the RPC that it belongs to."""
    rpcrdma: bool
    """It begins a Send of RPC-over-RDMA."""
    batch: FrameBatch
    """Where its frame is."""
    rpcs: tuple[int, ...] = ()
    """All RPCs that it belongs to, where there are several."""

    @property
    def comment(self) -> str:
        """The comment on its frame; '' for none."""
        return self.batch.comments.get(self.frame, "")


class SegmentPackets:
    """The TCP segments of iWARP as packets.  ``analyzer`` is fed by others."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._lines: SegmentLines | None = None
        analyzer.watch_fpdus(lambda *fpdus: self._known().listen(*fpdus))

    def _known(self) -> SegmentLines:
        # Most captures have no iWARP in them, and then nothing of it need be loaded.
        if self._lines is None:
            from .packet_info import SegmentLines

            self._lines = SegmentLines(self._analyzer)
        return self._lines

    def note(self, rpcs: list[tuple[Rpc, str | None]]) -> list[tuple[Rpc, str | None]]:
        """Remember which segments RPCs, or calls, are in; gives those that iWARP did not carry."""
        carried = [rpc for rpc in rpcs if rpc[0].connection.of_tcp]
        if not carried:
            return rpcs
        self._known().note(carried)
        return [rpc for rpc in rpcs if not rpc[0].connection.of_tcp]

    def packets(self, batch: FrameBatch, first: int = 1, last: int = 1 << 62) -> Iterator[Packet]:
        """The packets of frames ``first`` to ``last`` of a batch."""
        if self._analyzer.iwarp is None:
            return
        for segment, protocol, info, rpcs in self._known().lines(batch, first, last):
            rpc = rpcs[0] if rpcs else None
            names = segment.source, segment.destination
            frame = segment.frame, segment.time, segment.wire
            yield Packet(*frame, None, segment, *names, protocol, info, rpc, False, batch, rpcs)


def segment_record(line: Packet) -> Record:
    """The record of a TCP segment of iWARP."""
    from .packet_info import segment_fields

    assert line.segment is not None
    return record(
        "packet",
        frame=line.frame,
        time_ns=line.time,
        source=line.source,
        destination=line.destination,
        length=line.wire,
        protocol=line.protocol,
        info=line.info,
        rpc=line.rpc,
        transport=line.segment.connection.transport,
        **dict.fromkeys(("opcode", "opcode_name", "dest_qp", "psn")),
        payload_length=line.segment.length,
        payload_captured=line.segment.captured,
        segment=segment_fields(line.segment, line.rpcs),
        **({"comment": line.comment} if line.comment else {}),
    )


class SendInfo(NamedTuple):
    """What Sends have in their info columns."""

    frames: Int64s
    protocol: Texts
    info: tuple[Piece, ...]
    rpcs: Int64s
    """Number of the RPC of each."""


def row_infos(table: RpcTable, sequences: OperationSequences, paths: KnownTexts | None = None) -> Iterator[SendInfo]:
    """The info of the row RPCs of a table whose contents are kept; ``sequences`` is for the results of COMPOUNDs,
    ``paths`` has what each RPC names."""
    rows = table.only_rows
    if not len(rows):
        return
    distinct, which = np.unique(rows["procedure"], return_inverse=True)
    names = [table.names.procedures[index] for index in distinct.tolist()]
    long = rows["transfer"] >= 0
    batch = _InfoRows(table, rows, names, which, np.array([_form(name) for name in names])[which], long)
    offered = returned = np.empty(0, np.int64)
    if some(long):
        _, offered, _, returned = table.chunks.reply_chunks(rows["transfer"][long])
    known = paths or KnownTexts([None], np.zeros(len(rows), np.int64))
    yield from batch.info("call", _call_details(batch, known), offered, known)
    yield from batch.info("reply", _reply_details(batch, sequences), returned, known)


class _InfoRows(NamedTuple):
    """The row RPCs of a batch."""

    table: RpcTable
    rows: Rows
    names: list[ProcedureNames]
    which: Int64s
    """Index in ``names`` of each row."""
    forms: Int64s
    long: NDArray[np.bool_]
    """The reply came through a Reply chunk."""

    def spans(self, what: str, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Where the RPC messages of some calls or replies begin, and where they end."""
        return message_places(take(self.rows, rows), what)

    def arguments(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Where the arguments of some calls begin, and where they end."""
        starts, ends = self.spans("call", rows)
        return argument_places(self.table.data, starts, ends), ends

    def called(self, row: int) -> tuple[int, int, int]:
        """Program, version and procedure of a row."""
        names = self.names[self.which[row]]
        return names.program or 0, names.version or 0, names.procedure or 0

    @property
    def procedures(self) -> Int64s:
        return np.array([name.procedure for name in self.names])[self.which]

    def info(self, what: str, details: Iterable[Details], chunks: Int64s, paths: KnownTexts) -> Iterator[SendInfo]:
        """Info of calls or replies; ``chunks``: bytes of the long ones' Reply chunks; ``paths``: what they name."""
        call = what == "call"
        length = np.zeros(len(self.rows), np.int64)
        length[self.long] = chunks
        protocols = [program_name(name.program or 0) for name in self.names]
        rows = self.rows
        # The same for all: a column costs more than a row.
        behind = joined(
            (
                " (Reply In " if call else " (Call In ",
                Decimal(rows["reply_frame" if call else "call_frame"]),
                "); RPC ",
                Decimal(rows["number"]),
                Texts(
                    [f"; {procedure_name(1, procedure)} xid=0x" for procedure in (RDMA_MSG, RDMA_NOMSG)],
                    (self.long & (not call)).astype(np.int64),
                ),
                Hexadecimal(rows["xid"], 8),
                " credits=",
                Decimal(rows["credits_requested" if call else "credits_granted"]),
                *([words_of(length, _reply_chunk)] if some(self.long) else []),
            ),
            len(rows),
        )
        frames, numbers = rows["call_frame" if call else "reply_frame"], rows["number"]
        for mine, pieces in chain.from_iterable(details):
            if len(mine):
                named = paths.rows(mine)
                words = () if call else (Texts([path_words(path) for path in named.texts], named.which),)
                info = (*pieces, *words, chosen(behind, mine))
                yield SendInfo(frames[mine], Texts(protocols, self.which[mine]), info, numbers[mine])


def _reply_chunk(length: int) -> str:
    return f", Reply chunk of {size(length)}" if length else ""


_COMPOUND, _CALLBACK, _NFS3, _OTHER = range(4)
"""Forms of arguments and results."""


def _form(names: ProcedureNames) -> int:
    if is_compound(names.program or 0, names.version or 0, names.procedure or 0):
        return _CALLBACK if names.program == NFS_CALLBACK else _COMPOUND
    return _NFS3 if names.program == NFS and names.version == 3 else _OTHER


def _titled(batch: _InfoRows, rows: Int64s, titles: list[str], details: Details) -> Details:
    """``details`` of some rows as of all, behind a title by their names."""
    short = [
        text.removeprefix(f"{program_name(name.program or 0)} ") for text, name in zip(titles, batch.names, strict=True)
    ]
    return [(rows[mine], (Texts(short, batch.which[rows[mine]]), *pieces)) for mine, pieces in details]


def _call_details(batch: _InfoRows, paths: KnownTexts) -> Iterator[Details]:
    titles = []
    for name in batch.names:
        operations = f" {' | '.join(name.operations)}" if name.operations else ""
        titles.append(f"{_title(name)} Call{operations}")
    data = batch.table.data
    for form in (_COMPOUND, _CALLBACK, _NFS3, _OTHER):
        rows = (batch.forms == form).nonzero()[0]
        if not len(rows):
            continue
        spans, named = batch.arguments(rows), paths.rows(rows)
        if form == _NFS3:
            details = nfs3_details(data, batch.procedures[rows], *spans, named)
        elif form == _OTHER:  # Programs beside NFS, which have few.
            each = zip(_contents(batch, rows, *spans), named.listed(), strict=True)
            details = [(np.arange(len(rows)), (Texts([other_call_words(*call, path) for call, path in each]),))]
        else:
            details = compound_details(data, *spans, form == _CALLBACK, named)
        yield _titled(batch, rows, titles, details)


def _title(names: ProcedureNames) -> str:
    return title(names.program or 0, names.version or 0, names.procedure or 0, names.minor_version)


def _contents(
    batch: _InfoRows, rows: Int64s, starts: Int64s, ends: Int64s
) -> Iterator[tuple[int, int, int, memoryview]]:
    """Program, version, procedure, and the arguments or results."""
    view = batch.table.data.data
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield *batch.called(row), view[start:end]


def _reply_details(batch: _InfoRows, sequences: OperationSequences) -> Iterator[Details]:
    data = batch.table.data
    titles = [f"{_title(name)} Reply" for name in batch.names]
    for form in (_COMPOUND, _CALLBACK):
        rows = ((batch.forms == form) & ~batch.long).nonzero()[0]
        if len(rows):
            starts, ends = batch.spans("reply", rows)
            details = compound_reply_details(data, starts, starts + REPLY_HEADER, ends, sequences, form == _CALLBACK)
            yield _titled(batch, rows, titles, details)
    statuses, status = batch.table.names.statuses, batch.rows["status"]
    good = np.array([text == OK for text, _ in statuses])[status]
    usual = ((batch.forms == _NFS3) | (batch.forms == _OTHER)) & ~batch.long
    said = good & (batch.forms == _NFS3)
    rows = (usual & said).nonzero()[0]
    if len(rows):
        starts, ends = batch.spans("reply", rows)

        def asked(mine: Int64s) -> Int64s:
            return rights_asked(data, *batch.arguments(rows[mine]))

        details = nfs3_reply_details(data, batch.procedures[rows], starts + REPLY_HEADER, ends, asked)
        yield _titled(batch, rows, titles, details)
    rows = (usual & ~said).nonzero()[0]
    if len(rows):
        words = ["" if text == OK else f" {'Error: ' if failed else ''}{text}" for text, failed in statuses]
        pieces = [Texts(words, status[rows].astype(np.int64))]
        answered = (good[rows] & (batch.forms[rows] == _OTHER)).nonzero()[0]
        if len(answered):
            starts, ends = batch.spans("reply", rows[answered])
            results = np.array([""] * len(rows), object)
            each = _contents(batch, rows[answered], starts + REPLY_HEADER, ends)
            results[answered] = [other_reply_words(*reply) for reply in each]
            pieces.append(Texts(results.tolist()))
        yield _titled(batch, rows, titles, [(np.arange(len(rows)), (*pieces,))])
    yield from _long_details(batch, sequences, titles)


def _long_details(batch: _InfoRows, sequences: OperationSequences, titles: list[str]) -> Iterator[Details]:
    """What replies through Reply chunks say; those that are not in one piece in the batch are decoded singly."""
    rows = batch.long.nonzero()[0]
    if not len(rows):
        return
    data = batch.table.data
    starts, ends, _ = batch.table.chunks.places(batch.rows["transfer"][rows], data)
    for form in (_COMPOUND, _CALLBACK):
        mine = ((batch.forms[rows] == form) & (starts >= 0)).nonzero()[0]
        if len(mine):
            bodies = starts[mine] + REPLY_HEADER
            details = compound_reply_details(data, starts[mine], bodies, ends[mine], sequences, form == _CALLBACK)
            yield _titled(batch, rows[mine], titles, details)
    single = rows[((batch.forms[rows] != _COMPOUND) & (batch.forms[rows] != _CALLBACK)) | (starts < 0)]
    if len(single):
        words = [long_reply_words(rpc) for rpc in batch.table.rpcs_of(batch.rows[single])]
        yield [(single, (Texts(words),))]


class Worded(NamedTuple):
    """Packets whose info columns are made of the same pieces."""

    rows: Int64s
    """Indices of PACKET rows."""
    protocol: Texts
    info: tuple[Piece, ...]
    rpcs: Int64s
    """Number of the RPC that each belongs to; 0 for none."""


def worded(
    batch: FrameBatch, rows: Rows, analyzer: Analyzer, rpcs: PacketRpcs, infos: Iterable[SendInfo]
) -> Iterator[Worded]:
    """Each of the PACKET rows of a batch once."""
    if not len(rows):
        return
    frames: Int64s = rows["frame"].astype(np.int64)
    left = np.ones(len(rows), np.bool_)
    again = retransmitted(rows, analyzer).astype(np.int64)
    for sends in (*_object_sends(rpcs), *infos):
        places, there = _places(frames, sends.frames)
        there[there] = left[places]
        places = places[left[places]]
        if len(places):
            left[places] = False
            info = sends.info if there.all() else tuple([chosen(piece, there) for piece in sends.info])
            info = _marked(info, again[places])
            yield Worded(places, chosen_words(sends.protocol, there), info, sends.rpcs[there])
    places = left.nonzero()[0]
    if len(places):
        for others in _others(batch, take(rows, places), analyzer, rpcs):
            mine = places[others.rows]
            yield others._replace(rows=mine, info=_marked(others.info, again[mine]))


def _marked(info: tuple[Piece, ...], again: Int64s) -> tuple[Piece, ...]:
    return (words_of(again, ("", MARK).__getitem__), *info) if again.any() else info


def _places(frames: Int64s, wanted: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
    """Where among ascending ``frames`` those of ``wanted`` are that are there, and which are."""
    places = frames.searchsorted(wanted)
    places[places == len(frames)] = 0
    there: NDArray[np.bool_] = frames[places] == wanted
    return places[there], there


def _object_sends(rpcs: PacketRpcs) -> Iterator[SendInfo]:
    """Sends of RPCs that are objects."""
    if rpcs.sends:
        frames = np.fromiter(rpcs.sends, np.int64, len(rpcs.sends))
        protocols, infos, numbers = zip(*rpcs.sends.values(), strict=True)
        yield SendInfo(frames, Texts(protocols), (Texts(infos),), np.array(numbers, np.int64))


def _others(batch: FrameBatch, rows: Rows, analyzer: Analyzer, rpcs: PacketRpcs) -> Iterator[Worded]:
    """Packets that are no Send of an RPC that is known."""
    conversations = ends(analyzer)
    first, kinds = _kinds(rows)
    examples = [*headers(take(rows, first))]
    talks = [conversations.get((analyzer.addresses.name(example.destination), example.dest_qp)) for example in examples]
    protocols = rows["transport"].astype(np.int64)
    places, there = _places(rows["frame"].astype(np.int64), np.fromiter(rpcs.uses, np.int64, len(rpcs.uses)))
    uses = np.zeros(len(rows), np.int64)
    uses[places] = 1 + there.nonzero()[0]
    words = ["", *[f"; {text}" for text, _ in rpcs.uses.values()]]
    numbers = np.array([0, *[number for _, number in rpcs.uses.values()]])[uses]

    alone = np.array(
        [
            talk is not None and talk.protocol == "rpcrdma" and BEGINS_SEND[example.opcode] and IS_ONLY[example.opcode]
            for example, talk in zip(examples, talks, strict=True)
        ]
    )
    managing = np.array([HAS_DETH[example.opcode] and example.dest_qp == GENERAL_SERVICES_QP for example in examples])
    singly = (alone | managing)[kinds].nonzero()[0]
    left = np.ones(len(rows), np.bool_)
    shown = []
    single = take(rows, singly)
    messages = read_cms(batch.data, single["payload"], single["captured"] * managing[kinds[singly]])
    for row, packet, kind, use, message in zip(
        singly.tolist(), headers(single), kinds[singly].tolist(), uses[singly].tolist(), messages, strict=True
    ):
        talk = talks[kind]
        if alone[kind] and talk is not None:
            payload = packet.payload, packet.payload + packet.captured, packet.length
            shown.append(alone_shown(batch.data, *payload, packet.frame, talk))
        elif message is not None:
            shown.append((PROTOCOLS[packet.transport], management_info(message) + words[use]))
        else:
            continue
        left[row] = False
    if shown:
        mine = (~left).nonzero()[0]
        names, infos = zip(*shown, strict=True)
        yield Worded(mine, Texts(names), (Texts(infos),), numbers[mine])

    templates = [info_template(example, talk) for example, talk in zip(examples, talks, strict=True)]
    for fields in sorted({template.fields for template in templates}):
        alike = np.array([template.fields == fields for template in templates])
        mine = (alike[kinds] & left).nonzero()[0]
        if not len(mine):
            continue
        pieces: list[Piece] = []
        for index, field in enumerate((*fields, "")):
            texts = [template.texts[index] if template.fields == fields else "" for template in templates]
            pieces.append(Texts(texts, kinds[mine]))
            if field:
                pieces.append(_FIELDS[field](rows[field][mine]))
        if uses[mine].any():
            pieces.append(words_of(uses[mine], words.__getitem__))
        yield Worded(mine, Texts(PROTOCOLS, protocols[mine]), tuple(pieces), numbers[mine])


_FIELDS: dict[str, Callable[[NDArray[np.uint64]], Piece]] = {
    "psn": Decimal,
    "msn": Decimal,
    "va": Hexadecimal,
    "r_key": lambda values: Hexadecimal(values, 8),
    "immediate": lambda values: Hexadecimal(values, 8),
    "dma_length": lambda values: words_of(values, count),
    "length": lambda values: words_of(values, count),
}
"""How the fields of templates are written."""


def _kinds(rows: Rows) -> tuple[Int64s, Int64s]:
    """First rows of packets that have one template, and of each row which kind it is."""
    kind = rows["opcode"].astype(np.int64) | rows["dest_qp"].astype(np.int64) << 8
    flags = rows["flags"] & (FLAG_ACK_REQUEST | FLAG_SOLICITED)
    kind |= (flags | (rows["headers"] << 2) | ((rows["ecn"] == 3) << 3) | ((rows["length"] > 0) << 4)).astype(
        np.int64
    ) << 32
    kind |= rows["syndrome"].astype(np.int64) << 40
    destination = rows["destination"].astype(np.int64)
    if int(destination.max()) >= _MAX_DESTINATIONS:
        return distinct(kind, destination)
    _, first, kinds = np.unique(kind | destination << 48, return_index=True, return_inverse=True)
    return first, kinds


_MAX_DESTINATIONS = 1 << 15


FrameMask = Callable[[Int64s], NDArray[np.bool_]]
"""Says which of some frames, by number, are meant."""


@dataclass(frozen=True, slots=True)
class ListedPackets:
    """The packets of a batch that are wanted."""

    batch: FrameBatch
    rows: Rows
    """PACKET rows."""
    addresses: AddressTable
    worded: list[Worded]
    """Each row is in one of these, where what packets are of is asked for."""
    segments: list[Packet]
    """TCP segments of iWARP."""
    analyzer: Analyzer

    def protocols(self) -> NDArray[np.object_]:
        """The uppermost protocol of each row."""
        protocols = np.empty(len(self.rows), object)
        for words in self.worded:
            texts = np.array([*words.protocol.texts], object)
            protocols[words.rows] = texts if words.protocol.which is None else texts[words.protocol.which]
        return protocols

    def infos(self) -> NDArray[np.object_]:
        """The info column of each row."""
        infos = np.empty(len(self.rows), object)
        for words in self.worded:
            texts = lines(words.info, len(words.rows), lambda text: text.encode(errors="surrogateescape"))
            infos[words.rows] = [line.decode(errors="surrogateescape") for line in texts]
        return infos

    def rpcs(self) -> Int64s:
        """The number of the RPC of each row; 0 for none."""
        numbers = np.zeros(len(self.rows), np.int64)
        for words in self.worded:
            numbers[words.rows] = words.rpcs
        return numbers

    def objects(self) -> list[Packet]:
        """The packets, in the order of frames."""
        talks, name = ends(self.analyzer), self.addresses.name
        columns = (self.protocols().tolist(), self.infos().tolist(), self.rpcs().tolist())
        packets = []
        for header, protocol, info, rpc in zip(headers(self.rows), *columns, strict=True):
            source, destination = name(header.source), name(header.destination)
            talk = talks.get((destination, header.dest_qp)) if BEGINS_SEND[header.opcode] else None
            begins = talk is not None and talk.protocol == "rpcrdma"
            packets.append(
                Packet(header.frame, header.time, header.wire, header, None, source, destination, protocol, info,
                       rpc or None, begins, self.batch)
            )  # fmt: skip
        return sorted((*packets, *self.segments), key=attrgetter("frame"))

    def __len__(self) -> int:
        return len(self.rows) + len(self.segments)

    @property
    def frames(self) -> Int64s:
        """Frame numbers of the rows, and behind them of the segments."""
        segments = np.array([segment.frame for segment in self.segments], np.int64)
        return np.concatenate((self.rows["frame"].astype(np.int64), segments))

    def ordered(self, made: Iterable[list[bytes]], segments: Sequence[bytes]) -> list[bytes]:
        """What was made of each of ``worded``, and of ``segments``, in the order of frames."""
        ordered = np.empty(len(self), object)
        for rows, texts in zip([words.rows for words in self.worded], made, strict=True):
            ordered[rows] = texts
        if segments:
            ordered[len(self.rows) :] = segments
            ordered = ordered[self.frames.argsort(kind="stable")]
        listed: list[bytes] = ordered.tolist()
        return listed


class PacketColumnLister:
    """Feed it decoded batches of frames, take their packets: those of a batch when the next was analysed, too.

    Args:
        analyzer: is fed by ``feed``, or by who calls ``take``.
        wanted: frames to list; all where there are none.
        at_once: list a batch as soon as it was analysed, though its RPCs may end later.
        chosen: of the wanted, only those of which this is true; it is given the numbers of frames.
        learner: of paths.
        names_rpcs: say what packets are of, in words; without, ``worded`` has none.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        wanted: Sequence[FrameRange] = (),
        at_once: bool = False,
        chosen: FrameMask | None = None,
        learner: PathLearner | None = None,
        names_rpcs: bool = True,
    ) -> None:
        self.analyzer = analyzer
        self._names_rpcs = names_rpcs
        self.on_rpcs: Callable[[RpcTable], None] | None = None
        """Is given the RPCs that ended, batch by batch."""
        self._learner = learner or PathLearner()
        self.done = False
        """No further batch has a packet to list."""
        self._wanted = wanted
        self._chosen = chosen
        self._last = max((frame_range.last for frame_range in wanted), default=MAX_FRAME)
        self._at_once = at_once
        self._waiting: tuple[DecodedFrames, RpcTable, KnownTexts | None] | None = None
        self._rpcs = PacketRpcs()
        self._segments = SegmentPackets(analyzer)
        self._sequences = OperationSequences()

    def feed(self, decoded: DecodedFrames) -> Iterator[ListedPackets]:
        """Take a batch that is not empty."""
        return self.take(decoded, self.analyzer.feed_table(decoded))

    def take(self, decoded: DecodedFrames, table: RpcTable) -> Iterator[ListedPackets]:
        """List a batch that was already analysed, with the RPCs that ended in it."""
        iwarp = self.analyzer.iwarp
        # Segments look for the packets of their RPCs by objects.
        table = table.with_readable_rows(iwarp.connections if iwarp is not None else (), truncated=False)
        first = int(decoded.batch.rows["number"][0])
        paths = self._note(table, first)
        if self._waiting is not None:
            yield self._columns(*self._waiting)
            self.done = first > self._last
        self._waiting = decoded, table, paths
        if self._at_once:
            self._waiting = None
            yield self._columns(decoded, table, paths)

    def finish(self, table: RpcTable | None = None) -> Iterator[ListedPackets]:
        """The input is over; ``table``: the RPCs that ended with it, where they are known."""
        self._note(RpcTable(self.analyzer.finish()) if table is None else table)
        if self._waiting is not None:
            yield self._columns(*self._waiting)
            self._waiting = None

    def _note(self, table: RpcTable, first: int = 0) -> KnownTexts | None:
        """Returns what the row RPCs name; the batch that they ended in begins with frame ``first``."""
        if self.on_rpcs is not None:
            self.on_rpcs(table)
        if not self._names_rpcs:
            return None
        paths = self._learner.learn_paths(
            table, min((frame_range.first for frame_range in self._wanted), default=1), self._last
        )
        self._remember([*zip(table.objects, paths.rows(table.places).listed(), strict=True)])
        named = paths.rows(table.row_places)
        # What waited behind a gap, or for the other direction of its connection, is in the batch before.
        early = (table.only_rows["call_frame"] < first).nonzero()[0]
        if len(early):
            rpcs = table.rpcs_of(take(table.only_rows, early))
            self._remember([*zip(rpcs, named.rows(early).listed(), strict=True)])
        return named

    def _remember(self, rpcs: list[tuple[Rpc, str | None]]) -> None:
        """Which packets RPCs, or calls, are in."""
        for rpc, path in self._segments.note(rpcs):
            self._rpcs.note(rpc, path)

    def _columns(self, decoded: DecodedFrames, table: RpcTable, paths: KnownTexts | None) -> ListedPackets:
        batch = decoded.batch
        if self._names_rpcs:
            numbers = batch.rows["number"]
            self._remember(outstanding_calls(self.analyzer, self._learner, int(numbers[0]), int(numbers[-1])))
        rows = decoded.packets.rows
        if not {DUPLICATE, MIRRORED}.isdisjoint(decoded.packets.skipped):
            rows = decode(batch, locate(batch, self.analyzer.addresses)).rows
        segments = [*self._segments.packets(batch)]
        if self._wanted:
            rows = take(rows, _any_of(self._wanted, rows["frame"]))
            segments = [segment for segment in segments if includes(self._wanted, segment.frame)]
        if self._chosen is not None:
            rows = take(rows, self._chosen(rows["frame"]))
            mine = self._chosen(np.array([segment.frame for segment in segments], np.int64))
            segments = [*compress(segments, mine.tolist())]
        if not self._names_rpcs:
            return ListedPackets(batch, rows, self.analyzer.addresses, [], segments, self.analyzer)
        rpcs = table.only_rows
        long = take(rpcs, rpcs["transfer"] >= 0)
        for number, reply in zip(long["number"].tolist(), table.long_replies(long["transfer"]), strict=True):
            self._rpcs.use(number, "reply", (reply.operation,))
        if self._sequences.full:
            self._sequences = OperationSequences()
        words = [*worded(batch, rows, self.analyzer, self._rpcs, row_infos(table, self._sequences, paths))]
        self._rpcs.forget(int(batch.rows["number"][-1]))
        return ListedPackets(batch, rows, self.analyzer.addresses, words, segments, self.analyzer)


def _any_of(wanted: Sequence[FrameRange], frames: Int64s) -> NDArray[np.bool_]:
    within = np.zeros(len(frames), np.bool_)
    for frame_range in wanted:
        within |= (frames >= frame_range.first) & (frames <= frame_range.last)
    return within


Find = Callable[[int], Place | None]
"""Where a frame is, when several files are read as one."""


def packet_json(packets: ListedPackets, find: Find | None, encoded: Encoder) -> list[bytes]:
    """A JSON object for each packet, in the order of frames; ``encoded`` makes bytes of what is JSON already."""
    made = (lines([*_pieces(packets, words, find)], len(words.rows), encoded) for words in packets.worded)
    segments = []
    for packet in packets.segments:
        fields = segment_record(packet)
        segments.append(encoded(_json(fields if find is None else placed(fields, find))))
    return packets.ordered(made, segments)


def _pieces(packets: ListedPackets, worded: Worded, find: Find | None) -> Iterator[Piece]:
    rows = take(packets.rows, worded.rows)
    frames, times, comments = rows["frame"].tolist(), rows["time"], packets.batch.comments
    yield from (f'{{"schema":"{schema("packet")}","type":"packet","frame":', Decimal(rows["frame"]))
    if find is not None:
        places = map(find, frames)
        yield Texts([f',"place":{_json(None if place is None else place._asdict())}' for place in places])
    yield from (',"time_ns":', Decimal(times) if int(times.min()) >= 0 else words_of(times, str))
    name = packets.addresses.name
    for end in ("source", "destination"):
        yield words_of(rows[end], lambda address, end=end: f',"{end}":{_json(name(address))}')  # type: ignore[misc]
    yield from (',"length":', Decimal(rows["wire"]), ',"protocol":"', _quoted(worded.protocol))
    yield from ('","info":"', *map(_quoted, worded.info), '","rpc":', _numbers(worded.rpcs))
    yield words_of(rows["transport"].astype(np.int64) << 8 | rows["opcode"], _opcode)
    for field, column in _COLUMNS.items():
        yield from (f',"{field}":', Decimal(rows[column]))
    yield ',"segment":null'
    if comments:
        yield Texts([f',"comment":{_json(comments[frame])}' if comments.get(frame) else "" for frame in frames])
    yield "}"


_COLUMNS = {"dest_qp": "dest_qp", "psn": "psn", "payload_length": "length", "payload_captured": "captured"}


def _opcode(both: int) -> str:
    opcode = both & 0xFF
    name = _json(opcodes.opcode_name(opcode))
    return f',"transport":{_json(TRANSPORTS[both >> 8])},"opcode":{opcode},"opcode_name":{name}'


def _numbers(rpcs: Int64s) -> Piece:
    known = np.count_nonzero(rpcs)
    if known == len(rpcs):
        return Decimal(rpcs)
    return words_of(rpcs, lambda number: str(number) if number else "null") if known else "null"


def _quoted(piece: Any) -> Any:
    """The piece inside of a JSON string."""
    if isinstance(piece, str):
        return _json(piece)[1:-1]
    if isinstance(piece, Texts):
        return piece._replace(texts=[_json(text)[1:-1] for text in piece.texts])
    return piece


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
