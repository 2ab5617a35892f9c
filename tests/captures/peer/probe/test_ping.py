"""Asking a server who it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner

from playbook.fabric import MemoryVerbs
from playbook.hosts import CLIENT, SECOND, TARGET, hosts, save
from rdmascope.captures.peer.endpoint import Answered, Call, Chunks, EndpointSettings, Failed, service
from rdmascope.captures.peer.faults import FAULTS
from rdmascope.captures.peer.probe.serve import (
    ECHO,
    Client,
    PingPlan,
    PingResult,
    Program,
    Reached,
    Round,
    ServerEvent,
    VersionTwoProbe,
    echo,
    ping,
)
from rdmascope.captures.peer.verbs.interface import ConnectRequested, Event, MessageReceived, PeerAddress, VerbsError
from rdmascope.cli.main import main
from rdmascope.dissect.layers.characteristics_codes import XCHAR_BRS, XCHAR_RBSIZ, XCHAR_REQREMINV
from rdmascope.dissect.onc.rpc_header import NFS, NFSACL

T = TypeVar("T")
BOTH = pytest.mark.parametrize("iwarp", [False, True], ids=["RoCEv2", "iWARP"])


def findings(client: MemoryVerbs, plan: PingPlan | None = None) -> list[PingResult]:
    return list(ping(client, TARGET, plan or PingPlan(count=2, timeout=2 * SECOND)))


def the(kind: type[T], found: list[PingResult]) -> T:
    (one,) = (each for each in found if isinstance(each, kind))
    return one


@BOTH
def test_a_server_of_both_versions(iwarp: bool) -> None:
    client, _ = hosts(
        EndpointSettings(version=2, credits=16, send_size=8192, receive_size=2048, receive_buffer=9000), iwarp=iwarp
    )
    found = findings(client, PingPlan(count=3, programs=(NFS, ECHO, NFSACL)))
    reached = the(Reached, found)
    assert (reached.local, reached.to_server, reached.to_client) == (CLIENT, 2048, 4096)
    assert (reached.requested, reached.granted, reached.problem) == (32, 16, "")
    assert reached.announced is not None and reached.announced.send_size == 8192
    assert [one.number for one in found if isinstance(one, Round) and one.time] == [1, 2, 3]
    spoken = the(VersionTwoProbe, found)
    assert (spoken.version, spoken.supported, spoken.extended) == (2, None, True)
    assert spoken.characteristics == {XCHAR_RBSIZ: 9000, XCHAR_REQREMINV: False, XCHAR_BRS: 1}
    assert [one for one in found if isinstance(one, Program)] == [
        Program(NFS, (3, 4), 3, 4, "answers"),
        Program(ECHO, (1,), 1, 1, "answers"),
        Program(NFSACL, (), None, None, "not there"),
    ]


def test_a_server_of_version_1() -> None:
    client, _ = hosts(EndpointSettings(version=1))
    spoken = the(VersionTwoProbe, findings(client))
    assert (spoken.version, spoken.supported, spoken.extended) == (1, (1, 1), False)


def test_a_server_without_private_data() -> None:
    client, _ = hosts(EndpointSettings(announce=False))
    reached = the(Reached, findings(client))
    assert (reached.announced, reached.to_server, reached.to_client) == (None, 1024, 1024)


def test_rounds_keep_their_interval() -> None:
    client, _ = hosts()
    began = client.now()
    findings(client, PingPlan(count=4, interval=SECOND))
    assert 3 * SECOND < client.now() - began < 4 * SECOND


def test_a_call_without_an_answer_is_counted_and_the_rest_goes_on() -> None:
    client, server = hosts()
    take, calls = server.take, iter(range(100))

    def lossy(event: Event) -> list[ServerEvent]:
        return [] if isinstance(event, MessageReceived) and next(calls) == 2 else take(event)

    server.take = lossy  # type: ignore[method-assign]
    found = findings(client, PingPlan(count=4, timeout=SECOND // 2))
    assert [one.problem for one in found if isinstance(one, Round)] == ["", "no answer", "", ""]
    assert the(Program, found).status == "answers"


def test_a_server_that_goes_away_is_tried_again_in_every_round() -> None:
    client, server = hosts()
    take, rounds = server.take, iter(range(100))

    def ending(event: Event) -> list[ServerEvent]:
        if isinstance(event, ConnectRequested) and server.connections:
            event.request.reject()
            return []
        return [] if isinstance(event, MessageReceived) and next(rounds) >= 2 else take(event)

    server.take = ending  # type: ignore[method-assign]
    began = client.now()
    found = findings(client, PingPlan(count=4, timeout=SECOND // 2, interval=SECOND))
    assert [one.time is None for one in found if isinstance(one, Round)] == [False, True, True, True]
    assert client.now() - began > 3 * SECOND
    assert "refused" in the(Program, found).status
    assert the(VersionTwoProbe, found).version is None


def test_a_server_that_does_not_answer() -> None:
    client, server = hosts()
    server.take = lambda event: []  # type: ignore[method-assign]
    with pytest.raises(VerbsError, match=r"192\.0\.2\.1:20049: refused"):
        findings(client)
    server.take = type(server).take.__get__(server)  # type: ignore[method-assign]
    server.program = lambda message: ()
    found = findings(client)
    assert the(Reached, found).problem
    assert all(one.time is None for one in found if isinstance(one, Round))


def test_no_server() -> None:
    client, _ = hosts()
    began = client.now()
    with pytest.raises(VerbsError, match="no answer in time"):
        list(ping(client, PeerAddress("192.0.2.77", 20049), PingPlan(timeout=SECOND)))
    assert client.now() - began == SECOND


@BOTH
def test_the_exchange_is_clean(iwarp: bool, tmp_path: Path) -> None:
    client, _ = hosts(iwarp=iwarp)
    findings(client)
    audit = CliRunner().invoke(main, ["audit", save(client, tmp_path / "ping.pcapng")])
    broken = set(re.findall("(?:V1|V2|XC|PD)-[A-Z-]+", audit.stdout))
    assert (audit.exit_code, broken) == (0, {"V1-NO-BINDING"}), audit.stdout  # the version that asks for the range


@BOTH
@pytest.mark.parametrize("version", [1, 2])
def test_bulk_data_both_ways(iwarp: bool, version: int, tmp_path: Path) -> None:
    client, _ = hosts(iwarp=iwarp)
    one = Client(client, TARGET, EndpointSettings(version=version, remote_invalidation=True), client.now() + SECOND)
    data = service.pattern(3, 100_001)
    answer = one.call(
        Call(echo(7, data), chunks=Chunks(read=True, reply=True, segments=3), largest_reply=110_000), SECOND << 32
    )
    assert isinstance(answer, Answered)
    assert data in answer.message
    wrote = one.call(Call(service.write(8, 0, data)), SECOND << 32)
    read = one.call(Call(service.read(9, 5, 50_000), results=(50_000,)), SECOND << 32)
    assert isinstance(wrote, Answered) and isinstance(read, Answered)
    assert read.results == (data[5:50_005],)
    assert one.endpoint.version == version
    one.close()
    audit = CliRunner().invoke(main, ["audit", save(client, tmp_path / "bulk.pcapng")])
    assert audit.exit_code == 0, audit.stdout


def test_several_clients_at_once() -> None:
    client, server = hosts()
    every = [client, client.fabric.host("192.0.2.3"), client.fabric.host("192.0.2.4")]
    some = [Client(host, TARGET, EndpointSettings(version=2), client.now() + SECOND) for host in every]
    answers = [one.call(Call(service.null(40 + number)), SECOND << 32) for number, one in enumerate(some)]
    assert all(isinstance(answer, Answered) for answer in answers)
    some[1].close()
    again = some[2].call(Call(service.null(50)), SECOND << 32)
    assert isinstance(again, Answered)
    server.close()
    lost = some[0].call(Call(service.null(51)), SECOND << 32)
    assert isinstance(lost, Failed)
    assert server.calls == 4


def test_a_server_that_misbehaves_on_purpose(tmp_path: Path) -> None:
    client, server = hosts(fault=FAULTS["grant-nothing"])
    findings(client)
    server.close()
    assert server.committed == server.connections
    audit = CliRunner().invoke(main, ["audit", save(client, tmp_path / "fault.pcapng")])
    assert (audit.exit_code, "V1-CREDIT-ZERO" in audit.stdout) == (1, True)


def test_a_client_that_wants_too_much_fetched() -> None:
    client, _ = hosts()
    one = Client(client, TARGET, EndpointSettings(), client.now() + SECOND)
    head = bytes.fromhex("00000007 00000001 00000020 00000001 00000001 00000000 0000abcd ffffffff 0000000000000000")
    one.link.send(head + bytes(12))
    one.idle(client.now() + SECOND)
    assert one.driver.lost
