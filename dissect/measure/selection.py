"""Which RPCs are meant by the name of a procedure."""

from __future__ import annotations

from ..onc.names import program_label
from ..rpcrdma.rpcs import Rpc


def is_procedure(rpc: Rpc, name: str) -> bool:
    """Whether ``name`` is what is called: the procedure, an operation of the COMPOUND, or either after a program."""
    program, _, procedure = name.upper().rpartition(".")
    if program:
        label = program_label(rpc.program, rpc.version, rpc.minor_version).upper()
        bare = program_label(rpc.program, None).upper()
        versioned = program_label(rpc.program, rpc.version).upper()
        if program not in (label, bare, versioned):
            return False
    return procedure == rpc.name.upper() or procedure in rpc.operations
