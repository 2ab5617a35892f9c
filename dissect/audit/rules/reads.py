"""The Read list: Positions, segments, handles."""

from __future__ import annotations

from itertools import pairwise

from ...layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..events import PERSISTENT, PREDICTABLE, SentMessage
from ..rule import CALL, CHUNKS, PASSED, READS, REPLY, Judgement, Level, rule, undecidable, undecidable_if, violation
from ..transaction import CALL_NOT_WHOLE, HandleStep, Transaction
from .header import DIRECTION_UNKNOWN

MUST, SHOULD, STATED = Level.MUST, Level.SHOULD, Level.STATED

HEAD = 40
"""Least number of bytes of an RPC call before its arguments (RFC 5531, 9)."""


def _reads(sent: SentMessage) -> Judgement | None:
    """Whether the Read list of a call can be judged; PASSED if it can."""
    if sent.header.problem:
        return undecidable_if(sent.unread)
    return PASSED if sent.is_call and sent.header.reads else None


@rule("V1-READ-POSITION-ALIGN", "A Read segment's Position is a multiple of four", MUST,
      "4.4.5.1", "RFC 8166, 3.4.5", SentMessage, "requester", needs=CALL | READS,
      backward=False, when=_reads)  # fmt: skip
def read_position_align(sent: SentMessage) -> Judgement | None:
    """Every Position in the Read list is divisible by four.

    Why: XDR items begin at multiples of four, so nothing can belong anywhere else.

    Right: Position 148.

    Wrong: Position 150.
    """
    wrong = [chunk.position for chunk in sent.header.reads if chunk.position % 4]
    return violation(f"Position {wrong[0]}", "a multiple of four") if wrong else PASSED


@rule("V1-READ-POSITION-RANGE", "A Position lies inside the Payload stream or at its end", STATED,
      "4.4.5", "RFC 8166, 3.4.5", SentMessage, "requester", needs=CALL | READS,
      backward=False, when=_reads)  # fmt: skip
def read_position_range(sent: SentMessage) -> Judgement | None:
    """No Position is beyond the end of the Payload stream, counted with the chunks before it put back.

    Why: the receiver inserts the chunk where the stream reaches its Position, which it then never does.

    Right: 200 bytes inline, Position 200.

    Wrong: 200 bytes inline, Position 4000.
    """
    header = sent.header
    if header.procedure == RDMA_NOMSG:
        length = sum(chunk.length for chunk in header.reads if chunk.position == 0)
        if not length:
            return None  # V1-LONG-CALL-POSITION
    elif not sent.message.operation.end_known:
        return undecidable("the end of the Send is not in the capture")
    else:
        length = sent.message.inline_length
    for chunk in sorted(header.reads, key=lambda chunk: chunk.position):
        if chunk.position & -4 > length:  # An odd one right behind the end is V1-READ-POSITION-ALIGN's.
            return violation(f"Position {chunk.position}, and the stream ends at {length}", f"at most {length}")
        if chunk.position or header.procedure == RDMA_MSG:
            length += chunk.length + 3 & -4
    return PASSED


@rule("V1-READ-POSITION-SAME", "The segments of a Read chunk stand together", STATED,
      "4.4.5.1", "RFC 8166, 3.4.5", SentMessage, "requester", needs=CALL | READS,
      backward=False, when=_reads)  # fmt: skip
def read_position_same(sent: SentMessage) -> Judgement | None:
    """Segments with one Position follow each other in the Read list, with none of another Position between them, and
    none has a Position inside the chunk before it or right behind that, where no other item can begin.

    Why: a chunk is the run of segments that share a Position; what has another one is a chunk of its own, and is judged
    as such by V1-CHUNK-LENGTH-MATCH.

    Right: Positions 148, 148, 300.

    Wrong: Positions 148, 300, 148; or 148 with 4096 bytes, and 4244.
    """
    positions = [chunk.position for chunk in sent.header.reads]
    for position in positions:
        if positions.count(position) > 1:
            return violation(f"Position {position} comes back behind another one", "all its segments together")
    for before, chunk in pairwise(sent.header.reads):
        if before.position and _inside(before.position, before.length, chunk.position):
            return violation(f"Position {chunk.position} behind {before.length} bytes at Position {before.position}",
                             f"Position {before.position} for all of the chunk")  # fmt: skip
    return PASSED


def _inside(start: int, length: int, position: int) -> bool:
    """Whether no item can begin at ``position``, as a chunk and the next count word are there."""
    return not position % 4 and start < position < start + (length + 3 & -4) + 4


@rule("V1-LONG-CALL-POSITION", "A long call's chunk has Position 0", MUST,
      "4.5.3", "RFC 8166, 3.5.3", Transaction, "requester", needs=READS, backward=False)  # fmt: skip
def long_call_position(transaction: Transaction) -> Judgement | None:
    """The Read chunk that carries the call of an RDMA_NOMSG has Position 0 in every segment.

    Why: the whole message is in it, from its first byte on.

    Right: RDMA_NOMSG, one Read chunk at Position 0.

    Wrong: RDMA_NOMSG, one Read chunk at Position 148.
    """
    call = transaction.rpc.call
    if call is None or call.header.procedure not in (None, RDMA_NOMSG):
        return None
    if call.header.problem:
        return undecidable_if(transaction.unread)
    at = call.header.reads[0].position
    if all(chunk.position for chunk in call.header.reads):
        return violation(f"its Read chunk is at Position {at}", "Position 0", call.frame)
    if transaction.continues_long_call is not None:
        return violation(f"its Read chunk goes on at Position {transaction.continues_long_call}", "Position 0",
                         call.frame)  # fmt: skip
    doubtful = [
        position for position, _ in transaction.reduced if position < HEAD or position == transaction.call_length
    ]
    if doubtful and not transaction.call_whole:
        return undecidable(CALL_NOT_WHOLE)  # The missing part would tell whether the call continues there.
    return PASSED


@rule("V1-READ-IN-REPLY", "A reply has no Read list", STATED,
      "2.3, 4.1", "RFC 8166, 3.1", SentMessage, "responder", needs=REPLY, backward=False)  # fmt: skip
def read_in_reply(sent: SentMessage) -> Judgement | None:
    """The Read list of a reply is empty: results travel inline, in Write chunks or in the Reply chunk.

    Why: with Read-Read transfer the server had to expose its memory to every client, and to wait for RDMA_DONE.

    Right: READ data in the Write chunk.

    Wrong: READ data offered in a Read chunk.
    """
    header = sent.header
    if header.procedure not in (None, RDMA_MSG, RDMA_NOMSG):
        return None
    if header.reads and not sent.is_call:
        if sent.is_call is None:
            return undecidable(DIRECTION_UNKNOWN)
        return violation(f"a Read list of {len(header.reads)} chunks", "an empty one")
    if header.problem:
        return undecidable_if(sent.unread)
    return PASSED


def _chunks_known(transaction: Transaction) -> Judgement | None:
    """The judgement if no handle breaks a rule: whether all handles that the call advertised are known."""
    call = transaction.rpc.call
    if call is not None and call.header.truncated:
        return undecidable(transaction.unread)
    return None if transaction.persistent is None else PASSED


@rule("V1-HANDLE-PERSISTENT", "Handles are not advertised across many calls", SHOULD,
      "10.1.2", "RFC 8166, 8.1.2", Transaction, "requester", needs=CHUNKS)  # fmt: skip
def handle_persistent(transaction: Transaction) -> Judgement | None:
    """No handle is advertised by 16 calls or more, each of them soon (within 128 calls with chunks) after the one
    before.  A handle that comes back later may be a new registration under an old number.

    Why: memory that stays registered can be read or written when no call allows it, and its handle can be guessed.

    Right: a new handle for each call.

    Wrong: one handle for a buffer that every call uses.
    """
    handle, run = transaction.persistent or (0, 0)
    if run < PERSISTENT:
        return _chunks_known(transaction)
    return violation(f"call {run} in a row that advertises handle 0x{handle:08x}", "a fresh handle for each call",
                     transaction.frames[0])  # fmt: skip


@rule("V1-HANDLE-PREDICTABLE", "Handles are not predictable", SHOULD,
      "10.1.2", "RFC 8166, 8.1.2", Transaction, "requester", needs=CHUNKS)  # fmt: skip
def handle_predictable(transaction: Transaction) -> Judgement | None:
    """New handles do not follow each other in one constant step, 32 times in a row: neither all of them, nor those of
    one index, which is what stands before the last eight bits.  Linux numbers them so; it is a note, once for each such
    run.

    Why: a peer that can guess the next handle can reach the memory of another call.

    Right: handles 0x5d21, 0x11c8, 0x9e40.

    Wrong: handles 0x100, 0x201, 0x302 and so on; or 0x5d21, 0x1107, 0x5d22, 0x1108, 0x5d23 and so on.
    """
    step, run, before, by_index = transaction.handle_step or HandleStep(0, 0, 0, False)
    if run < PREDICTABLE:
        return _chunks_known(transaction)
    if before >= PREDICTABLE:
        return None  # reported already
    of = " of its index" if by_index else ""
    return violation(f"{run} handles in a row, each 0x{step:x} above the one before{of}", "no constant step",
                     transaction.frames[0], note=True)  # fmt: skip
