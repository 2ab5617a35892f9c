"""Packets that were sent before are marked: as many as the connection's health counts."""

from __future__ import annotations

import pytest

from playbook.commands import objects, run
from playbook.samples import SAMPLES
from rdmascope.captures.session.find import find_frame
from rdmascope.captures.session.session import Session

LOSS = str(SAMPLES / "loss-rxe.pcap.zst")


def test_packets_mark_what_the_transport_counts() -> None:
    marked = [one for one in objects("packets", LOSS) if one["info"].startswith("[retransmission] ")]
    ends = ("active", "passive")
    counted = [one[end]["retransmitted_packets"] for one in objects("transport", LOSS) for end in ends]
    assert len(marked) == sum(counted) == 1017
    lines = run("packets", LOSS, "--frame", "429").stdout.splitlines()
    assert "[retransmission] V4.1 COMPOUND Call" in lines[-1]


@pytest.mark.parametrize(("frame", "rpc"), [(227, 17), (429, 22), (256, 22)], ids=["Read again", "Send again", "NAK"])
def test_a_frame_names_the_rpc_that_it_comes_again_for(frame: int, rpc: int) -> None:
    found = find_frame(Session(LOSS), frame)
    assert found is not None and [one.number for one in found.rpcs] == [rpc]
