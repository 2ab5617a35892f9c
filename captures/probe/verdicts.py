"""What a check finds, and the table of checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rdmascope.dissect.audit.rule import Rule, all_rules
from rdmascope.dissect.layers.rpcrdma_codes import ERR_CHUNK, ERR_VERS, RDMA_ERROR, error_name, procedure_name

from .raw_connection import Answer, Outcome, RawConnection


class VerdictKind(Enum):
    """A verdict in a word."""

    PASS = "pass"
    VIOLATION = "violation"
    NO_ANSWER = "no answer"
    LOST = "connection lost"
    SKIPPED = "not applicable"


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    kind: VerdictKind
    observed: str
    rule: str = ""
    """The rule that was broken, where it is another than the check's."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something to send for which the specification defines an answer."""

    name: str
    rule: str
    """The rule of the audit that the answer is held against; it has the section."""
    sends: str
    """What is sent, and what has to come back."""
    run: Callable[[RawConnection], CheckVerdict]
    fault: bool = False
    """It sends what no requester may send."""
    remote_invalidation: bool = False
    """It needs a connection that allows remote invalidation."""
    receive_size: int = 4096

    def cited(self) -> Rule:
        return all_rules()[self.rule]


CHECKS: dict[str, Check] = {}
"""By name, in the order in which they are run."""

Function = Callable[[RawConnection], CheckVerdict]


def check(
    name: str,
    rule: str,
    *,
    fault: bool = False,
    remote_invalidation: bool = False,
    receive_size: int = 4096,
) -> Callable[[Function], Function]:
    """Enter the function into the table; its docstring says what is sent and what has to come back."""

    def enter(function: Function) -> Function:
        sends = " ".join((function.__doc__ or "").split())
        CHECKS[name] = Check(name, rule, sends, function, fault, remote_invalidation, receive_size)
        return function

    return enter


def passed(observed: str) -> CheckVerdict:
    return CheckVerdict(VerdictKind.PASS, observed)


def violation(observed: str, rule: str = "") -> CheckVerdict:
    """``rule``: that was broken, where it is not the one that the check is for."""
    return CheckVerdict(VerdictKind.VIOLATION, observed, rule)


def absent(answer: Answer) -> CheckVerdict | None:
    """The verdict on a message that drew no answer; None where there is one."""
    if answer.outcome is Outcome.SILENCE:
        return CheckVerdict(VerdictKind.NO_ANSWER, "no answer")
    if answer.outcome is Outcome.LOST:
        return CheckVerdict(VerdictKind.LOST, answer.reason)
    return None


def named(answer: Answer) -> str:
    """The answer in words: 'RDMA_ERROR, RDMA_ERR_VERS 1 to 1'."""
    header = answer.header
    if header is None:
        return "nothing"
    text = procedure_name(header.version, header.procedure)
    if header.procedure == RDMA_ERROR:
        text += ", " + error_name(header.version, header.error).partition(" (")[0]
        if header.supported:
            text += f" {header.supported[0]} to {header.supported[1]}"
    return text + (f" ({header.problem})" if header.problem else "")


def refusal(answer: Answer, xid: int, version: int, error: int = ERR_CHUNK) -> CheckVerdict:
    """The answer has to be an RDMA_ERROR for the message of that XID and version (RFC 8166, 4.5)."""
    if verdict := absent(answer):
        return verdict
    header = answer.header
    assert header is not None
    observed = named(answer)
    if header.procedure != RDMA_ERROR:
        return violation(f"{observed}: the message was accepted")
    if header.error != error:
        return violation(observed)
    if header.version != version:
        return violation(
            f"{observed} with version {header.version}, of a message of version {version}", "V1-ERROR-VERSION"
        )
    if answer.payload:
        return violation(f"{observed}, and {len(answer.payload)} bytes behind it", "V1-ERROR-PAYLOAD")
    if error == ERR_VERS:
        if header.supported is None:
            return violation(f"{observed} without a range", "V1-ERROR-RANGE")
        low, high = header.supported
        if low > high or low <= version <= high:
            return violation(observed, "V1-ERROR-RANGE")
    return passed(observed)
