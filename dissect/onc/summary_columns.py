"""What ``summary`` says of the calls and replies of a whole batch, in columns: the words behind their titles.

The messages are plain: whole in the capture and in one piece.  What is unusual about one is left to ``summary``; a
test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, among, big_endian_words, gathered, places, unique, words_at
from ..text_columns import Decimal, Hexadecimal, KnownTexts, Piece, Texts, chosen_words, words_of
from . import nfs3
from .compound import OperationSequences, compound_replies, operation_names
from .hashes import stateid_hash
from .shapes.decode_cache import Layout
from .summary import (
    GIVEN,
    TO_END_OF_FILE,
    allowed_words,
    attribute_words,
    call3_words,
    call4_words,
    call_layouts,
    check_words,
    client_words,
    compound_status,
    create_words,
    given_words,
    gives_names,
    path_words,
    printable_name,
    reply3_words,
    reply4_words,
    stable_word,
)

Details = list[tuple[Int64s, tuple[Piece, ...]]]
"""Rows, and what is said of them."""

_HANDLE, _NAME, _OFFSET, _COUNT, _STABLE, _DIRECTORY, _TEXT, _STATEID, _RIGHTS, _MODE = (1 << bit for bit in range(10))
"""What is known of a call: its file handle, and so on; that the handle is a directory's; only a text."""
_SINGLY = frozenset(("newname", "to_stateid", "to_offset", "client"))
"""Fields of few COMPOUNDs, which are looked at one by one."""


@dataclass(slots=True)
class _Calls:
    """What is known of each call."""

    parts: NDArray[np.uint16]
    hashes: NDArray[np.uint32]
    """Of handles."""
    stateids: NDArray[np.uint16]
    """Hashes of them."""
    names: list[str]
    """Names, or texts."""
    offsets: NDArray[np.uint64]
    counts: NDArray[np.uint64]
    words: Int64s
    """stable_how of a WRITE, rights of an ACCESS, mode of a CREATE."""
    paths: KnownTexts
    """Of what each names."""

    @classmethod
    def of(cls, paths: KnownTexts) -> _Calls:
        count = len(paths.which)
        return cls(
            np.zeros(count, np.uint16),
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
            for rows in [places(self.parts == part)]
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
        if part & _MODE:
            found.append(words_of(self.words[rows], create_words))
        if part & _RIGHTS:
            found += [*([] if found else [","]), words_of(self.words[rows], check_words)]
        if part & _STATEID:
            found += [" StateID: 0x" if found else ", StateID: 0x", Hexadecimal(self.stateids[rows], 4)]
        if part & _OFFSET:
            found += [" Offset: ", Decimal(self.offsets[rows])]
            if part & _COUNT:
                found += [" Len: ", Decimal(self.counts[rows])]
        if part & _STABLE:
            found += [" ", words_of(self.words[rows], stable_word)]
        return tuple(found)


def compound_details(data: Bytes, starts: Int64s, ends: Int64s, callback: bool, paths: KnownTexts) -> Details:
    """Of COMPOUNDs whose arguments are at ``data[starts[i]:ends[i]]``; ``paths`` of what each names."""
    calls = _Calls.of(paths)
    groups, unknown = call_layouts(callback).groups(data, starts, ends)
    calls.parts[unknown] = _TEXT
    for rows, layout in groups:
        if layout.places.keys().isdisjoint(_SINGLY):
            _found(calls, data, rows, starts[rows], layout)
        else:
            calls.parts[rows] = _TEXT
    view = data.data
    for row in places(calls.parts == _TEXT).tolist():
        calls.names[row] = call4_words(view[starts[row] : ends[row]], callback, paths.row(row))
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
    if "access" in places:
        part |= _RIGHTS
        calls.words[rows] = _numbers(data, starts, *places["access"])
    calls.parts[rows] = part
    if part & _COUNT:
        calls.parts[rows[calls.counts[rows] == TO_END_OF_FILE]] = _TEXT


def nfs3_details(data: Bytes, procedures: Int64s, starts: Int64s, ends: Int64s, paths: KnownTexts) -> Details:
    """Of calls of NFS version 3 whose arguments are at ``data[starts[i]:ends[i]]``; ``paths`` of what each names."""
    calls = _Calls.of(paths)
    known = (procedures < len(_ARGUMENTS)) & (procedures >= 0)
    form = _ARGUMENTS[np.where(known, procedures, 0)]
    calls.parts[form == _OTHER] = _TEXT
    rows = places((form != _BARE) & (form != _OTHER))
    at, size, inside = _opaque(data, starts[rows], ends[rows])
    _unusual(calls, rows, ~inside)
    rows, at, size = rows[inside], at[inside], size[inside]
    _hash(calls, data, rows, at, at + size)
    calls.parts[rows] = _HANDLE
    at += size + 3 & -4
    forms = form[rows]
    named = (forms == _WITH_NAME) | (forms == _CREATED)
    if named.any():
        mine = rows[named]
        where, length, inside = _opaque(data, at[named], ends[mine])
        _unusual(calls, mine, ~inside)
        mine, where, length = mine[inside], where[inside], length[inside]
        _name(calls, data, mine, where, where + length)
        calls.parts[mine] = _HANDLE | _DIRECTORY | _NAME
        made = form[mine] == _CREATED
        _word_behind(calls, data, mine[made], (where + (length + 3 & -4))[made], ends, _MODE)
    asked = forms == _CHECKED
    _word_behind(calls, data, rows[asked], at[asked], ends, _RIGHTS)
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
                calls.words[mine] = _numbers(data, where, 12, 16)
                calls.parts[mine] |= _STABLE
    view = data.data
    for row in places(calls.parts == _TEXT).tolist():
        calls.names[row] = call3_words(int(procedures[row]), int(starts[row]), view[: int(ends[row])], paths.row(row))
    return calls.details()


def _word_behind(calls: _Calls, data: Bytes, rows: Int64s, at: Int64s, ends: Int64s, part: int) -> None:
    """The word at ``at`` of calls of which so far all is known."""
    inside = at + 4 <= ends[rows]
    _unusual(calls, rows, ~inside)
    calls.words[rows[inside]] = _numbers(data, at[inside], 0, 4)
    calls.parts[rows[inside]] |= part


def nfs3_reply_details(
    data: Bytes, procedures: Int64s, bodies: Int64s, ends: Int64s, rights: Callable[[Int64s], Int64s]
) -> Details:
    """Of successful calls of version 3 whose results are at ``bodies``, status first.

    ``rights`` gives those that some rows asked for; -1 where they are not known.
    """
    found: Details = []
    writing, checking = procedures == nfs3.WRITE, procedures == nfs3.ACCESS
    giving = np.isin(procedures, nfs3.GIVING_HANDLES)
    attributes, linking = procedures == nfs3.GETATTR, procedures == nfs3.READLINK
    telling = writing | checking | (procedures == nfs3.READ)
    rest = ~(giving | telling | attributes | linking)
    if rest.any():
        found.append((places(rest), ()))
    if giving.any():
        found += _given_handles(data, places(giving), procedures, bodies, ends)
    if attributes.any():
        found += _attributes(data, places(attributes), procedures, bodies, ends)
    if linking.any():
        found.append(_single_replies(data, places(linking), procedures, bodies, ends))
    rows = places(telling)
    at, usual = bodies[rows] + 4, np.ones(len(rows), np.bool_)
    for there, size in ((writing[rows], 24), (np.ones(len(rows), np.bool_), 84)):
        # wcc_data begins with the attributes before (RFC 1813, 2.6), all that is optional with a bool
        usual &= at + 4 <= ends[rows]
        word = np.zeros(len(rows), np.int64)
        asked = there & usual
        word[asked] = words_at(data, at[asked])
        usual &= word <= 1
        at += np.where(there, 4 + size * word, 0)
    usual &= at + np.where(writing[rows], 8, 4) <= ends[rows]
    mine = usual & checking[rows]
    if mine.any():
        called, allowed = rights(rows[mine]), _numbers(data, at[mine], 0, 4)
        found.append((rows[mine], (_allowed(np.where(called < 0, allowed, called), allowed),)))
    for write in (False, True):
        mine = usual & ~checking[rows] & (writing[rows] == write)
        if mine.any():
            pieces: tuple[Piece, ...] = (" Len: ", Decimal(_numbers(data, at[mine], 0, 4)))
            if write:
                pieces += " ", words_of(_numbers(data, at[mine], 4, 8), stable_word)
            found.append((rows[mine], pieces))
    if not usual.all():
        found.append(_single_replies(data, rows[~usual], procedures, bodies, ends))
    return found


def rights_asked(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """Of calls of ACCESS of version 3 with their arguments at ``starts``; -1 where these end before."""
    first, size, inside = _opaque(data, starts, ends)
    at = first + (size + 3 & -4)
    inside &= at + 4 <= ends
    found = np.full(len(starts), -1, np.int64)
    found[inside] = _numbers(data, at[inside], 0, 4)
    return found


def _allowed(asked: NDArray[Any], allowed: NDArray[np.uint64]) -> Texts:
    """Of rights of 32 bits."""
    both = asked.astype(np.uint64) << np.uint64(32) | allowed
    return words_of(both, lambda rights: allowed_words(rights >> 32, rights & 0xFFFFFFFF))


def _attributes(data: Bytes, rows: Int64s, procedures: Int64s, bodies: Int64s, ends: Int64s) -> Details:
    """Type, mode, uid and gid."""
    at = bodies[rows] + 4
    usual = at + nfs3.UID_IN_FATTR + 8 <= ends[rows]
    words = big_endian_words(gathered(data, nfs3.UID_IN_FATTR + 8, at[usual]))
    distinct, which = np.unique(words[:, [0, 1, -2, -1]], axis=0, return_inverse=True)
    found: Details = [(rows[usual], (Texts([attribute_words(*one) for one in distinct.tolist()], which.ravel()),))]
    if not usual.all():
        found.append(_single_replies(data, rows[~usual], procedures, bodies, ends))
    return found


def _given_handles(data: Bytes, rows: Int64s, procedures: Int64s, bodies: Int64s, ends: Int64s) -> Details:
    """Of results that begin with the handle of a file, where there is one."""
    optional = procedures[rows] != nfs3.LOOKUP
    at = bodies[rows] + np.where(optional, 8, 4)
    first, size, usual = _opaque(data, at, ends[rows])
    asked = optional & usual
    usual[asked] = words_at(data, at[asked] - 4) == 1
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
    rows = places(columns.walked)
    if len(rows):
        sequences = columns.sequences[rows]

        def operations(sequence: int) -> str:
            names = operation_names(known.sequences[sequence], callback)
            return f" {' | '.join(names)} " if names else " "

        words = words_of(sequences, operations), words_of(columns.statuses[rows], compound_status)
        kinds = unique(sequences)
        giving = among(sequences, kinds[[not callback and gives_names(known.sequences[one]) for one in kinds.tolist()]])
        if giving.any():
            for mine, pieces in _given(data, places(giving), bodies[rows], ends[rows]):
                found.append((rows[mine], (*(chosen_words(one, mine) for one in words), *pieces)))
        mine = places(~giving)
        found.append((rows[mine], tuple(chosen_words(one, mine) for one in words)))
    rest = places(~columns.walked)
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
        if "supported" in places and "access" in places:
            supported, allowed = (_numbers(data, starts, *places[name]) for name in ("supported", "access"))
            pieces += [*([] if pieces else [","]), _allowed(supported, allowed)]
        if "client" in places:
            clients = _numbers(data, starts, *places["client"])
            pieces += [*([] if pieces else [","]), Texts([client_words(one) for one in clients.tolist()])]
        found.append((rows[mine], tuple(pieces)))
    if left.any():
        view, single = data.data, rows[left]
        texts = [given_words(view[bodies[row] : ends[row]]) for row in single.tolist()]
        found.append((single, (Texts(texts),)))
    return found


_BARE, _ONLY_HANDLE, _WITH_NAME, _CREATED, _CHECKED, _RANGE, _STABLE_RANGE, _OTHER = range(8)
"""Forms of arguments."""


_FORMS = {
    nfs3.READ: _RANGE,
    nfs3.COMMIT: _RANGE,
    nfs3.WRITE: _STABLE_RANGE,
    nfs3.ACCESS: _CHECKED,
    nfs3.CREATE: _CREATED,
    nfs3.MKNOD: _OTHER,
}


def _form(number: int, procedure: nfs3.Nfs3Procedure) -> int:
    if not procedure.arguments:
        return _BARE
    if number in _FORMS:
        return _FORMS[number]
    return {nfs3.HANDLE: _ONLY_HANDLE, nfs3.HANDLE_AND_NAME: _WITH_NAME}.get(procedure.arguments, _OTHER)


_ARGUMENTS = np.array([_form(number, procedure) for number, procedure in enumerate(nfs3.PROCEDURES)])


def _unusual(calls: _Calls, rows: Int64s, these: NDArray[np.bool_]) -> None:
    calls.parts[rows[these]] = _TEXT


def _opaque(data: Bytes, at: Int64s, ends: Int64s) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
    """Of opaques at ``at``: their first bytes, their lengths, and whether all of each is there."""
    inside = at + 4 <= ends
    size = np.zeros(len(at), np.int64)
    size[inside] = words_at(data, at[inside])
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
    for column in gathered(data, 16, starts).T:
        found = found >> 8 ^ _STATEID_CRCS[(found ^ column) & 0xFF]
    return ~found


def _name(calls: _Calls, data: Bytes, rows: Int64s, starts: Int64s, ends: Int64s) -> None:
    view, names = data.data, calls.names
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        names[row] = printable_name(view[start:end])


def _numbers(data: Bytes, starts: Int64s, first: int, end: int) -> NDArray[np.uint64]:
    """Integers of 4 or 8 bytes."""
    found = gathered(data, end - first, starts + first)
    return found.view(f">u{end - first}")[:, 0].astype(np.uint64)
