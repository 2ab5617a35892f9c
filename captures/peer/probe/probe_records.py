"""What a probe found, for other programs: JSON objects and JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from rdmascope.dissect.layers.characteristics_codes import characteristic_name
from rdmascope.dissect.onc.rpc_header import program_name
from rdmascope.dissect.records.schema import Record, record

from ..verbs.interface import PeerAddress
from .checks import SuiteResult, VerdictKind
from .ping import Echoed, PingResult, Program, Reached, Round, VersionTwoProbe, times
from .serve import ServerEvent


def finding(one: PingResult, target: PeerAddress) -> Record:
    match one:
        case Reached():
            data = one.announced
            return record(
                "probe",
                target=str(target),
                device=one.device,
                local=one.local or None,
                connect_ns=one.connect_time,
                private_data=one.private_data.hex(),
                announced=data
                and {
                    "send_size": data.send_size,
                    "receive_size": data.receive_size,
                    "remote_invalidation": data.remote_invalidation,
                },
                threshold_to_server=one.to_server,
                threshold_to_client=one.to_client,
                reads_served=one.depths.served,
                reads_issued=one.depths.issued,
                credits_requested=one.requested,
                credits_granted=one.granted,
                problem=one.problem or None,
            )
        case Round():
            return record(
                "probe_round", target=str(target), number=one.number, time_ns=one.time, problem=one.problem or None
            )
        case Echoed():
            return record(
                "probe_echo",
                target=str(target),
                number=one.number,
                size=one.size,
                there_and_back_ns=one.there_and_back,
                read_ns=one.read,
                problem=one.problem or None,
            )
        case VersionTwoProbe():
            return record(
                "probe_version",
                target=str(target),
                settled=one.version,
                supported=one.supported and list(one.supported),
                extended=one.extended,
                characteristics={
                    characteristic_name(which): value.hex() if isinstance(value, bytes) else value
                    for which, value in one.characteristics.items()
                },
                problem=one.problem or None,
            )
        case Program():
            return record(
                "probe_program",
                target=str(target),
                program=program_name(one.number),
                program_number=one.number,
                versions=list(one.versions),
                low=one.low,
                high=one.high,
                status=one.status,
            )


def summary(rounds: Sequence[Round], target: PeerAddress) -> Record:
    found = times(rounds)
    return record(
        "probe_summary",
        target=str(target),
        calls=len(rounds),
        replies=sum(ping.time is not None for ping in rounds),
        min_ns=found and found.minimum,
        median_ns=found and found.median,
        p99_ns=found and found.p99,
        max_ns=found and found.maximum,
    )


def result(one: SuiteResult, target: PeerAddress) -> Record:
    rule = one.check.cited()
    return record(
        "probe_check",
        target=str(target),
        check=one.check.name,
        fault=one.check.fault,
        rule=one.check.rule,
        level=rule.level.value,
        document=rule.document,
        section=rule.section,
        sends=one.check.sends,
        verdict=one.verdict.kind.value,
        observed=one.verdict.observed,
        broken_rule=one.rule.id if one.failed else None,
        time_ns=one.time,
    )


def suite(results: Sequence[SuiteResult], target: PeerAddress) -> Record:
    counts = {kind.value: sum(result.verdict.kind is kind for result in results) for kind in VerdictKind}
    return record("probe_suite", target=str(target), checks=len(results), verdicts=counts)


def junit(results: Sequence[SuiteResult], target: PeerAddress) -> str:
    """One test suite, a test case for each check."""
    root = ElementTree.Element("testsuites", name="rdmascope probe")
    cases = ElementTree.SubElement(
        root,
        "testsuite",
        name=f"{target}: conformance",
        tests=str(len(results)),
        failures=str(sum(result.failed for result in results)),
        skipped=str(sum(result.verdict.kind is VerdictKind.SKIPPED for result in results)),
    )
    for result in results:
        case = ElementTree.SubElement(
            cases, "testcase", classname=result.rule.id, name=result.check.name, time=f"{result.time / 1e9:.3f}"
        )
        if result.failed:
            element = ElementTree.SubElement(
                case, "failure", type=result.verdict.kind.value, message=result.verdict.observed
            )
            rule = result.rule
            element.text = f"{result.check.sends}\n{rule.id}: {rule.title} ({rule.document}, {rule.section})"
        elif result.verdict.kind is VerdictKind.SKIPPED:
            ElementTree.SubElement(case, "skipped", message=result.verdict.observed)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def listening(places: Sequence[str], highest: int, fault: str | None, capacity: int, mount_port: int | None) -> Record:
    return record(
        "probe_server",
        places=list(places),
        highest_version=highest,
        fault=fault,
        capacity=capacity,
        mount_port=mount_port,
    )


def happened(one: ServerEvent) -> Record:
    return record("probe_client", client=one.client, what=one.what, text=one.text)


def served(connections: int, calls: int, committed: int) -> Record:
    return record("probe_served", connections=connections, calls=calls, committed=committed)
