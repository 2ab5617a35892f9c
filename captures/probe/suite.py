"""Runs the conformance suite: every check on a connection of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rdmascope.dissect.audit.rule import Rule, all_rules

from ..verbs.interface import PeerAddress, Verbs, VerbsError
from . import checks as checks
from . import faults as faults
from . import odd_lengths as odd_lengths
from .raw_connection import RawConnection
from .verdicts import CHECKS, Check, CheckVerdict, VerdictKind


@dataclass(frozen=True, slots=True)
class SuiteResult:
    check: Check
    verdict: CheckVerdict
    time: int
    """Nanoseconds, with connecting."""

    @property
    def rule(self) -> Rule:
        """That was broken; else the one that the check is for."""
        return all_rules()[self.verdict.rule or self.check.rule]

    @property
    def failed(self) -> bool:
        return self.verdict.kind not in (VerdictKind.PASS, VerdictKind.SKIPPED)


def chosen(with_faults: bool) -> list[Check]:
    return [one for one in CHECKS.values() if with_faults or not one.fault]


def run(
    devices: Verbs, target: PeerAddress, timeout: int, wanted: Iterable[Check], file: str = ""
) -> Iterator[SuiteResult]:
    """Verdicts as they come; raises VerbsError where not even the first connection comes about.

    ``timeout`` in nanoseconds bounds each wait; ``file`` is a path on the server that may be read.
    """
    for number, one in enumerate(wanted):
        started = devices.now()
        try:
            verdict = _judge(devices, target, timeout, one, file)
            if verdict.kind is VerdictKind.NO_ANSWER:
                verdict = _once_more(_judge(devices, target, timeout, one, file))
        except VerbsError as error:
            if not number:
                raise
            verdict = CheckVerdict(VerdictKind.LOST, f"no connection: {error}")
        yield SuiteResult(one, verdict, devices.now() - started)


def _judge(devices: Verbs, target: PeerAddress, timeout: int, one: Check, file: str) -> CheckVerdict:
    """One check on a connection of its own; raises VerbsError where that does not come about."""
    on = RawConnection(
        devices,
        target,
        timeout,
        remote_invalidation=one.remote_invalidation,
        receive_size=one.receive_size,
        file=file,
    )
    try:
        return one.run(on)
    except VerbsError as error:
        return CheckVerdict(VerdictKind.LOST, str(error))
    finally:
        on.close()


def _once_more(verdict: CheckVerdict) -> CheckVerdict:
    """What a second try found, which silence deserves: siw sometimes loses the first message of a connection."""
    if verdict.kind is VerdictKind.NO_ANSWER:
        return CheckVerdict(verdict.kind, f"{verdict.observed}, twice")
    return CheckVerdict(verdict.kind, f"{verdict.observed}, at the second try")
