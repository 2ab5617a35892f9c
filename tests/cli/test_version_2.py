"""RPC-over-RDMA version 2 on the screen and in JSON: what was agreed is reported in words, with its frames."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from playbook import Capture, Wire, faults, nfs3, nfs4, write_pcap
from playbook.capture import frame_batches
from playbook.rpcrdma import (
    announce,
    call,
    error,
    optional,
    refuse_option,
    reply,
    respond,
    update,
    wish,
)
from playbook.wire import Connection
from rdmascope.captures.session.find import StrayMessage, Strays
from rdmascope.cli.main import main
from rdmascope.cli.views.negotiation import story, version_story
from rdmascope.cli.views.rpc import header_tree
from rdmascope.dissect.records.connection import connection_record
from rdmascope.dissect.records.packet_info import transport_info
from rdmascope.dissect.records.rpc_lines import rpc_records
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import Conversation as Seen
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc

CLIENT, SERVER = 0, 1
SIZE, INVALIDATION, BACKWARD = 1, 2, 3


def run(*arguments: str, columns: int = 160) -> Result:
    return CliRunner(env={"COLUMNS": str(columns), "RDMASCOPE_TRACEBACK": "1"}).invoke(main, arguments)


def page(*arguments: str, columns: int = 160) -> str:
    """What is printed, its folded lines joined."""
    result = run(*arguments, columns=columns)
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def ping(talk: Connection) -> None:
    reply(call(talk, nfs3.null()), nfs3.null_reply())


def characteristics() -> Wire:
    """Frames 4 and 6 announce, 8 and 10 are an RPC, 12 asks, 14 answers, 16 updates, 18 is refused in 20."""
    wire = Wire(seed=1)
    wire.version = 2
    talk = wire.connect()
    announce(talk, CLIENT, (SIZE, 8192), (INVALIDATION, 1), (4294967041, b"hi"), nochange=[1], xid=0x100)
    announce(talk, SERVER, (SIZE, 16384), xid=0x200)
    ping(talk)
    wish(talk, CLIENT, (SIZE, 65536), (INVALIDATION, 1), (BACKWARD, 2), xid=0x101)
    respond(talk, SERVER, [2], [1], [0], xid=0x101)
    update(talk, SERVER, SIZE, 65536, clear=True, xid=0x201)
    talk.send(CLIENT, optional(0x300, 99, b"abc"))
    refuse_option(talk, SERVER, 0x300)
    rpc = call(talk, nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall()), backward=True)
    reply(rpc, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()))
    return wire


def fallback() -> Wire:
    """Refused and fallen back on one connection; refused on the next one, and asked again."""
    wire = Wire(seed=2)
    wire.version = 2
    talk = wire.connect()
    error(call(talk, nfs3.null(), xid=7), 1)
    talk.version = 1
    ping(talk)
    talk.disconnect()
    for _ in range(2):
        again = wire.connect("10.0.0.9", "10.0.0.1")
        error(call(again, nfs3.null(), xid=7), 1)
        again.disconnect()
    return wire


def stored(wire: Wire, path: Path) -> str:
    write_pcap(Capture(wire).frames, path)
    return str(path)


@pytest.fixture
def talked(tmp_path: Path) -> str:
    return stored(characteristics(), tmp_path / "characteristics.pcap")


@pytest.fixture
def fell_back(tmp_path: Path) -> str:
    return stored(fallback(), tmp_path / "fallback.pcap")


def test_the_report_shows_the_characteristics(talked: str) -> None:
    reported = page("report", talked)
    for words in (
        "requested version 2 in frame 4, answered in version 2 in frame 6",
        "inline threshold to the server: 1.00 KiB (until the version is settled),"
        " 16.0 KiB from frame 6 on (ROPT_INITXCH), 64.0 KiB from frame 16 on (ROPT_UPDXCH)",
        "inline threshold back: 1.00 KiB (until the version is settled), 8.00 KiB from frame 4 on (ROPT_INITXCH)",
        "client: Receive Buffer Size 8192, Requester Remote Invalidation true,"
        " experimental characteristic 4294967041 0x6869 (ROPT_INITXCH in frame 4);"
        " Backward Request Support BKREQSUP_INLINE (default of version 2)",
        "client expects no change of Requester Remote Invalidation (frame 4)",
        "Backward Request Support BKREQSUP_GENL (ROPT_RESPXCH in frame 14)",
        "in frame 12: done Backward Request Support, rejected Requester Remote Invalidation,"
        " Receive Buffer Size pending until frame 16 (frame 14)",
        "not supported by server option 99 (frame 20)",
    ):
        assert words in reported


def test_the_report_shows_how_a_requester_fell_back(fell_back: str) -> None:
    reported = page("report", fell_back)
    asked = (
        "requested version 2 in frame 4, refused by RDMA2_ERR_VERS 1..1 in frame 6, continued with version 1 in frame 8"
    )
    assert asked in reported
    assert reported.count("sent nothing more") == 2
    assert reported.count("requested version 2 although the server had refused it on connection 2") == 1


def test_version_1_is_reported_as_ever(tmp_path: Path) -> None:
    wire = Wire()
    ping(wire.connect())
    reported = page("report", stored(wire, tmp_path / "one.pcap"))
    assert "to the server" in reported and "asked version" not in reported


@pytest.mark.parametrize("columns", [80, 160])
def test_the_pages_fit(talked: str, columns: int) -> None:
    for command in (["report", talked], ["show", talked, "--frame", "12"], ["show", talked, "--rpc", "1"]):
        for line in run(*command, columns=columns).stdout.splitlines():
            assert len(line) <= columns


def test_an_option_in_full(talked: str) -> None:
    reported = run("show", talked, "--frame", "14").stdout
    assert "RDMA2_OPTIONAL" in reported and "ROPT_RESPXCH" in reported
    ending = " ".join(reported.split())
    assert (
        "done Backward Request Support; rejected Requester Remote Invalidation; pending Receive Buffer Size" in ending
    )
    assert "value BKREQSUP_GENL" in run("show", talked, "--frame", "12").stdout
    (frame,) = records("show", talked, "--frame", "4")
    (body,) = (layer for layer in frame["layers"] if layer["layer"] == "RDMA2_OPTIONAL")
    assert body["optinfo"][0]["start"][0][0]["value"] == 8192


def test_a_refused_option_in_full(talked: str) -> None:
    assert "RDMA2_ERR_INVAL_OPTION" in run("show", talked, "--frame", "20").stdout


def test_a_call_in_full(talked: str) -> None:
    reported = run("show", talked, "--rpc", "2").stdout
    assert "RPC-over-RDMA version 2" in reported and "rdma_direction 0 (CALL)" in reported
    assert "RDMA2_MSG" in reported and "backward call" in reported


def test_the_packets_are_listed_with_what_they_announce(talked: str) -> None:
    lines = {int(line.split()[0]): line for line in run("packets", talked, columns=300).stdout.splitlines()[1:]}
    assert "RDMA2_OPTIONAL xid=0x00000200 credits=32, ROPT_INITXCH: Receive Buffer Size 16384" in lines[6]
    assert "RDMA2_MSG" in lines[8] and "NFS" in lines[8]
    assert "done Backward Request Support" in lines[14]
    assert "option 99: 3 bytes 616263" in lines[18]
    assert "RDMA2_ERR_INVAL_OPTION" in lines[20]


def records(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


def connections(path: str) -> list[dict[str, Any]]:
    return [record for record in records("report", path) if record["type"] == "connection"]


def test_json_has_what_was_agreed(talked: str) -> None:
    (connection,) = connections(talked)
    agreed = connection["negotiation"]
    assert (agreed["version"], agreed["requested"]["frame"], agreed["answers"][0]["frame"]) == (2, 4, 6)
    assert [reported["by"] for reported in agreed["announcements"]] == [
        *["ROPT_INITXCH"] * 4,
        "ROPT_RESPXCH",
        "ROPT_UPDXCH",
    ]
    assert agreed["no_change"][0]["names"] == ["Requester Remote Invalidation"]
    (request,) = agreed["requests"]
    assert (request["done"], request["rejected"], request["pending"], request["still_pending"]) == ([2], [1], [0], [])
    assert agreed["unsupported_options"] == [{"frame": 20, "endpoint": 1, "option": "option 99"}]
    client, server = connection["active"], connection["passive"]
    assert [one["value"] for one in client["inline_thresholds"]] == [1024, 16384, 65536]
    assert (client["inline_threshold"], server["inline_threshold"]) == (65536, 8192)
    assert [(one["name"], one["value"], one["from"]) for one in server["characteristics"]] == [
        ("Receive Buffer Size", 65536, "ROPT_UPDXCH in frame 16"),
        ("Requester Remote Invalidation", False, "default of version 2"),
        ("Backward Request Support", 2, "ROPT_RESPXCH in frame 14"),
    ]


def test_json_has_the_refusals(fell_back: str) -> None:
    first = connections(fell_back)[0]["negotiation"]
    (refusal,) = first["refusals"]
    assert (refusal["refused_version"], refusal["lowest"], refusal["highest"], refusal["frame"]) == (2, 1, 1, 6)
    assert first["continued"]["version"] == 1 and first["version"] == 1


def test_rpcs_of_both_versions_in_one_file(fell_back: str) -> None:
    rpcs = records("rpcs", fell_back)
    assert [rpc["call_rdma_version"] for rpc in rpcs] == [2, 1, 2, 2]
    assert [rpc["call_rdma_direction"] for rpc in rpcs] == ["CALL", None, "CALL", "CALL"]
    assert [rpc["status"] for rpc in rpcs] == ["RDMA2_ERR_VERS", "OK", "RDMA2_ERR_VERS", "RDMA2_ERR_VERS"]


def test_credits_transport_and_export_take_it_as_version_1(talked: str, tmp_path: Path) -> None:
    assert page("transport", "--credits", talked).count("requested 32") == 2
    assert "connection 1" in page("transport", talked).lower()
    assert run("export", talked, "-o", str(tmp_path / "out.pcapng")).exit_code == 0
    assert (tmp_path / "out.pcapng").stat().st_size > 500


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_wireshark_is_not_trusted_about_version_2(talked: str) -> None:
    reported = page("verify", talked)
    assert "they agree" in reported and "RPC-over-RDMA version 2, which Wireshark does not know" in reported


def test_a_start_in_the_middle_is_reported_as_one() -> None:
    wire = characteristics()
    frames = Capture(wire, wire.packets[9:]).frames
    analyzer = Analyzer()
    for batch in frame_batches(frames, ()):
        analyzer.feed(batch)
    analyzer.finish()
    (seen,) = analyzer.conversations
    assert isinstance(seen, Seen)
    assert version_story(seen).startswith(
        "what was agreed before the capture began is unknown, answered in version 2 in frame 1"
    )
    assert seen.in_force(INVALIDATION, CLIENT).value is None


WORDS = st.sampled_from([0, 1, 2, 3, 4, 5, 77, 4294967040, 0x7FFFFFFF, 0xFFFFFFFF])


@given(st.lists(st.tuples(st.integers(0, 400), WORDS), min_size=1, max_size=6), st.booleans())
def test_hostile_words_never_raise_and_are_reported_in_bounds(changes: list[tuple[int, int]], cut: bool) -> None:
    """Any word of any Send, replaced by any other."""
    wire = characteristics()
    packets = list(wire.packets)
    sends = [at for at, packet in enumerate(packets) if packet.kind == "send"]
    for place, word in changes:
        at = sends[place % len(sends)]
        payload = packets[at].payload
        offset = 4 * (place // len(sends) % (len(payload) // 4))
        changed = payload[:offset] + word.to_bytes(4) + payload[offset + 4 :]
        packets[at] = replace(packets[at], payload=changed)
    analyzer = Analyzer()
    rpcs: list[Rpc] = []
    strays: dict[int, StrayMessage] = {}
    analyzer.listener = lambda conversation: Strays(conversation, strays)
    for batch in frame_batches(Capture(wire, faults.snap(packets, 100) if cut else packets).frames, ()):
        rpcs += analyzer.feed(batch)
    rpcs += analyzer.finish()
    for conversation in analyzer.conversations:
        for line in story(conversation, analyzer.conversations):
            assert len(line) < 5000
        json.dumps(connection_record(conversation))
    json.dumps(rpc_records(RpcTable(rpcs)))
    messages = [message for _, message in strays.values()]
    messages += [message for rpc in rpcs for message in (rpc.call, rpc.reply) if message is not None]
    for message in messages:
        assert len(transport_info(message.header)) < 5000
        header_tree(message)
