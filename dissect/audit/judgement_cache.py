"""Plain messages and RPCs: whole ones of version 1, forward, and of at most 1024 bytes a Send.

They have no chunks, or a Reply chunk of one segment alone that one RDMA Write filled as far as the reply says.

Whatever a rule says of one of them it says of all of their class, so each rule is asked once for a class, and counted
for the others.  A rule that is added must hold to that, or what it looks at must make a message less than plain: a
property test audits all samples with and without classes.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..onc import binding
from ..onc.nfs3 import holds_arguments, nfs3_procedure
from ..onc.programs import NFS
from ..onc.rpc_header import call_head
from ..rpcrdma.conversation import DEFAULT_INLINE, Conversation
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import ChunkUse, Rpc
from .events import RdmaOperation, SentMessage
from .memory import PREDICTABLE, Offer
from .rule import Subject
from .transaction import CreditState, Transaction


def plain_message(message: Message) -> bool:
    """Whether a call or reply is plain by itself, and has no chunks."""
    return message.header.reply is None and plain_call(message)


def plain_call(message: Message) -> bool:
    """Whether a call is plain by itself; it may have a Reply chunk, of which rules say nothing before the reply."""
    header, operation = message.header, message.operation
    return bool(
        header.procedure == RDMA_MSG and operation.invalidate is None and message.inline_length >= 4 and _whole(message)
    )


def _whole(message: Message) -> bool:
    """Whether a message can be judged, and is neither long nor has Read or Write lists."""
    header, operation = message.header, message.operation
    return bool(
        header.version == 1
        and header.credits
        and operation.length <= DEFAULT_INLINE
        and operation.end_known
        and not header.reads
        and not header.writes
        and not header.problem
        and not header.truncated
    )


def _plain_return(message: Message) -> bool:
    """Whether a reply is plain but for the Reply chunk that all of its results are in, of one segment."""
    header = message.header
    return bool(
        header.procedure == RDMA_NOMSG
        and header.reply is not None
        and len(header.reply.segments) == 1
        and header.reply.segments[0].length
        and not message.inline_length
        and _whole(message)
    )


def message_class(conversation: Conversation, is_call: bool) -> Hashable:
    """What plain messages of the forward direction have in common, beside their connection; None where they have not.

    Private data and refusals of a version may become known while a connection lasts.
    """
    if conversation.negotiation.refusals:
        return None
    seen = conversation.private_data_seen
    return is_call, seen, conversation.private_data(0), conversation.private_data(1)


def rpc_class(rpc: Rpc, flow: CreditState | None) -> Hashable:
    """What plain RPCs without chunks have in common, beside their connection; None for others."""
    call, reply = rpc.call, rpc.reply
    if (
        rpc.chunks
        or call is None
        or reply is None
        or reply.end - reply.start != reply.inline_length
        or not plain_message(call)
        or not plain_message(reply)
        or not _plain_call_of(rpc, call, flow)
    ):
        return None
    return rpc.program, rpc.version, rpc.procedure, rpc.operations


def _plain_call_of(rpc: Rpc, call: Message, flow: CreditState | None) -> bool:
    """Whether nothing is to be said of an RPC whose call is plain, up to its reply."""
    return not (
        rpc.notes
        or rpc.damage
        or rpc.backward
        or rpc.gss is not None
        or flow is None
        or flow.limit is None
        or flow.outstanding > flow.limit
        or call.end - call.start != call.inline_length
        or not plain_procedure(rpc.program, rpc.version, rpc.procedure, rpc.operations)
        or (rpc.version == 3 and rpc.program == NFS and not _holds_arguments(rpc, call))
    )


def settled_class(subject: Subject) -> Hashable:
    """What nouns of a plain RPC with a Reply chunk have in common, beside their connection; None for others.

    They wait for what may come late, and are asked about when they are judged.
    """
    if isinstance(subject, Transaction):
        return _long_class(subject)
    if isinstance(subject, SentMessage):
        return _return_class(subject)
    if isinstance(subject, RdmaOperation) and subject.place == "inside" and subject.operation.initiator == 1:
        return ("inside",)
    return None


def _return_class(sent: SentMessage) -> Hashable:
    """Of replies through a Reply chunk."""
    rpc = sent.rpc
    if sent.is_call is not False or rpc is None or rpc.call is None or rpc.backward or not _plain_return(sent.message):
        return None
    key, invalidated = message_class(sent.conversation, False), sent.message.operation.invalidate
    offered = [use.advertised.handle for chunk in rpc.chunks for use in chunk.segments]
    if key is None or invalidated not in (None, *offered):
        return None
    return "returned", invalidated is not None, key


def _long_class(transaction: Transaction) -> Hashable:
    """Of RPCs whose results came through a Reply chunk."""
    rpc, step, persistent = transaction.rpc, transaction.handle_step, transaction.persistent
    call, reply = rpc.call, rpc.reply
    if (
        call is None
        or reply is None
        or transaction.late
        or step is None
        or persistent is None
        or Offer(step, persistent).remarkable
        or len(rpc.chunks) != 1
        or not plain_call(call)
        or not _plain_return(reply)
        or not _filled(rpc.chunks[0], reply)
        or not _plain_call_of(rpc, call, transaction.flow)
    ):
        return None
    return "long", step.run < PREDICTABLE, rpc.program, rpc.version, rpc.procedure, rpc.operations


def _filled(chunk: ChunkUse, reply: Message) -> bool:
    """Whether one RDMA Write filled a Reply chunk of one segment as far as the reply says."""
    assert reply.header.reply is not None
    if chunk.kind != "reply" or len(chunk.segments) != 1 or len(chunk.segments[0].operations) != 1:
        return False
    use, returned = chunk.segments[0], reply.header.reply.segments[0]
    operation, (handle, length, offset) = use.operations[0], use.advertised
    return (
        (returned.handle, returned.offset) == (operation.handle, operation.address) == (handle, offset)
        and returned.length == operation.length == use.returned
        and returned.length <= length
    )


@lru_cache(maxsize=4096)
def plain_procedure(
    program: int | None, version: int | None, procedure: int | None, operations: tuple[str, ...]
) -> bool:
    """Whether nothing in the arguments makes a difference: neither a number of bytes that is asked for, nor data."""
    if program is None or version is None or procedure is None or not binding.has_binding(program, version):
        return False
    if program != NFS:
        return True
    if version == 4:
        return not binding.states_bytes(operations)
    row = nfs3_procedure(procedure) if version == 3 else None
    return row is not None and row.entries_bound is None


def _holds_arguments(rpc: Rpc, call: Message) -> bool:
    """Whether the arguments of an NFSv3 call end inside it."""
    row = nfs3_procedure(rpc.procedure or 0)
    assert row is not None
    if row.argument_data is not None:
        return not binding.call_items(NFS, 3, rpc.procedure or 0, call.data, call.start, call.end, ()).problem
    head = call_head(call.data, call.start, call.end)
    if head is None or not head[-1]:
        return False
    return holds_arguments(call.data[call.start + head[-1] : call.end], row)
