"""Offsets of values in messages with the layout of a decoded one: only the first of many has to be decoded.

The layout of a declared value depends on few of its words: lengths, counts, discriminants. Messages that agree in these
have their values at the same offsets.

The fields that most questions are about, for any procedure: file, name, range, state and caller of an RPC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from struct import error as StructError
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, distinct, gathered, words_at
from ...named_tuple import NamedTuple
from ..linux_operations import linux_operation
from ..xdr import Malformed, as_skip, round_up, word
from . import nlm, rfc1094
from .attributes4 import ATTRIBUTE_BITS
from .nfs4 import COMPOUND4ARGS, OPERATIONS
from .nfs4_types import STATEID4, TYPES as NFS4_TYPES
from .skips import skip_of
from .types import (
    BOOL,
    DATA,
    NOT_CAPTURED,
    Node,
    SparseBytes,
    Walk,
    XdrArm,
    XdrArray,
    XdrAttributes,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
    XdrStruct,
    XdrType,
    XdrUnion,
)

MAX_NODES = 200
"""Values of a message that are looked at."""

_FIELDS = {
    "handle": "nfs_fh3 nfs_fh4 fhandle nlm_fh",
    "name": "filename3 component4 filename",
    "offset": "offset3 offset4 offset",
    "count": "count3 count3_or_rest count4 count4_or_rest length4 length4_or_rest length data4",
    "stateid": "stateid4",
    "slot": "slotid4",
    "sequence": "sequenceid4",
    "session": "sessionid4",
    "client": "clientid4",
}
DATA4 = NFS4_TYPES["data4"]
_NAMES: Mapping[XdrType, str] = {
    types[type]: name
    for types in (rfc1094.TYPES, nlm.VERSION3, nlm.VERSION4, NFS4_TYPES)
    for name, of_types in _FIELDS.items()
    for type in of_types.split()
    if type in types
}
"""What the first value of a type is; of contents how many bytes they are; of slots, and where 32 bits have no type of
their own, by their names, too."""
_COUNTS = ("count", "length", "l_len")
_RESULTS: Mapping[str, str] = {"stateid": "stateid", "session": "session", "client": "client", "handle": "object"}
"""What of the results counts, where the arguments have none of it, and what it is called."""
_CREDENTIAL = {"uid": "uid", "gid": "gid", "machinename": "machine_name", "handle": "context"}


class FlatFields(NamedTuple):
    """The first of each in the arguments; what only the server knows, from the results; the caller, from the header."""

    handle: bytes | None = None
    """File handle."""
    name: bytes | None = None
    """The name of a file in a directory."""
    offset: int | None = None
    count: int | None = None  # type: ignore[assignment]
    eof: bool | None = None
    stateid: bytes | None = None
    """16 bytes: seqid, then other."""
    slot: int | None = None
    sequence: int | None = None
    """Sequence ID of the slot."""
    session: bytes | None = None
    """16 bytes."""
    client: int | None = None
    uid: int | None = None
    """This and the next two: of an AUTH_SYS credential."""
    gid: int | None = None
    machine_name: bytes | None = None
    context: bytes | None = None
    """Context handle of an RPCSEC_GSS credential."""
    linux: str | None = None
    """What Linux's client calls the COMPOUND (``onc.linux_operations``)."""

    @property
    def user(self) -> str | None:
        return caller(self.uid, self.context)


def caller(uid: int | None, context: bytes | None) -> str | None:
    """Who calls: the user ID of AUTH_SYS, or ``gss:`` and the context handle of RPCSEC_GSS."""
    if uid is not None:
        return str(uid)
    return f"gss:{context.hex()}" if context else None


NO_FIELDS = FlatFields()
ARGUMENTS = ("handle", "name", "offset", "count", "stateid", "slot", "sequence", "session", "client")
"""Fields of ``flat_nodes``."""
OF_CALLS = frozenset((*ARGUMENTS, "linux"))
RESULTS = ("eof", "stateid", "session", "client", "object")
"""Fields of ``result_nodes``."""
ALL = frozenset(RESULTS) - {"object"}


def flat_fields(
    arguments: Node | None, results: Node | None = None, header: Node | None = None, of_results: frozenset[str] = ALL
) -> FlatFields:
    """Flat fields of a call and its reply, as far as they are there; ``of_results``: what the results may have."""
    values: dict[str, Any] = {}
    if results is not None:
        values = {name: node_value(node) for name, node in result_nodes(results).items() if name in of_results}
    if arguments is not None:
        values |= _called_values(arguments)
    return FlatFields(**values, **(credential_fields(header) if header is not None else {}))


def credential_fields(header: Node) -> dict[str, Any]:
    """``uid``, ``gid``, ``machine_name`` or ``context`` of a call header, as far as it has them."""
    values: dict[str, Any] = {}
    credential = header.child("cred")
    if credential is not None:
        for node in credential.walk():
            flat = _CREDENTIAL.get(node.name)
            if flat is not None and flat not in values and (value := node_value(node)) is not None:
                values[flat] = value
    return values


def _called_values(arguments: Node) -> dict[str, Any]:
    return {"linux": linux_name(arguments)} | {name: node_value(node) for name, node in flat_nodes(arguments).items()}


def linux_name(arguments: Node) -> str | None:
    """What Linux's client calls a COMPOUND; None where not all its operations are there, and of other procedures."""
    array = arguments.child("argarray") if arguments.type is COMPOUND4ARGS else None
    if array is None or array.value != len(array.children):
        return None
    operations: list[str] = []
    attributes: tuple[int, ...] | None = None
    kind: int | None = None
    for node in array.children:
        number = node.child("argop")
        shape = OPERATIONS.get(number.value) if number is not None and isinstance(number.value, int) else None
        if shape is None:
            return None
        operations.append(shape.name)
        for argument in node.children:
            if argument.type is ATTRIBUTE_BITS and isinstance(argument.value, tuple):
                attributes = argument.value
            elif shape.name == "CREATE" and argument.name == "objtype":
                kind = next((child.value for child in argument.children if isinstance(child.value, int)), None)
    return linux_operation(operations, attributes, kind)


def flat_nodes(arguments: Node) -> dict[str, Node]:
    """The first node of each field of a call whose bytes are there."""
    nodes: dict[str, Node] = {}
    for node in arguments.walk():
        name = _name(node)
        if name is not None and name not in nodes and node_value(node) is not None:
            nodes[name] = node
    return nodes


def result_nodes(results: Node) -> dict[str, Node]:
    """The first node of each field of results that was decoded, without the entries of directories; ``object`` is the
    first file handle."""
    nodes: dict[str, Node] = {}
    for node in results.walk(lambda node: not isinstance(node.type, XdrList)):
        name = "eof" if node.type is BOOL and node.name.endswith("eof") else _RESULTS.get(_name(node) or "")
        if name is not None and name not in nodes and node_value(node) is not None:
            nodes[name] = node
    return nodes


def _name(node: Node) -> str | None:
    name = _NAMES.get(node.type) if node.type is not None else None
    if name == "count" and node.type is not DATA4 and not (node.name.endswith(_COUNTS) and node.name != "dircount"):
        return None
    return None if name == "slot" and "highest" in node.name else name


def node_value(node: Node) -> Any:
    """A number, bytes, or a truth; of contents of a file how many bytes; None where its bytes are missing."""
    if node.type is DATA4:
        return node.size
    if node.type is STATEID4:
        seqid, other = (child.value for child in node.children) if len(node.children) == 2 else (None, None)
        return seqid.to_bytes(4) + other if isinstance(seqid, int) and isinstance(other, memoryview) else None
    if isinstance(node.value, memoryview):
        return bytes(node.value)
    return bool(node.value) if node.type is BOOL and node.value is not None else node.value


class FlatWalk(Walk):
    def _list(self, node: Node, type: XdrList) -> None:
        view = self.data.view(self.at, self.limit)
        if view is None:
            super()._list(node, type)
            return
        try:
            behind = as_skip(skip_of(type))(view, 0)
        except (StructError, Malformed):
            behind = len(view) + 1
        if behind > len(view):
            raise self._stop(node, "not decoded to the end")
        self.at += behind


def decoded_values(type: XdrType, results: bool, data: SparseBytes, start: int) -> dict[str, Any]:
    """The fields of arguments or results, decoded."""
    root = FlatWalk(data, start, data.length, MAX_NODES).decoded(type, "").root
    if not results:
        return _called_values(root)
    return {name: node_value(node) for name, node in result_nodes(root).items()}


@cache
def result_fields(type: XdrType | None) -> frozenset[str]:
    """Which fields results of this type may have, without ``object``."""
    names = {_result_name(name, inner) for name, inner in _inside("", type)} if type is not None else set()
    return ALL & names


def _result_name(name: str, type: XdrType) -> str:
    return "eof" if type is BOOL and name.endswith("eof") else _RESULTS.get(_NAMES.get(type, ""), "")


def _inside(name: str, type: XdrType) -> Iterator[tuple[str, XdrType]]:
    """A type and all it is made of, with their names."""
    yield name, type
    arms: list[XdrArm] = []
    match type:
        case XdrStruct():
            arms = [type]
        case XdrUnion():
            arms = [*type.arms.values(), type.default, ("", type.type)]
        case XdrArray() | XdrList() | XdrOptional():
            arms = [(name, type.element)]
        case XdrAttributes():
            arms = [*type.attributes.values()]
        case XdrSelected():
            arms = [("", choice) for choice in type.choices.values()]
        case XdrOpaque():
            arms = [("", type.inner)] if type.inner is not None else []
    for arm in arms:
        if isinstance(arm, XdrStruct):
            for field, inner in arm.fields:
                yield from _inside(field, inner)
        elif isinstance(arm, XdrUnion):
            yield from _inside("", arm)
        elif arm is not None:
            yield from _inside(*arm)


_BYTES = frozenset((
    "handle", "name", "newname", "stateid", "to_stateid", "session", "object", "to_handle", "to_name", "path",
))  # fmt: skip


def field_of(name: str, raw: bytes | memoryview) -> Any:
    """The value of a field from its bytes, without length word and pad."""
    if name in _BYTES:
        return bytes(raw)
    return bool(int.from_bytes(raw)) if name == "eof" else int.from_bytes(raw)


MAX_LAYOUTS = 4096
"""Layouts remembered for a type."""
MAX_LEARNED = 64
"""Layouts that one batch of a procedure may teach by looking through all its messages again."""
MAX_PATTERN = 512
"""Bytes of messages that are compared at once."""
TOGETHER = 2048
"""Messages of which so many are compared at once."""
MAX_COMMON = 8
"""Layouts that are looked for in all messages, before the others are sorted word by word."""
MAX_DECIDING = 128
"""Words of a value on which its layout may depend: those of directories are not remembered."""


class Layout(NamedTuple):
    """Where the fields of a value are: offsets from its first byte."""

    end: int
    places: Mapping[str, tuple[int, int]]
    """Name of a field -> its first byte and the one behind the last, without length word and pad."""
    deciding: tuple[int, ...] = ()
    """Where the words are on which the layout depends."""
    linux: str | None = None
    """What Linux's client calls COMPOUNDs that are laid out so: the attributes that a GETATTR asks for decide, too."""


class _Pattern(NamedTuple):
    """All words that decide for one layout, to be compared at once."""

    first: int
    """Offset of the first of them."""
    behind: int
    """Offset behind the last byte."""
    mask: NDArray[np.uint32]
    """A mask over the words in between: all ones for those that decide."""
    values: NDArray[np.uint32]
    """The masked words, in memory order."""


@dataclass(slots=True, eq=False)
class _Branch:
    at: int
    """Offset of the word that decides."""
    ways: dict[int, _Branch | Layout] = field(default_factory=dict)
    patterns: dict[int, _Pattern] = field(default_factory=dict)
    """Patterns of the ways that lead to a layout, without those that are too long."""


class Layouts:
    """The layouts of one declared type, as learned from the values that were decoded.

    Args:
        type: of the values.
        names: of the fields.
        max_nodes: to decode of a value.
        nodes: finds the fields in a value.
        lacking: bytes behind each value that are not captured; all values are truncated at one place.
    """

    def __init__(
        self,
        type: XdrType,
        names: Iterable[str],
        max_nodes: int,
        nodes: Callable[[Node], dict[str, Node]] = flat_nodes,
        lacking: int = 0,
    ) -> None:
        self.type = type
        self._lacking = lacking
        self._names = tuple(names)
        self._max_nodes = max_nodes
        self.nodes = nodes
        self._top: _Branch | Layout | None = None
        self._learned = 0

    def of(self, view: memoryview, start: int) -> Layout | None:
        """The layout of the value at ``view[start:]``; None where no such value was learned."""
        branch: _Branch | Layout | None = self._top
        try:
            while isinstance(branch, _Branch):
                branch = branch.ways.get(word(view, start + branch.at)[0])
        except StructError:
            return None
        return branch if isinstance(branch, Layout) and start + branch.end <= len(view) else None

    def _common(self, data: Bytes, starts: Int64s, sizes: Int64s) -> tuple[list[tuple[Int64s, Layout]], Int64s]:
        """The most usual of ``groups``, and the rows that are left."""
        groups: list[tuple[Int64s, Layout]] = []
        left = np.arange(len(starts))
        view = data.data
        for _ in range(MAX_COMMON):
            if not len(left):
                break
            start = int(starts[left[0]])
            branch = reached = self._top
            value = 0
            end = start + int(sizes[left[0]])
            while isinstance(reached, _Branch) and start + reached.at + 4 <= end:
                branch, value = reached, word(view, start + reached.at)[0]
                reached = reached.ways.get(value)
            if not isinstance(reached, Layout) or not isinstance(branch, _Branch) or value not in branch.patterns:
                break
            alike = _alike(data, starts[left], sizes[left] >= reached.end, branch.patterns[value])
            if alike.all():
                groups.append((left, reached))
                left = left[:0]
                break
            mine = left[alike]
            if not len(mine):
                break
            groups.append((mine, reached))
            left = left[~alike]
        return groups, left

    def of_sparse(self, data: SparseBytes, start: int) -> Layout | None:
        """The layout of a value in bytes with gaps, none of which is where the layout is decided."""
        branch: _Branch | Layout | None = self._top
        while isinstance(branch, _Branch):
            at = start + branch.at
            deciding = data.view(at, at + 4)
            if deciding is None:
                return None
            branch = branch.ways.get(int.from_bytes(deciding))
        return branch if isinstance(branch, Layout) and start + branch.end <= data.length else None

    def groups(self, data: Bytes, starts: Int64s, ends: Int64s) -> tuple[list[tuple[Int64s, Layout]], Int64s]:
        """The values at ``data[starts[i]:ends[i]]`` by their layouts: rows of each, and rows whose is not learned."""
        sizes = ends - starts
        groups, left = self._common(data, starts, sizes)
        if not len(left):
            return groups, left
        unknown: list[Int64s] = []
        waiting: list[tuple[_Branch | Layout | None, Int64s]] = [(self._top, left)]
        while waiting:
            branch, rows = waiting.pop()
            needed = branch.at + 4 if isinstance(branch, _Branch) else branch.end if branch is not None else 0
            longer = sizes[rows] >= needed
            if branch is None or not longer.all():
                unknown.append(rows if branch is None else rows[~longer])
                rows = rows[longer]
            if not len(rows) or branch is None:
                continue
            if isinstance(branch, Layout):
                groups.append((rows, branch))
                continue
            deciding = words_at(data, starts[rows] + branch.at)
            first = int(deciding[0])
            same = deciding == first
            waiting.append((branch.ways.get(first), rows[same]))
            if not same.all():
                rows, deciding = rows[~same], deciding[~same]
                values, which = np.unique(deciding, return_inverse=True)
                ordered = which.argsort(kind="stable")
                parts = np.split(rows[ordered], which[ordered].searchsorted(np.arange(1, len(values))))
                waiting += [(branch.ways.get(value), part) for value, part in zip(values.tolist(), parts, strict=True)]
        return groups, np.sort(np.concatenate(unknown)) if unknown else np.empty(0, np.int64)

    def learning(self, data: Bytes, starts: Int64s, ends: Int64s) -> Iterator[tuple[Int64s, Layout]]:
        """``groups`` that also learns unknown layouts, without the rows whose layout cannot be learned."""
        left = np.arange(len(starts))
        for _ in range(MAX_LEARNED):
            groups, unknown = self.groups(data, starts[left], ends[left])
            for rows, layout in groups:
                yield left[rows], layout
            left = left[unknown]
            if not len(left):
                return
            view = data.data[int(starts[left[0]]) : int(ends[left[0]])]
            self.learn(view, 0)
            if self.of(view, 0) is None:
                left = left[1:]

    def learn(self, view: memoryview, start: int) -> None:
        """Decode a value whose layout ``of`` does not know, and learn it; one that is not decoded to its end teaches
        nothing."""
        self.learn_sparse(SparseBytes([(0, view)], len(view) + self._lacking), start)

    def learn_sparse(self, data: SparseBytes, start: int) -> None:
        """Decode a value in bytes with gaps, and learn its layout."""
        walk = _Noting(data, start, data.length, self._max_nodes)
        decoded = walk.decoded(self.type, "")
        if walk.unsure or len(walk.deciding) > MAX_DECIDING:
            return
        if self._lacking:
            if decoded.problem and NOT_CAPTURED not in decoded.problem:
                return
        elif decoded.problem or any(_is_missing(node) for node in decoded.root.walk()):
            return
        places = {}
        nodes = self.nodes(decoded.root)
        for name in self._names:
            if name in nodes:
                span = _place(nodes[name], start)
                if span is None:
                    return
                places[name] = span
        if self._learned == MAX_LAYOUTS:
            self._top, self._learned = None, 0
        deciding = tuple(at - start for at, _ in walk.deciding)
        end = min(decoded.end, data.length - self._lacking) - start
        self._add(start, walk.deciding, Layout(end, places, deciding, linux_name(decoded.root)))

    def _add(self, start: int, deciding: list[tuple[int, int]], layout: Layout) -> None:
        if not deciding:
            self._top = layout
            return
        if self._top is None:
            self._top = _Branch(deciding[0][0] - start)
        branch = self._top
        assert isinstance(branch, _Branch)
        for (_, value), (following, _) in pairwise(deciding):
            further = branch.ways.setdefault(value, _Branch(following - start))
            if not isinstance(further, _Branch):
                return
            branch = further
        last = deciding[-1][1]
        branch.ways[last] = layout
        if deciding[-1][0] - deciding[0][0] < MAX_PATTERN:
            branch.patterns[last] = _pattern(start, deciding)
        self._learned += 1


Learned = TypeVar("Learned")


class PairedLayouts(Generic[Learned]):
    """What was learned of calls and replies that are laid out alike, by the layouts of their arguments and results."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[XdrType, int, int], Layouts] = {}
        """By what is captured of truncated ones, too, and what is not."""
        self._known: dict[tuple[int, int], tuple[Layout, Layout, Learned]] = {}
        """By the identities of the two layouts, which are held with it."""

    def groups(
        self,
        types: tuple[XdrType, XdrType],
        data: Bytes,
        arguments: tuple[Int64s, Int64s],
        results: tuple[Int64s, Int64s],
        lacks: tuple[Int64s, Int64s],
        learn: Callable[[int, Layout, Layout], Learned],
    ) -> Iterator[tuple[Int64s, Learned]]:
        """Rows of calls and replies that are alike, and what was learned of one of them.

        ``arguments``, ``results``: where they begin, and where they end; ``lacks``: bytes behind these that are not
        captured; ``learn``: from a row and its layouts.
        """
        sides = (arguments, results)
        captured = [np.where(lack > 0, side[1] - side[0], 0) for side, lack in zip(sides, lacks, strict=True)]
        first, which = distinct(*lacks, *captured)
        for kind, at in enumerate(first.tolist()):
            alike = (which == kind).nonzero()[0]
            of_calls, of_replies = (
                self._of(type, int(size[at]), int(lack[at]))
                for type, size, lack in zip(types, captured, lacks, strict=True)
            )
            for called, asked in of_calls.learning(data, *(edge[alike] for edge in arguments)):
                rows = alike[called]
                for part, answered in of_replies.learning(data, *(edge[rows] for edge in results)):
                    mine = rows[part]
                    key = id(asked), id(answered)
                    if key not in self._known:
                        if len(self._known) >= MAX_LAYOUTS:
                            self._known.clear()
                        self._known[key] = asked, answered, learn(int(mine[0]), asked, answered)
                    yield mine, self._known[key][2]

    def _of(self, type: XdrType, captured: int, lacking: int) -> Layouts:
        key = type, captured, lacking
        layouts = self._layouts.get(key)
        if layouts is None:
            if len(self._layouts) >= MAX_LAYOUTS:
                self._layouts.clear()
            layouts = self._layouts[key] = Layouts(type, (), MAX_NODES, lacking=lacking)
        return layouts


def _pattern(start: int, deciding: list[tuple[int, int]]) -> _Pattern:
    first = deciding[0][0]
    mask = np.zeros((deciding[-1][0] + 4 - first) // 4, ">u4")
    values = np.zeros_like(mask)
    for at, value in deciding:
        mask[(at - first) // 4] = 0xFFFFFFFF
        values[(at - first) // 4] = value
    return _Pattern(first - start, deciding[-1][0] + 4 - start, mask.view(np.uint32), values.view(np.uint32))


def _alike(data: Bytes, starts: Int64s, whole: NDArray[np.bool_], pattern: _Pattern) -> NDArray[np.bool_]:
    """Which of the values have the words of a pattern, of those that are ``whole``."""
    places = starts[whole] + pattern.first
    same = []
    for first in range(0, len(places), TOGETHER):
        words = gathered(data, pattern.behind - pattern.first, places[first : first + TOGETHER]).view(np.uint32)
        same.append(((words & pattern.mask) == pattern.values).all(axis=1))
    if same:
        whole[whole] = same[0] if len(same) == 1 else np.concatenate(same)
    return whole


def _is_missing(node: Node) -> bool:
    """Bytes of it are missing, in which more could be than the contents of a file."""
    return node.note == NOT_CAPTURED and not (isinstance(node.type, XdrOpaque) and node.type.form == DATA)


def _place(node: Node, start: int) -> tuple[int, int] | None:
    at = node.offset - start
    if node.type is DATA4:
        return at, at + 4
    if node.type is STATEID4:
        return (at, at + 16) if node.length == 16 else None
    if isinstance(node.type, XdrInteger) and not node.type.signed:
        size = node.type.size
    elif isinstance(node.type, XdrOpaque) and isinstance(node.value, memoryview):
        size = len(node.value)
        if node.type.size is None:
            at += 4
    else:
        return None
    before = at + start - node.offset
    # Where it is optional, a bool stands before it.
    at += node.length - before - round_up(size)
    return (at, at + size) if at + start - node.offset - before in (0, 4) else None


class _Noting(FlatWalk):
    """Notes the places of the words that decide what follows."""

    def __init__(self, data: SparseBytes, at: int, limit: int, max_nodes: int) -> None:
        super().__init__(data, at, limit, max_nodes)
        self.deciding: list[tuple[int, int]] = []
        """Offsets of the words that decide where other values are, and their values."""
        self.unsure = False
        """What follows depends on more than these words."""
        self._decides = True
        self._discriminant = False
        """The next integer is one."""

    def _word(self, node: Node) -> int:
        value = super()._word(node)
        if self._decides:
            self.deciding.append((self.at - 4, value))
        return value

    def _integer(self, node: Node, type: XdrInteger) -> int:
        self._decides = self._discriminant
        self._discriminant = False
        try:
            return super()._integer(node, type)
        finally:
            self._decides = True

    def _union(self, node: Node, type: XdrUnion) -> None:
        self._discriminant = True
        self.unsure |= not isinstance(type.type, XdrInteger) or type.type.size != 4
        super()._union(node, type)

    def _list(self, node: Node, type: XdrList) -> None:
        self.unsure = True
        super()._list(node, type)

    def _selected(self, type: XdrSelected) -> XdrType | None:
        self.unsure = True
        return super()._selected(type)
