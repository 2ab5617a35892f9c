"""The conformance suite: a proper server passes, an improper one is found out."""

from __future__ import annotations

import io
from pathlib import Path
from struct import pack
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from rich.console import Console

from playbook.fabric import Fabric, MemoryLink, MemoryVerbs
from playbook.hosts import SECOND, TARGET, hosts, save
from rdmascope.captures.peer import rpc
from rdmascope.captures.peer.endpoint import EndpointSettings, Parts, Role, RpcRdmaEndpoint
from rdmascope.captures.peer.endpoint.endpoint import Fault
from rdmascope.captures.peer.endpoint.nouns import PlannedSend
from rdmascope.captures.peer.faults import FAULTS
from rdmascope.captures.peer.nfs_server.export import Export
from rdmascope.captures.peer.probe import probe_records
from rdmascope.captures.peer.probe.checks import CHECKS, SuiteResult, VerdictKind, chosen, run
from rdmascope.captures.peer.probe.serve import Server, ServerEvent, terms_of
from rdmascope.captures.peer.verbs.interface import (
    SEND_BUFFERS,
    SEND_SIZE,
    ConnectionParameters,
    Event,
    MessageReceived,
    PeerAddress,
    VerbsError,
)
from rdmascope.cli.main import main
from rdmascope.cli.views import probe as views
from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.layers.oncrpc import ONCRPC, ONCRPCReply
from rdmascope.dissect.layers.oncrpc_codes import GARBAGE_ARGS, PROG_MISMATCH, PROG_UNAVAIL
from rdmascope.dissect.layers.rpcrdma_codes import ERR_CHUNK, ERR_VERS, RDMA_ERROR, RDMA_MSG
from rdmascope.dissect.rpcrdma.messages import WriteChunk

TIMEOUT = 2 * SECOND
FILE = "/pattern"
"""There on every server of ours."""
NO_MEMORY = ["read-handle", "write-handle"]
"""End the connection before anything can be answered."""
ANSWERED_FAULTS = [name for name, check in CHECKS.items() if check.fault and name not in (*NO_MEMORY, "afterwards")]


def verdict(client: MemoryVerbs, name: str, path: str = FILE) -> SuiteResult:
    (result,) = run(client, TARGET, TIMEOUT, [CHECKS[name]], path)
    return result


@pytest.mark.parametrize(
    "iwarp, version, size", [(False, 1, 1024), (False, 2, 4096), (False, 1, 16384), (True, 2, 4096)]
)
def test_a_proper_server_passes_every_check(iwarp: bool, version: int, size: int) -> None:
    settings = EndpointSettings(version=version, remote_invalidation=True, send_size=size, receive_size=size)
    client, server = hosts(settings, iwarp=iwarp)
    results = list(run(client, TARGET, TIMEOUT, chosen(with_faults=True), FILE))
    assert [one.check.name for one in results] == list(CHECKS)
    unusual = {one.check.name: one.verdict for one in results if one.verdict.kind is not VerdictKind.PASS}
    expected = {"invalidation"} if iwarp else set()
    expected |= {"unknown-option", "unknown-characteristic"} if version == 1 else set()
    assert set(unusual) == expected, unusual
    assert all(one.kind is VerdictKind.SKIPPED for one in unusual.values())
    assert server.connections == len(CHECKS)


def test_without_leave_no_fault_is_sent(tmp_path: Path) -> None:
    client, _ = hosts()
    results = list(run(client, TARGET, TIMEOUT, chosen(with_faults=False), FILE))
    assert {one.check.name for one in results} == {name for name, check in CHECKS.items() if not check.fault}


def test_every_check_says_what_it_sends_and_cites_a_rule() -> None:
    rules = all_rules()
    for check in CHECKS.values():
        assert check.rule in rules, check.name
        assert check.sends.endswith("."), check.name


def server_fault(spoil: object) -> Fault:
    return Fault("", Role.SERVER, "", spoil)  # type: ignore[arg-type]


def _errors(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Every error says that the version is not known."""
    if plan.kind != "error":
        return False
    plan.header.error, plan.header.supported = ERR_VERS, (2, 3)
    return True


def _error_of_version_1(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.version = 1
    return plan.kind == "error"


def _mute(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Nothing goes out but errors, under another XID."""
    plan.header.xid ^= 1
    return True


def _refuse(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Every call draws an error."""
    plan.header.procedure, plan.header.error, plan.payload, plan.before = RDMA_ERROR, ERR_CHUNK, b"", []
    return plan.kind == "reply"


def _refuse_options(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.procedure, plan.header.error = RDMA_ERROR, ERR_CHUNK
    return plan.kind in ("option", "error")


def _three_versions(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A reply of a version that was not asked for."""
    plan.header.version = 1
    plan.header.direction = None
    return plan.kind == "reply"


def _write_nothing(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A Write chunk that comes back full, and is empty."""
    had = bool(plan.before)
    plan.before = []
    return had


def _half_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A Reply chunk that comes back with a segment missing."""
    if plan.header.reply is None:
        return False
    plan.header.reply = WriteChunk(plan.header.reply.segments[:-1])
    return True


def _write_lengths(*lengths: int) -> Fault:
    """A Write chunk that comes back with these lengths."""

    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
        if not plan.header.writes:
            return False
        pairs = zip(plan.header.writes[0].segments, lengths, strict=False)
        plan.header.writes = (WriteChunk(tuple(segment._replace(length=length) for segment, length in pairs)),)
        return True

    return server_fault(spoil)


@pytest.mark.parametrize(
    "name, fault, kind",
    [
        ("short-call", FAULTS["other-xid-inline"], VerdictKind.VIOLATION),
        ("short-call", FAULTS["read-list-in-reply"], VerdictKind.VIOLATION),
        ("short-call", FAULTS["reply-chunk-made-up"], VerdictKind.VIOLATION),
        ("short-call", server_fault(_mute), VerdictKind.NO_ANSWER),
        ("credit-grant", FAULTS["grant-nothing"], VerdictKind.VIOLATION),
        ("long-call", server_fault(_refuse), VerdictKind.VIOLATION),
        ("long-call-segments", server_fault(_refuse), VerdictKind.VIOLATION),
        ("reply-chunk-spare", server_fault(_half_chunk), VerdictKind.VIOLATION),
        ("reply-chunk-used", FAULTS["reply-chunk-ignored"], VerdictKind.VIOLATION),
        ("reply-chunk-used", FAULTS["payload-behind-nomsg"], VerdictKind.VIOLATION),
        ("reply-chunk-used", server_fault(_half_chunk), VerdictKind.VIOLATION),
        ("write-chunk-used", _write_lengths(1000, 2000, 1999), VerdictKind.VIOLATION),
        ("write-chunk-used", server_fault(_write_nothing), VerdictKind.VIOLATION),
        ("afterwards", server_fault(_mute), VerdictKind.NO_ANSWER),
        ("write-chunk-used", FAULTS["handle-zero"], VerdictKind.VIOLATION),
        ("write-chunk-segments", _write_lengths(0, 2000, 3000), VerdictKind.VIOLATION),
        ("write-chunk-segments", _write_lengths(1000, 2001, 1000), VerdictKind.VIOLATION),
        ("write-chunk-segments", _write_lengths(1000, 2000), VerdictKind.VIOLATION),
        ("read-chunk-segments", server_fault(_refuse), VerdictKind.VIOLATION),
        ("inline-threshold", server_fault(_refuse), VerdictKind.VIOLATION),
        ("credits", server_fault(_refuse), VerdictKind.VIOLATION),
        ("no-invalidation", FAULTS["invalidate-unasked"], VerdictKind.VIOLATION),
        ("invalidation", FAULTS["invalidate-other"], VerdictKind.LOST),
        ("version-2", FAULTS["other-xid-inline"], VerdictKind.VIOLATION),
        ("version-2", server_fault(_three_versions), VerdictKind.VIOLATION),
        ("unknown-option", server_fault(_refuse_options), VerdictKind.VIOLATION),
        ("unknown-characteristic", server_fault(_refuse_options), VerdictKind.VIOLATION),
        ("version-absurd", FAULTS["error-range"], VerdictKind.VIOLATION),
        ("version-absurd", FAULTS["version-as-header"], VerdictKind.VIOLATION),
        ("version-absurd", server_fault(_error_of_version_1), VerdictKind.VIOLATION),
        *[(name, server_fault(_errors), VerdictKind.VIOLATION) for name in ANSWERED_FAULTS],
        *[(name, server_fault(_mute), VerdictKind.NO_ANSWER) for name in ANSWERED_FAULTS],
    ],
)
def test_an_improper_server_is_found_out(name: str, fault: Fault, kind: VerdictKind) -> None:
    client, server = hosts(fault=fault)
    result = verdict(client, name)
    assert result.verdict.kind is kind, result.verdict
    if fault.rule and kind is VerdictKind.VIOLATION:
        assert result.rule.id == fault.rule
        said = probe_records.result(result, TARGET)
        assert (said["rule"], said["broken_rule"]) == (CHECKS[name].rule, fault.rule)
        case = ElementTree.fromstring(probe_records.junit([result], TARGET)).find(".//testcase")
        assert case is not None and case.get("classname") == fault.rule
        assert fault.rule in (case.findtext("failure") or "")
        for width in (80, 160):
            out = Console(width=width, record=True, file=io.StringIO())
            out.print(views.result_line(result, [CHECKS[name]], width), views.suite_summary([result], width))
            assert out.export_text().count(fault.rule) >= 1
    assert result.failed
    server.close()
    assert server.committed


def test_a_fault_is_committed_as_often_as_wanted() -> None:
    client, server = hosts(fault=FAULTS["grant-nothing"])
    server.times = 2
    kinds = [verdict(client, "credit-grant").verdict.kind for _ in range(3)]
    assert kinds == [VerdictKind.VIOLATION, VerdictKind.VIOLATION, VerdictKind.PASS]
    assert server.committed == 2


@pytest.mark.parametrize("name", NO_MEMORY)
def test_a_server_that_reaches_memory_which_does_not_exist(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryLink, "place", lambda self, segment: memoryview(bytearray(segment.length)))
    client, _ = hosts()
    assert verdict(client, name).verdict.kind is VerdictKind.VIOLATION


def test_a_server_that_ends_the_connection() -> None:
    client, server = hosts()
    server.program = lambda message: server.close() or ()  # type: ignore[func-returns-value]
    result = verdict(client, "short-call")
    assert result.verdict.kind is VerdictKind.LOST


def test_silence_gets_a_second_try() -> None:
    client, server = hosts()
    take, first = server.take, iter([True])

    def lossy(event: Event) -> list[ServerEvent]:
        return [] if isinstance(event, MessageReceived) and next(first, False) else take(event)

    server.take = lossy  # type: ignore[method-assign]
    result = verdict(client, "short-call")
    assert result.verdict.kind is VerdictKind.PASS
    assert result.verdict.observed.endswith("at the second try")
    assert server.connections == 2


def test_no_server() -> None:
    client, _ = hosts()
    with pytest.raises(VerbsError, match="refused"):
        list(run(client, PeerAddress(TARGET.host, 1), TIMEOUT, chosen(with_faults=False)))


def test_the_exchange_can_be_looked_at_with_the_other_commands(tmp_path: Path) -> None:
    client, _ = hosts()
    list(run(client, TARGET, TIMEOUT, [CHECKS[name] for name in ("short-call", "long-call", "reply-chunk-used")]))
    shown = CliRunner().invoke(main, ["rpcs", save(client, tmp_path / "suite.pcapng"), "--json"])
    lines = [line for line in shown.stdout.splitlines() if '"type":"rpc"' in line]
    assert len(lines) == 3
    assert all('"state":"complete"' in line for line in lines)


@pytest.mark.parametrize("refusal", [PROG_MISMATCH, GARBAGE_ARGS, PROG_UNAVAIL])
@pytest.mark.parametrize("name", ["write-chunk-used", "write-chunk-odd", "inline-write-odd", "write-chunk-segments"])
def test_a_server_that_does_not_perform_the_call_breaks_no_rule_of_chunks(name: str, refusal: int) -> None:
    client, server = hosts()
    head = {"low": 3, "high": 3} if refusal == PROG_MISMATCH else {}
    server.program = lambda message: (
        bytes(ONCRPC(xid=int.from_bytes(message[:4], "big")) / ONCRPCReply(accept_stat=refusal, **head)),
    )
    found = verdict(client, name, "").verdict
    if name == "write-chunk-segments":
        assert found.kind is VerdictKind.PASS
    elif (name, refusal) == ("inline-write-odd", GARBAGE_ARGS):
        assert found.kind is VerdictKind.VIOLATION  # the arguments were right
    else:
        assert found.kind is VerdictKind.SKIPPED, found


def _accept(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Instead of an RDMA_ERR_CHUNK a reply under the header's XID."""
    plan.header.procedure, plan.header.error = RDMA_MSG, None
    plan.payload = rpc.reply_head(plan.header.xid ^ 0x5A5A0000)
    return True


@pytest.mark.parametrize(
    "name, words",
    [
        ("half-written", "256 bytes returned, of which 128 were written"),
        ("segment-missing", "segments, of"),
        ("returned-too-long", "returns 512 bytes of a segment of 256"),
        ("pad-written", "pad bytes are written behind them"),
        ("count-too-low", "in the Write chunk, 4900 in the reply"),
    ],
)
def test_a_server_that_returns_chunks_wrongly_is_found_out(name: str, words: str) -> None:
    client, _ = hosts(fault=FAULTS[name])
    results = list(run(client, TARGET, TIMEOUT, chosen(with_faults=False), FILE))
    found = [one.verdict.observed for one in results if one.verdict.kind is VerdictKind.VIOLATION]
    assert any(words in one for one in found), found


def test_a_call_under_two_xids_is_the_fault_of_the_client_alone() -> None:
    client, _ = hosts(fault=server_fault(_accept))
    accepted = verdict(client, "xid-mismatch").verdict
    assert (accepted.kind, "accepted" in accepted.observed) == (VerdictKind.PASS, True)


def test_a_server_that_writes_pads_is_found() -> None:
    client, _ = hosts(fault=FAULTS["pad-written"])
    result = verdict(client, "write-chunk-odd")
    assert (result.verdict.kind, "pad bytes are written" in result.verdict.observed) == (VerdictKind.VIOLATION, True)


def _loses_its_place(message: bytes) -> Parts:
    """Takes inline WRITE data without their pad, so that the operation behind is an illegal one."""
    if message[12:24] != pack(">III", 100003, 4, 1) or len(message) < 120:
        return Export().answer(message)
    results = pack(">IIIIIIII", 24, 0, 38, 0, 5, 2, 0, 0) + pack(">II", 10044, 10044)
    return (rpc.reply_head(int.from_bytes(message[:4], "big")) + pack(">III", 10044, 0, 3) + results,)


def test_a_server_that_forgets_the_pad_of_inline_data_is_found() -> None:
    client, server = hosts()
    server.program = _loses_its_place
    result = verdict(client, "inline-write-odd", "")
    assert (result.verdict.kind, "status 10044" in result.verdict.observed) == (VerdictKind.VIOLATION, True)


def test_beyond_the_limit_clients_are_refused_and_that_is_said() -> None:
    fabric = Fabric()
    host = fabric.host("192.0.2.1")
    server = Server(host, EndpointSettings(), max_clients=2)
    said: list[ServerEvent] = []

    def step() -> bool:
        event = host.poll(host.now())
        if event is not None:
            said.extend(server.take(event))
        return event is not None

    host.idle = step
    server.listen(TARGET)
    clients = [fabric.host(f"192.0.2.{number}") for number in (2, 3, 4)]
    links = [client.connect(TARGET, ConnectionParameters(b"", 16, 4096), SECOND) for client in clients[:2]]
    with pytest.raises(VerbsError, match="takes no more connections"):
        clients[2].connect(TARGET, ConnectionParameters(b"", 16, 4096), SECOND)
    assert [(one.what, one.text) for one in said[2:]] == [("refused", "2 clients are connected, the most")]
    links[0].close()
    assert clients[2].connect(TARGET, ConnectionParameters(b"", 16, 4096), 5 * SECOND)


def test_an_idle_client_takes_little_memory_that_is_locked() -> None:
    asked = terms_of(RpcRdmaEndpoint(Role.SERVER, EndpointSettings()))
    assert asked.receives * asked.receive_size + SEND_BUFFERS * SEND_SIZE < 320 << 10
