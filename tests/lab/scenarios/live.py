"""rdmascope live in a guest agrees with the capture from outside, RPC for RPC; a flood is watched, with its drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..evidence import RDMASCOPE, Check, Record, command, equal, lines, marks, over_rdma, records
from ..guests import Outcome

DEADLINE = 900

MISSING = ("damaged", "no reply", "no call")


def judge(outcome: Outcome) -> Iterator[Check]:
    calm, flood = (lines(outcome.text(f"{name}.jsonl")) for name in ("calm", "flood"))
    outside = [reported(one) for one in records(outcome, "rpcs")]
    # Live prints an RPC when it ends; rpcs lists them in the order of their calls.
    ended = over_rdma(one for one in calm if one["type"] == "rpc")
    inside = [reported(one) for one in sorted(ended, key=lambda one: one["number"])]
    capture = calm[-1]
    yield equal("live ended by", "SIGINT", capture["ended_by"])
    yield Check("the kernel dropped nothing", str(capture["kernel_dropped"]), capture["kernel_dropped"] == 0)
    first = next((at for at, one in enumerate(inside) if at >= len(outside) or one != outside[at]), None)
    found = "every one the same" if first is None else f"{inside[first]} is {outside[first : first + 1]} outside"
    yield Check(f"{len(inside)} RPCs as outside, in their order", found, bool(inside) and first is None)
    listed = lines(command(RDMASCOPE, "rpcs", "--json", outcome.folder / "calm.pcapng"))
    kept = [reported(one) for one in over_rdma(listed)]
    yield equal("RPCs in what live kept", len(inside), len(kept))
    yield Check("they are the same", str(kept == inside), kept == inside)

    thousands = lines(outcome.text("thousands.jsonl"))
    missed = [
        one
        for one in thousands
        if one["type"] == "rpc" and one["procedure"] == "LOOKUP" and one["status"] == "NFS3ERR_NOENT"
    ]
    yield equal("LOOKUPs of names that are not there", outcome.facts["stats",], str(len(missed)))
    yield equal("live ended by", "SIGINT", thousands[-1]["ended_by"])
    lost = [one for one in thousands if one["type"] == "rpc" and one["state"] in MISSING]
    yield Check("each of thousands of RPCs is whole", f"{len(lost)} are not", not lost)

    yield from through_extcap(outcome)

    capture = flood[-1]
    received, dropped, frames = (capture[name] for name in ("kernel_received", "kernel_dropped", "frames"))
    yield Check(
        f"{received} frames of a flood, dropped or analysed", f"{dropped} + {frames}", received == dropped + frames
    )
    watched = Counter(one["state"] for one in flood if one["type"] == "rpc")
    broken = sum(watched[state] for state in MISSING)
    yield Check("RPCs of it are whole, unless frames were dropped", str(dict(watched)), bool(dropped) or not broken)
    known = {xid: name for xid, name, *_ in outside}
    wrong = [
        one
        for one in over_rdma(one for one in flood if one["type"] == "rpc")
        if known.get(one["xid"]) != one["procedure"] and one["procedure"]
    ]
    yield Check("none of them is one that was not sent", f"{len(wrong)} are", not wrong)


def through_extcap(outcome: Outcome) -> Iterator[Check]:
    """What Wireshark got is what the capture from outside has between two marks, as NFS over TCP."""
    at = {word: frame for frame, word in marks(outcome)}
    begin, end = at["extcap"], at["extcap-end"]
    sent = [one for one in records(outcome, "rpcs") if one["call_frame"] and begin < one["call_frame"] < end]
    packets = outcome.folder / "extcap.pcapng"
    for name, kind in (("calls", 0), ("replies", 1)):
        listed = command("tshark", "-2", "-r", packets, "-Y", f"rpc.msgtyp == {kind}", "-T", "fields", "-e", "rpc.xid")
        xids = [int(xid, 16) for line in listed.splitlines() for xid in line.split(",")]
        yield Check(
            f"tshark reads {len(sent)} {name} from the extcap",
            f"{len(xids)}",
            bool(sent) and sorted(xids) == sorted(one["xid"] for one in sent),
        )
    malformed = command("tshark", "-2", "-r", packets, "-Y", "_ws.malformed")
    yield equal("malformed packets among them", "", malformed)
    yield equal("read meanwhile", outcome.facts["md5", "/r1m"], outcome.facts["read", "extcap"])


def reported(rpc: Record) -> tuple[object, ...]:
    """What does not depend on where the capture was taken."""
    moved = rpc["chunks"], rpc["call_chunk_bytes"], rpc["reply_chunk_bytes"]
    sizes = rpc["call_inline_bytes"], rpc["reply_inline_bytes"]
    return (
        rpc["xid"],
        rpc["procedure"],
        tuple(rpc["operations"]),
        rpc["client"],
        rpc["server"],
        rpc["state"],
        rpc["status"],
        sizes,
        moved,
    )
