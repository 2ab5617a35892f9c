"""The tree of a COMPOUND and the walk over it, which knows where operations begin but not what is in them, agree: on
every COMPOUND of the samples, and on drawn ones, whole and truncated anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from playbook.xdr_values import values
from rdmascope.captures.session.session import Session
from rdmascope.dissect.onc.compound import compound_call, compound_reply
from rdmascope.dissect.onc.rpc_header import NFS, NFS_CALLBACK, call_head, results_at
from rdmascope.dissect.onc.shapes.nfs4 import CB_COMPOUND4ARGS, CB_COMPOUND4RES, COMPOUND4ARGS, COMPOUND4RES
from rdmascope.dissect.onc.shapes.types import Decoded, Node, SparseBytes, decode
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply

SAMPLES = sorted((Path(__file__).parents[4] / "captures" / "samples").glob("*.zst"))
ARGUMENTS = {False: COMPOUND4ARGS, True: CB_COMPOUND4ARGS}
RESULTS = {False: COMPOUND4RES, True: CB_COMPOUND4RES}


def tree(data: bytes, at: int, results: bool, callback: bool) -> Decoded:
    type = (RESULTS if results else ARGUMENTS)[callback]
    return decode(type, "it", SparseBytes([(0, data)], len(data)), at, len(data), 1 << 20)


def operations(root: Node, array: str) -> Sequence[Node]:
    """Those of which number, and of results status, are there."""
    found = root.child(array)
    return found.children if found is not None else ()


def agree(data: bytes, at: int, results: bool, callback: bool) -> None:
    decoded = tree(data, at, results, callback)
    if results:
        reply = compound_reply(data, at, len(data), callback=callback)
        walked = [(number, place - 8) for (number, _), place in zip(reply.results, reply.places, strict=True)]
        complete, end, problem = reply.complete, reply.end, reply.problem
    else:
        call = compound_call(data, at, len(data), callback=callback)
        walked = [(number, place - 4) for number, place in zip(call.operations, call.places, strict=True)]
        complete, end, problem = call.complete, call.end, call.problem
    named = [
        (one.children[0].value, one.offset)
        for one in operations(decoded.root, "resarray" if results else "argarray")
        if one.children and isinstance(one.children[0].value, int)
    ]
    # The last may have been reached by one of the two only: its status, its name, or bytes in it are missing.
    shorter = min(len(walked), len(named))
    assert walked[:shorter] == named[:shorter]
    assert abs(len(walked) - len(named)) <= 1
    if not decoded.problem:
        # The tree needs no pad bytes at the end of the data (RFC 4506, 4.10); to the walk, they are missing.
        whole = (decoded.end - at) % 4 == 0
        assert (complete, end, walked) == (whole, decoded.end, named), problem


@pytest.mark.parametrize("sample", [path.name for path in SAMPLES])
def test_on_every_compound_of_a_sample(sample: str) -> None:
    for rpc in Session([str(SAMPLES[0].parent / sample)]).rpcs():
        if rpc.procedure != 1 or rpc.call is None or (rpc.program, rpc.version) not in ((NFS, 4), (NFS_CALLBACK, 1)):
            continue
        callback = rpc.program == NFS_CALLBACK
        call, reply = reassembled_call(rpc), reassembled_reply(rpc)
        if call is not None and call.complete:
            data = call.prefix
            head = call_head(data, 0, len(data))
            assert head is not None
            assert not tree(data, head[4], False, callback).problem
            agree(data, head[4], False, callback)
        if reply is not None and reply.complete and (at := results_at(reply.prefix, rpc.gss)) >= 0:
            assert not tree(reply.prefix, at, True, callback).problem
            agree(reply.prefix, at, True, callback)


def test_without_the_last_pad() -> None:
    lookup = bytes.fromhex("00000000 00000000 00000001 0000000f 00000001 61")
    for missing in range(4):
        agree(lookup + bytes(3 - missing), 0, False, False)
    assert not tree(lookup, 0, False, False).problem
    assert compound_call(lookup, 0, len(lookup)).problem == "the bytes end inside LOOKUP"


def kinds() -> Iterator[tuple[bool, bool]]:
    yield from ((results, callback) for results in (False, True) for callback in (False, True))


@pytest.mark.parametrize(("results", "callback"), list(kinds()))
def test_on_drawn_compounds(results: bool, callback: bool) -> None:
    type = (RESULTS if results else ARGUMENTS)[callback]

    @given(values(type), st.data())
    def check(drawn: tuple[object, bytes], draw: st.DataObject) -> None:
        data = drawn[1]
        assert not tree(data, 0, results, callback).problem
        agree(data, 0, results, callback)
        agree(data[: draw.draw(st.integers(0, len(data)))], 0, results, callback)

    check()
