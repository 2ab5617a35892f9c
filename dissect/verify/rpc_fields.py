"""Every field of a call or a reply beside Wireshark's: what it shows at a place is there, and of what is there it shows
all, with the same bytes under a name that means the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

from ..named_tuple import NamedTuple
from ..onc.hashes import stateid_hash
from ..onc.shapes.messages import MessageTree
from ..onc.shapes.types import Node, XdrAttributes, XdrBitmap, XdrInteger, XdrList, XdrOpaque
from ..onc.xdr import round_up
from .rpc_field_names import NAMES

PROTOCOLS = ("rpc", "nfs", "nfs.cb", "mount", "nfsacl", "portmap", "nlm", "stat")
"""Wireshark's; fields of others are not compared."""
HASHES = frozenset(("nfs.fh.hash", "nfs.stateid.other_hash"))
"""Shown as the CRC-32 of their bytes."""
STATEID_HASH = "nfs.stateid.hash"
"""Shown as their CRC-16."""
SPANNING = frozenset(
    (
        "nfs.attr",
        "nfs.devaddr.scsi_volume_type",
        "nfs.name",
        "nfs.nfl_util.commit_thru_mds",
        "nfs.nfl_util.dense",
        "nfsacl.acl",
        "nfsacl.aclent",
        "rpc.lastfrag",
        "rpc.fraglen",
        "rpc.fill_bytes",
    )
)
"""What stands for several fields at once, or for none of the message's."""
DEPRECATED = "nfs.stateid.deprecated"
OPAQUE_LENGTH = "rpc.opaque_length"
NOT_DISSECTED = frozenset(
    (
        "change_policy", "fs_status", "layout_hint", "fs_locations_info", "retention_get", "retention_set",
        "retentevt_get", "retentevt_set", "mode_set_masked", "layout_type",
    )
)  # fmt: skip
"""Attributes of NFSv4 of which Wireshark shows the number and the bytes."""


class ShownField(NamedTuple):
    """A field as Wireshark shows it."""

    name: str
    """'nfs.offset3'; '' for a label."""
    offset: int
    """In the RPC message, from the XID on."""
    value: bytes
    """Of a bit in a mask: the bytes of the whole mask."""
    shown: str


class ShownMessage(NamedTuple):
    xid: int
    reply: bool
    fields: tuple[ShownField, ...]
    malformed: bool


class FieldDifference(NamedTuple):
    """One field that the two have differently.  None: there is nothing."""

    name: str
    """Wireshark's; ours where Wireshark shows nothing."""
    ours: bytes | None
    theirs: bytes | None
    reason: str = ""
    """Why ours is right; '' where that is not known."""
    reference: str = ""


class _Place(NamedTuple):
    name: str
    """Of the field; '' of a word that counts, or says that something follows."""
    value: bytes | None
    """None where it has no bytes of its own."""


class ComparedFields(NamedTuple):
    compared: int
    names: frozenset[str]
    """Wireshark's names of the fields compared."""
    differences: tuple[FieldDifference, ...]


def compared_fields(tree: MessageTree, shown: ShownMessage) -> ComparedFields:
    """A message beside Wireshark's; each of our values must be shown, and each that is shown must be ours."""
    roots = [root for root in (tree.header, tree.body) if root is not None]
    places = _places(roots)
    compared = 0
    names = set()
    different: list[FieldDifference] = []
    covered: set[tuple[int, int]] = set()
    undissected, layouts = _not_dissected(roots), _layout_bodies(roots)
    behind = _dissected_end(roots)
    deprecated = any(field.name == DEPRECATED for field in shown.fields)
    procedure = _procedure_not_dissected(tree, shown)
    for field in shown.fields:
        if not field.value or field.offset < 0:
            continue
        covered.add((field.offset, field.offset + len(field.value)))
        if not field.name or field.name in SPANNING or field.name.partition(".")[0] not in PROTOCOLS:
            continue
        compared += 1
        names.add(field.name)
        ours = places.get((field.offset, len(field.value)))
        if ours is None:
            reason = OPERATION_NOT_DISSECTED if field.offset >= behind else ("", "")
            if any(low <= field.offset < high for low, high in layouts):
                reason = LAYOUT_NOT_DISSECTED
            different.append(FieldDifference(field.name, None, field.value, *reason))
        elif ours.value not in (None, field.value):
            different.append(FieldDifference(field.name, ours.value, field.value))
        elif not any(field.value) and (field.name == OPAQUE_LENGTH or NAMES.get(field.name) == ()):
            pass  # Of an opaque without bytes Wireshark shows its length only.
        elif ours.name and ours.name not in NAMES.get(field.name, (ours.name,)):
            reason = OPERATION_NOT_DISSECTED if field.offset >= behind else ("", "")
            different.append(FieldDifference(f"{field.name} as {ours.name}", field.value, field.value, *reason))
        elif field.name in HASHES and field.shown != f"{crc32(field.value):#010x}":
            different.append(FieldDifference(field.name, crc32(field.value).to_bytes(4, "big"), field.value))
        elif field.name == STATEID_HASH and field.shown != f"{stateid_hash(field.value):#06x}":
            different.append(FieldDifference(field.name, stateid_hash(field.value).to_bytes(2, "big"), field.value))
    for node, start, value in _leaves(roots):
        end = start + len(value)
        if value and not any((low, high) in covered for low, high in _spans(start, end)):
            compared += 1
            reason = DEPRECATED_STATEID if deprecated and node.name == "seqid" else ("", "")
            if procedure and tree.body is not None and start >= tree.body.offset:
                reason = PROCEDURE_NOT_DISSECTED
            elif node.name == "state" and tree.body is not None and _type_name(tree.body) == "sm_stat_res":
                reason = STATE_OF_FAILURE
            elif any(low <= start and end <= high for low, high in undissected):
                reason = ATTRIBUTE_NOT_DISSECTED
            elif start >= behind:
                reason = OPERATION_NOT_DISSECTED
            elif any(low <= start and end <= high for low, high in layouts):
                reason = LAYOUT_NOT_DISSECTED
            different.append(FieldDifference(node.name, value, None, *reason))
    return ComparedFields(compared, frozenset(names), tuple(different))


DEPRECATED_STATEID = (
    "Wireshark marks the stateid that CLOSE returns as deprecated, and leaves it out",
    "RFC 7530, 16.2.5; RFC 8881, 18.2.4",
)


ATTRIBUTE_NOT_DISSECTED = (
    "Wireshark names this attribute, and shows its bytes without taking them apart",
    "RFC 8881, 5.8",
)


PROCEDURE_NOT_DISSECTED = (
    "Wireshark does not dissect what this procedure asks or answers",
    "RFC 1833, 2.1 and 2.2.1; rquota; procedure 16 of NLM, which is Linux's",
)
_BODIES_NOT_DISSECTED = frozenset(
    (
        "rpcb", "rpcb_entry_list", "time", "uaddr", "netbuf", "rpcb_rmtcallargs", "rpcb_rmtcallres", "rpcb_stat_byvers",
        "bool", "nlm_reboot", "getquota_args", "ext_getquota_args", "getquota_rslt", "setquota_args",
        "ext_setquota_args", "setquota_rslt",
    )
)  # fmt: skip
"""Types of arguments and results; some procedures with the same Wireshark dissects."""
STATE_OF_FAILURE = ("Wireshark shows the state of a success only", "X/Open XNFS, 11")


def _procedure_not_dissected(tree: MessageTree, shown: ShownMessage) -> bool:
    body = tree.body
    if body is None or _type_name(body) not in _BODIES_NOT_DISSECTED:
        return False
    return not any(
        field.offset >= body.offset and field.value and field.name.partition(".")[0] in PROTOCOLS
        for field in shown.fields
        if field.name != "rpc.unknown_body"
    )


def _type_name(node: Node) -> str:
    return node.type.name if node.type is not None else ""


OPERATION_NOT_DISSECTED = (
    "Wireshark does not dissect this operation to its end, and no operation that follows it",
    "RFC 8881, 18.35, 18.39, 18.47, 18.49 and 20.4 to 20.12; RFC 7862, 15.12",
)
_OPERATIONS_NOT_DISSECTED = {
    "GET_DIR_DELEGATION", "SET_SSV", "WANT_DELEGATION", "WRITE_SAME",
    "CB_NOTIFY", "CB_PUSH_DELEG", "CB_RECALL_ANY", "CB_RECALLABLE_OBJ_AVAIL", "CB_WANTS_CANCELLED",
    "CB_NOTIFY_DEVICEID",
}  # fmt: skip


def _dissected_end(roots: Iterable[Node]) -> int:
    """Where the first operation begins that Wireshark does not dissect."""
    for root in roots:
        for node in root.walk(lambda inner: not isinstance(inner.type, XdrAttributes)):
            number = node.child("argop") or node.child("resop")
            if number is not None and _word(number) in _OPERATIONS_NOT_DISSECTED:
                return number.offset + number.length
            if node.name == "spi_handles":  # of EXCHANGE_ID with SP4_SSV: an array, which Wireshark reads as one handle
                return node.offset
    return 1 << 62


def _word(node: Node) -> str:
    """The name of the value of an enum."""
    if isinstance(node.type, XdrInteger) and isinstance(node.value, int):
        return node.type.values.get(node.value, "")
    return ""


def _not_dissected(roots: Iterable[Node]) -> list[tuple[int, int]]:
    """Where attributes stand that Wireshark does not decode."""
    return [
        (node.offset, node.offset + node.length)
        for root in roots
        for attributes in root.walk()
        if isinstance(attributes.type, XdrAttributes)
        for node in attributes.children
        if node.name in NOT_DISSECTED
    ]


LAYOUT_NOT_DISSECTED = (
    "Wireshark dissects layouts and devices of files and flexible files; of blocks and SCSI it shows the bytes",
    "RFC 5663, 2.3; RFC 8154, 2.3",
)
_LAYOUT_BODIES = frozenset(("loc_body", "da_addr_body", "lou_body"))


def _layout_bodies(roots: Iterable[Node]) -> list[tuple[int, int]]:
    return [
        (node.offset, node.offset + node.length)
        for root in roots
        for node in root.walk()
        if node.name in _LAYOUT_BODIES and any(_type_name(child).startswith("pnfs_") for child in node.children)
    ]


def _spans(start: int, end: int) -> Iterator[tuple[int, int]]:
    """What Wireshark may show a value as: itself, with the count before it, with its pad."""
    padded = end + -(end - start) % 4
    for low in (start, start - 4, start - 8):
        for high in (end, padded):
            yield low, high


def _leaves(roots: Iterable[Node]) -> Iterator[tuple[Node, int, bytes]]:
    """Values with bytes of their own, and where these begin."""
    for root in roots:
        for node in root.walk():
            if node.children:
                continue
            end = node.offset + node.length
            if isinstance(node.type, XdrInteger) and isinstance(node.value, int):
                size = node.type.size
                yield node, end - size, (node.value % (1 << 8 * size)).to_bytes(size, "big")
            elif isinstance(node.type, XdrOpaque) and isinstance(node.value, memoryview):
                # Before it may stand a count, and a word that says that it follows.
                yield node, end - round_up(len(node.value)), bytes(node.value)


def _places(roots: Iterable[Node]) -> dict[tuple[int, int], _Place]:
    """Every field with bytes, by offset and length."""
    places: dict[tuple[int, int], _Place] = {}
    for root in roots:
        for node in root.walk():
            places.setdefault((node.offset, 4), _Place("", None))
            if isinstance(node.type, XdrBitmap | XdrList):
                for at in range(node.offset, node.offset + node.length, 4):
                    places.setdefault((at, 4), _Place("", None))
                places.update({(child.offset - 4, 4): _Place("", None) for child in node.children})
    for root in roots:
        for node in root.walk():
            _add(places, node)
    return places


def _add(places: dict[tuple[int, int], _Place], node: Node) -> None:
    end = node.offset + node.length
    if isinstance(node.value, memoryview):
        value = bytes(node.value)
        places[node.offset, node.length] = _Place(node.name, None)
        if isinstance(node.type, XdrOpaque) and node.type.size is not None:
            places[node.offset, len(value)] = _Place(node.name, value)
            return
        places[node.offset + 4, len(value)] = _Place(node.name, value)
        # Behind the word that says that it follows, if it is optional.
        places.setdefault((node.offset + 4, 4), _Place("", None))
        places.setdefault((node.offset + 8, len(value)), _Place(node.name, value))
    elif isinstance(node.type, XdrInteger) and isinstance(node.value, int):
        size = node.type.size
        places[end - size, size] = _Place(node.name, (node.value % (1 << 8 * size)).to_bytes(size, "big"))
    else:
        places.setdefault((node.offset, node.length), _Place(node.name, None))
        places.setdefault((node.offset + 4, node.length - 4), _Place(node.name, None))
