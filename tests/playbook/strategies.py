"""Hypothesis strategies for whole conversations: connections, RPCs, chunk shapes, faults, and their truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from hypothesis.vendor.pretty import RepresentationPrinter

from . import faults, foreign, nfs3, nfs4
from .capture import Capture
from .packets import REQUESTS, Packet
from .rpc import Reply, call_parts, whole
from .rpcrdma import (
    REPLY,
    Exchange,
    announce,
    call,
    error,
    fetch,
    optional,
    pad_segment,
    refuse_option,
    reply,
    respond,
    update,
    wish,
)
from .wire import Connection, Segment, Wire

SIZES = st.one_of(st.sampled_from([0, 1, 3, 4, 255, 256, 257, 1024, 4096]), st.integers(min_value=0, max_value=6000))


@dataclass(slots=True)
class Conversation:
    """A drawn conversation; str() of it is what Hypothesis shows."""

    wire: Wire
    packets: list[Packet]
    story: list[str] = field(default_factory=list)
    """What was drawn, in words."""

    @property
    def capture(self) -> Capture:
        return Capture(self.wire, self.packets)

    def __repr__(self) -> str:
        return "; ".join(self.story)

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(slots=True)
class Author:
    """Draws RPCs on one connection."""

    draw: DrawFn
    connection: Connection
    xid: int
    pad_handle: int
    free: list[Segment] = field(default_factory=list)
    """Memory of finished RPCs, to be offered again."""
    backward: set[int] = field(default_factory=set)
    """XIDs of backward calls."""

    def toss(self) -> bool:
        return self.draw(st.booleans())

    def data(self, size: int) -> bytes:
        return self.connection.wire.random.randbytes(size)

    def chunk(self, length: int, *, exact: bool = False) -> list[Segment]:
        """Segments that sum up to ``length``; not ``exact``: to that or more."""
        again = [segment for segment in self.free if segment.length == length]
        if again and self.toss():
            self.free.remove(again[0])
            return [again[0]]
        count = self.draw(st.integers(1, 4)) if length >= 16 else 1
        cuts = sorted(self.draw(st.sets(st.integers(1, length - 1), max_size=count - 1))) if count > 1 else []
        lengths = [end - start for start, end in zip([0, *cuts], [*cuts, length], strict=True)]
        shape = self.draw(st.sampled_from(["own handles", "one handle", "adjacent"]))
        if not exact and self.draw(st.booleans()):
            lengths[-1] += self.draw(st.sampled_from([1, 4, 1000]))
        if not exact and not lengths[-1]:
            lengths[-1] = 4
        if shape == "one handle":
            self.connection.next_handle += 1
            return self.connection.register(*lengths, handle=self.connection.next_handle)
        return self.connection.register(*lengths, adjacent=shape == "adjacent")

    def write_chunk(self, length: int) -> list[Segment]:
        chunk = self.chunk(length)
        if sum(segment.length for segment in chunk) % 4 and self.toss():
            chunk.append(pad_segment(self.connection, self.pad_handle))
        return chunk

    def read_chunk(self, length: int) -> list[Segment]:
        return self.chunk(length + (-length % 4 if self.draw(st.booleans()) else 0), exact=True)

    def begin(self, kind: Kind) -> Callable[[], None]:
        """The call; what comes after it is returned, to be done now or later."""
        self.xid += 1
        exchange, message = kind(self)
        offered = [segment for chunk in exchange.writes for segment in chunk]

        def finish() -> None:
            draw, rng = self.draw, self.connection.wire.random
            split = draw(st.sampled_from([None, 64, 500, 2000]))
            joined, order = draw(st.booleans()), rng if draw(st.booleans()) else None
            if exchange.reads:
                at_once = draw(st.sampled_from([1, 3]))
                fetch(exchange, pipelined=at_once, split=split, joined=joined, order=order)
            if message is None:
                error(exchange, draw(st.sampled_from([1, 2])))
                return
            invalidate = offered[0].handle if offered and self.toss() else None
            reply(exchange, message, invalidate=invalidate, split=split, joined=joined, order=order)
            self.free += [segment for segment in offered if segment.handle != self.pad_handle]

        return finish


Kind = Callable[[Author], tuple[Exchange, Reply | None]]


def null(author: Author) -> tuple[Exchange, Reply | None]:
    return call(author.connection, nfs3.null(), xid=author.xid), nfs3.null_reply()


def getattr_(author: Author) -> tuple[Exchange, Reply | None]:
    return call(author.connection, nfs3.getattr_(), xid=author.xid), nfs3.getattr_reply()


def rejected(author: Author) -> tuple[Exchange, Reply | None]:
    """Answered by RDMA_ERROR."""
    return call(author.connection, nfs3.getattr_(), xid=author.xid), None


def read(author: Author) -> tuple[Exchange, Reply | None]:
    """NFSv3 READ into a Write chunk; short, or failed, at times."""
    count = author.draw(SIZES)
    got = author.draw(st.one_of(st.just(count), st.integers(0, count)))
    exchange = call(author.connection, nfs3.read(0, count), xid=author.xid, writes=[author.write_chunk(count)])
    if author.draw(st.integers(0, 9)) == 9:
        return exchange, nfs3.read_failed()
    return exchange, nfs3.read_reply(author.data(got), attributes=author.draw(st.booleans()))


def read_inline(author: Author) -> tuple[Exchange, Reply | None]:
    size = author.draw(st.integers(0, 700))
    return call(author.connection, nfs3.read(0, size), xid=author.xid), nfs3.read_reply(author.data(size))


def write(author: Author) -> tuple[Exchange, Reply | None]:
    """NFSv3 WRITE from a Read chunk."""
    size = author.draw(SIZES.filter(bool))
    reads = {0: author.read_chunk(size)}
    exchange = call(author.connection, nfs3.write(0, author.data(size)), xid=author.xid, reads=reads)
    return exchange, nfs3.write_reply(size)


def readlink(author: Author) -> tuple[Exchange, Reply | None]:
    path = author.data(author.draw(st.integers(1, 1500)))
    writes = [author.write_chunk(1500)] if author.draw(st.booleans()) else []
    exchange = call(author.connection, nfs3.readlink(), xid=author.xid, writes=writes)
    return exchange, nfs3.readlink_reply(path)


def symlink(author: Author) -> tuple[Exchange, Reply | None]:
    path = author.data(author.draw(st.integers(1, 1500)))
    reads = {0: author.read_chunk(len(path))} if author.draw(st.booleans()) else None
    exchange = call(author.connection, nfs3.symlink(b"name", path), xid=author.xid, reads=reads)
    return exchange, nfs3.symlink_reply()


def readdirplus(author: Author) -> tuple[Exchange, Reply | None]:
    """A long reply through the Reply chunk."""
    names = [b"file-%d" % number for number in range(author.draw(st.integers(0, 20)))]
    chunk = author.chunk(6000)
    exchange = call(author.connection, nfs3.readdirplus(), xid=author.xid, reply_chunk=chunk)
    return exchange, nfs3.readdirplus_reply(names)


def long_call(author: Author) -> tuple[Exchange, Reply | None]:
    """The whole call in a position-zero Read chunk."""
    message = nfs3.symlink(b"name", author.data(author.draw(st.integers(1, 4000))))
    chunk = author.chunk(len(whole(call_parts(message, author.xid))), exact=True)
    return call(author.connection, message, xid=author.xid, position_zero=chunk), nfs3.symlink_reply()


def compound_reads(author: Author) -> tuple[Exchange, Reply | None]:
    """A COMPOUND of several READs, each with its Write chunk; the last may fail; a Reply chunk too."""
    counts = author.draw(st.lists(SIZES, min_size=1, max_size=3))
    minor = author.draw(st.sampled_from([0, 1, 2]))
    lead = [nfs4.putfh()] if minor == 0 else [nfs4.sequence(), nfs4.putfh()]
    done = [nfs4.putfh_done()] if minor == 0 else [nfs4.sequence_done(), nfs4.putfh_done()]
    ops, results = list(lead), list(done)
    fails = author.draw(st.integers(0, 5)) == 5
    for index, count in enumerate(counts):
        ops += [nfs4.read(0, count), nfs4.getattr_()]
        if fails and index == len(counts) - 1:
            results.append(nfs4.failed(25))
        else:
            got = author.draw(st.one_of(st.just(count), st.integers(0, count)))
            results += [nfs4.read_done(author.data(got)), nfs4.getattr_done()]
    exchange = call(
        author.connection,
        nfs4.compound(*ops, minor=minor),
        xid=author.xid,
        writes=[author.write_chunk(count) for count in counts],
        reply_chunk=author.chunk(2000) if author.draw(st.booleans()) else None,
    )
    return exchange, nfs4.compound_reply(*results)


def compound_writes(author: Author) -> tuple[Exchange, Reply | None]:
    """A COMPOUND of several WRITEs, each with its Read chunk."""
    sizes = author.draw(st.lists(SIZES.filter(bool), min_size=1, max_size=3))
    ops = [nfs4.sequence(), nfs4.putfh()]
    results = [nfs4.sequence_done(), nfs4.putfh_done()]
    for size in sizes:
        ops += [nfs4.write(0, author.data(size)), nfs4.getattr_()]
        results += [nfs4.write_done(size), nfs4.getattr_done()]
    exchange = call(
        author.connection,
        nfs4.compound(*ops),
        xid=author.xid,
        reads={index: author.read_chunk(size) for index, size in enumerate(sizes)},
    )
    return exchange, nfs4.compound_reply(*results)


def callback(author: Author) -> tuple[Exchange, Reply | None]:
    """A backward call, at times with the XID of a forward one under way."""
    xid = author.xid - author.draw(st.integers(0, 2))
    while xid in author.backward:
        xid += 0x10000
    author.backward.add(xid)
    exchange = call(
        author.connection,
        nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall()),
        xid=xid,
        backward=True,
    )
    return exchange, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done())


def behind_an_option(author: Author) -> tuple[Exchange, Reply | None]:
    """A call behind an RDMA2_OPTIONAL, where the version has one."""
    option = 77 if author.connection.version == 2 else None
    return call(author.connection, nfs3.getattr_(), xid=author.xid, option=option), nfs3.getattr_reply()


KINDS: tuple[Kind, ...] = (
    null,
    getattr_,
    rejected,
    read,
    read_inline,
    write,
    readlink,
    symlink,
    readdirplus,
    long_call,
    compound_reads,
    compound_writes,
    callback,
    behind_an_option,
)
FOREIGN: tuple[Callable[[Wire], Connection], ...] = (
    foreign.nvme,
    foreign.perftest,
    foreign.rping,
    foreign.zeros,
)


CHARACTERISTICS: tuple[tuple[int, int | bytes], ...] = (
    (1, 8192),
    (2, 1),
    (3, 2),
    (3, 7),
    (9, b"abcde"),
    (4294967040, b""),
)
"""Sound, illegal, unknown and experimental ones."""


def negotiate(author: Author) -> None:
    """Options of version 2, some of them illegal, none of them an RPC."""
    draw, connection, sender = author.draw, author.connection, author.draw(st.integers(0, 1))
    author.xid += 1
    value: tuple[int, int | bytes] = draw(st.sampled_from(CHARACTERISTICS))
    match draw(st.sampled_from(["init", "wish", "update", "unknown", "hostile"])):
        case "init":
            announce(connection, sender, value, (1, 4096), nochange=[0], xid=author.xid)
        case "wish":
            wish(connection, sender, value, (2, 0), xid=author.xid)
            respond(connection, 1 - sender, [0], [], [1], xid=author.xid)
        case "update":
            update(connection, sender, *value, clear=author.toss(), xid=author.xid)
        case "unknown":
            connection.send(sender, optional(author.xid, 99, author.data(13), direction=draw(st.integers(0, 1))))
            refuse_option(connection, 1 - sender, author.xid)
        case "hostile":
            connection.send(sender, optional(author.xid, 1, b"\xff" * 12, direction=REPLY))


def talk(draw: DrawFn, connection: Connection, story: list[str], max_rpcs: int) -> None:
    """RPCs of any kind, over whatever carries the connection."""
    author = Author(draw, connection, connection.wire.random.getrandbits(31), 0x10 + connection.number)
    connection.version = draw(st.sampled_from([1, 2]))
    story.append(f"  version {connection.version}")
    open_calls: list[Callable[[], None]] = []
    for _ in range(draw(st.integers(1, max_rpcs))):
        if draw(st.integers(0, 9)) == 9:
            connection.version = 3 - connection.version
            story.append(f"  version {connection.version} from here on")
        if connection.version == 2 and author.toss():
            story.append("  options")
            negotiate(author)
        kind = draw(st.sampled_from(KINDS))
        story.append(f"  {kind.__name__}")
        open_calls.append(author.begin(kind))
        while open_calls and author.toss():
            which = author.draw(st.integers(0, len(open_calls) - 1))
            open_calls.pop(which)()
    for finish in open_calls:
        finish()


@st.composite
def conversations(
    draw: DrawFn,
    *,
    max_connections: int = 3,
    max_rpcs: int = 6,
    cm: st.SearchStrategy[bool] | None = None,
    strangers: bool = True,
) -> Conversation:
    """What two hosts said, nothing wrong on the wire or in the capture."""
    wire = Wire(mtu=draw(st.sampled_from([256, 512, 1024, 4096])), seed=draw(st.integers(0, 1 << 16)))
    story = [f"mtu {wire.mtu}"]
    for _ in range(draw(st.integers(1, max_connections))):
        managed = draw(cm if cm is not None else st.booleans())
        addresses = draw(st.sampled_from([("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")]))
        psns = [draw(st.one_of(st.none(), st.integers((1 << 24) - 12, (1 << 24) - 1))) for _ in range(2)]
        acks = draw(st.sampled_from(["message", "packet", "lazy"]))
        connection = wire.connect(*addresses, cm=managed, client_psn=psns[0], server_psn=psns[1], acks=acks)
        story.append(f"connection {connection.number}: cm {managed}, psns {psns}, acks {acks}")
        talk(draw, connection, story, max_rpcs)
        connection.flush_acks()
        if managed and draw(st.booleans()):
            connection.disconnect()
            story.append("  disconnected")
    if strangers and draw(st.booleans()):
        stranger = draw(st.sampled_from(FOREIGN))
        stranger(wire)
        story.append(f"beside it: {stranger.__name__}")
    packets = wire.packets
    if draw(st.booleans()):
        packets = faults.interleave(wire, packets, wire.random)
        story.append("interleaved")
    return Conversation(wire, packets, story)


@st.composite
def few_xids(draw: DrawFn) -> Conversation:
    """One connection on which RPCs of any kind, mostly one after the other, share one XID or two."""
    wire = Wire(seed=draw(st.integers(0, 1 << 16)))
    author = Author(draw, wire.connect(), 0, 0x10)
    story: list[str] = []
    waiting: list[Callable[[], None]] = []
    for _ in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from((getattr_, getattr_, null, readdirplus, *KINDS)))
        author.xid = draw(st.sampled_from((8, 8, 8, 9)))
        story.append(f"{kind.__name__} behind {author.xid}")
        waiting.append(author.begin(kind))
        if draw(st.integers(0, 4)):
            waiting.pop()()
    for finish in waiting:
        finish()
    return Conversation(wire, wire.packets, story)


WIRE_FAULTS = ("nak", "timeout", "rnr", "response", "ghost", "congestion", "corrupt")
CAPTURE_FAULTS = ("drop", "drop ack", "swap", "duplicate")


@st.composite
def faulty(
    draw: DrawFn,
    kinds: tuple[str, ...] = WIRE_FAULTS + CAPTURE_FAULTS,
    conversation: st.SearchStrategy[Conversation] | None = None,
    max_faults: int = 4,
) -> Conversation:
    """A conversation with faults of the given kinds."""
    base = draw(conversation if conversation is not None else conversations())
    packets, story = base.packets, [*base.story]
    for _ in range(draw(st.integers(1, max_faults))):
        kind = draw(st.sampled_from(kinds))
        index = aim(packets, kind, draw(st.integers(0, len(packets) - 1)))
        if index is None:
            continue
        recorded, distance = draw(st.booleans()), draw(st.integers(1, 5))
        packets = harm(base.wire, packets, kind, index, recorded, distance)
        story.append(f"{kind} at {index}, recorded {recorded}, distance {distance}")
    return Conversation(base.wire, packets, story)


def aim(packets: list[Packet], kind: str, start: int) -> int | None:
    """The first packet from ``start`` on, around the end, that this fault can happen to."""
    for step in range(len(packets)):
        packet = packets[(start + step) % len(packets)]
        fits = packet.kind not in ("cm", "cnp")
        if kind in ("nak", "timeout", "rnr"):
            fits = packet.kind in REQUESTS
        elif kind == "corrupt":
            fits = packet.kind in REQUESTS and bool(packet.payload)
        elif kind == "response":
            fits = packet.kind == "response"
        elif kind == "drop ack":
            fits = packet.kind == "ack"
        if fits:
            return (start + step) % len(packets)
    return None


def harm(wire: Wire, packets: list[Packet], kind: str, index: int, recorded: bool, distance: int) -> list[Packet]:
    match kind:
        case "nak" | "timeout" | "rnr":
            return faults.lose(wire, packets, index, answer=kind, recorded=recorded or kind == "rnr")
        case "corrupt":
            return faults.lose(wire, faults.corrupt(packets, index), index)
        case "response":
            return faults.lose_response(wire, packets, index, recorded=recorded)
        case "ghost":
            return faults.ghost(packets, index, distance)
        case "congestion":
            return faults.mark(wire, packets, index)
        case "drop" | "drop ack":
            return faults.drop(packets, [index])
        case "swap":
            return faults.swap(packets, index, distance)
        case "duplicate":
            return faults.duplicate(packets, index, distance)
    raise AssertionError(kind)
