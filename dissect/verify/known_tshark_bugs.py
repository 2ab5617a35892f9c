"""What Wireshark is known to get wrong, as a table: where that may be, why, and where to read about it.

A row's predicate says of one of our Rpcs that Wireshark cannot be relied on there.  Where it agrees all the
same, that counts; where it differs, that is no evidence against our reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..layers.rpcrdma_codes import PROCEDURE_NAMES, RDMA_NOMSG
from ..rpcrdma.messages import Message, TransportHeader
from ..rpcrdma.outcome import OTHER_XID
from ..rpcrdma.rpcs import Rpc
from ..serial import PSN
from ..transport.operations import Operation
from .frame_fields import FIXED_WORDS, FPDU_FIELDS, MPA_FIELDS, PACKET_FIELDS, Values

CHUNKS = "Wireshark, epan/dissectors/packet-rpcrdma.c"
PACKETS = "Wireshark, epan/dissectors/packet-infiniband.c"
RPCS = "Wireshark, epan/dissectors/packet-rpc.c"
MPA = "Wireshark, epan/dissectors/packet-iwarp-mpa.c"


class Explanation(NamedTuple):
    right: str
    """'rdmascope', 'Wireshark' or 'both'."""
    reason: str
    reference: str
    """A source file of Wireshark, or a section of a specification."""


# The predicates.  Each looks at one Rpc.


def _operations(rpc: Rpc) -> Iterator[Operation]:
    """The RDMA Reads and Writes that moved its chunks."""
    for chunk in rpc.chunks:
        for use in chunk.segments:
            yield from use.operations


def _packets(operation: Operation, mtu: int) -> int:
    return max(operation.packets, -(-operation.length // mtu))


def truncated(rpc: Rpc) -> bool:
    return rpc.contents == "truncated"


def missing_packets(rpc: Rpc) -> bool:
    messages = [message.operation for message in (rpc.call, rpc.reply) if message is not None]
    return (
        bool(rpc.damage)
        or rpc.call is None
        or any(operation.payload.seen < operation.payload.length for operation in (*messages, *_operations(rpc)))
    )


def unfinished(rpc: Rpc) -> bool:
    """Some of what the call offered to be read was not read."""
    return any(chunk.kind == "read" and chunk.transferred < chunk.advertised for chunk in rpc.chunks)


def retransmitted_packets(rpc: Rpc) -> bool:
    return rpc.retransmissions > 0


def out_of_order(rpc: Rpc) -> bool:
    """A reply before its call; Reads or Writes before the call that offers the memory, or behind the reply."""
    if rpc.call is not None and rpc.reply is not None and rpc.reply.frame < rpc.call.frame:
        return True
    for operation in _operations(rpc):
        if rpc.call is not None and operation.first_frame < rpc.call.operation.first_frame:
            return True
        if rpc.reply is not None and operation.last_frame > rpc.reply.frame:
            return True
    return False


def _headers(rpc: Rpc) -> Iterator[TransportHeader]:
    for message in (rpc.call, rpc.reply):
        if message is not None and message.header.length >= FIXED_WORDS:
            yield message.header


def version_2(rpc: Rpc) -> bool:
    return any(header.version == 2 for header in _headers(rpc))


def unknown_version(rpc: Rpc) -> bool:
    return any(header.version not in (1, 2) for header in _headers(rpc))


def unknown_procedure(rpc: Rpc) -> bool:
    return any(header.version == 1 and header.procedure not in PROCEDURE_NAMES for header in _headers(rpc))


def other_rdma_xid(rpc: Rpc) -> bool:
    """The rdma_xid of its call or reply is not the XID of the RPC message behind it."""
    return any(OTHER_XID in note for note in rpc.notes)


def malformed_header(rpc: Rpc) -> bool:
    return any(bool(header.problem) and not header.truncated for header in _headers(rpc))


def without_cm(rpc: Rpc) -> bool:
    return rpc.connection.transport != "iWARP" and rpc.connection.paired_by != "CM"


def one_handle_twice(rpc: Rpc) -> bool:
    handles = [use.advertised.handle for chunk in rpc.chunks for use in chunk.segments]
    return len(handles) != len(set(handles))


def several_chunks(rpc: Rpc) -> bool:
    kinds = [chunk.kind for chunk in rpc.chunks]
    return kinds.count("read") > 1 or kinds.count("write") > 1


def mixed_sizes(rpc: Rpc) -> bool:
    """A Write that is not the last one into its chunk ends with a packet that is not full."""
    mtu = rpc.connection.path_mtu or 0
    for chunk in rpc.chunks:
        moved = [operation for use in chunk.segments for operation in use.operations]
        if mtu and chunk.kind != "read" and any(operation.length % mtu for operation in moved[:-1]):
            return True
    return False


def long_send(rpc: Rpc) -> bool:
    """A call with Read chunks, or a reply with Write chunks or a Reply chunk, took more than one packet."""
    kinds = {chunk.kind for chunk in rpc.chunks}
    return bool(
        (rpc.call is not None and rpc.call.operation.packets > 1 and "read" in kinds)
        or (rpc.reply is not None and rpc.reply.operation.packets > 1 and kinds - {"read"})
    )


def psn_wraps(rpc: Rpc) -> bool:
    mtu = rpc.connection.path_mtu or 256
    sends = [message.operation for message in (rpc.call, rpc.reply) if message is not None]
    return any(operation.psn + _packets(operation, mtu) > PSN.modulus for operation in (*sends, *_operations(rpc)))


# The table.

PRESENCE = frozenset({"packet", "rpcordma", "rpc"})
"""Names that stand for the whole thing, where one of the two has none."""
MATCHING = frozenset({"frame.number", "rpc.reqframe", "rpc.repframe", "rpc.time"})
"""Where an RPC is, what belongs to it, and how long it took."""
RPC = MATCHING | {"rpc"}
MESSAGE = RPC | {"rpcordma"}
ANYTHING = MESSAGE | {"packet"}
STREAM = ANYTHING | {*MPA_FIELDS, *FPDU_FIELDS}
"""A decoder that lost the FPDU boundaries may take anything for an FPDU."""
NAMES = frozenset({"rpc.program", "rpc.programversion", "rpc.procedure"})
LONG_CALL = "long call"
"""Not a weak spot: the call came through a Read chunk, so that what spoils chunks may spoil NAMES as well."""


class WeakSpot(NamedTuple):
    name: str
    applies: Callable[[Rpc], bool] | None
    """None: one Rpc does not show it; ``Circumstances``, ``RetransmittedPackets`` or the frame does."""
    reason: str
    reference: str
    right: str = "rdmascope"
    names: frozenset[str] = RPC
    """What it can spoil; the values of what Wireshark does find are never among them."""


TABLE = (
    WeakSpot(
        "truncated frame",
        None,
        "the capture truncated the frame, and Wireshark stops where the bytes end",
        PACKETS,
        names=ANYTHING,
    ),
    WeakSpot(
        "retransmitted",
        None,
        "the packet was retransmitted: Wireshark shows its message each time, rdmascope where the receiver took it",
        "InfiniBand Architecture vol. 1, 9.7.5.1",
        "both",
        frozenset({"rpcordma", "rpc"}),
    ),
    WeakSpot(
        "DC or RD",
        None,
        "Wireshark takes the opcode for Reliable Datagram; Mellanox uses it for its Dynamically Connected transport,"
        " whose headers are not published, and rdmascope does not decode it",
        PACKETS,
        "both",
        names=frozenset({*ANYTHING, *(name for fields in PACKET_FIELDS.values() for name in fields.values())}),
    ),
    WeakSpot(
        "truncated",
        truncated,
        "the capture truncated frames of it, and Wireshark stops where the bytes end",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "UDP port",
        None,
        "its UDP source port is below that of RoCEv2, and Wireshark takes it for the protocol of that port",
        "Wireshark, epan/dissectors/packet-udp.c",
        names=ANYTHING,
    ),
    WeakSpot(
        "unknown version",
        unknown_version,
        "its rdma_vers is neither 1 nor 2, and Wireshark takes version 1 alone for RPC-over-RDMA",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "unknown procedure",
        unknown_procedure,
        "no document defines its rdma_proc, and Wireshark does not take it for RPC-over-RDMA",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "other rdma_xid",
        other_rdma_xid,
        "an rdma_xid of it is not the XID of the RPC message behind it, and Wireshark does not take such a Send for"
        " RPC-over-RDMA",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "malformed header",
        malformed_header,
        "its transport header is malformed, and Wireshark shows none, or what it finds at the wrong place",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "version 2",
        version_2,
        "it is RPC-over-RDMA version 2, which Wireshark does not know",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "unfinished",
        unfinished,
        "its Read chunk was not read to the end, and Wireshark shows a call when all of it is there",
        CHUNKS,
        "both",
    ),
    WeakSpot(
        "retransmitted packets",
        retransmitted_packets,
        "packets of it were retransmitted, and Wireshark counts the bytes of a chunk whether they are new or not",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "missing packets",
        missing_packets,
        "packets of it are missing, and Wireshark does not ask which bytes of a chunk they carried",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "out of order",
        out_of_order,
        "its packets were captured out of order, and Wireshark follows the order of the frames",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "PSNs alike",
        None,
        "both ends used its packet sequence numbers for Sends of several packets, which Wireshark keeps in one list",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "no CM",
        without_cm,
        "the connection's set-up is not in the capture, and only from that does Wireshark learn which queue pairs"
        " belong together",
        PACKETS,
        names=MESSAGE,
    ),
    WeakSpot(
        "no MPA",
        None,
        "the MPA Request or Reply is not in the capture, and only by those does Wireshark know iWARP",
        MPA,
        names=ANYTHING,
    ),
    WeakSpot(
        "IP over InfiniBand",
        None,
        "it carries IP over InfiniBand, which rdmascope passes over",
        "RFC 4391, 6",
        "both",
        frozenset({"packet", "rpc"}),
    ),
    WeakSpot(
        "ready to receive",
        None,
        "an FPDU without contents ends the set-up; Wireshark shows it, to rdmascope it is no RDMA message",
        "RFC 6581, 8",
        "both",
        frozenset({"packet"}),
    ),
    WeakSpot(
        "markers",
        None,
        "there are markers in the TCP streams, which Wireshark expects to be asked for by both sides, and FPDUs to"
        " begin where segments do",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "TCP order",
        None,
        "TCP segments were retransmitted, missing or out of order, and Wireshark loses where FPDUs begin",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "split FPDUs",
        None,
        "FPDUs are spread over TCP segments, and Wireshark loses where they begin when one has but a few bytes of one",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "one XID both ways",
        None,
        "both ends used its XID, and Wireshark does not keep the two directions apart",
        RPCS,
        names=MATCHING,
    ),
    WeakSpot(
        "XID reused",
        None,
        "another call had its XID, and Wireshark gives a reply to the wrong one of them",
        RPCS,
        names=MATCHING,
    ),
    WeakSpot(
        "one handle twice",
        one_handle_twice,
        "two of its segments have one handle, and Wireshark knows one segment for each handle",
        CHUNKS,
    ),
    WeakSpot(
        "memory advertised again",
        None,
        "an earlier call offered the same memory, and Wireshark takes the second offer for the first one's reply",
        CHUNKS,
    ),
    WeakSpot(
        "several chunks",
        several_chunks,
        "it has several Read or several Write chunks, which Wireshark puts together in the wrong places",
        CHUNKS,
    ),
    WeakSpot(
        "long Send",
        long_send,
        "a Send of several packets names chunks, and Wireshark puts together only one of the two in a frame",
        CHUNKS,
    ),
    WeakSpot(
        "mixed sizes",
        mixed_sizes,
        "RDMA Writes of different sizes fill one chunk, and Wireshark orders them as if all were of one size",
        CHUNKS,
    ),
    WeakSpot(
        "PSN wrap",
        psn_wraps,
        "its packet sequence numbers begin again at 0, and Wireshark compares them as plain numbers",
        CHUNKS,
        names=MESSAGE,
    ),
)
"""The first row that applies gives the reason."""

EXTRA = frozenset({"retransmitted", "IP over InfiniBand", "ready to receive"})
"""Rows that are about what only Wireshark shows."""

LATE = Explanation(
    "both",
    "Wireshark shows a call with a Read chunk in the last Read response and counts its time from there, rdmascope"
    " from the Send",
    CHUNKS,
)


MATCH_FIELDS = "rpc.reqframe", "rpc.repframe"
RETRANSMITTED = next(Explanation(row.right, row.reason, row.reference) for row in TABLE if row.name == "retransmitted")


def touched(rpc: Rpc) -> frozenset[str]:
    """Names of the rows that apply to an Rpc by itself."""
    found = {row.name for row in TABLE if row.applies is not None and row.applies(rpc)}
    if rpc.call is not None and rpc.call.header.procedure == RDMA_NOMSG:
        found.add(LONG_CALL)
    return frozenset(found)


def touched_message(message: Message) -> frozenset[str]:
    """Names of the rows that apply to a message that belongs to no Rpc."""
    header, found = message.header, set()
    if header.version == 2:
        found.add("version 2")
    elif header.version != 1:
        found.add("unknown version")
    elif header.procedure not in PROCEDURE_NAMES:
        found.add("unknown procedure")
    if header.problem and not header.truncated:
        found.add("malformed header")
    return frozenset(found)


def explain(name: str, ours: Values | None, theirs: Values | None, touched: frozenset[str]) -> Explanation | None:
    """The verdict on a difference, where the table has one; ``touched`` are the rows that apply there."""
    for row in TABLE:
        spoils = name in row.names or (row.name == "truncated frame" and theirs is None)
        spoils = spoils or (name in NAMES and LONG_CALL in touched and "rpc" in row.names)
        if row.name in touched and spoils and (row.name not in EXTRA or ours is None):
            return Explanation(row.right, row.reason, row.reference)
    return None
