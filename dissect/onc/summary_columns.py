"""What ``summary`` says of the calls and replies of a whole batch, in columns: the words behind their titles.

The messages are plain: whole in the capture and in one piece.  What is unusual about one is left to ``summary``; a
test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, among, big_endian_words, unique, windows
from ..text_columns import Decimal, Hexadecimal, KnownTexts, Piece, Texts, chosen_words, words_of
from . import nfs3
from .compound import operation_names
from .compound_columns import OperationSequences, compound_replies
from .shapes.learned import Layout
from .summary import (
    GIVEN,
    call3_words,
    call4_words,
    call_layouts,
    compound_status,
    given_words,
    gives_names,
    path_words,
    printable_name,
    reply3_words,
    reply4_words,
    stable_word,
    stateid_hash,
)

Details = list[tuple[Int64s, tuple[Piece, ...]]]
"""Rows, and what is said of them."""

_HANDLE, _NAME, _OFFSET, _COUNT, _STABLE, _DIRECTORY, _TEXT, _STATEID = 1, 2, 4, 8, 16, 32, 64, 128
"""What is known of a call: its file handle, and so on; that the handle is a directory's; only a text."""


@dataclass(slots=True)
class _Calls:
    """What is known of each call."""

    parts: NDArray[np.uint8]
    hashes: NDArray[np.uint32]
    """Of handles."""
    stateids: NDArray[np.uint16]
    """Hashes of them."""
    names: list[str]
    """Names, or texts."""
    offsets: NDArray[np.uint64]
    counts: NDArray[np.uint64]
    stable: Int64s
    paths: KnownTexts
    """Of what each names."""

    @classmethod
    def of(cls, paths: KnownTexts) -> _Calls:
        count = len(paths.which)
        return cls(
            np.zeros(count, np.uint8),
            np.zeros(count, np.uint32),
            np.zeros(count, np.uint16),
            [""] * count,
            np.zeros(count, np.uint64),
            np.zeros(count, np.uint64),
            np.zeros(count, np.int64),
            paths,
        )

    def details(self) -> Details:
        return [
            (rows, self._pieces(part, rows))
            for part in unique(self.parts).tolist()
            for rows in [_of(self.parts == part)]
        ]

    def _pieces(self, part: int, rows: Int64s) -> tuple[Piece, ...]:
        names = [self.names[row] for row in rows.tolist()] if part & (_NAME | _TEXT) else []
        if part & _TEXT:
            return (Texts(names),)
        found: list[Piece] = []
        paths = self.paths.rows(rows)
        named = any(path is not None for path in paths.texts)
        if part & _HANDLE:
            found += [", DH: 0x" if part & _DIRECTORY else ", FH: 0x", Hexadecimal(self.hashes[rows], 8)]
        elif named:
            named_in = [f"/{name}" if part & _NAME else "" for name in names or rows.tolist()]
            found.append(Texts([path_words(path) or name for path, name in zip(paths.listed(), named_in, strict=True)]))
            part &= ~_NAME
        if part & _NAME:
            found += ["/", Texts(names)]
        if named and part & _HANDLE:
            found.append(Texts([path_words(path, "") for path in paths.texts], paths.which))
        if part & _STATEID:
            found += [" StateID: 0x" if found else ", StateID: 0x", Hexadecimal(self.stateids[rows], 4)]
        if part & _OFFSET:
            found += [" Offset: ", Decimal(self.offsets[rows])]
            if part & _COUNT:
                found += [" Len: ", Decimal(self.counts[rows])]
        if part & _STABLE:
            found += [" ", words_of(self.stable[rows], stable_word)]
        return tuple(found)


def compound_details(data: Bytes, starts: Int64s, ends: Int64s, callback: bool, paths: KnownTexts) -> Details:
    """Of COMPOUNDs whose arguments are at ``data[starts[i]:ends[i]]``; ``paths`` of what each names."""
    calls = _Calls.of(paths)
    groups, unknown = call_layouts(callback).groups(data, starts, ends)
    view = data.data
    for row in unknown.tolist():
        calls.parts[row] = _TEXT
        calls.names[row] = call4_words(view[starts[row] : ends[row]], callback, paths.row(row))
    for rows, layout in groups:
        _found(calls, data, rows, starts[rows], layout)
    return calls.details()


def _found(calls: _Calls, data: Bytes, rows: Int64s, starts: Int64s, layout: Layout) -> None:
    part = 0
    places = layout.places
    if "handle" in places:
        part |= _HANDLE
        first, end = places["handle"]
        _hash(calls, data, rows, starts + first, starts + end)
    if "name" in places:
        part |= _NAME
        first, end = places["name"]
        _name(calls, data, rows, starts + first, starts + end)
    if "stateid" in places:
        part |= _STATEID
        calls.stateids[rows] = _stateids(data, starts + places["stateid"][0])
    if "offset" in places:
        part |= _OFFSET
        calls.offsets[rows] = _numbers(data, starts, *places["offset"])
        if "count" in places:
            part |= _COUNT
            calls.counts[rows] = _numbers(data, starts, *places["count"])
    calls.parts[rows] = part


def nfs3_details(data: Bytes, procedures: Int64s, starts: Int64s, ends: Int64s, paths: KnownTexts) -> Details:
    """Of calls of NFS version 3 whose arguments are at ``data[starts[i]:ends[i]]``; ``paths`` of what each names."""
    calls = _Calls.of(paths)
    known = (procedures < len(_ARGUMENTS)) & (procedures >= 0)
    form = _ARGUMENTS[np.where(known, procedures, 0)]
    calls.parts[form == _OTHER] = _TEXT
    rows = _of((form != _BARE) & (form != _OTHER))
    at, size, inside = _opaque(data, starts[rows], ends[rows])
    _unusual(calls, rows, ~inside)
    rows, at, size = rows[inside], at[inside], size[inside]
    _hash(calls, data, rows, at, at + size)
    calls.parts[rows] = _HANDLE
    at += size + 3 & -4
    forms = form[rows]
    named = forms == _WITH_NAME
    if named.any():
        mine = rows[named]
        where, length, inside = _opaque(data, at[named], ends[mine])
        _unusual(calls, mine, ~inside)
        mine, where, length = mine[inside], where[inside], length[inside]
        _name(calls, data, mine, where, where + length)
        calls.parts[mine] = _HANDLE | _DIRECTORY | _NAME
    for kind, words in ((_RANGE, 3), (_STABLE_RANGE, 4)):
        ranged = forms == kind
        if ranged.any():
            mine, where = rows[ranged], at[ranged]
            inside = where + 4 * words <= ends[mine]
            _unusual(calls, mine, ~inside)
            mine, where = mine[inside], where[inside]
            calls.offsets[mine] = _numbers(data, where, 0, 8)
            calls.counts[mine] = _numbers(data, where, 8, 12)
            calls.parts[mine] = _HANDLE | _OFFSET | _COUNT
            if kind == _STABLE_RANGE:
                calls.stable[mine] = _numbers(data, where, 12, 16)
                calls.parts[mine] |= _STABLE
    view = data.data
    for row in _of(calls.parts == _TEXT).tolist():
        calls.names[row] = call3_words(int(procedures[row]), int(starts[row]), view[: int(ends[row])], paths.row(row))
    return calls.details()


def nfs3_reply_details(data: Bytes, procedures: Int64s, bodies: Int64s, ends: Int64s) -> Details:
    """Of successful calls of version 3 whose results are at ``bodies``, status first: data, and handles given."""
    found: Details = []
    writing = procedures == nfs3.WRITE
    giving = np.isin(procedures, nfs3.GIVING_HANDLES)
    transferring = writing | (procedures == nfs3.READ)
    if not (giving | transferring).all():
        found.append((_of(~giving & ~transferring), ()))
    if giving.any():
        found += _given_handles(data, _of(giving), procedures, bodies, ends)
    rows = _of(transferring)
    at, usual = bodies[rows] + 4, np.ones(len(rows), np.bool_)
    for there, size in ((writing[rows], 24), (np.ones(len(rows), np.bool_), 84)):
        # wcc_data begins with the attributes before (RFC 1813, 2.6), all that is optional with a bool
        usual &= at + 4 <= ends[rows]
        word = np.zeros(len(rows), np.int64)
        asked = there & usual
        word[asked] = big_endian_words(windows(data, 4)[at[asked]])[:, 0]
        usual &= word <= 1
        at += np.where(there, 4 + size * word, 0)
    usual &= at + np.where(writing[rows], 8, 4) <= ends[rows]
    for write in (False, True):
        mine = usual & (writing[rows] == write)
        if mine.any():
            pieces: tuple[Piece, ...] = (" Len: ", Decimal(_numbers(data, at[mine], 0, 4)))
            if write:
                pieces += " ", words_of(_numbers(data, at[mine], 4, 8), stable_word)
            found.append((rows[mine], pieces))
    if not usual.all():
        found.append(_single_replies(data, rows[~usual], procedures, bodies, ends))
    return found


def _given_handles(data: Bytes, rows: Int64s, procedures: Int64s, bodies: Int64s, ends: Int64s) -> Details:
    """Of results that begin with the handle of a file, where there is one."""
    optional = procedures[rows] != nfs3.LOOKUP
    at = bodies[rows] + np.where(optional, 8, 4)
    first, size, usual = _opaque(data, at, ends[rows])
    asked = optional & usual
    usual[asked] = big_endian_words(windows(data, 4)[at[asked] - 4])[:, 0] == 1
    hashes = _hashes(data, first[usual], (first + size)[usual])
    found: Details = [(rows[usual], (", FH: 0x", Hexadecimal(hashes, 8)))]
    if not usual.all():
        found.append(_single_replies(data, rows[~usual], procedures, bodies, ends))
    return found


def _single_replies(
    data: Bytes, rows: Int64s, procedures: Int64s, bodies: Int64s, ends: Int64s
) -> tuple[Int64s, tuple[Piece, ...]]:
    view = data.data
    places = zip(procedures[rows].tolist(), bodies[rows].tolist(), ends[rows].tolist(), strict=True)
    return rows, (Texts([reply3_words(procedure, view[:end], body + 4) for procedure, body, end in places]),)


def compound_reply_details(
    data: Bytes, starts: Int64s, bodies: Int64s, ends: Int64s, known: OperationSequences, callback: bool
) -> Details:
    """Of COMPOUND results at ``data[bodies[i]:ends[i]]``, in the replies that begin at ``starts``."""
    columns = compound_replies(data, bodies, ends, known, callback)
    found: Details = []
    rows = _of(columns.walked)
    if len(rows):
        sequences = columns.sequences[rows]

        def operations(sequence: int) -> str:
            names = operation_names(known.sequences[sequence], callback)
            return f" {' | '.join(names)} " if names else " "

        words = words_of(sequences, operations), words_of(columns.statuses[rows], compound_status)
        kinds = unique(sequences)
        giving = among(sequences, kinds[[not callback and gives_names(known.sequences[one]) for one in kinds.tolist()]])
        if giving.any():
            for mine, pieces in _given(data, _of(giving), bodies[rows], ends[rows]):
                found.append((rows[mine], (*(chosen_words(one, mine) for one in words), *pieces)))
        mine = _of(~giving)
        found.append((rows[mine], tuple(chosen_words(one, mine) for one in words)))
    rest = _of(~columns.walked)
    if len(rest):
        view = data.data
        texts = [
            reply4_words(view, start, body, end, (), callback)
            for start, body, end in zip(starts[rest].tolist(), bodies[rest].tolist(), ends[rest].tolist(), strict=True)
        ]
        found.append((rest, (Texts(texts),)))
    return found


def _given(data: Bytes, rows: Int64s, bodies: Int64s, ends: Int64s) -> Details:
    """Handles and stateids that results at ``data[bodies[row]:ends[row]]`` give."""
    found: Details = []
    left = np.ones(len(rows), np.bool_)
    for mine, layout in GIVEN.learning(data, bodies[rows], ends[rows]):
        left[mine] = False
        starts, places = bodies[rows[mine]], layout.places
        pieces: list[Piece] = []
        if "object" in places and places["object"][1] > places["object"][0]:
            first, behind = places["object"]
            pieces += [", FH: 0x", Hexadecimal(_hashes(data, starts + first, starts + behind), 8)]
        if "stateid" in places:
            hashes = _stateids(data, starts + places["stateid"][0])
            pieces += [" StateID: 0x" if pieces else ", StateID: 0x", Hexadecimal(hashes, 4)]
        found.append((rows[mine], tuple(pieces)))
    if left.any():
        view, single = data.data, rows[left]
        texts = [given_words(view[bodies[row] : ends[row]]) for row in single.tolist()]
        found.append((single, (Texts(texts),)))
    return found


_BARE, _ONLY_HANDLE, _WITH_NAME, _RANGE, _STABLE_RANGE, _OTHER = range(6)
"""Forms of arguments."""


def _form(number: int, procedure: nfs3.Nfs3Procedure) -> int:
    if not procedure.arguments:
        return _BARE
    if number in (nfs3.READ, nfs3.WRITE):
        return _RANGE if number == nfs3.READ else _STABLE_RANGE
    return {nfs3.HANDLE: _ONLY_HANDLE, nfs3.HANDLE_AND_NAME: _WITH_NAME}.get(procedure.arguments, _OTHER)


_ARGUMENTS = np.array([_form(number, procedure) for number, procedure in enumerate(nfs3.PROCEDURES)])


def _of(mask: NDArray[np.bool_]) -> Int64s:
    rows: Int64s = mask.nonzero()[0]
    return rows


def _unusual(calls: _Calls, rows: Int64s, these: NDArray[np.bool_]) -> None:
    calls.parts[rows[these]] = _TEXT


def _opaque(data: Bytes, at: Int64s, ends: Int64s) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
    """Of opaques at ``at``: their first bytes, their lengths, and whether all of each is there."""
    inside = at + 4 <= ends
    size = np.zeros(len(at), np.int64)
    size[inside] = big_endian_words(windows(data, 4)[at[inside]])[:, 0]
    return at + 4, size, inside & (at + 4 + size <= ends)


def _hash(calls: _Calls, data: Bytes, rows: Int64s, starts: Int64s, ends: Int64s) -> None:
    calls.hashes[rows] = _hashes(data, starts, ends)


def _hashes(data: Bytes, starts: Int64s, ends: Int64s) -> NDArray[np.uint32]:
    view = data.data
    return np.array([crc32(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], np.uint32)


_STATEID_CRCS = np.array([stateid_hash(bytes([byte])) ^ stateid_hash(b"\0") for byte in range(256)], np.uint16)
"""What a byte changes in the hash of one byte."""


def _stateids(data: Bytes, starts: Int64s) -> NDArray[np.uint16]:
    """Hashes of stateids, as ``stateid_hash`` has them."""
    found = np.full(len(starts), 0xFFFF, np.uint16)
    for column in windows(data, 16)[starts].T:
        found = found >> 8 ^ _STATEID_CRCS[(found ^ column) & 0xFF]
    return ~found


def _name(calls: _Calls, data: Bytes, rows: Int64s, starts: Int64s, ends: Int64s) -> None:
    view, names = data.data, calls.names
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        names[row] = printable_name(view[start:end])


def _numbers(data: Bytes, starts: Int64s, first: int, end: int) -> NDArray[np.uint64]:
    """Integers of 4 or 8 bytes."""
    found = np.ascontiguousarray(windows(data, end - first)[starts + first])
    return found.view(f">u{end - first}")[:, 0].astype(np.uint64)
