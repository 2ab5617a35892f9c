"""The analyzer against iWARP conversations whose truth is known: right, or a clear word about what is missing."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from playbook import faults
from playbook.iwarp import IwarpCapture
from playbook.iwarp_strategies import FATAL, REPAIRED, IwarpConversation, iwarp_conversations, iwarp_faulty
from playbook.judge import analyze, judge, judge_whole

QUICK = settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a conversation says enough unshrunk, and at once
    suppress_health_check=list(HealthCheck),
)

CUTS = st.lists(st.integers(0, 1000), max_size=4)
MANAGED = iwarp_conversations(cm=st.just(True))


@QUICK
@given(MANAGED, CUTS)
def test_a_conversation_without_faults_comes_out_whole(conversation: IwarpConversation, cuts: list[int]) -> None:
    capture = conversation.capture
    findings = judge_whole(capture, analyze(capture, cuts))
    assert len(findings) == len(conversation.wire.truth)


@QUICK
@given(iwarp_faulty(REPAIRED, MANAGED), CUTS)
def test_what_the_endpoints_repaired_comes_out_whole(conversation: IwarpConversation, cuts: list[int]) -> None:
    capture = conversation.capture
    judge_whole(capture, analyze(capture, cuts))


@QUICK
@given(iwarp_faulty(FATAL, MANAGED), CUTS)
def test_what_was_lost_or_spoiled_is_never_made_up(conversation: IwarpConversation, cuts: list[int]) -> None:
    capture = conversation.capture
    judge(capture, analyze(capture, cuts))


@QUICK
@given(iwarp_faulty(), st.integers(0, 60), CUTS)
def test_a_late_start_and_everything_else_is_never_wrong(
    conversation: IwarpConversation, count: int, cuts: list[int]
) -> None:
    capture = IwarpCapture(conversation.wire, faults.cut(conversation.segments, count))
    judge(capture, analyze(capture, cuts))


@QUICK
@given(iwarp_faulty(), st.sampled_from([64, 80, 96, 128, 160, 256, 600]), CUTS)
def test_cut_frames_are_never_wrong(conversation: IwarpConversation, snaplen: int, cuts: list[int]) -> None:
    capture = IwarpCapture(conversation.wire, faults.snap(conversation.segments, snaplen))
    judge(capture, analyze(capture, cuts))
