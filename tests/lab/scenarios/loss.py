"""Both ends lose some of what they send: files, and what was retransmitted, against the receivers' counters."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, checksums, equal, records
from ..guests import Outcome
from ..losses import received

DEADLINE = 400  # a connection that breaks is made again only after a minute or two


def judge(outcome: Outcome) -> Iterator[Check]:
    yield from checksums(outcome)
    health = records(outcome, "transport")
    dropped = outcome.facts["counter", "client", "dropped"], outcome.facts["counter", "server", "dropped"]
    states = {rpc["state"] for rpc in records(outcome, "rpcs")}
    yield Check("netem drops frames of both", " and ".join(dropped), min(map(int, dropped)) > 0)
    for role, sender, side in (("client", "server", "passive"), ("server", "client", "active")):
        unit = "packets" if outcome.transport == "rxe" else "segments"
        twice = sum(one[side]["original_captured"][unit] for one in health)
        once = sum(one[side]["original_missing"][unit] for one in health)
        if outcome.transport == "rxe":
            counters = {name: int(value) for name, value in outcome.those("counter", role).items()}
            seen = received(outcome, role)
            naks = sum(one[side]["sequence_naks"] for one in health)
            packets = counters["rcvd_pkts"]
            if "no reply" in states:
                # A connection broke, and rxe counts no packet for a queue pair that is gone.
                words = f"packets that the {role}'s rxe received: {packets}, and those for a queue pair that was gone"
                yield Check(words, str(seen.packets), packets <= seen.packets)
            else:
                yield equal(f"packets that the {role}'s rxe received", packets, seen.packets)
            yield equal(
                "duplicate requests that it counted, in tshark's list", counters["duplicate_request"], seen.duplicates
            )
            yield equal(f"retransmitted by the {sender}, in tshark's list", seen.retransmitted, twice)
            yield equal(f"NAKs of the {sender} for a gap, in tshark's list", seen.naks, naks)
        else:
            sent = int(outcome.facts["counter", sender, "TcpRetransSegs"])
            lost = int(outcome.facts["counter", sender, "dropped"])
            # What netem dropped never reached the wire, and it may have been the second one, too.
            found = twice + once
            yield Check(
                f"of {sent} segments that the {sender}'s TCP retransmitted, all but at most {lost}",
                str(found), sent - lost <= found <= sent,
            )  # fmt: skip
    yield Check(
        "RPCs whole, or without a reply", ", ".join(sorted(states)), states <= {"complete", "error", "no reply"}
    )
