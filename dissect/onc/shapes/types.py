"""XDR types as data (RFC 4506): what a value is called, how long it is, and what it is made of.

A declaration is a tree of these types; ``decode`` makes a tree of values from it, ``skips`` the steps over them.
No type contains itself: a linked list is ``XdrList``, so a declaration's depth bounds every walk.
Types have no repr: that of a declaration would be all that it is made of, page after page.

From bytes and a declaration to a tree of values; the bytes may have gaps, or be anything at all.

The walk goes as deep as the declaration does, makes at most ``MAX_NODES`` nodes, and copies no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...named_tuple import NamedTuple
from ..xdr import Data, hyper, round_up, word

DECIMAL, HEXADECIMAL, OCTAL = "decimal", "hexadecimal", "octal"
OPAQUE, TEXT, ADDRESS, HANDLE, DATA = "opaque", "text", "address", "handle", "data"
"""What the bytes of an opaque mean: nothing to this protocol, characters, a universal address, a file handle, contents
of a file."""


@dataclass(slots=True, eq=False, repr=False)
class XdrInteger:
    """int, unsigned int, hyper, enum, bool (4.1 to 4.5): big-endian, ``size`` bytes."""

    name: str
    size: int = 4
    signed: bool = False
    form: str = DECIMAL
    values: Mapping[int, str] = field(default_factory=dict)
    """Names of the values of an enum or bool."""
    flags: Mapping[int, str] = field(default_factory=dict)
    """Names of bits, by mask; of 0, where no bit is set."""
    choice_mask: int = 0
    """Bits that are a number together, named by ``choices``."""
    choices: Mapping[int, str] = field(default_factory=dict)
    number: str = ""
    """What the bits are as a number that no flag has."""
    unit: str = ""
    meanings: Mapping[int, str] = field(default_factory=dict)
    """What some values stand for; in JSON they stay numbers."""


@dataclass(slots=True, eq=False, repr=False)
class XdrOpaque:
    """Opaque data and strings (4.9 to 4.11), filled to a multiple of four."""

    name: str
    form: str = OPAQUE
    size: int | None = None
    """Bytes; None: a count stands before them."""
    maximum: int | None = None
    inner: XdrType | None = None
    """What the bytes are made of, where the protocol says so."""


@dataclass(slots=True, eq=False, repr=False)
class XdrStruct:
    """A structure (RFC 4506, 4.14)."""

    name: str
    fields: tuple[tuple[str, XdrType], ...]


@dataclass(slots=True, eq=False, repr=False)
class XdrUnion:
    """4.15: a discriminant, and the arm that it chooses; an arm is a structure or another union, whose fields become
    the union's own, a field, or None for void."""

    name: str
    discriminant: str
    type: XdrInteger
    arms: Mapping[int, XdrArm]
    has_default: bool = False
    default: XdrArm = None


@dataclass(slots=True, eq=False, repr=False)
class XdrArray:
    """An array of fixed or variable length (RFC 4506, 4.12 and 4.13)."""

    name: str
    element: XdrType
    size: int | None = None
    """Elements; None: a count stands before them."""
    maximum: int | None = None


@dataclass(slots=True, eq=False, repr=False)
class XdrOptional:
    """4.19: a bool, and the value where it is true."""

    name: str
    element: XdrType


@dataclass(slots=True, eq=False, repr=False)
class XdrList:
    """A linked list (4.19): a true before each element, a false behind the last."""

    name: str
    element: XdrType


@dataclass(slots=True, eq=False, repr=False)
class XdrBitmap:
    """bitmap4 (RFC 8881, 3.3.7): an array of words, the lowest bit first."""

    name: str
    bits: Mapping[int, str]


@dataclass(slots=True, eq=False, repr=False)
class XdrAttributes:
    """fattr4 (RFC 8881, 3.3.7): a bitmap, and the values of its attributes inside one opaque."""

    name: str
    attributes: Mapping[int, tuple[str, XdrType]]
    mask: XdrBitmap


@dataclass(slots=True, eq=False, repr=False)
class XdrSelected:
    """An opaque whose contents an earlier enum of the same structure chooses."""

    name: str
    selector: str
    """Name of that field."""
    choices: Mapping[int, XdrType]
    otherwise: XdrOpaque


XdrType = (
    XdrInteger
    | XdrOpaque
    | XdrStruct
    | XdrUnion
    | XdrArray
    | XdrOptional
    | XdrList
    | XdrBitmap
    | XdrAttributes
    | XdrSelected
)
XdrArm = XdrStruct | XdrUnion | tuple[str, XdrType] | None


TO_END_OF_FILE = "to end of file"
"""What a length says."""


def enum(name: str, values: Mapping[int, str]) -> XdrInteger:
    return XdrInteger(name, values=values)


def struct(name: str, /, **fields: XdrType) -> XdrStruct:
    """Fields in order; a trailing underscore of a name is left out (``from_``)."""
    return XdrStruct(name, tuple((field.rstrip("_"), type) for field, type in fields.items()))


BOOL = XdrInteger("bool", values={0: "FALSE", 1: "TRUE"})
UINT32 = XdrInteger("uint32_t")
INT32 = XdrInteger("int32_t", signed=True)
UINT64 = XdrInteger("uint64_t", 8)
INT64 = XdrInteger("int64_t", 8, signed=True)


class ProcedureShape(NamedTuple):
    """A procedure of a program; None where nothing is sent."""

    name: str
    arguments: XdrType | None = None
    results: XdrType | None = None


class OperationShape(NamedTuple):
    """An operation of COMPOUND or CB_COMPOUND."""

    name: str
    arguments: XdrStruct | None
    results: XdrUnion
    section: str


MAX_NODES = 20_000
"""Elements of arrays and lists beyond are stepped over, and counted."""
MAX_BITMAP_WORDS = 8

NOT_CAPTURED = "not captured"


class SparseBytes:
    """The bytes of a message that may have gaps: disjoint pieces with their offsets, ascending."""

    __slots__ = ("_end", "_pieces", "_start", "_view", "length")

    def __init__(self, pieces: Sequence[tuple[int, Data]], length: int) -> None:
        self._pieces = [(at, memoryview(data)) for at, data in pieces]
        self.length = length
        self._start = self._end = 0
        self._view = memoryview(b"")

    def view(self, start: int, end: int) -> memoryview | None:
        """Bytes [start, end) without a copy; None where one of them is missing."""
        if not self._start <= start <= end <= self._end:
            for at, piece in self._pieces:
                if at <= start and end <= at + len(piece):
                    self._view, self._start, self._end = piece, at, at + len(piece)
                    break
            else:
                return None
        return self._view[start - self._start : end - self._start]


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A value, where it stands, and what it is made of."""

    name: str
    type: XdrType | None
    """None where the bytes are not decoded."""
    offset: int
    """Where the value begins, in bytes from the beginning of the message."""
    length: int = 0
    """Bytes, with the count word before them and the pad behind them."""
    value: int | memoryview | tuple[int, ...] | None = None
    """An integer; the bytes of an opaque; of a bitmap the bits that are set; of an array the count that was announced.
    None: it has only children, or its bytes are missing."""
    children: list[Node] = field(default_factory=list)
    note: str = ""
    """What is wrong with it, or where its bytes are."""
    size: int | None = None
    """Bytes that the count before an opaque announces."""

    def child(self, name: str) -> Node | None:
        return next((child for child in self.children if child.name == name), None)

    def walk(self, enters: Callable[[Node], bool] = lambda node: True) -> Iterator[Node]:
        """This node and all below, in the order of the message; below those only that ``enters`` accepts."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            if node.children and enters(node):
                waiting.extend(reversed(node.children))


class Decoded(NamedTuple):
    root: Node
    end: int
    """Where decoding stopped, an offset in the message."""
    problem: str
    """Why it stopped before the end of the value, '' where it did not."""


class _Stop(Exception):
    """The value cannot be decoded any further."""


def decode(type: XdrType, name: str, data: SparseBytes, start: int, end: int, max_nodes: int = MAX_NODES) -> Decoded:
    """The value at ``start``, as far as it can be decoded; never raises on what the bytes hold."""
    return Walk(data, start, end, max_nodes).decoded(type, name)


class Walk:
    """One walk over the bytes [at, limit)."""

    def __init__(self, data: SparseBytes, at: int, limit: int, max_nodes: int) -> None:
        self.data, self.at, self.limit, self.left = data, at, limit, max_nodes
        self.enclosing: list[Node] = []

    def decoded(self, type: XdrType, name: str) -> Decoded:
        """The value where the walk stands, as far as it can be decoded."""
        top = Node("", None, self.at)
        problem = ""
        try:
            self.read(top, name, type)
        except _Stop as stop:
            problem = str(stop)
        return Decoded(top.children[0], self.at, problem)

    def read(self, parent: Node, name: str, type: XdrType) -> Node:
        node = Node(name, type, self.at)
        parent.children.append(node)
        self.left -= 1
        self.enclosing.append(node)
        try:
            match type:
                case XdrInteger():
                    node.value = self._integer(node, type)
                case XdrOpaque():
                    self._opaque(node, type)
                case XdrStruct():
                    for field_name, inner in type.fields:
                        self.read(node, field_name, inner)
                case XdrUnion():
                    self._union(node, type)
                case XdrArray():
                    self._array(node, type)
                case XdrOptional():
                    self._optional(node, type)
                case XdrList():
                    self._list(node, type)
                case XdrBitmap():
                    self._bitmap(node)
                case XdrAttributes():
                    self._attributes(node, type)
                case XdrSelected():
                    self._opaque(node, type.otherwise, self._selected(type))
        finally:
            self.enclosing.pop()
            node.length = self.at - node.offset
        return node

    def _selected(self, type: XdrSelected) -> XdrType | None:
        for node in reversed(self.enclosing):
            chosen = node.child(type.selector)
            if chosen is not None and isinstance(chosen.value, int):
                return type.choices.get(chosen.value)
        return None

    def _stop(self, node: Node, reason: str) -> _Stop:
        node.note = reason
        return _Stop(f"{node.name}: {reason}, at offset {self.at}")

    def _take(self, node: Node, size: int) -> memoryview:
        """The next bytes, all of which the walk needs to go on."""
        if self.at + size > self.limit:
            raise self._stop(node, "the bytes end here")
        view = self.data.view(self.at, self.at + size)
        if view is None:
            raise self._stop(node, NOT_CAPTURED)
        self.at += size
        return view

    def _word(self, node: Node) -> int:
        return word(self._take(node, 4), 0)[0]

    def _integer(self, node: Node, type: XdrInteger) -> int:
        value = self._word(node) if type.size == 4 else hyper(self._take(node, 8), 0)[0]
        if type.signed and value >> type.size * 8 - 1:
            value -= 1 << type.size * 8
        return value

    def _opaque(self, node: Node, type: XdrOpaque, inner: XdrType | None = None) -> None:
        size = self._word(node) if type.size is None else type.size
        node.size = size
        if self.at + size > self.limit:
            raise self._stop(node, f"{size:,} bytes, of which {self.limit - self.at:,} are there")
        start, end = self.at, self.at + size
        view = self.data.view(start, end)
        if view is None:
            node.note = NOT_CAPTURED
        node.value = view
        if type.maximum is not None and size > type.maximum:
            node.note = node.note or f"longer than {type.maximum:,} bytes"
        inside = inner or type.inner
        if inside is not None and view is not None:
            self._inside(node, end, [("", inside)])
        self.at = min(start + round_up(size), self.limit)

    def _inside(self, node: Node, end: int, values: Sequence[tuple[str, XdrType]], whole: bool = True) -> None:
        """Values that an opaque is made of, ``whole`` to its end; what does not fit ends with it."""
        outer, self.limit = self.limit, end
        try:
            for name, type in values:
                self.read(node, name or type.name, type)
            if whole and self.at < end:
                node.note = f"{end - self.at:,} bytes more than it is made of"
        except _Stop as stop:
            node.note = str(stop)
        finally:
            self.limit = outer
            self.at = end

    def _arm(self, node: Node, arm: XdrArm) -> None:
        if isinstance(arm, XdrStruct):
            for name, inner in arm.fields:
                self.read(node, name, inner)
        elif isinstance(arm, XdrUnion):
            self._union(node, arm)
        elif arm is not None:
            self.read(node, *arm)

    def _union(self, node: Node, type: XdrUnion) -> None:
        chosen = self.read(node, type.discriminant, type.type)
        value = chosen.value if isinstance(chosen.value, int) else -1
        if value in type.arms:
            self._arm(node, type.arms[value])
        elif type.has_default:
            self._arm(node, type.default)
        else:
            raise self._stop(chosen, f"{value} is unknown")

    def _array(self, node: Node, type: XdrArray) -> None:
        count = self._word(node) if type.size is None else type.size
        node.value = count
        if type.maximum is not None and count > type.maximum:
            node.note = f"more than {type.maximum:,}"
        for index in range(count):
            try:
                self._element(node, type.element, count - index)
            except _Stop:
                node.note = f"{index:,} of {count:,} decoded to the end"
                raise

    def _element(self, node: Node, element: XdrType, left: int) -> None:
        """The next of ``left`` elements (0: of a list that goes on); beyond the limit they are counted only."""
        if self.left > 0:
            self.read(node, element.name, element)
            return
        start = self.at
        self.read(Node("", None, start), element.name, element)
        last = node.children[-1] if node.children else None
        if last is None or last.type is not None:
            last = Node("more", None, start, value=0)
            node.children.append(last)
        last.value = (last.value if isinstance(last.value, int) else 0) + 1
        last.length = self.at - last.offset
        last.note = f"{last.value:,} more, not listed"

    def _optional(self, node: Node, type: XdrOptional) -> None:
        present = self._word(node)
        node.value = present
        if present > 1:
            raise self._stop(node, f"{present} is no bool")
        if present:
            inner = self.read(node, node.name, type.element)
            # The value stands for itself: its children, or what it is.
            node.children, node.note, node.type = inner.children, inner.note, type.element
            node.value = inner.value

    def _list(self, node: Node, type: XdrList) -> None:
        count = 0
        try:
            while follows := self._word(node):
                if follows > 1:
                    raise self._stop(node, f"{follows} is no bool")
                self._element(node, type.element, 0)
                count += 1
        except _Stop:
            node.note = f"{count:,} decoded to the end"
            raise
        finally:
            node.value = count

    def _bitmap(self, node: Node) -> None:
        bits: list[int] = []
        for index in range(self._word(node)):
            value = self._word(node)
            if index < MAX_BITMAP_WORDS:
                bits += [32 * index + bit for bit in range(32) if value >> bit & 1]
            elif value:
                node.note = f"bits from {32 * MAX_BITMAP_WORDS} on are not listed"
        node.value = tuple(bits)

    def _attributes(self, node: Node, type: XdrAttributes) -> None:
        mask = self.read(node, "attrmask", type.mask)
        values = Node("attr_vals", type, self.at)
        node.children.append(values)
        numbers = mask.value if isinstance(mask.value, tuple) else ()
        try:
            size = self._word(values)
            if self.at + size > self.limit:
                raise self._stop(values, f"{size:,} bytes, of which {self.limit - self.at:,} are there")
            start, end = self.at, self.at + size
            self._attribute_values(values, type, numbers, end)
            self.at = min(start + round_up(size), self.limit)
        finally:
            values.length = self.at - values.offset

    def _attribute_values(self, node: Node, type: XdrAttributes, numbers: tuple[int, ...], end: int) -> None:
        known: list[tuple[str, XdrType]] = []
        unknown: int | None = None
        for number in numbers:
            if number not in type.attributes:
                unknown = number
                break
            known.append(type.attributes[number])
        if unknown is None:
            self._inside(node, end, known)
            return
        self._inside(node, end, known, whole=False)
        if not node.note:
            at = node.children[-1].offset + node.children[-1].length if node.children else node.offset + 4
            node.note = f"attribute {unknown} is unknown: the last {end - at:,} bytes are not decoded"
            node.children.append(Node(f"attribute {unknown}", None, at, end - at, self.data.view(at, end)))
