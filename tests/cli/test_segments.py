"""The commands that show iWARP: one line per segment, the ladder, one frame; on the recorded samples."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from playbook import call, faults, nfs3, reply, shapes, write_pcap
from playbook.capture import frame_batch
from playbook.iwarp import IwarpCapture, IwarpConnection, IwarpWire
from playbook.iwarp_strategies import IwarpConversation, iwarp_faulty
from playbook.segments import Talk, send
from rdmascope.cli.main import main
from rdmascope.cli.views.rpc import layer_trees
from rdmascope.dissect.records.frame_layers import frame_fields
from rdmascope.dissect.records.packet_info import SegmentLines, segment_fields
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

from ..dissect.measure.test_files import FILE, lookup

SAMPLES = Path(__file__).parents[2] / "captures" / "samples"
EVERYTHING, LOSS = str(SAMPLES / "siw-nfs-all.pcap.zst"), str(SAMPLES / "loss-siw.pcap.zst")


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, list(arguments))


@cache
def records(path: str) -> list[dict[str, Any]]:
    result = run("packets", path, "--json")
    assert result.exit_code == 0, result.stderr
    return [one for one in map(json.loads, result.stdout.splitlines()) if one["transport"] == "iWARP"]


def test_every_segment_is_listed_with_all_its_bytes() -> None:
    found = records(EVERYTHING)
    assert len(found) == 4519
    for one in found:
        at = 0
        for part in one["segment"]["parts"]:
            assert part["offset"] == at
            at += part["length"]
            assert part["what"] in ("mpa", "fpdu")
        assert at == one["payload_length"]


def test_every_rpc_is_seen_where_it_was_sent() -> None:
    found = records(EVERYTHING)
    first = [one for one in found if one["segment"]["mark"] != "retransmission" and one["protocol"][:3] == "NFS"]
    halves = [rpc for one in first for rpc in one["segment"]["rpcs"] if one["info"].count(f"RPC {rpc};")]
    listed = map(json.loads, run("rpcs", EVERYTHING, "--json").stdout.splitlines())
    over_rdma = [rpc["number"] for rpc in listed if rpc["rdma_version"] is not None]
    assert len(over_rdma) == 229 and sorted(halves) == sorted(over_rdma * 2)


def test_calls_without_a_reply_name_their_rpc_and_path(tmp_path: Path) -> None:
    wire = IwarpWire()
    connection = wire.connect()
    lookup(connection, FILE, b"name", nfs3.FH)
    call(connection, nfs3.read(0, 77))
    path = tmp_path / "unanswered.pcap"
    write_pcap(IwarpCapture(wire).frames, path)
    last = [one for one in records(str(path)) if one["protocol"] == "NFS"][-1]
    assert last["segment"]["rpcs"] == [2]
    assert last["info"].startswith("V3 READ Call, FH: 0x") and "/name Offset: 0 Len: 77; RPC 2;" in last["info"]


def test_what_moved_is_reported_by_the_rpc_that_it_is_of() -> None:
    moved = [part for one in records(EVERYTHING) for part in one["segment"]["parts"] if part.get("opcode") in (0, 1, 2)]
    assert len(moved) > 1000
    lines = run("packets", EVERYTHING).stdout.splitlines()
    reported = [line for line in lines if "Write STag" in line or "Read Re" in line]
    assert len(reported) > 1000 and all(" chunk" in line for line in reported)


def test_lines() -> None:
    lines = run("packets", EVERYTHING, "--frame", "43-118").stdout.splitlines()
    by_frame = {int(line.split()[0]): line for line in lines[1:]}
    assert [*by_frame] == list(range(43, 119))
    assert "TCP          74 42162 → 20049 [SYN] Seq=0 Win=62400 Len=0" in by_frame[43]
    assert "42162 → 20049 [ACK] Seq=877 Ack=885 Win=61952 Len=0" in by_frame[64]
    assert "MPA Request revision 2, IRD 128, ORD 0" in by_frame[46]
    assert "(RPC-over-RDMA: sends 4.00 KiB, receives 4.00 KiB, remote invalidation)" in by_frame[46]
    assert "NFS         274 V3 READDIRPLUS Call, FH: 0x62d40c52 /export (Reply In 78); RPC 14" in by_frame[74]
    assert "DDP/RDMA    210 Write STag=0x22c05301 TO=0x8f6dd55c8509e800 124 bytes; RPC 14 reply" in by_frame[75]
    assert "[retransmission] V3 READDIRPLUS Reply" in by_frame[79]
    assert "(the FPDU begins here: 4,112 of 4,144 bytes)" in by_frame[115]
    assert "(the FPDU continues here: 28 of 4,144 bytes)" in by_frame[116]
    assert "(the FPDU ends here: 4 of 4,144 bytes)" in by_frame[117]


def test_trees_of_several_fpdus_in_a_segment() -> None:
    page = run("packets", EVERYTHING, "--frame", "139", "-V").stdout.splitlines()
    assert [page.count(name) for name in ("FPDU", "DDP tagged", "DDP untagged", "RPC-over-RDMA")] == [2, 1, 1, 1]
    assert "└── crc 0x00000000 (no CRCs in use)" in page


@pytest.mark.parametrize("columns", [80, 160])
def test_the_ladder_has_segments_acknowledgements_and_the_edges_of_fpdus(columns: int) -> None:
    page = run("show", EVERYTHING, "--rpc", "21", "--full", columns=columns).stdout
    lines = {int(line.split()[0]): line for line in page.splitlines() if "│◀" in line or "▶│" in line}
    assert [*lines] == list(range(113, 141))
    assert "[Send 196 B, RDMA_MSG]" in lines[113]
    assert "[Write 4.02 KiB, STag 0x77f7ea01 …" in lines[115]
    assert "… Write 28 B, STag 0x77f7ea01 …" in lines[116]
    assert "… Write 4 B, STag 0x77f7ea01]" in lines[117]
    assert "TCP ACK" in lines[124]
    assert "[Write 8 B, STag 0x77f7ea01] | [Send 80 B" in lines[139]
    assert max(map(len, lines.values())) <= columns


def test_the_ladder_shows_what_was_requested_again() -> None:
    page = run("show", LOSS, "--rpc", "39").stdout
    assert "2 segments retransmitted" in page
    assert "duplicate ACK: TCP ACK" in page and "retransmission: [Read Response" in page


def test_a_frame_that_has_the_middle_of_an_fpdu() -> None:
    page = " ".join(run("show", EVERYTHING, "--frame", "116").stdout.split())
    assert "An FPDU continues here, 28 of 4,144 bytes; it is in frames 115 to 117: Write STag=0x77f7ea01" in page
    assert "It belongs to RPC 21 (NFSv3 READDIRPLUS" in page
    record = json.loads(run("show", EVERYTHING, "--frame", "116", "--json").stdout)
    part = record["layers"][-1]
    assert (part["layer"], part["before"], part["bytes"], part["after"]) == ("part", 4112, 28, 4)
    assert record["rpc"] == 21


def test_a_segment_with_the_messages_of_several_rpcs(tmp_path: Path) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(cutting="merged", acks="none")
    calls = [call(connection, nfs3.getattr_()) for _ in range(3)]
    for one in calls:
        reply(one, nfs3.getattr_reply())
    path = tmp_path / "merged.pcap"
    write_pcap(IwarpCapture(wire).frames, path)
    found = records(str(path))
    both = [one["frame"] for one in found if len(one["segment"]["rpcs"]) == 3]
    assert len(both) == 2
    for frame in both:
        assert "and to RPC 2, 3: " in " ".join(run("show", str(path), "--frame", str(frame)).stdout.split())
        assert json.loads(run("show", str(path), "--frame", str(frame), "--json").stdout)["rpcs"] == [1, 2, 3]


def test_the_ladder_of_merged_fpdus_has_no_segments_of_other_rpcs(tmp_path: Path) -> None:
    """A segment ends the reply to one call and begins what is of another, whose rest is in the next."""
    wire = IwarpWire(mss=400, seed=5)
    connection = wire.connect(cutting="merged", acks="none")
    calls = [call(connection, nfs3.getattr_()) for _ in range(8)]
    for one in calls:
        reply(one, nfs3.getattr_reply())
    path = tmp_path / "merged.pcap"
    write_pcap(IwarpCapture(wire).frames, path)
    of_rpc = {one["frame"] for one in records(str(path)) if 1 in one["segment"]["rpcs"]}
    page = run("show", str(path), "--rpc", "1").stdout
    drawn = {int(line.split()[0]) for line in page.splitlines() if "│◀" in line or "▶│" in line}
    assert drawn == of_rpc


def test_a_frame_that_came_again_belongs_to_what_it_repeats() -> None:
    page = " ".join(run("show", EVERYTHING, "--frame", "79").stdout.split())
    assert "TCP: retransmission FPDU" in page and "It belongs to RPC 14" in page


@pytest.mark.parametrize("command", ["transport", "report"])
def test_iwarp_has_no_icrc_no_psn_and_no_naks(command: str) -> None:
    for path in (EVERYTHING, LOSS):
        page = run(command, path).stdout
        for word in ("ICRC", "PSN", "NAK", "CNP"):
            assert word not in page
    page = run("transport", LOSS).stdout
    assert "cause            count  loss to dup ACK" in page
    assert "MPA CRC32C checked" in page


def test_markers_and_crcs_in_the_trees(tmp_path: Path) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(markers=(True, True))
    shapes.read(connection, bytes(range(256)) * 4)
    path = tmp_path / "markers.pcap"
    write_pcap(IwarpCapture(wire).frames, path)
    page = run("packets", str(path), "-V").stdout
    assert "marker in the FPDU, at byte " in page or "markers in the FPDU, at byte " in page
    assert "(good)" in page and "(wrong" not in page


def test_a_terminate_in_words(tmp_path: Path) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect()
    reply(call(connection, nfs3.null()), nfs3.null_reply())
    assert isinstance(connection, IwarpConnection)
    connection.terminate(1, 0, 1, 0)
    path = tmp_path / "terminate.pcap"
    write_pcap(IwarpCapture(wire).frames, path)
    lines = run("packets", str(path)).stdout.splitlines()
    assert any("Terminate MSN=1: RDMA, Remote Protection Error, Invalid STag" in line for line in lines)


def test_a_connection_that_began_before_the_capture(tmp_path: Path) -> None:
    talk = Talk(ports=(40000, 20049))
    for msn in range(1, 30):
        talk.say(0, send(msn, struct.pack(">7I", msn, 1, 32, 0, 0, 0, 0)))
        talk.say(1, send(msn, struct.pack(">7I", msn, 1, 32, 0, 0, 0, 0)))
    path = tmp_path / "middle.pcap"
    write_pcap(talk.frames(), path)
    lines = run("packets", str(path)).stdout.splitlines()[1:]
    assert len(lines) == 58 and all("RDMA_MSG xid=" in line for line in lines)


@settings(max_examples=25, suppress_health_check=list(HealthCheck), phases=(Phase.reuse, Phase.generate))
@given(iwarp_faulty(), st.integers(0, 40), st.sampled_from([0, 54, 66, 80, 100, 140, 600]))
def test_nothing_that_tcp_brings_breaks_the_listing(conversation: IwarpConversation, late: int, snaplen: int) -> None:
    """A late start, faults of every kind, cut frames: every segment has its line, its trees and its JSON."""
    segments = faults.cut(conversation.segments, late)
    if snaplen:
        segments = faults.snap(segments, snaplen)
    capture = IwarpCapture(conversation.wire, segments)
    analyzer = Analyzer()
    lines = SegmentLines(analyzer)
    analyzer.watch_fpdus(lines.listen)
    batch = frame_batch(capture.frames)
    lines.note((rpc, None) for rpc in analyzer.feed(batch))
    lines.note((rpc, None) for rpc in analyzer.finish())
    found = list(lines.lines(batch, 1, len(batch)))
    assert [one.frame for one, *_ in found] == sorted({one.frame for one, *_ in found})
    for segment, protocol, info, rpcs in found:
        assert protocol and info and "\n" not in info
        frame = batch.frame(segment.frame)
        json.dumps([segment_fields(segment, rpcs), frame_fields(frame.data, 1, False, segment)])
        assert layer_trees(frame, False, segment)
        assert sum(part.length for part in segment.parts) == segment.length


def test_what_is_rejected_is_said(tmp_path: Path) -> None:
    """Markers 20 bytes early and no CRC: nothing of that direction is decoded from there on."""
    talk = Talk(ports=(40000, 4210))
    talk.open()
    talk.greet(markers=(False, True))
    talk.sides[1].drift = -20
    for msn in range(1, 5):
        talk.say(1, send(msn, bytes(range(250))))
    path = tmp_path / "elsewhere.pcap"
    write_pcap(talk.frames(), path)
    lines = run("packets", str(path), columns=160).stdout.splitlines()
    assert "Send MSN=1" in lines[6]
    assert "FPDU with markers that point elsewhere" in lines[7]
    assert "FPDU rejected: no CRC, behind markers or headers that are wrong" in lines[8]
    parts = [json.loads(line)["segment"]["parts"] for line in run("packets", str(path), "--json").stdout.splitlines()]
    assert [one[0]["what"] for one in parts[5:8]] == ["fpdu", "wrong_markers", "rejected"]
    tree = run("packets", str(path), "--frame", "8", "-V").stdout
    assert "not decoded, since its bytes cannot be trusted" in tree and "DDP" not in tree.split("TCP\n")[1]
    assert "FPDUs rejected without a CRC" in run("transport", str(path)).stdout
    record = json.loads(run("transport", str(path), "--json").stdout.splitlines()[0])
    assert record["passive"]["mpa_marker_failures"] and record["passive"]["mpa_rejected_fpdus"]
