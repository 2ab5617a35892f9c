"""Which RPCs are meant: the filters of every command that lists RPCs, and what is wrong with a filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..onc.compound import CALLBACK_NAMES, OPERATION_NAMES
from ..onc.names import program_label
from ..onc.programs import PROCEDURES
from ..rpcrdma.rpcs import Rpc

KNOWN_NAMES = frozenset(
    (*(name for names in PROCEDURES.values() for name in names), *OPERATION_NAMES.values(), *CALLBACK_NAMES.values())
)
"""Every name of a procedure or operation that this program has."""


def is_procedure(rpc: Rpc, name: str) -> bool:
    """Whether ``name`` is what is called: the procedure, an operation of the COMPOUND, or either after a program.

    Case does not matter; ``*`` and ``?`` stand for any characters and any character.
    """
    program, _, procedure = name.upper().rpartition(".")
    if program:
        labels = (
            program_label(rpc.program, rpc.version, rpc.minor_version),
            program_label(rpc.program, None),
            program_label(rpc.program, rpc.version),
        )
        if not any(fnmatchcase(label.upper(), program) for label in labels):
            return False
    return any(fnmatchcase(called, procedure) for called in (rpc.name.upper(), *rpc.operations))


def procedure_names(given: Iterable[str]) -> tuple[str, ...]:
    """The names of ``READ,WRITE`` and of several such lists."""
    return tuple(dict.fromkeys(name.strip() for text in given for name in text.split(",") if name.strip()))


@dataclass(slots=True)
class RpcFilter:
    """RPCs that pass every filter that is set; a filter with several values passes each of them.

    Times are nanoseconds since the Unix epoch, of the first packet; ``slower_than`` is in nanoseconds.
    """

    procedures: Sequence[str] = ()
    xids: Sequence[int] = ()
    connections: Sequence[int] = ()
    slower_than: int | None = None
    errors: bool = False
    """Only RPCs that failed or are incomplete."""
    since: int | None = None
    until: int | None = None
    _found: set[object] = field(default_factory=set)
    """Values of filters that some RPC had."""

    def passes(self, rpc: Rpc) -> bool:
        """Whether the RPC is meant."""
        named = [name for name in self.procedures if is_procedure(rpc, name)]
        self._found.update(named)
        self._found.add(("xid", rpc.xid))
        self._found.add(("connection", rpc.connection.number))
        call = rpc.call or rpc.reply
        begin = call.operation.first_time if call is not None else 0
        return not (
            (self.procedures and not named)
            or (self.xids and rpc.xid not in self.xids)
            or (self.connections and rpc.connection.number not in self.connections)
            or (self.slower_than is not None and (rpc.latency is None or rpc.latency.total <= self.slower_than))
            or (self.errors and rpc.state == "complete")
            or (self.since is not None and begin < self.since)
            or (self.until is not None and begin >= self.until)
        )

    def problem(self, connections: Iterable[int]) -> str:
        """Why a filter can match nothing, after all RPCs were tried; '' where none is so.

        ``connections``: the numbers of the capture's connections.
        """
        there = set(connections)
        for name in self.procedures:
            bare = name.upper().rpartition(".")[2]
            if name not in self._found and not any(fnmatchcase(known, bare) for known in KNOWN_NAMES):
                return f"no procedure or operation {name!r}"
        for number in self.connections:
            if number not in there and ("connection", number) not in self._found:
                return f"no connection {number}; there {'is' if len(there) == 1 else 'are'} {len(there)}"
        for xid in self.xids:
            if ("xid", xid) not in self._found:
                return f"no RPC with xid {xid:#010x}"
        return ""
