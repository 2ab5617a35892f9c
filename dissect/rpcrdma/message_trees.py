"""The call and the reply of an Rpc as trees: its header, arguments and results down to the last field."""

from __future__ import annotations

from ..named_tuple import NamedTuple
from ..onc.rpc_header import GssCredential
from ..onc.shapes.messages import MessageTree, call_tree, reply_tree
from ..onc.shapes.types import MAX_NODES, Node, SparseBytes
from .reassembly import reassembled_call, reassembled_reply
from .rpcs import Reassembled, Rpc


class CalledProcedure(NamedTuple):
    """What a call says that is needed to decode its reply."""

    program: int | None
    version: int | None
    procedure: int | None
    gss: GssCredential | None

    @classmethod
    def of(cls, rpc: Rpc) -> CalledProcedure:
        return cls(rpc.program, rpc.version, rpc.procedure, rpc.gss)


class DecodedMessage(NamedTuple):
    bytes: Reassembled
    tree: MessageTree

    def origin(self, node: Node) -> str:
        """What carried the value besides the Send: 'read chunk 1', '' for nothing."""
        end = node.offset + node.length
        origins = dict.fromkeys(
            extent.origin
            for extent in self.bytes.extents
            if extent.start < end and node.offset < extent.start + extent.length and extent.origin != "round-up"
        )
        return ", ".join(origin for origin in origins if origin != "inline")


def decoded_call(rpc: Rpc, max_nodes: int = MAX_NODES) -> DecodedMessage | None:
    """The call as a tree; None without a call, or if it is not known to be an RPC message."""
    message = reassembled_call(rpc)
    return None if message is None else DecodedMessage(message, call_tree(_sparse(message), max_nodes))


def decoded_reply(rpc: Rpc, max_nodes: int = MAX_NODES) -> DecodedMessage | None:
    message = reassembled_reply(rpc)
    if message is None:
        return None
    tree = reply_tree(_sparse(message), *CalledProcedure.of(rpc), max_nodes)
    return DecodedMessage(message, tree)


def _sparse(message: Reassembled) -> SparseBytes:
    return SparseBytes(message.pieces, message.length)
