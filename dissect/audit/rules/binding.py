"""The upper-layer binding of NFS: which items may be reduced, and what is left of them (RFC 8267)."""

from __future__ import annotations

from collections.abc import Iterator

from ...layers.oncrpc_codes import RPCSEC_GSS, RPCSEC_GSS_DATA, SUCCESS
from ...layers.rpcrdma_codes import RDMA_ERROR, RDMA_MSG
from ...onc.binding import ENDS_INSIDE
from ...onc.compound import DataItem
from ...onc.rpc_header import program_name
from ...rpcrdma.rpcs import ChunkUse
from ..rule import (
    CHUNKS,
    PASSED,
    READS,
    RETURNS,
    UNDECIDABLE,
    Judgement,
    Level,
    rule,
    undecidable,
    undecidable_if,
    violation,
)
from ..transaction import CALL_NOT_WHOLE, Transaction, call_leftover, reply_leftover

MUST, SHOULD = Level.MUST, Level.SHOULD

CREDENTIAL = 24
"""Bytes of an RPC call before its credential (RFC 5531, 9)."""


def _call(transaction: Transaction) -> Judgement | None:
    """Whether the reduced items of a call can be judged; PASSED if they can."""
    rpc = transaction.rpc
    if rpc.call is None:
        return None
    if rpc.call.header.problem:
        return undecidable_if(transaction.unread)
    if not transaction.reduced:
        return None
    if transaction.sealed or (rpc.gss is not None and rpc.gss.procedure != RPCSEC_GSS_DATA):
        return None  # V1-GSS-NO-REDUCTION, V1-GSS-MATERIAL
    if not transaction.call_whole:
        return undecidable(CALL_NOT_WHOLE)
    return PASSED if rpc.program is not None else None  # where the whole of it is no RPC call


@rule("V1-DDP-ELIGIBLE", "A Read chunk holds an item that may be reduced", MUST,
      "4.4.2, 8.1", "RFC 8166, 3.4.2 and 6.1", Transaction, "requester", needs=READS, backward=False)  # fmt: skip
def ddp_eligible(transaction: Transaction) -> Judgement | None:
    """Every Read chunk with a Position other than 0 stands where the call has the data of a WRITE or the text of a
    symbolic link.  V1-READ-POSITION-ALIGN and V1-READ-POSITION-RANGE cover Positions where no item can be,
    V1-LONG-CALL-POSITION a second chunk that continues a long call, V1-CHUNK-LENGTH-MATCH one inside a reduced item.
    An RDMA_MSG has no item before its credential; Position 0 is the chunk of a long call.

    Why: the receiver puts an item's bytes where the application wants them, which it knows for these items alone.

    Right: a Read chunk at the data of NFSv3 WRITE.

    Wrong: a Read chunk at the file handle.
    """
    rpc, head = transaction.rpc, transaction.call_head
    if rpc.call is not None and rpc.call.header.procedure == RDMA_MSG and not rpc.call.header.problem:
        for position, size in rpc.call.header.reduced:
            if size and position < CREDENTIAL and not position % 4:
                seen = f"a Read chunk of {size} bytes at Position {position} of an RDMA_MSG"
                return violation(seen, "WRITE data or a link's text", rpc.call.frame)
    if (state := _call(transaction)) is not PASSED:
        return state
    length = transaction.call_length
    chunks = sorted(transaction.reduced)
    for position, size in chunks:
        if position % 4 or position > length:
            return None
        length += size + 3 & -4
    if not transaction.bound:
        return undecidable(f"{program_name(rpc.program or 0)} has no known upper-layer binding")
    if head is not None and head.flavor == RPCSEC_GSS and (head.truncated or chunks[0][0] < head.body):
        return None
    items = transaction.arguments
    if items is None:
        return undecidable("the arguments cannot be read")
    for index, (position, size) in enumerate(transaction.reduced):
        if index in transaction.unplaced_chunks:
            if transaction.continues_long_call is not None and transaction.continues_long_call <= position:
                return None
            if any(item.reduced and item.position < position < item.position + item.count for item in items.items):
                continue
            # Where the bytes end too early, the walk has passed the place of the first such chunk.
            if not items.complete and ENDS_INSIDE not in items.problem:
                return undecidable(f"the arguments cannot be followed: {items.problem}")
            return violation(f"a Read chunk of {size} bytes at Position {position}, where no eligible item is",
                             "WRITE data or a link's text", transaction.frames[0])  # fmt: skip
    return PASSED


@rule("V1-READ-ROUNDUP", "The pad of a reduced item leaves the Payload stream with it", MUST,
      "4.4.5.1", "RFC 8166, 3.4.5", Transaction, "requester", needs=READS, backward=False, when=_call)  # fmt: skip
def read_roundup(transaction: Transaction) -> Judgement | None:
    """Behind the count word of a reduced item whose length is no multiple of four, no pad is left in the stream.

    Why: the receiver restores the pad itself; one more shifts every argument after it.

    Right: 5 bytes in the chunk, the next argument right behind the count.

    Wrong: 5 bytes in the chunk, three zero bytes behind the count.
    """
    items = transaction.arguments
    if items is None:
        return None
    if not any(-item.count % 4 for item in items.items if item.reduced):
        return None
    left = call_leftover(transaction)
    if left is not None and left.only_pad:
        return violation(f"{left.excess} pad bytes left behind the count of {left.name}", "none", transaction.frames[0])
    if left is None and transaction.call_length % 4:
        return undecidable("the Payload stream's length is no multiple of four, and not by the pad")
    return PASSED


@rule("V1-CHUNK-LENGTH-MATCH", "The count left in the stream is the chunk's length", MUST,
      "4.4.4.1", "RFC 8166, 3.4.4", Transaction, "requester", needs=READS, backward=False, when=_call)  # fmt: skip
def chunk_length_match(transaction: Transaction) -> Judgement | None:
    """The count word of a reduced argument equals the sum of its chunk's segments, with or without round-up.  Segments
    at another Position are another chunk (4.4.5).

    Why: one says how many bytes the item has, the other how many are moved; where they differ one of them lies.

    Right: count 8192, segments of 4096 and 4096 at one Position.

    Wrong: count 8192, one segment of 4096; or one at Position 148, and another of 4096 at Position 4244.
    """
    items = transaction.arguments
    if items is None:
        return None
    judged = None
    for item in items.items:
        if not item.reduced or item.chunk is None:
            continue
        length = transaction.reduced[item.chunk][1]
        if length not in (item.count, item.count + 3 & -4):
            return violation(f"count {item.count} of {item.name}, and a chunk of {length} bytes", "the same number",
                             transaction.frames[0])  # fmt: skip
        judged = PASSED
    return judged


def _reply(transaction: Transaction) -> Judgement | None:
    """Whether the results of a reply can be judged; PASSED if they can."""
    rpc = transaction.rpc
    if rpc.reply is None or rpc.reply.header.procedure == RDMA_ERROR:
        return None
    returns = transaction.writes if rpc.call is not None else rpc.reply.header.writes
    if not returns and not (rpc.call or rpc.reply).header.truncated:
        return None
    if rpc.call is None or transaction.unread:
        return undecidable(transaction.unread)
    if rpc.reply.header.problem or rpc.call.header.problem or transaction.sealed:
        return None
    if not transaction.bound:
        return undecidable("the program has no known upper-layer binding")
    if not transaction.reply_whole:
        return undecidable("the reply's Payload stream is not all in the capture")
    return PASSED


@rule("V1-REDUCE-REQUIRED", "Results that fit a Write chunk are reduced", MUST,
      "5.3.2, 8.1.1", "RFC 8166, 3.4.6 and 4.3.2", Transaction, "responder", needs=RETURNS,
      backward=False, when=_reply)  # fmt: skip
def reduce_required(transaction: Transaction) -> Judgement | None:
    """Where the call has a Write list, each result of READ and READLINK for which a chunk is left travels in it.

    Why: the requester expects it there, and reads the reply accordingly.

    Right: READ data in the Write chunk, the count alone inline.

    Wrong: READ data inline, the Write chunk returned with length 0.
    """
    results = transaction.results
    if results is None:
        return undecidable("the results cannot be read")
    judged = None
    for item in results.items:
        if item.chunk is None or not item.count:
            continue
        chunk = transaction.writes[item.chunk]
        if item.reduced:
            judged = PASSED
        elif item.count <= chunk.advertised and item.position + item.count <= len(transaction.reply_stream):
            seen = f"{item.count} bytes of {item.name} inline, and Write chunk {item.chunk + 1} has room for them"
            return violation(seen, "in the Write chunk", *transaction.frames)
    if judged is None and not results.complete:
        return undecidable(f"the results cannot be followed: {results.problem}")
    return judged


@rule("V1-COUNT-MATCH", "The count left in a reply is the length that its Write chunk returns", MUST,
      "4.4.4.1", "RFC 8166, 3.4.4", Transaction, "responder", needs=RETURNS, backward=False, when=_reply)  # fmt: skip
def count_match(transaction: Transaction) -> Judgement | None:
    """The count word of a result that travels in a Write chunk equals the length that the chunk returns.  Lengths
    beyond the segment and those of unfilled segments have rules of their own (V1-WRITE-SEGMENT-LENGTH,
    V1-WRITE-UNFILLED).

    Why: the count says how many bytes the item has, the chunk how many there are; where they differ, what follows
    in the reply is misread.

    Right: count 4096, returned length 4096.

    Wrong: count 4096, returned length 4095; or count 5, returned length 8, the pad counted.
    """
    results, judged, missing = transaction.results, None, ""
    if results is None:
        return undecidable("the results cannot be read")
    for item in results.items:
        if item.chunk is None or not (item.reduced or _nowhere(transaction, item)):
            continue
        chunk = transaction.writes[item.chunk]
        if any((use.returned or 0) > use.advertised.length for use in chunk.segments):
            continue
        written = [transaction.written(use) for use in chunk.segments]
        unfilled = sum(
            use.returned or 0 for use, got in zip(chunk.segments, written, strict=True) if not got and any(written)
        )
        returned = chunk.returned or 0
        if item.count in (returned, returned - unfilled):
            judged = PASSED
        elif not all(written) and (len(chunk.segments) > 1 or not returned) and transaction.unwritten_by_reply:
            # Segments that nothing was written to are V1-WRITE-UNFILLED's, what returns less V1-WRITE-LENGTH-TRUE's.
            missing = transaction.unwritten_by_reply
        else:
            return violation(f"count {item.count} of {item.name}, and Write chunk {item.chunk + 1} returns {returned}",
                             "the same number", *transaction.frames)  # fmt: skip
    return undecidable_if(missing) or judged


def _nowhere(transaction: Transaction, item: DataItem) -> bool:
    """Whether an item is neither inline nor in its chunk, which was returned empty; if that was written to
    nevertheless, V1-WRITE-LENGTH-TRUE judges it."""
    if not item.count or item.chunk is None or item.position != len(transaction.reply_stream):
        return False
    chunk = transaction.writes[item.chunk]
    return chunk.returned == 0 and not any(transaction.written(use) for use in chunk.segments)


@rule("V1-ITEM-MOVED", "What travels in a chunk is not left in the Payload stream as well", MUST,
      "4.4.4.1, 4.4.6.1", "RFC 8166, 3.4.4 and 3.4.6", Transaction, needs=CHUNKS, backward=False)  # fmt: skip
def item_moved(transaction: Transaction) -> Judgement | None:
    """After the count word of an item in a chunk the Payload stream continues with the next item: it has neither the
    item's bytes nor, in a reply, its XDR pad.  V1-READ-ROUNDUP covers the pad in a call.

    Why: the receiver puts the chunk back at that place; what stands there already shifts all that follows.

    Right: READ of 5 bytes, count 5, and the stream ends; 5 bytes in the Write chunk.

    Wrong: the same, and 8 bytes behind the count.
    """
    calls, replies = _call(transaction), _reply(transaction)
    judged = next(
        (judgement for judgement in (calls, replies) if judgement is not None and judgement is not PASSED), None
    )
    if calls is PASSED and transaction.arguments is not None:
        left = call_leftover(transaction)
        if left is not None and not left.only_pad:
            return violation(f"{left.excess} bytes of {left.name} inline, and a Read chunk for them", "only the chunk",
                             transaction.frames[0], by="requester")  # fmt: skip
        judged = judged or PASSED
    if replies is PASSED and transaction.results is not None:
        left = reply_leftover(transaction)
        if left is not None:
            what = "pad bytes" if left.only_pad else "bytes"
            return violation(f"{left.excess} {what} of {left.name} inline, and the item in a Write chunk",
                             "only the chunk", *transaction.frames, by="responder")  # fmt: skip
        if any(item.reduced for item in transaction.results.items):
            judged = judged or PASSED
    return judged


def _sized(transaction: Transaction) -> Judgement | None:
    """Whether the sizes of Write chunks can be judged; PASSED if they can."""
    rpc = transaction.rpc
    if rpc.call is not None and rpc.call.header.truncated:
        return undecidable(transaction.unread)
    if rpc.call is None or not transaction.writes or rpc.call.header.problem or transaction.sealed:
        return None
    if not transaction.bound:
        return undecidable("the program has no known upper-layer binding")
    return PASSED if transaction.call_whole else undecidable(CALL_NOT_WHOLE)


def _limited(transaction: Transaction) -> Iterator[tuple[int, ChunkUse, int]]:
    """The Write chunks for results of limited size: number, chunk, limit in bytes."""
    for number, (chunk, largest) in enumerate(zip(transaction.writes, transaction.largest_results, strict=False), 1):
        if largest is not None and chunk.segments:
            yield number, chunk, largest


@rule("V1-WRITE-CHUNK-SIZE", "A Write chunk is large enough for the largest result", MUST,
      "4.4.6", "RFC 8166, 3.4.6", Transaction, "requester", needs=CHUNKS, backward=False, when=_sized)  # fmt: skip
def write_chunk_size(transaction: Transaction) -> Judgement | None:
    """The Write chunk for a READ has at least as many bytes as the READ asks for, that for a READLINK as many as the
    link's text: 1,024 at most in NFS version 2, and in versions 3 and 4, which know no limit, as many as the reply has.
    A Write chunk without segments asks for the data inline.

    Why: the responder has nowhere to put the rest of the data.

    Right: READ of 8192 bytes, a Write chunk of 8192.

    Wrong: READ of 8192 bytes, a Write chunk of 4096.
    """
    judged = None
    for number, chunk, largest in _limited(transaction):
        if chunk.advertised < largest:
            return violation(f"Write chunk {number} of {chunk.advertised} bytes for a result of up to {largest}",
                             f"at least {largest} bytes", transaction.frames[0])  # fmt: skip
        judged = PASSED
    for number, chunk, length in _links(transaction):
        if chunk.advertised < length:
            return violation(f"Write chunk {number} of {chunk.advertised} bytes for a link of {length}",
                             f"at least {length} bytes", *transaction.frames)  # fmt: skip
        judged = PASSED
    return judged


def _links(transaction: Transaction) -> Iterator[tuple[int, ChunkUse, int]]:
    """Write chunks for links whose text was sent inline: number, chunk, bytes of the text."""
    results = transaction.results if transaction.rpc.reply is not None else None
    for item in results.items if results is not None else ():
        if item.name == "READLINK" and item.chunk is not None and not item.reduced and item.count:
            chunk = transaction.writes[item.chunk]
            if chunk.segments:
                yield item.chunk + 1, chunk, item.count


@rule("V1-WRITE-EXTRA", "A Write chunk is not lengthened for XDR pad", SHOULD,
      "4.4.6.1", "RFC 8166, 3.4.6", Transaction, "requester", needs=CHUNKS, backward=False, when=_sized)  # fmt: skip
def write_extra(transaction: Transaction) -> Judgement | None:
    """The Write chunk for a READ of a length that is no multiple of four has no more bytes than were asked for.

    Why: nothing may be written there, so the memory is registered and advertised in vain.

    Right: READ of 6 bytes, a Write chunk of 6.

    Wrong: READ of 6 bytes, a Write chunk of 8, or one with a segment of 4 bytes behind.
    """
    judged = None
    for number, chunk, largest in _limited(transaction):
        extra = chunk.advertised - largest
        if largest % 4 and 0 < extra <= 4:
            seen = f"Write chunk {number} of {chunk.advertised} bytes for a READ of {largest}"
            return violation(seen, f"{largest} bytes", transaction.frames[0])
        judged = PASSED
    return judged


@rule("V1-NO-BINDING", "The RPC program has an upper-layer binding", MUST,
      "8", "RFC 8166, 6", Transaction, "requester", backward=False)  # fmt: skip
def no_binding(transaction: Transaction) -> Judgement | None:
    """The program and version of every forward call are bound to RPC-over-RDMA.  RFC 8267 does so for NFS 2 to 4,
    and NFSACL is counted with them (not checked against its text).  Of others a binding may exist that is not known
    here, so this is a note.

    Why: without a binding nothing says which items may be reduced and how long replies are.

    Right: program 100003 version 3.

    Wrong: program 200001.
    """
    rpc = transaction.rpc
    if rpc.call is None:
        return None
    if rpc.program is None or rpc.version is None:
        problem = rpc.call.header.problem and not rpc.call.header.truncated
        return None if problem or transaction.call_whole else undecidable("the RPC call cannot be read")
    if transaction.bound:
        return PASSED
    return violation(f"{program_name(rpc.program)} version {rpc.version} (program {rpc.program})",
                     "a program with a known binding", transaction.frames[0], note=True)  # fmt: skip


@rule("V1-REPLY-NO-BINDING", "What has no binding is not answered with success", MUST,
      "8, 8.1.1", "RFC 8166, 6 and 6.1", Transaction, "responder", backward=False)  # fmt: skip
def reply_no_binding(transaction: Transaction) -> Judgement | None:
    """A responder does not process a call with a Read chunk where no eligible item is, nor one of a program without a
    binding.  Of a program a binding may exist that is not known here, so that is a note.

    Why: a call that breaks the binding may have been put together wrongly; processing it may damage data.

    Right: a Read chunk at the file handle, GARBAGE_ARGS or RDMA_ERROR.

    Wrong: the same, SUCCESS.
    """
    rpc = transaction.rpc
    if rpc.call is None or rpc.reply is None or (rpc.call.header.problem and not rpc.call.header.truncated):
        return None
    reply = transaction.reply_head
    ineligible = ddp_eligible(transaction)
    wrong = ineligible.observed if ineligible is not None else ""
    if not wrong and (rpc.program is None or rpc.version is None):
        return undecidable(CALL_NOT_WHOLE) if transaction.may_succeed and not transaction.call_whole else None
    if transaction.bound and ineligible is None:
        return None
    if rpc.reply.header.procedure == RDMA_ERROR:
        return PASSED
    if reply is None or reply.accepted is None:
        return undecidable("the reply cannot be read")
    if not reply.accepted or reply.accept_status != SUCCESS:
        return PASSED
    if wrong:
        return violation(f"SUCCESS for a call with {wrong}", "GARBAGE_ARGS or RDMA_ERROR", *transaction.frames)
    if transaction.bound and ineligible is not None and ineligible.verdict == UNDECIDABLE:
        return undecidable(ineligible.reason)
    if not transaction.bound:
        assert rpc.program is not None
        return violation(f"SUCCESS for {program_name(rpc.program)} version {rpc.version} (program {rpc.program})",
                         "an error for a program without a known binding", *transaction.frames, note=True)  # fmt: skip
    return PASSED
