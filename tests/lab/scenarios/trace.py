"""Both kernels' tracepoints beside the wire: the same RPCs, one by one, with their chunks and credits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..evidence import RDMASCOPE, Check, Record, checksums, client_counters, command, equal, lines, records
from ..guests import Outcome

KERNELS: list[dict[str, str]] = [{}, {"client": "6.12", "server": "6.12"}]
DEADLINE = 600
"""Seconds: trace-cmd enables one event after the other, which emulated guests take a minute for."""


def judge(outcome: Outcome) -> Iterator[Check]:
    wire = [rpc for rpc in records(outcome, "rpcs", "--full") if rpc["state"] != "duplicate reply"]
    for host, said in (("client", "reply"), ("server", "call")):
        mounts = ("NFS", "NFSACL", "NFS_CB")  # MOUNT and portmap go over TCP and UDP.
        rpcs = [rpc for rpc in traced(outcome.folder / f"{host}.trace.dat") if rpc["program"] in mounts]
        yield equal(f"RPCs on the wire and in the {host}'s trace", len(wire), len(rpcs))
        for what, of in (("transaction IDs", xid), ("NFSv3 procedures", procedure), ("chunks", chunks)):
            yield same(f"{what} of the {host}'s trace", map(of, wire), map(of, rpcs))
        yield same(f"credits that the {host} was told", credits_of(wire, said), credits_of(rpcs, said))
    yield from client_counters(outcome)
    yield from checksums(outcome)


def same(what: str, theirs: Iterable[object], ours: Iterable[object]) -> Check:
    theirs, ours = Counter(theirs), Counter(ours)
    differ = [f"{len(list((theirs - ours).elements()))} only on the wire", *map(str, [*(ours - theirs)][:2])]
    return Check(what, "the same" if theirs == ours else "; ".join(differ), theirs == ours)


def traced(path: Path) -> list[Record]:
    return lines(command(RDMASCOPE, "rpcs", "--json", "--full", path))


def xid(rpc: Record) -> object:
    return rpc["xid"]


def procedure(rpc: Record) -> object:
    return rpc["xid"], rpc["program"], rpc["version"], rpc["procedure"] if rpc["version"] == 3 else "COMPOUND"


def chunks(rpc: Record) -> object:
    """Kinds, and handle, offset, length and what was returned of each segment."""
    return rpc["xid"], *sorted(
        (
            chunk["kind"],
            tuple(
                (segment["handle"], segment["offset"], segment["advertised"], segment["returned"])
                for segment in chunk["segments"]
            ),
        )
        for chunk in rpc["chunk_list"]
    )


def credits_of(rpcs: list[Record], said: str) -> list[object]:
    return [(rpc["xid"], rpc[said] and rpc[said]["credits"]) for rpc in rpcs]
