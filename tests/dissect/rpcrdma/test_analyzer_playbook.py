"""The analyzer against conversations whose truth is known: right, or a clear word about what is missing."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, assume, given, settings, strategies as st

from playbook import Capture, faults
from playbook.judge import analyze, judge, judge_whole
from playbook.packets import Packet
from playbook.strategies import CAPTURE_FAULTS, WIRE_FAULTS, Conversation, conversations, faulty

QUICK = settings(
    max_examples=50,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a conversation says enough unshrunk, and at once
    suppress_health_check=list(HealthCheck),
)

CHECKABLE = tuple(kind for kind in WIRE_FAULTS + CAPTURE_FAULTS if kind != "corrupt")
"""A cut frame has lost its ICRC: whether its bytes were changed on the way is not known."""

CUTS = st.lists(st.integers(0, 1000), max_size=4)


@QUICK
@given(conversations(cm=st.just(True)), CUTS)
def test_a_conversation_without_faults_comes_out_whole(conversation: Conversation, cuts: list[int]) -> None:
    capture = conversation.capture
    findings = judge_whole(capture, analyze(capture, cuts))
    assert len(findings) == len(conversation.wire.truth)


@QUICK
@given(faulty(WIRE_FAULTS, conversations(cm=st.just(True))), CUTS)
def test_what_the_endpoints_repaired_comes_out_whole(conversation: Conversation, cuts: list[int]) -> None:
    capture = conversation.capture
    judge_whole(capture, analyze(capture, cuts))


@QUICK
@given(faulty(CAPTURE_FAULTS, conversations(cm=st.just(True))), CUTS)
def test_what_the_capture_lost_is_never_made_up(conversation: Conversation, cuts: list[int]) -> None:
    capture = conversation.capture
    judge(capture, analyze(capture, cuts))


def damage_shows(packets: list[Packet]) -> bool:
    """Whether each damaged packet follows a sound one of its host: only a host that had right ICRCs has wrong ones."""
    sound: set[str] = set()
    for packet in packets:
        if packet.corrupt and packet.source not in sound:
            return False
        sound.add(packet.source)
    return True


@QUICK
@given(faulty(conversation=conversations()), st.integers(0, 40), CUTS)
def test_a_late_start_and_everything_else_is_never_wrong(
    conversation: Conversation, count: int, cuts: list[int]
) -> None:
    capture = Capture(conversation.wire, faults.cut(conversation.packets, count))
    assume(damage_shows(capture.packets))
    judge(capture, analyze(capture, cuts))


@QUICK
@given(faulty(CHECKABLE, conversations()), st.sampled_from([64, 96, 128, 160, 256]), CUTS)
def test_truncated_frames_are_never_wrong(conversation: Conversation, snaplen: int, cuts: list[int]) -> None:
    capture = Capture(conversation.wire, faults.snap(conversation.packets, snaplen))
    judge(capture, analyze(capture, cuts))
