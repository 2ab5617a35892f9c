"""The frames of chosen RPCs: all of theirs and none of others, whatever was retransmitted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from playbook import Capture, packets as p
from playbook.capture import write_pcap
from playbook.samples import MANIFEST, SAMPLES
from playbook.strategies import Conversation, conversations, faulty
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.extract.frames import ChosenFrames, chosen_frames
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition
from rdmascope.dissect.records.packet_columns import Packet

SET_UP = ("CM: ", "MPA Re", "[SYN", "[FIN")
"""What belongs to a connection and not to an RPC."""


def chosen(path: Path, *conditions: str) -> ChosenFrames:
    with closing(Condition(conditions)) as condition:
        return chosen_frames(lambda: Session(path), condition)


def packets(path: Path) -> list[Packet]:
    return [*Session(path).packets()]


@pytest.mark.parametrize("name", [name for name in MANIFEST if not name.startswith("v2")])
def test_those_of_all_rpcs_are_all_but_what_connects(name: str) -> None:
    """These captures hold nothing but RPCs; iWARP acknowledges the set-up, too."""
    path = SAMPLES / f"{name}.pcap.zst"
    found = chosen(path, "true")
    left = [one for one in packets(path) if one.frame not in found]
    acks = [one for one in left if "[ACK]" in one.info and "Len=0" in one.info]
    connections = sum("[SYN]" in one.info for one in left)
    assert [one.info for one in left if one not in acks and not any(words in one.info for words in SET_UP)] == []
    assert len(acks) <= 5 * connections


@pytest.mark.parametrize("name", ["loss-rxe", "loss-siw", "rxe-nfs-all"])
def test_the_packets_that_are_listed_with_an_rpc_are_among_its_frames(name: str) -> None:
    path = SAMPLES / f"{name}.pcap.zst"
    listed = packets(path)
    for number in (13, 21, 34):
        found = chosen(path, f"number = {number}")
        mine = [one.frame for one in listed if number in (one.rpc, *one.rpcs)]
        assert mine and found.rpcs == 1
        assert all(frame in found for frame in mine)


def test_what_was_retransmitted_and_what_acknowledges_it() -> None:
    """RPC 60: its first Read is requested again, and answered again."""
    found = chosen(SAMPLES / "loss-rxe.pcap.zst", "number = 60")
    for request, again in ((3422, 3554), (3538, 3621)):
        assert request in found and again in found
    assert 3373 in found and 3379 in found  # Its call, and the acknowledgement.
    assert 3987 in found and 4051 in found  # Its reply, and the acknowledgement.


def test_a_condition_that_nothing_passes() -> None:
    with pytest.raises(CaptureError, match="no RPC of 237 passes the filter: number > 1000"):
        chosen(SAMPLES / "rxe-nfs-all.pcap.zst", "number > 1000")


REPAIRED = ("nak", "timeout", "rnr", "response")


@settings(
    max_examples=25,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(faulty(REPAIRED, conversations(cm=st.just(True), strangers=False)), st.integers(0, 17))
def test_all_packets_of_an_rpc_and_no_others(conversation: Conversation, which: int) -> None:
    capture = Capture(conversation.wire, conversation.packets)
    with TemporaryDirectory() as folder:
        path = Path(folder, "conversation.pcap")
        write_pcap(capture.frames, path)
        rpcs = [rpc for rpc in Session(path).rpcs() if rpc.call is not None]
        rpc = rpcs[which % len(rpcs)]
        found = chosen(path, f"number = {rpc.number}")
        assert rpc.call is not None
        calls = {one.call_operation: one for one in conversation.wire.truth}
        true = calls[capture.operations(rpc.call.operation.first_frame)[0]]
        mine = {true.call_operation, true.reply_operation, *true.operations} - {0}
        wanted = _frames(conversation.packets, mine)
        others = _frames(conversation.packets, {*conversation.wire.operations} - mine)
        chosen_ones = set(found.numbers.tolist())
        assert wanted <= chosen_ones
        assert not others & chosen_ones
        beside = [conversation.packets[frame - 1] for frame in chosen_ones - wanted]
        assert all(one.opcode == p.ACKNOWLEDGE for one in beside)


def _frames(listed: Sequence[p.Packet], operations: set[int]) -> set[int]:
    return {frame for frame, packet in enumerate(listed, 1) if packet.operation in operations}
