"""Both ends of a wire that takes 30 ms each way, and a server that sends 80 ms late: each delay in its place."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import RDMASCOPE, Check, Record, client_counters, command, lines, records, unanswered, wireshark
from ..guests import Outcome

DEADLINE = 400
WIRE_DELAY = 0.03
SERVER_DELAY = 0.08
"""Seconds that ``ends.client.sh`` has the server send later, from the second mount on."""
NOISE = 0.015
"""Seconds by which emulated guests on a busy host may be later than they should."""


def judge(outcome: Outcome) -> Iterator[Check]:
    compared = lines(command(RDMASCOPE, "compare", "--json", outcome.capture, outcome.at_server))
    points = next(one for one in compared if one["type"] == "points")
    yield Check(
        "the client's capture is distinguished from the server's",
        points["client_capture"].rpartition("/")[2],
        points["client_capture"] == str(outcome.capture),
    )
    alone = points["rpcs_only_client"] + points["rpcs_only_server"]
    yield Check("both ends show all RPCs", f"{alone} only one of them", not alone)
    transit = (points["transit_to_server_ns"] + points["transit_to_client_ns"]) / 1e9
    yield near("there and back on the wire", 2 * WIRE_DELAY, transit)
    # A WRITE waits twice for what the server sends: its RDMA Read, and its reply.
    for label, sends in (("READ", 1), ("WRITE", 2)):
        quick, late = (mean_parts(compared, label, version) for version in ("NFSv3", "NFSv4.1"))
        yield near(f"the wire's part of a {label}, server quick", 2 * WIRE_DELAY, network(quick))
        yield near(f"the wire's part of a {label}, server late", 2 * WIRE_DELAY, network(late))
        added = (late["server_mean_ns"] - quick["server_mean_ns"]) / 1e9
        yield near(f"the server's part of a {label} grows", sends * SERVER_DELAY, added)
    slow = [one for one in records(outcome, "diagnose", "--fail-on", "never") if one["kind"] == "server-time"]
    yield Check("the diagnosis names the server's time", slow[0]["text"] if slow else "no", bool(slow))
    yield from client_counters(outcome)
    yield from unanswered(outcome)
    yield from wireshark(outcome)


def mean_parts(compared: list[Record], name: str, version: str) -> Record:
    """The phases of the procedure or COMPOUND that reads, or writes, of a version of NFS."""
    rows = [one for one in compared if one["type"] == "points_procedure" and one["procedure"].startswith(version)]
    return next(dict(one["phases"]) for one in rows if name in one["procedure"].split())


def network(phases: Record) -> float:
    """Seconds of the call's way and the reply's."""
    return float(phases["there_mean_ns"] + phases["back_mean_ns"]) / 1e9


def near(what: str, expected: float, found: float) -> Check:
    words = f"{what}: {expected * 1000:.0f} ms, and at most {NOISE * 1000:.0f} ms more or less"
    return Check(words, f"{found * 1000:.1f} ms", abs(found - expected) <= NOISE)
