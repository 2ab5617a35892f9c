"""The upper-layer binding of NFS: which items may be reduced, and what is left of them (RFC 8267)."""

from __future__ import annotations

from ...layers.oncrpc_codes import RPCSEC_GSS, RPCSEC_GSS_DATA
from ...layers.rpcrdma_codes import RDMA_ERROR
from ...onc.programs import program_name
from ..judgement import PASSED, Judgement, undecidable, violation
from ..rule import Level, rule
from ..shape import CHUNKS, READS, RETURNS
from ..transaction import Transaction

MUST, SHOULD = Level.MUST, Level.SHOULD


def _call(transaction: Transaction) -> Judgement | None:
    """Whether the reduced items of a call can be judged; PASSED where they can."""
    rpc = transaction.rpc
    if rpc.call is None or not transaction.reduced:
        return None
    if rpc.call.header.problem:
        return undecidable(transaction.unread) if transaction.unread else None
    if transaction.sealed or (rpc.gss is not None and rpc.gss.procedure != RPCSEC_GSS_DATA):
        return None  # V1-GSS-NO-REDUCTION, V1-GSS-MATERIAL
    if not transaction.call_whole:
        return undecidable("the call's Payload stream is not all in the capture")
    if rpc.program is None:
        return undecidable("the RPC call cannot be read")
    return PASSED


@rule("V1-DDP-ELIGIBLE", "A Read chunk holds an item that may be reduced", MUST,
      "4.4.2, 8.1", "RFC 8166, 3.4.2 and 6.1", Transaction, "requester", needs=READS, backward=False)  # fmt: skip
def ddp_eligible(transaction: Transaction) -> Judgement | None:
    """Every Read chunk behind Position 0 stands where the call has the data of WRITE, or the text of a symbolic link.
    Positions that cannot be an item's at all are V1-READ-POSITION-ALIGN's and V1-READ-POSITION-RANGE's.

    Why: the receiver puts an item's bytes where the application wants them, which it knows for these items alone.

    Right: a Read chunk at the data of NFSv3 WRITE.

    Wrong: a Read chunk at the file handle.
    """
    if (state := _call(transaction)) is not PASSED:
        return state
    rpc, head = transaction.rpc, transaction.call_head
    length = transaction.call_length
    chunks = sorted(transaction.reduced)
    for position, size in chunks:
        if position % 4 or position > length:
            return None
        length += size + 3 & -4
    if not transaction.bound:
        return undecidable(f"{program_name(rpc.program or 0)} has no known upper-layer binding")
    if head is not None and head.body > 0 and head.flavor == RPCSEC_GSS and chunks[0][0] < head.body:
        return None
    items = transaction.arguments
    if items is None:
        return undecidable("the arguments cannot be read")
    taken = {item.chunk for item in items.items if item.reduced}
    for index, (position, size) in enumerate(transaction.reduced):
        if index not in taken:
            if not items.complete:
                return undecidable(f"the arguments cannot be followed: {items.problem}")
            return violation(f"a Read chunk of {size} bytes at Position {position}, where no eligible item is",
                             "WRITE data or a link's text", transaction.frames[0])  # fmt: skip
    return PASSED


@rule("V1-READ-ROUNDUP", "The pad of a reduced item leaves the Payload stream with it", MUST,
      "4.4.5.1", "RFC 8166, 3.4.5", Transaction, "requester", needs=READS, backward=False)  # fmt: skip
def read_roundup(transaction: Transaction) -> Judgement | None:
    """Behind the count word of a reduced item whose length is no multiple of four, no pad is left in the stream.

    Why: the receiver restores the pad itself; one more shifts every argument behind it.

    Right: 5 bytes in the chunk, the next argument right behind the count.

    Wrong: 5 bytes in the chunk, three zero bytes behind the count.
    """
    if (state := _call(transaction)) is not PASSED:
        return state
    items = transaction.arguments
    if items is None:
        return None
    pads = sum(-item.count % 4 for item in items.items if item.reduced)
    if not pads:
        return None
    rest = transaction.call_length % 4
    if rest == 0:
        return PASSED
    if rest == pads % 4:
        return violation(f"{pads} pad bytes left behind the count of a reduced item", "none", transaction.frames[0])
    return undecidable("the Payload stream's length is no multiple of four, and not by the pad")


@rule("V1-CHUNK-LENGTH-MATCH", "The count left in the stream is the chunk's length", MUST,
      "4.4.4.1", "RFC 8166, 3.4.4", Transaction, "requester", needs=READS, backward=False)  # fmt: skip
def chunk_length_match(transaction: Transaction) -> Judgement | None:
    """The count word of a reduced argument equals the sum of its chunk's segments, with or without round-up.

    Why: one says how many bytes the item has, the other how many are moved; where they differ one of them lies.

    Right: count 8192, segments of 4096 and 4096.

    Wrong: count 8192, one segment of 4096.
    """
    if (state := _call(transaction)) is not PASSED:
        return state
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
    """Whether the results of a reply can be judged; PASSED where they can."""
    rpc = transaction.rpc
    if rpc.call is None or rpc.reply is None or rpc.reply.header.procedure == RDMA_ERROR or not transaction.writes:
        return None
    if transaction.unread:
        return undecidable(transaction.unread)
    if rpc.reply.header.problem or rpc.call.header.problem or transaction.sealed:
        return None
    if not transaction.bound:
        return undecidable("the program has no known upper-layer binding")
    if not transaction.reply_whole:
        return undecidable("the reply's Payload stream is not all in the capture")
    return PASSED


@rule("V1-REDUCE-REQUIRED", "Results that fit a Write chunk are reduced", MUST,
      "5.3.2, 8.1.1", "RFC 8166, 3.4.6 and 4.3.2", Transaction, "responder", needs=RETURNS, backward=False)  # fmt: skip
def reduce_required(transaction: Transaction) -> Judgement | None:
    """Where the call has a Write list, each result of READ and READLINK for which a chunk is left travels in it.

    Why: the requester expects it there, and reads the reply accordingly.

    Right: READ data in the Write chunk, the count alone inline.

    Wrong: READ data inline, the Write chunk returned with length 0.
    """
    if (state := _reply(transaction)) is not PASSED:
        return state
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
        elif item.count <= chunk.advertised:
            seen = f"{item.count} bytes of {item.name} inline, and Write chunk {item.chunk + 1} has room for them"
            return violation(seen, "in the Write chunk", *transaction.frames)
    if judged is None and results.problem:
        return undecidable(f"the results cannot be followed: {results.problem}")
    return judged


@rule("V1-WRITE-EXTRA", "A Write chunk is not lengthened for XDR pad", SHOULD,
      "4.4.6.1", "RFC 8166, 3.4.6", Transaction, "requester", needs=CHUNKS, backward=False)  # fmt: skip
def write_extra(transaction: Transaction) -> Judgement | None:
    """The Write chunk for a READ of a length that is no multiple of four has no more bytes than were asked for.

    Why: nothing may be written there, so the memory is registered and advertised in vain.

    Right: READ of 6 bytes, a Write chunk of 6.

    Wrong: READ of 6 bytes, a Write chunk of 8, or one with a segment of 4 bytes behind.
    """
    rpc = transaction.rpc
    if rpc.call is None or not transaction.writes or rpc.call.header.problem or transaction.sealed:
        return None
    if not transaction.bound:
        return undecidable("the program has no known upper-layer binding")
    if not transaction.call_whole:
        return undecidable("the call's Payload stream is not all in the capture")
    judged = None
    for number, (chunk, largest) in enumerate(zip(transaction.writes, transaction.largest_results, strict=False), 1):
        if largest is None or not chunk.segments:
            continue
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
        return None if problem else undecidable("the RPC call cannot be read")
    if transaction.bound:
        return PASSED
    return violation(f"{program_name(rpc.program)} version {rpc.version} (program {rpc.program})",
                     "a program with a known binding", transaction.frames[0], note=True)  # fmt: skip
