"""The info columns of plain RPCs, in columns: what ``packet_info`` says of each call and reply, of all of a batch.

A property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, some, words_at
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG, procedure_name
from ..onc.compound_columns import OperationSequences
from ..onc.programs import NFS, NFS_CALLBACK, program_name
from ..onc.statuses import OK
from ..onc.summary import is_compound, path_words, title
from ..onc.summary_columns import (
    Details,
    compound_details,
    compound_reply_details,
    nfs3_details,
    nfs3_reply_details,
    rights_asked,
)
from ..onc.summary_others import other_call_words, other_reply_words
from ..rpcrdma.messages import HEADER, LONG_HEADER
from ..rpcrdma.rpc_table import ProcedureNames, RpcTable
from ..text_columns import Decimal, Hexadecimal, KnownTexts, Piece, Texts, chosen, joined, words_of
from ..units import size
from .packet_info import long_reply_words

_CREDENTIAL = 28
"""Offset of a credential's length in a call."""
_RESULTS = 24
"""Of the results in a reply with an empty verifier."""


class PlainInfo(NamedTuple):
    """What Sends have in their info columns."""

    frames: Int64s
    protocol: Texts
    info: tuple[Piece, ...]
    rpcs: Int64s
    """Number of the RPC of each."""


def plain_info(table: RpcTable, sequences: OperationSequences, paths: KnownTexts | None = None) -> Iterator[PlainInfo]:
    """Of the plain RPCs of a table whose contents are kept; ``sequences`` is for the results of COMPOUNDs, ``paths``
    of what each of them names."""
    rows = table.plain_rows
    if not len(rows):
        return
    distinct, which = np.unique(rows["procedure"], return_inverse=True)
    names = [table.names.procedures[index] for index in distinct.tolist()]
    long = rows["transfer"] >= 0
    batch = _PlainInfos(table, rows, names, which, np.array([_form(one) for one in names])[which], long)
    offered = returned = np.empty(0, np.int64)
    if some(long):
        _, offered, _, returned = table.chunks.reply_chunks(rows["transfer"][long])
    known = paths or KnownTexts([None], np.zeros(len(rows), np.int64))
    yield from batch.info("call", _call_details(batch, known), offered, known)
    yield from batch.info("reply", _reply_details(batch, sequences), returned, known)


class _PlainInfos(NamedTuple):
    """The plain RPCs of a batch."""

    table: RpcTable
    rows: Rows
    names: list[ProcedureNames]
    which: Int64s
    """Index in ``names`` of each row."""
    forms: Int64s
    long: NDArray[np.bool_]
    """The reply came through a Reply chunk."""

    def starts(self, what: str, rows: Int64s) -> Int64s:
        """Where the RPC messages of some calls or replies begin."""
        start: Int64s = self.rows[f"{what}_at"][rows] + np.where(self.long[rows], LONG_HEADER, HEADER)
        return start

    def ends(self, what: str, rows: Int64s) -> Int64s:
        end: Int64s = self.starts(what, rows) + self.rows[f"{what}_inline"][rows]
        return end

    @property
    def procedures(self) -> Int64s:
        return np.array([one.procedure for one in self.names])[self.which]

    def info(self, what: str, details: Iterable[Details], chunks: Int64s, paths: KnownTexts) -> Iterator[PlainInfo]:
        """Of calls or replies; ``chunks``: bytes of the Reply chunks of the long ones; ``paths``: of what they name."""
        call = what == "call"
        length = np.zeros(len(self.rows), np.int64)
        length[self.long] = chunks
        protocols = [program_name(one.program or 0) for one in self.names]
        rows = self.rows
        # The same for all: a column costs more than a row.
        behind = joined(
            (
                " (Reply In " if call else " (Call In ",
                Decimal(rows["reply_frame" if call else "call_frame"]),
                "); RPC ",
                Decimal(rows["number"]),
                Texts(
                    [f"; {procedure_name(1, one)} xid=0x" for one in (RDMA_MSG, RDMA_NOMSG)],
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
                named = () if call else (_path_words(paths.rows(mine)),)
                info = (*pieces, *named, chosen(behind, mine))
                yield PlainInfo(frames[mine], Texts(protocols, self.which[mine]), info, numbers[mine])


def _path_words(paths: KnownTexts) -> Texts:
    """Behind what a reply says."""
    return Texts([path_words(path) for path in paths.texts], paths.which)


def _reply_chunk(length: int) -> str:
    return f", Reply chunk of {size(length)}" if length else ""


_COMPOUND, _CALLBACK, _NFS3, _OTHER = range(4)
"""Forms of arguments and results."""


def _form(names: ProcedureNames) -> int:
    if is_compound(names.program or 0, names.version or 0, names.procedure or 0):
        return _CALLBACK if names.program == NFS_CALLBACK else _COMPOUND
    return _NFS3 if names.program == NFS and names.version == 3 else _OTHER


def _titled(batch: _PlainInfos, rows: Int64s, titles: list[str], details: Details) -> Details:
    """``details`` of some rows as of all, behind a title by their names."""
    short = [
        text.removeprefix(f"{program_name(one.program or 0)} ") for text, one in zip(titles, batch.names, strict=True)
    ]
    return [(rows[mine], (Texts(short, batch.which[rows[mine]]), *pieces)) for mine, pieces in details]


def _call_details(batch: _PlainInfos, paths: KnownTexts) -> Iterator[Details]:
    titles = []
    for one in batch.names:
        operations = f" {' | '.join(one.operations)}" if one.operations else ""
        minor = one.minor_version
        titles.append(f"{title(one.program or 0, one.version or 0, one.procedure or 0, minor)} Call{operations}")
    data = batch.table.data
    for form in (_COMPOUND, _CALLBACK, _NFS3, _OTHER):
        rows = (batch.forms == form).nonzero()[0]
        if not len(rows):
            continue
        starts = _arguments(data, batch.starts("call", rows))
        ends = batch.ends("call", rows)
        named = paths.rows(rows)
        if form == _NFS3:
            details = nfs3_details(data, batch.procedures[rows], starts, ends, named)
        elif form == _OTHER:
            details = [(np.arange(len(rows)), (Texts(_other_calls(batch, rows, starts, ends, named)),))]
        else:
            details = compound_details(data, starts, ends, form == _CALLBACK, named)
        yield _titled(batch, rows, titles, details)


def _other_calls(batch: _PlainInfos, rows: Int64s, starts: Int64s, ends: Int64s, paths: KnownTexts) -> list[str]:
    """Of programs beside NFS, which have few."""
    view = batch.table.data.data
    found = []
    for row, start, end, path in zip(rows.tolist(), starts.tolist(), ends.tolist(), paths.listed(), strict=True):
        one = batch.names[batch.which[row]]
        called = one.program or 0, one.version or 0, one.procedure or 0
        found.append(other_call_words(*called, view[start:end], path))
    return found


def _other_replies(batch: _PlainInfos, rows: Int64s) -> list[str]:
    view = batch.table.data.data
    found = []
    starts, ends = batch.starts("reply", rows) + _RESULTS, batch.ends("reply", rows)
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        one = batch.names[batch.which[row]]
        found.append(other_reply_words(one.program or 0, one.version or 0, one.procedure or 0, view[start:end]))
    return found


def _arguments(data: Bytes, starts: Int64s) -> Int64s:
    """Where the arguments of calls begin: behind credential and verifier (RFC 5531, 9)."""
    at = starts + _CREDENTIAL
    for _ in range(2):
        at = at + 8 + (words_at(data, at) + 3 & -4)
    return at - 4


def _reply_details(batch: _PlainInfos, sequences: OperationSequences) -> Iterator[Details]:
    data = batch.table.data
    titles = [
        f"{title(one.program or 0, one.version or 0, one.procedure or 0, one.minor_version)} Reply"
        for one in batch.names
    ]
    statuses = [text for text, _ in batch.table.names.statuses]
    failures = [failed for _, failed in batch.table.names.statuses]
    for form in (_COMPOUND, _CALLBACK):
        rows = ((batch.forms == form) & ~batch.long).nonzero()[0]
        if len(rows):
            starts, ends = batch.starts("reply", rows), batch.ends("reply", rows)
            details = compound_reply_details(data, starts, starts + _RESULTS, ends, sequences, form == _CALLBACK)
            yield _titled(batch, rows, titles, details)
    status = batch.rows["status"]
    good = np.array([text == OK for text in statuses])[status]
    plain = (batch.forms == _NFS3) | (batch.forms == _OTHER)
    rows = (plain & good & ~batch.long & (batch.forms == _NFS3)).nonzero()[0]
    if len(rows):
        starts, ends = batch.starts("reply", rows) + _RESULTS, batch.ends("reply", rows)

        def asked(mine: Int64s) -> Int64s:
            return rights_asked(
                data, _arguments(data, batch.starts("call", rows[mine])), batch.ends("call", rows[mine])
            )

        yield _titled(batch, rows, titles, nfs3_reply_details(data, batch.procedures[rows], starts, ends, asked))
    rows = (plain & ~batch.long & ~(good & (batch.forms == _NFS3))).nonzero()[0]
    words = [
        "" if text == OK else f" {'Error: ' if failed else ''}{text}"
        for text, failed in zip(statuses, failures, strict=True)
    ]
    if len(rows):
        said = [Texts(words, status[rows].astype(np.int64))]
        answered = (good[rows] & (batch.forms[rows] == _OTHER)).nonzero()[0]
        if len(answered):
            results = np.array([""] * len(rows), object)
            results[answered] = _other_replies(batch, rows[answered])
            said.append(Texts(results.tolist()))
        yield _titled(batch, rows, titles, [(np.arange(len(rows)), (*said,))])
    yield from _long_details(batch, sequences, titles)


def _long_details(batch: _PlainInfos, sequences: OperationSequences, titles: list[str]) -> Iterator[Details]:
    """Of replies through Reply chunks; those that are not in one piece in the batch are looked at singly."""
    rows = batch.long.nonzero()[0]
    if not len(rows):
        return
    data = batch.table.data
    starts, ends = batch.table.chunks.places(batch.rows["transfer"][rows], data)
    for form in (_COMPOUND, _CALLBACK):
        mine = ((batch.forms[rows] == form) & (starts >= 0)).nonzero()[0]
        if len(mine):
            bodies = starts[mine] + _RESULTS
            details = compound_reply_details(data, starts[mine], bodies, ends[mine], sequences, form == _CALLBACK)
            yield _titled(batch, rows[mine], titles, details)
    single = rows[((batch.forms[rows] != _COMPOUND) & (batch.forms[rows] != _CALLBACK)) | (starts < 0)]
    if len(single):
        words = [long_reply_words(rpc) for rpc in batch.table.plain_rpcs(batch.rows[single])]
        yield [(single, (Texts(words),))]
