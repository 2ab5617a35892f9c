"""What a reply returns of the call's Write and Reply chunks."""

from __future__ import annotations

from ...layers.rpcrdma_codes import RDMA_ERROR, RDMA_MSG, RDMA_NOMSG
from ...rpcrdma.conversation import DEFAULT_INLINE
from ...rpcrdma.rpcs import ChunkUse
from ..rule import CHUNKS, NOMSG, PASSED, RETURNS, Judgement, Level, rule, undecidable, undecidable_if, violation
from ..transaction import Transaction, claims, delivers, filled

REPLY_HEADER = 24
"""Bytes of an RPC reply before its results, with an empty verifier (RFC 5531, 9)."""

RESULT_UNKNOWN = "it is not known whether the reply has a result for the chunk"

MUST, SHOULD, STATED = Level.MUST, Level.SHOULD, Level.STATED


def _pairs(transaction: Transaction) -> list[tuple[str, ChunkUse, tuple[tuple[int, int, int], ...]]]:
    """Each Write chunk and the Reply chunk: name, what the call advertised, and what the reply returned."""
    reply = transaction.rpc.reply
    assert reply is not None
    pairs: list[tuple[str, ChunkUse, tuple[tuple[int, int, int], ...]]] = [
        (f"Write chunk {number}", chunk, tuple(tuple(segment) for segment in returned.segments))  # type: ignore[misc]
        for number, (chunk, returned) in enumerate(zip(transaction.writes, reply.header.writes, strict=False), 1)
    ]
    chunk = transaction.reply_chunk
    if chunk is not None and reply.header.reply is not None:
        pairs.append(("Reply chunk", chunk, tuple(tuple(segment) for segment in reply.header.reply.segments)))  # type: ignore[misc]
    return pairs


def _returned(transaction: Transaction) -> Judgement | None:
    """Whether what the reply returned can be judged; PASSED if it can."""
    rpc = transaction.rpc
    if rpc.reply is None or rpc.reply.header.procedure not in (None, RDMA_MSG, RDMA_NOMSG):
        return None
    if rpc.call is None:
        header = rpc.reply.header
        return undecidable(transaction.unread) if header.writes or header.reply else None
    given = transaction.writes or transaction.reply_chunk is not None or rpc.call.header.truncated
    if not given and not rpc.reply.header.writes and not rpc.reply.header.reply and not rpc.reply.header.truncated:
        return None
    if transaction.unread:
        return undecidable(transaction.unread)
    return None if rpc.reply.header.problem or rpc.call.header.problem else PASSED


@rule("V1-REPLY-CHUNK-MISSING", "RDMA_NOMSG answers a call that gave a Reply chunk", MUST,
      "5.2.4", "RFC 8166, 4.2.4", Transaction, "responder", needs=NOMSG, backward=False)  # fmt: skip
def reply_chunk_missing(transaction: Transaction) -> Judgement | None:
    """A reply is RDMA_NOMSG only where the call provided a Reply chunk.

    Why: there is no other memory of the requester that the reply could have been put into.

    Right: a READDIR call with a Reply chunk, RDMA_NOMSG.

    Wrong: a GETATTR call without chunks, RDMA_NOMSG.
    """
    rpc = transaction.rpc
    if rpc.reply is None or rpc.reply.header.procedure not in (None, RDMA_NOMSG):
        return None
    if transaction.unread:
        return undecidable(transaction.unread)
    if transaction.reply_chunk is None:
        return violation("RDMA_NOMSG, and the call gave no Reply chunk", "RDMA_MSG", *transaction.frames)
    return PASSED


@rule("V1-REPLY-CHUNK-SIZE", "The Reply chunk is large enough", MUST,
      "5.3.3", "RFC 8166, 4.3.3", Transaction, "requester", needs=CHUNKS, backward=False)  # fmt: skip
def reply_chunk_size(transaction: Transaction) -> Judgement | None:
    """What a reply returns in the Reply chunk is no more than the call advertised, and where the call states how many
    bytes of results it asks for, as READDIR does, the Reply chunk holds as many.

    Why: a responder that has a longer reply than room can only fail the call or the connection.

    Right: READDIR for 8,192 bytes, a Reply chunk of 8,500.

    Wrong: READDIR for 65,536 bytes, a Reply chunk of 4,096.
    """
    chunk, call = transaction.reply_chunk, transaction.rpc.call
    if call is not None and call.header.problem:
        return undecidable_if(transaction.unread)
    if chunk is None:
        return None
    if chunk.returned is not None and chunk.returned > chunk.advertised:
        return violation(f"a reply of {chunk.returned:,} bytes", f"a Reply chunk for it; it has {chunk.advertised:,}",
                         *transaction.frames)  # fmt: skip
    wanted = transaction.asked_bytes
    if wanted is not None and wanted > chunk.advertised:
        limit, source = longest_reply(transaction)
        if limit is None and wanted > DEFAULT_INLINE:
            return undecidable(source)
        if limit is not None and wanted > limit:
            return violation(
                f"a Reply chunk of {chunk.advertised:,} bytes for {wanted:,} bytes of results",
                f"at least {wanted:,} bytes", transaction.frames[0],
            )  # fmt: skip
    if wanted is None and (unknown := transaction.asked_unknown):
        return undecidable(unknown)
    return PASSED if transaction.rpc.reply is not None else None


@rule("V1-REPLY-CHUNK-PROVIDED", "A call whose reply can be long provides a Reply chunk", MUST,
      "5.3.3", "RFC 8166, 4.3.3", Transaction, "requester", backward=False)  # fmt: skip
def reply_chunk_provided(transaction: Transaction) -> Judgement | None:
    """A call that asks for more bytes of results than fit inline has a Reply chunk: READDIR and READDIRPLUS, and in a
    COMPOUND also READ_PLUS, GETDEVICEINFO, LAYOUTGET and LISTXATTRS.  READ may have a Write chunk instead; all others
    state no number of bytes.

    Why: the requester must be ready for the largest reply; without a Reply chunk the responder can only fail the call.

    Right: READDIRPLUS for 32,768 bytes with a Reply chunk.

    Wrong: READDIRPLUS for 32,768 bytes without one, where 4,096 fit inline.
    """
    call = transaction.rpc.call
    if call is None or call.header.problem:
        return undecidable(transaction.unread) if call is not None and call.header.truncated else None
    wanted = transaction.asked_bytes
    if wanted is None:
        unknown = "" if transaction.reply_chunk is not None else transaction.asked_unknown
        return undecidable_if(unknown)
    if transaction.reply_chunk is not None:
        return PASSED
    limit, source = longest_reply(transaction)
    header = 32 if call.header.version == 2 else 28
    length = header + REPLY_HEADER + wanted
    if limit is None:
        return PASSED if length <= DEFAULT_INLINE else undecidable(source)
    if length <= limit:
        return PASSED
    return violation(f"no Reply chunk for up to {wanted:,} bytes of results",
                     f"a Reply chunk, since {limit:,} bytes fit inline ({source})", transaction.frames[0])  # fmt: skip


def longest_reply(transaction: Transaction) -> tuple[int | None, str]:
    """The inline threshold of replies to a call, and its source; None if it is unknown, in version 2 also if the
    requester may have announced another."""
    call = transaction.rpc.call
    assert call is not None
    conversation, requester = transaction.conversation, transaction.endpoint("requester")
    if call.header.version == 2:
        if reason := transaction.unseen(requester):
            return None, reason
        value, _, source = conversation.receive_size(requester, call.frame)
        return value, source
    if not conversation.private_data_seen:
        return None, "the private data are not in the capture, so the inline threshold is not known"
    return conversation.inline_threshold(1 - requester, call.frame)


@rule("V1-WRITE-SEGMENT-COUNT", "A reply returns as many segments as the call gave", MUST,
      "4.4.6", "RFC 8166, 3.4.6", Transaction, "responder", needs=RETURNS, backward=False, when=_returned)  # fmt: skip
def write_segment_count(transaction: Transaction) -> Judgement | None:
    """The reply has as many Write chunks as the call, and each of them and the Reply chunk as many segments.

    Why: the requester finds its own segments by counting.

    Right: a Write chunk of three segments, returned with three, the last of length 0.

    Wrong: the same, returned with the two that were used.
    """
    reply = transaction.rpc.reply
    assert reply is not None
    if len(reply.header.writes) != len(transaction.writes):
        return violation(f"{len(reply.header.writes)} Write chunks returned", f"{len(transaction.writes)}, as the call",
                         *transaction.frames)  # fmt: skip
    if reply.header.reply is not None and transaction.reply_chunk is None and _short(transaction):
        return violation("a Reply chunk returned", "none, as the call", *transaction.frames)
    pairs = _pairs(transaction)
    for name, chunk, returned in pairs:
        if len(returned) != len(chunk.segments):
            return violation(f"{name} returned with {len(returned)} segments", f"{len(chunk.segments)}, as the call",
                             *transaction.frames)  # fmt: skip
    return PASSED if pairs else None


@rule("V1-WRITE-SEGMENT-COPY", "Returned segments are those the call gave, in their order", STATED,
      "4.4.6", "RFC 8166, 3.4.6", Transaction, "responder", needs=RETURNS, backward=False, when=_returned)  # fmt: skip
def write_segment_copy(transaction: Transaction) -> Judgement | None:
    """Handle and offset of each returned segment are those of the call's segment in the same place.

    Why: the lengths are matched with the segments by place; another handle there is a mix-up or a forgery.

    Right: handle 0x100, offset 0x7000 returned with a new length.

    Wrong: handle 0 returned.
    """
    pairs = _pairs(transaction)
    for name, chunk, returned in pairs:
        for number, (use, (handle, _, offset)) in enumerate(zip(chunk.segments, returned, strict=False), 1):
            if (handle, offset) != (use.advertised.handle, use.advertised.offset):
                return violation(
                    f"{name}, segment {number}: handle 0x{handle:08x}, offset 0x{offset:x}",
                    f"handle 0x{use.advertised.handle:08x}, offset 0x{use.advertised.offset:x}", *transaction.frames,
                )  # fmt: skip
    return PASSED if pairs else None


@rule("V1-WRITE-SEGMENT-LENGTH", "A returned length is not above the advertised one", STATED,
      "4.4.6", "RFC 8166, 3.4.6", Transaction, "responder", needs=RETURNS, backward=False, when=_returned)  # fmt: skip
def write_segment_length(transaction: Transaction) -> Judgement | None:
    """No segment of a Write chunk comes back longer than it was advertised, nor one of a Reply chunk that is long
    enough in all; V1-REPLY-CHUNK-SIZE covers a Reply chunk that is not.

    Why: either the responder wrote beyond the segment, or it claims bytes that are not there.

    Right: segment 1 returned length 4096, advertised 8192.

    Wrong: segment 1 returned length 8192, advertised 4096.
    """
    pairs = _pairs(transaction)
    for name, chunk, returned in pairs:
        if name == "Reply chunk" and sum(length for _, length, _ in returned) > chunk.advertised:
            continue
        for number, (use, (_, length, _)) in enumerate(zip(chunk.segments, returned, strict=False), 1):
            if length > use.advertised.length:
                return violation(
                    f"{name}, segment {number} returned length {length}, advertised {use.advertised.length}",
                    f"at most {use.advertised.length}", *transaction.frames,
                )  # fmt: skip
    return PASSED if pairs else None


def _overruns(chunk: ChunkUse) -> bool:
    return any((use.returned or 0) > use.advertised.length for use in chunk.segments)


@rule("V1-WRITE-FILL-ORDER", "Segments are filled in array order", STATED,
      "4.4.6", "RFC 8166, 3.4.6", Transaction, "responder", needs=RETURNS, backward=False, when=_returned)  # fmt: skip
def write_fill_order(transaction: Transaction) -> Judgement | None:
    """A segment is written to only where those before it are returned full.

    Why: the requester joins the segments in order; a gap in the middle shifts all bytes after it.

    Right: 8192 of 8192, 100 of 8192.

    Wrong: 4096 of 8192, 4196 of 8192.
    """
    judged, missing = None, ""
    for name, chunk, _ in _pairs(transaction):
        if _overruns(chunk) or len(chunk.segments) < 2:
            continue
        for number, use in enumerate(chunk.segments[1:], 2):
            before = chunk.segments[number - 2]
            if not use.returned or before.returned is None or before.returned == before.advertised.length:
                continue
            if transaction.written(use):
                return violation(
                    f"{name}, segment {number} is used, and segment {number - 1} returned "
                    f"{before.returned} of {before.advertised.length} bytes",
                    "each full before the next", *transaction.frames,
                )  # fmt: skip
            missing = transaction.unwritten
        judged = PASSED
    return undecidable_if(missing) or judged


@rule("V1-WRITE-UNFILLED", "An unfilled segment returns length zero", SHOULD,
      "4.4.6", "RFC 8166, 3.4.6", Transaction, "responder", needs=RETURNS, backward=False, when=_returned)  # fmt: skip
def write_unfilled(transaction: Transaction) -> Judgement | None:
    """A segment to which nothing was written comes back with length 0, where others of its chunk were written to.

    Why: the requester adds up the lengths, and takes bytes for results that were never sent.

    Right: 4096 of 8192, then 0 of 8192.

    Wrong: 4096 of 8192, then 8192 of 8192 although nothing was written there.
    """
    judged = None
    for name, chunk, _ in _pairs(transaction):
        unfilled = [use for use in chunk.segments if not transaction.written(use)]
        claiming = [use for use in unfilled if use.returned]
        if not unfilled or (len(unfilled) == len(chunk.segments) and not (len(claiming) > 1 and transaction.unwritten)):
            continue
        if claiming and (reason := transaction.unwritten):
            return undecidable(reason)
        if claiming:
            number = chunk.segments.index(claiming[0]) + 1
            claimed = f"{name}, segment {number} returned length {claiming[0].returned}"
            return violation(f"{claimed}, and nothing was written there", "0", *transaction.frames)
        judged = PASSED
    return judged


@rule("V1-WRITE-UNUSED", "An unused Write chunk returns zero lengths", MUST,
      "4.4.6.2", "RFC 8166, 3.4.6", Transaction, "responder", needs=RETURNS,
      backward=False, when=_returned)  # fmt: skip
def write_unused(transaction: Transaction) -> Judgement | None:
    """A Write chunk for which the reply has no result comes back with all lengths 0, and so does the Reply chunk of
    an RDMA_MSG.

    Why: a requester takes any other length for a result, and cannot make sense of the rest of the reply.

    Right: READ fails; its Write chunk comes back with length 0, written to or not.

    Wrong: READ fails; its Write chunk comes back as it was, or with the 6 bytes that were written to it.
    """
    results, judged = transaction.results, None
    whole = transaction.reply_chunk
    if whole is not None and whole.returned is not None and _short(transaction):
        if whole.returned:
            return violation(f"the Reply chunk of an RDMA_MSG returned {whole.returned} bytes", "0",
                             *transaction.frames)  # fmt: skip
        judged = PASSED
    for number, chunk in enumerate(transaction.writes):
        if chunk.returned is None:
            continue
        failed = transaction.failed
        if not failed and (results is None or not results.complete):
            written = any(transaction.written(use) for use in chunk.segments)
            if not chunk.returned:
                judged = judged or PASSED
            elif transaction.nfs_status != 0 or not (written or transaction.unwritten):
                judged = judged or undecidable(RESULT_UNKNOWN)
        elif failed or results is None or number >= len(results.items):
            if chunk.returned:
                claimed = f"Write chunk {number + 1} returned {chunk.returned} bytes"
                return violation(f"{claimed}, and the reply has no result for it", "0", *transaction.frames)
            judged = PASSED
    return judged


def _short(transaction: Transaction) -> bool:
    """Whether the reply is an RDMA_MSG, which needs no Reply chunk."""
    return transaction.rpc.reply is not None and transaction.rpc.reply.header.procedure == RDMA_MSG


def _claims(transaction: Transaction, number: int) -> bool | None:
    """Whether the reply has a result for a Write chunk, or needs the Reply chunk (-1); None if unknown."""
    if number < 0:
        return not _short(transaction)
    results = transaction.results
    if results is not None and number < len(results.items):
        return True
    return False if transaction.failed or (results is not None and results.complete) else None


@rule("V1-WRITE-LENGTH-TRUE", "A returned length is what was written", STATED,
      "4.4.6, 5.3.2", "RFC 8166, 3.4.6 and 4.3.2", Transaction, "responder", needs=RETURNS,
      backward=False, when=_returned)  # fmt: skip
def write_length_true(transaction: Transaction) -> Judgement | None:
    """The bytes that RDMA Writes put into a chunk are as many as the reply says.  Pad bytes, unfilled segments and
    unused chunks have rules of their own.

    Why: the requester takes exactly that many bytes, written or not.

    Right: 6 bytes written, 6 returned.

    Wrong: 6 bytes written, 4096 returned.
    """
    judged, missing = None, ""
    counts = _counts(transaction)
    for name, chunk, _ in _pairs(transaction):
        if chunk.returned is None or _overruns(chunk):
            continue
        written = [transaction.written(use) for use in chunk.segments]
        number = transaction.writes.index(chunk) if chunk.kind == "write" else -1
        unused = not any(written) or not chunk.returned  # which may have been written to all the same (4.4.6.2)
        claimed = _claims(transaction, number)
        if unused and (claimed is False or not (any(written) or chunk.returned)):
            judged = judged or undecidable_if(transaction.unseen_writes)
            continue
        if unused and claimed is None:
            judged = judged or undecidable(RESULT_UNKNOWN)
            continue
        writes = [operation for use in chunk.segments for operation in use.operations]
        if not chunk.returned and {*map(id, writes)} <= {*map(id, transaction.late)}:
            continue  # V1-RDMA-AFTER-REPLY
        if any(sum(len(filled(use, [write])) for use in chunk.segments) < write.length for write in writes):
            continue  # V1-RDMA-OUTSIDE
        used = [(use, got) for use, got in zip(chunk.segments, written, strict=True) if got or not any(written)]
        returned = sum(use.returned or 0 for use, _ in used)
        total = sum(length for _, length in used)
        count = counts.get(number, returned)
        only_pad = chunk.kind == "write" and count % 4 and 0 < total - count < 4 and returned in (count, total)
        if total == returned or only_pad:
            judged = judged or PASSED
            if any(use.returned and not got for use, got in zip(chunk.segments, written, strict=True)):
                missing = transaction.unwritten
        elif reason := transaction.unwritten:
            return undecidable(reason)
        else:
            return violation(f"{name} returned {returned} bytes, {total} were written", "the same number",
                             *transaction.frames)  # fmt: skip
    return undecidable_if(missing) or judged


@rule("V1-WRITE-NO-PAD", "No pad bytes are written into a Write chunk", MUST,
      "4.4.6.1", "RFC 8166, 3.4.6", Transaction, "responder", needs=RETURNS,
      backward=False, when=_returned)  # fmt: skip
def write_no_pad(transaction: Transaction) -> Judgement | None:
    """The responder writes an item's bytes and not the XDR pad behind them, nor counts it in the returned length.

    Why: the requester's memory may end with the item, and the pad overwrites what follows.

    Right: a READ of 5 bytes writes 5.

    Wrong: a READ of 5 bytes writes 8.
    """
    judged, missing, counts = None, "", _counts(transaction)
    for number, chunk in enumerate(transaction.writes):
        if not chunk.returned or _overruns(chunk):
            continue
        if transaction.results is None:
            missing = RESULT_UNKNOWN
        count = counts.get(number, chunk.returned)
        written = sum(transaction.written(use) for use in chunk.segments)
        if count % 4 == 0 and number not in counts:
            continue
        if count % 4 and written < count:
            missing = transaction.unwritten
        # A pad is one to three bytes, perhaps not as many as are missing to a multiple of four.
        if count % 4 and 0 < written - count < 4:
            if transaction.late and transaction.unwritten:
                return undecidable(transaction.unwritten)
            seen = f"Write chunk {number + 1}: {written} bytes written and {chunk.returned} returned"
            return violation(f"{seen} for an item of {count}", f"{count} written", *transaction.frames)
        judged = PASSED
    return undecidable_if(missing) or judged


def _counts(transaction: Transaction) -> dict[int, int]:
    """The count words of reduced results, by the index of their Write chunk."""
    results = transaction.results
    if results is None:
        return {}
    return {item.chunk: item.count for item in results.items if item.reduced and item.chunk is not None}


@rule("V1-WRITE-BEFORE-REPLY", "RDMA Writes precede the reply's Send", STATED,
      "3.2.2, 4.4.6", "RFC 8166, 2.2.2", Transaction, "responder", needs=RETURNS, backward=False)  # fmt: skip
def write_before_reply(transaction: Transaction) -> Judgement | None:
    """All bytes that a reply returns are written before its Send is issued.

    Why: a Send is what tells the requester that the Writes before it have arrived; of later ones it says
    nothing.

    Right: Write, Write, Send.

    Wrong: Write, Send, Write.
    """
    rpc = transaction.rpc
    if rpc.reply is None or rpc.reply.header.procedure == RDMA_ERROR:
        return None
    header = rpc.reply.header
    if rpc.call is None or rpc.call.header.truncated or header.truncated:
        return undecidable(transaction.unread) if header.writes or header.reply or header.truncated else None
    if not any(chunk.returned for chunk in rpc.chunks if chunk.kind != "read"):
        return None
    counted = claims(rpc)
    late = [operation for operation in transaction.late if delivers(counted, operation)]
    if late and (reason := transaction.unseen_before(late[0].first_frame)):
        return undecidable(reason)
    if late:
        return violation(f"an RDMA Write of {late[0].length} bytes behind the reply that returns them", "before it",
                         rpc.reply.frame, late[0].first_frame)  # fmt: skip
    lacking = any(claim.written.missing(claim.start, claim.end) for claim in counted)
    return (undecidable_if(transaction.unwritten_later) if lacking else None) or PASSED
