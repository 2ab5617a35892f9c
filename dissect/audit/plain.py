"""Plain messages and RPCs: whole ones of version 1, forward, without chunks, and of at most 1024 bytes a Send.

Whatever a rule says of one of them it says of all of their class, so each rule is asked once for a class, and counted
for the others.  A rule that is added must hold to that, or what it looks at must make a message less than plain: a
property test audits all samples with and without classes.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from ..layers.rpcrdma_codes import RDMA_MSG
from ..onc import binding
from ..onc.nfs3 import holds_arguments, nfs3_procedure
from ..onc.programs import NFS
from ..onc.rpc_header import call_head
from ..rpcrdma.conversation import DEFAULT_INLINE, Conversation
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from .transaction import CreditState


def plain_message(message: Message) -> bool:
    """Whether a call or reply is plain by itself."""
    header, operation = message.header, message.operation
    return bool(
        header.version == 1
        and header.procedure == RDMA_MSG
        and header.credits
        and operation.length <= DEFAULT_INLINE
        and operation.invalidate is None
        and operation.end_known
        and header.reply is None
        and not header.reads
        and not header.writes
        and not header.problem
        and not header.truncated
        and message.inline_length >= 4
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
    """What plain RPCs have in common, beside their connection; None for others."""
    call, reply = rpc.call, rpc.reply
    if (
        rpc.chunks
        or rpc.notes
        or rpc.damage
        or rpc.backward
        or rpc.gss is not None
        or flow is None
        or flow.limit is None
        or flow.outstanding > flow.limit
        or call is None
        or reply is None
        or call.end - call.start != call.inline_length
        or reply.end - reply.start != reply.inline_length
        or not plain_message(call)
        or not plain_message(reply)
        or not plain_procedure(rpc.program, rpc.version, rpc.procedure, rpc.operations)
        or (rpc.version == 3 and rpc.program == NFS and not _holds_arguments(rpc, call))
    ):
        return None
    return rpc.program, rpc.version, rpc.procedure, rpc.operations


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
