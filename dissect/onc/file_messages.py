"""An NFS call and its reply, decoded once for all that is asked of them."""

from __future__ import annotations

from functools import cached_property

from .compound import Compound, CompoundReply, compound_call, compound_reply
from .filehandles import CompoundWalk, walk_filehandles
from .rpc_header import CallHeader, call_header, results_at
from .xdr import Data


class FileMessages:
    """``call`` and ``reply`` are RPC messages from the XID on, either of which may end early."""

    def __init__(self, call: Data | None, reply: Data | None) -> None:
        self.header: CallHeader | None = None if call is None else call_header(call, 0, len(call))
        """None where there is no call, or what is there is none."""
        self.call = memoryview(b"" if call is None else call)
        self.reply = memoryview(b"" if reply is None else reply)
        self._replied = reply is not None

    @cached_property
    def results(self) -> int:
        """Offset of the results in ``reply``; -1 where there are none."""
        assert self.header is not None
        return results_at(self.reply, self.header.gss) if self._replied else -1

    @cached_property
    def compound(self) -> Compound:
        """The arguments of COMPOUND."""
        assert self.header is not None
        return compound_call(self.call, self.header.body, len(self.call))

    @cached_property
    def compound_results(self) -> CompoundReply | None:
        """Its results; None without any."""
        return compound_reply(self.reply, self.results, len(self.reply)) if self.results >= 0 else None

    @cached_property
    def walk(self) -> CompoundWalk:
        """Its operations with the files that they were for."""
        return walk_filehandles(self.compound, self.call, self.compound_results, self.reply)
