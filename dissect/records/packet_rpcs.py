"""Which RPCs InfiniBand packets belong to, by their frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace

from ..arrays import Rows
from ..link.packets import PACKET
from ..measure.file_names import PathLearner
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.outcome import named
from ..rpcrdma.rpcs import Rpc
from ..transport.operations import Operation
from .packet_info import call_shown, reply_shown


class PacketRpcs:
    """Is given the RPCs as they end."""

    def __init__(self) -> None:
        self.sends: dict[int, tuple[str, str, int]] = {}
        """Frame that begins a Send -> protocol, info column, and number of the RPC."""
        self.uses: dict[int, tuple[str, int]] = {}
        """Frame that begins an RDMA Read or Write -> what it transfers, and number of the RPC."""

    def note(self, rpc: Rpc, path: str | None = None) -> None:
        """Remember which packets the RPC is in; ``path``: of what it names."""
        if rpc.call is not None:
            self.sends[rpc.call.frame] = (*call_shown(rpc, path), rpc.number)
        if rpc.reply is not None:
            self.sends[rpc.reply.frame] = (*reply_shown(rpc, path), rpc.number)
        for chunk in rpc.chunks:
            self.use(rpc.number, chunk.kind, (one for segment in chunk.segments for one in segment.operations))

    def use(self, number: int, kind: str, operations: Iterable[Operation]) -> None:
        """Remember that the operations transferred a chunk of RPC ``number``."""
        for operation in operations:
            self.uses[operation.first_frame] = f"RPC {number} {kind} chunk", number

    def forget(self, frame: int) -> None:
        """Frames up to this one are listed."""
        for known in (self.sends, self.uses):
            for one in [one for one in known if one <= frame]:
                del known[one]


def outstanding_calls(analyzer: Analyzer, learner: PathLearner, first: int, last: int) -> list[tuple[Rpc, str | None]]:
    """The calls in frames ``first`` to ``last`` that have no reply so far, with the paths of what they name."""
    calls = [named(rpc) for rpc in analyzer.outstanding() if rpc.call is not None and first <= rpc.call.frame <= last]
    return [(rpc, learner.path_of_call(rpc)) for rpc in calls]


def ends(analyzer: Analyzer) -> dict[tuple[str, int], Conversation]:
    """(address, queue pair) -> the conversation on the latest connection that ends there."""
    return {(end.address, end.qpn): one for one in analyzer.conversations for end in one.connection.endpoints}


def headers(rows: Rows) -> Iterator[SimpleNamespace]:
    """The fields of PACKET rows, one by one."""
    names = PACKET.names or ()
    for values in rows.tolist():
        header = SimpleNamespace()
        header.__dict__.update(zip(names, values, strict=True))
        yield header
