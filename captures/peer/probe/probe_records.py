"""What a probe found, for other programs: JSON objects and JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from rdmascope.dissect.layers.characteristics_codes import characteristic_name
from rdmascope.dissect.onc.rpc_header import program_name
from rdmascope.dissect.records.schema import Record, record

from ..verbs.interface import PeerAddress
from .checks import SuiteResult, VerdictKind
from .serve import Echoed, PingResult, Program, Reached, Round, ServerEvent, VersionTwoProbe, times


def finding(result: PingResult, target: PeerAddress) -> Record:
    match result:
        case Reached():
            data = result.announced
            return record(
                "probe",
                target=str(target),
                device=result.device,
                local=result.local or None,
                connect_ns=result.connect_time,
                private_data=result.private_data.hex(),
                announced=data
                and {
                    "send_size": data.send_size,
                    "receive_size": data.receive_size,
                    "remote_invalidation": data.remote_invalidation,
                },
                threshold_to_server=result.to_server,
                threshold_to_client=result.to_client,
                reads_served=result.depths.served,
                reads_issued=result.depths.issued,
                credits_requested=result.requested,
                credits_granted=result.granted,
                problem=result.problem or None,
            )
        case Round():
            return record(
                "probe_round",
                target=str(target),
                number=result.number,
                time_ns=result.time,
                problem=result.problem or None,
            )
        case Echoed():
            return record(
                "probe_echo",
                target=str(target),
                number=result.number,
                size=result.size,
                there_and_back_ns=result.there_and_back,
                read_ns=result.read,
                problem=result.problem or None,
            )
        case VersionTwoProbe():
            return record(
                "probe_version",
                target=str(target),
                settled=result.version,
                supported=result.supported and list(result.supported),
                extended=result.extended,
                characteristics={
                    characteristic_name(which): value.hex() if isinstance(value, bytes) else value
                    for which, value in result.characteristics.items()
                },
                problem=result.problem or None,
            )
        case Program():
            return record(
                "probe_program",
                target=str(target),
                program=program_name(result.number),
                program_number=result.number,
                versions=list(result.versions),
                low=result.low,
                high=result.high,
                status=result.status,
            )


def summary(rounds: Sequence[Round], target: PeerAddress) -> Record:
    spread = times(rounds)
    return record(
        "probe_summary",
        target=str(target),
        calls=len(rounds),
        replies=sum(ping.time is not None for ping in rounds),
        min_ns=spread and spread.minimum,
        median_ns=spread and spread.median,
        p99_ns=spread and spread.p99,
        max_ns=spread and spread.maximum,
    )


def result(result: SuiteResult, target: PeerAddress) -> Record:
    rule = result.check.cited()
    return record(
        "probe_check",
        target=str(target),
        check=result.check.name,
        fault=result.check.fault,
        rule=result.check.rule,
        level=rule.level.value,
        document=rule.document,
        section=rule.section,
        sends=result.check.sends,
        verdict=result.verdict.kind.value,
        observed=result.verdict.observed,
        broken_rule=result.rule.id if result.failed else None,
        time_ns=result.time,
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


def happened(event: ServerEvent) -> Record:
    return record("probe_client", client=event.client, what=event.what, text=event.text)


def served(connections: int, calls: int, committed: int) -> Record:
    return record("probe_served", connections=connections, calls=calls, committed=committed)
