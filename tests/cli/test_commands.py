"""Every command on real traffic."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from playbook.commands import BOTH_WAYS, EVERYTHING, LONG_CALLS, LOSS, PROGRAM, objects, run, unpacked
from rdmascope.dissect.records.schema import schema


def names(record: dict[str, Any]) -> set[str]:
    return set(record)


# The names that scripts rely on.  A name may be added; one that goes away needs a new schema version.
NAMES = {
    "capture": "frames truncated_frames packets first_time_ns last_time_ns connections rpcrdma_connections"
    " refused_connections rpcs states duplicate_replies dropped_frames error diagnosis filter file",
    "connection": "number transport protocol protocol_name recognised_by service_port paired_by confidence evidence"
    " path_mtu active passive credits_requested credits_granted first_frame last_frame first_time_ns last_time_ns"
    " data_server ended_by negotiation rpcs backward_rpcs failed call_bytes reply_bytes file",
    "procedure": "direction program program_number version minor_version procedure procedure_number operations rpcs"
    " failed statuses states call_bytes reply_bytes latency unanswered parts file",
    "transfer": "way messages chunks segments advertised transferred unused_chunks file",
    "slowest": "rank number connection xid direction program program_number version minor_version procedure"
    " procedure_number operations state status call_frame reply_frame call_bytes reply_bytes"
    " retransmitted_packets latency waiting_ns file",
    "histogram": "low_ns high_ns rpcs file",
    "throughput": "seconds_each rpcs call_bytes reply_bytes file",
    "undecoded": "what reason count file",
    "rpc": "number connection direction xid time_ns end_time_ns client server program program_number version"
    " minor_version procedure procedure_number operations state status failed contents call_frame reply_frame"
    " latency_ns waiting_ns call_ns reads_ns server_ns writes_ns reply_ns call_bytes call_inline_bytes"
    " call_chunk_bytes reply_bytes reply_inline_bytes reply_chunk_bytes chunks read_chunks write_chunks"
    " reply_chunks read_segments write_segments reply_segments rdma_version call_rdma_procedure"
    " reply_rdma_procedure credits_requested credits_granted invalidated_handle retransmitted_packets"
    " retransmission_delay_ns path file_handle file_handle_hash file_name offset_bytes count_bytes eof"
    " stateid_seqid stateid_other slot sequence_id session client_id user uid gid machine_name linux_operation"
    " gss_version gss_procedure gss_sequence gss_service damage notes call_last_frame call_end_time_ns"
    " reply_first_frame reply_time_ns call_send_bytes reply_send_bytes call_header_bytes reply_header_bytes"
    " call_rdma_version reply_rdma_version call_rdma_procedure_number reply_rdma_procedure_number"
    " call_rdma_direction reply_rdma_direction call_option reply_option call_header_problem"
    " reply_header_problem call_invalidated_handle psn_reused call reply latency chunk_list",
    "transport": "number transport protocol path_mtu ended capture_point icrc_checked mpa_crc_checked active passive"
    " contradictions psn_errors retransmission_count retransmissions_by_cause loss_to_nak nak_to_retransmission"
    " loss_to_retransmission retransmissions inferred_losses delayed_rpcs file",
    "packet": "frame time_ns source destination length protocol info rpc opcode opcode_name dest_qp psn"
    " payload_length payload_captured transport segment",
    "export": "output messages incomplete skipped not_reconstructed packets",
    "extract": "output rpcs connections frames bytes left_out",
    "frame": "number time_ns captured original rpc rpcs layers",
}
ENDPOINT = (
    "address qpn start_psn private_data_seen private_data responder_resources initiator_depth inline_threshold"
    " inline_threshold_from inline_thresholds characteristics packets segments fpdus bytes retransmitted_packets"
    " retransmitted_segments retransmitted_bytes missing_packets missing_segments"
)
MESSAGE = (
    "first_frame last_frame first_time_ns last_time_ns rdma_version rdma_procedure direction option credits"
    " header_length inline_length send_length invalidate problem"
)
SEGMENT = "handle offset offset_hex advertised returned transferred operations late_operations"


def hold_names(records: Iterable[dict[str, Any]]) -> None:
    for record in records:
        kind = record["type"]
        assert record["schema"] == schema(kind)
        assert names(record) == {"schema", "type", *NAMES[kind].split()}, kind


class TestReport:
    def test_json_has_stable_names(self) -> None:
        records = objects("report", LONG_CALLS)
        hold_names(records)
        kinds = list(dict.fromkeys(record["type"] for record in records))
        assert kinds == [
            "capture",
            "connection",
            "transport",
            "procedure",
            "transfer",
            "slowest",
            "histogram",
            "throughput",
            "undecoded",
        ]
        connection = next(record for record in records if record["type"] == "connection")
        assert names(connection["active"]) == names(connection["passive"]) == set(ENDPOINT.split())
        procedure = next(record for record in records if record["type"] == "procedure")
        assert names(procedure["latency"]) == {
            "count",
            "min_ns",
            "median_ns",
            "p95_ns",
            "p99_ns",
            "max_ns",
            "total_ns",
            "exact_to_ns",
        }
        assert names(procedure["parts"]) == {"call", "reads", "server", "writes", "reply", "retransmission"}

    def test_the_sums_agree(self) -> None:
        records = objects("report", EVERYTHING)
        capture = records[0]
        assert capture["rpcs"] == 237
        for kind in ("procedure", "connection", "histogram"):
            assert sum(record["rpcs"] for record in records if record["type"] == kind) == 237
        (throughput,) = (record for record in records if record["type"] == "throughput")
        assert sum(throughput["rpcs"]) == 237
        procedures = [record for record in records if record["type"] == "procedure"]
        transfers = [record for record in records if record["type"] == "transfer"]
        for way in ("call", "reply"):
            assert sum(record[f"{way}_bytes"] for record in procedures) == sum(throughput[f"{way}_bytes"])
        moved = sum(record["call_bytes"] + record["reply_bytes"] for record in procedures)
        assert moved == sum(record["transferred"] for record in transfers)
        for record in procedures:
            parts = sum(part["total_ns"] for part in record["parts"].values())
            assert parts == pytest.approx(record["latency"]["total_ns"], rel=1e-6)

    def test_what_both_sides_agreed(self) -> None:
        connections = [record for record in objects("report", EVERYTHING) if record["type"] == "connection"]
        connection = next(one for one in connections if one["transport"] == "RoCEv2")
        assert connection["recognised_by"][:2] == ["service port", "private data"]
        assert connection["paired_by"] == "CM"
        assert connection["path_mtu"] == 4096
        assert connection["credits_requested"] == {"lowest": 128, "highest": 128}
        assert connection["credits_granted"] == {"lowest": 64, "highest": 64}
        assert connection["active"]["private_data"]["remote_invalidation"] is True
        assert connection["passive"]["private_data"]["remote_invalidation"] is False
        assert {connection[end]["inline_threshold"] for end in ("active", "passive")} == {4096}

    @pytest.mark.parametrize("columns", [80, 100, 160])
    def test_the_page_fits(self, columns: int) -> None:
        result = run("report", EVERYTHING, columns=columns)
        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        assert max(map(len, lines)) <= columns
        assert not [line for line in lines if line != line.rstrip()]
        for title in (
            "Connections",
            "Procedures",
            "How payloads travelled",
            "Latency",
            "Over time",
            "Slowest",
            "Transport",
        ):
            assert any(line.startswith(title) for line in lines), title
        assert any(line.startswith("237 RPCs on 4 RPC-over-RDMA connections and 7 TCP connections") for line in lines)
        assert "3 NFS3ERR_NOENT (LOOKUP)" in " ".join(result.stdout.split())

    def test_the_first_screen_has_the_answer(self) -> None:
        lines = run("report", LOSS, columns=80).stdout.splitlines()[:24]
        assert lines[0].startswith("WRITE GETATTR /big (RPC 23) hung 61.8 s")
        assert next(line for line in lines if "WRITE GETATTR  " in line).split()[2:5] == ["44", "6", "99.9%"]

    def test_what_is_wrong_comes_before_how_it_was_set_up(self) -> None:
        lines = run("report", LOSS).stdout.splitlines()
        titles = ("Diagnosis", "Procedures", "Slowest", "Connections", "Transport", "Not decoded")
        places = [next(at for at, line in enumerate(lines) if line.startswith(title)) for title in titles]
        assert places == sorted(places)

    def test_clients_are_listed_where_there_are_several(self) -> None:
        both = run("report", LOSS.replace("loss-rxe", "ipv6-rxe"), LOSS).stdout.splitlines()
        at = next(at for at, line in enumerate(both) if line.startswith("Clients"))
        assert [line.split()[0] for line in both[at + 2 : at + 4]] == ["10.77.0.2", "fd77::2"]
        assert both[at + 2].split()[4:6] == ["99.9%", ">6.44"]  # s; eight calls hang
        assert not any(line.startswith("Clients") for line in run("report", LOSS).stdout.splitlines())

    def test_a_filter_is_named_with_what_it_leaves_out(self) -> None:
        filtered = ("--where", "latency_ns > 100e6", "--procedure", "WRITE")
        shown = run("report", EVERYTHING, *filtered).stdout.splitlines()
        (line,) = [line for line in shown if line.startswith("only 2 of 237 RPCs: latency_ns > 100e6 and")]
        assert "WRITE" in line and any(line.startswith("2 RPCs on 4") for line in shown)
        capture = objects("report", EVERYTHING, *filtered)[0]
        assert capture["rpcs"] == 2 and "latency_ns > 100e6" in capture["filter"]
        listed = [each["number"] for each in objects("rpcs", EVERYTHING, *filtered)]
        assert len(listed) == 2 and listed == sorted(listed)
        assert run("diagnose", LOSS, "--where", "connection = 2", "--rule", "calls-hung").exit_code == 0

    def test_several_files_one_after_the_other(self) -> None:
        every = objects("report", "--each", LONG_CALLS, BOTH_WAYS)
        assert [record["file"] for record in every if record["type"] == "capture"] == [LONG_CALLS, BOTH_WAYS]

    def test_several_files_are_one_capture(self) -> None:
        alone = [objects("report", file)[0] for file in (LONG_CALLS, BOTH_WAYS)]
        (together,) = [one for one in objects("report", BOTH_WAYS, LONG_CALLS) if one["type"] == "capture"]
        for name in ("frames", "packets", "connections"):
            assert together[name] == sum(one[name] for one in alone)
        assert together["rpcs"] == sum(one["rpcs"] for one in alone)
        assert together["first_time_ns"] == min(one["first_time_ns"] for one in alone)

    def test_one_bad_file_does_not_hide_the_others(self, tmp_path: Path) -> None:
        result = run("report", str(tmp_path), LONG_CALLS)
        assert result.exit_code == 2
        assert "47 RPCs" in result.stdout
        assert result.stderr == f"rdmascope: {tmp_path}: no file in this directory\n"

    def test_from_standard_input(self) -> None:
        program = [*PROGRAM, "report", "-"]
        result = subprocess.run(program, input=unpacked(LONG_CALLS), capture_output=True, check=True)
        assert b"47 RPCs" in result.stdout


class TestRpcs:
    def test_json_has_stable_names(self) -> None:
        records = objects("rpcs", LONG_CALLS, "--full")
        hold_names(records)
        assert len(records) == 47
        for record in records:
            assert names(record["call"]) == names(record["reply"]) == set(MESSAGE.split())
            assert names(record["latency"]) == {
                f"{part}_ns" for part in ("total", "call", "reads", "server", "writes", "reply", "retransmission")
            }
            for chunk in record["chunk_list"]:
                assert names(chunk) == {"kind", "position", "advertised", "returned", "transferred", "segments"}
                for segment in chunk["segments"]:
                    assert names(segment) == set(SEGMENT.split())

    def test_the_parts_add_up(self) -> None:
        for record in objects("rpcs", EVERYTHING):
            parts = (record[f"{part}_ns"] for part in ("call", "reads", "server", "writes", "reply"))
            assert record["latency_ns"] == sum(parts) + record["retransmission_delay_ns"]

    def test_filters(self) -> None:
        everything = objects("rpcs", EVERYTHING)

        def numbers(*options: str) -> list[int]:
            return [record["number"] for record in objects("rpcs", EVERYTHING, *options)]

        def those(keep: Any) -> list[int]:
            return [record["number"] for record in everything if keep(record)]

        one = everything[20]
        assert numbers("--xid", str(one["xid"])) == numbers("--xid", hex(one["xid"])) == [one["number"]]
        reads = those(lambda record: record["procedure"] == "READ" or "READ" in record["operations"])
        assert len(reads) == 20
        assert numbers("--procedure", "read") == numbers("--procedure", "NFS.READ") == reads
        assert numbers("--procedure", "NFSv3.READ") == those(lambda record: record["procedure"] == "READ")
        assert numbers("--procedure", "MOUNT.READ") == []
        assert numbers("--connection", "3") == those(lambda record: record["connection"] == 3)
        assert numbers("--errors") == those(lambda record: record["state"] != "complete")
        assert numbers("--slower-than", "100ms") == those(lambda record: record["latency_ns"] > 100_000_000)

    def test_a_stretch_of_time(self) -> None:
        first = objects("report", EVERYTHING)[0]["first_time_ns"]
        begun = [record["time_ns"] - first for record in objects("rpcs", EVERYTHING)]
        found = objects("rpcs", EVERYTHING, "--since", "100", "--until", "103.5")
        assert len(found) == sum(100 * 10**9 <= time < 103.5 * 10**9 for time in begun)
        assert found

    def test_sorting(self) -> None:
        latencies = [r["latency_ns"] for r in objects("rpcs", EVERYTHING, "--sort", "latency")]
        assert latencies == sorted(latencies, reverse=True)
        xids = [record["xid"] for record in objects("rpcs", EVERYTHING, "--sort", "xid")]
        assert xids == sorted(xids)
        times = [record["time_ns"] for record in objects("rpcs", EVERYTHING, "--sort", "time")]
        assert times == sorted(times)
        largest = objects("rpcs", EVERYTHING, "--sort", "size")[0]
        assert largest["call_chunk_bytes"] + largest["reply_chunk_bytes"] >= 262_144

    def test_lines_tell_direction_and_payload(self) -> None:
        backward = [line for line in run("rpcs", BOTH_WAYS).stdout.splitlines() if "NFS_CB" in line]
        assert len(backward) == 2
        assert all(line.split()[2] == "1<" and "CB_RECALL" in line for line in backward)
        header, *long = run("rpcs", LONG_CALLS, "--procedure", "SETXATTR").stdout.splitlines()
        how = header.index("how")
        assert Counter(line[how : how + 3].strip() == "0" for line in long) == {True: 3, False: 2}


class TestShow:
    def test_an_rpc_in_full(self) -> None:
        result = run("show", EVERYTHING, "--rpc", "16", columns=100)
        assert result.exit_code == 0
        page = result.stdout
        assert "RPC 16  NFSv3 READLINK  complete" in page
        assert [line.split()[0] for line in page.splitlines() if "▶" in line or "◀" in line] == [
            "104", "105", "106", "107", "108", "109", "113",
        ]  # fmt: skip
        assert "├── rdma_proc 1 (RDMA_NOMSG)" in page
        assert "The reply  160 bytes, whole, in reply chunk" in page
        assert "├── status: NFS3_OK (0)" in page
        assert "└── data: /a/long/target/path/for/readlink/test" in page
        (pad,) = (line for line in page.splitlines() if "0x000007e4" in line and "offset" not in line)
        assert pad.split()[-4:] == ["4", "0", "0", "-"]
        assert max(map(len, page.splitlines())) <= 100

    def test_the_bytes_of_a_field(self) -> None:
        page = run("show", EVERYTHING, "--rpc", "16", "--bytes", "data").stdout
        assert page.splitlines()[1] == "data: bytes 116 to 160  /a/long/target/path/for/readlink/test"
        assert "2f61 2f6c 6f6e 672f 7461 7267 6574 2f70 /a/long/target/p frame 107" in page
        lacking = run("show", EVERYTHING, "--rpc", "16", "--bytes", "offset")
        assert lacking.exit_code != 0 and "no field offset in RPC 16" in lacking.stderr

    def test_the_arguments_and_results_in_a_frame(self) -> None:
        call = run("show", EVERYTHING, "--frame", "178").stdout
        assert "arguments (READ3args)" in call and "└── [path: /export/r1m]" in call
        assert "results (ACCESS3res)" in run("show", EVERYTHING, "--frame", "86").stdout
        written = run("show", EVERYTHING, "--frame", "509").stdout  # the data are in a Read chunk
        assert "data  [262,144 bytes, of which 0 are there]" in written
        listed = run("packets", EVERYTHING, "-V", "--frame", "1881").stdout
        assert "└── newname: w4.0" in listed

    def test_arguments_and_results_as_json(self) -> None:
        (record,) = objects("show", EVERYTHING, "--rpc", "79")
        assert record["credential"]["body"]["machinename"] == "client"
        putfh, opened, *_ = record["arguments"]["argarray"]
        assert putfh == {"argop": "PUTFH", "object": "0100010000000000"}
        assert (opened["share_access"], opened["claim"]) == (1, {"claim": "CLAIM_NULL", "file": "hello.txt"})
        assert record["results"]["resarray"][1] == {"resop": "OPEN", "status": "NFS4ERR_GRACE"}
        assert record["arguments_problem"] is record["results_problem"] is None

    def test_the_acknowledgement_of_the_reply_is_the_first_that_covers_its_psn(self) -> None:
        """Frames 4048 to 4050 acknowledge replies before it."""
        lines = run("show", LOSS, "--rpc", "60").stdout.splitlines()
        assert [line.split()[0] for line in lines if "Only 212 B" in line or "├─ ACK" in line] == ["3987", "4051"]

    def test_by_xid(self) -> None:
        assert run("show", EVERYTHING, "--xid", "0x34a82abb").stdout == run("show", EVERYTHING, "--rpc", "16").stdout

    def test_long_ones_are_folded_unless_full(self) -> None:
        short = run("show", EVERYTHING, "--xid", "0xe16103b9")
        assert "⋮ 62 more, 248 KiB" in short.stdout
        assert "data: 262,144 bytes  in read chunk at 144" in short.stdout
        assert "262,112 more bytes (--full shows all)" in short.stdout
        full = run("show", EVERYTHING, "--xid", "0xe16103b9", "--full")
        assert "more" not in full.stdout
        assert len(full.stdout.splitlines()) > 262_304 // 16

    def test_contents_as_json(self) -> None:
        (record,) = objects("show", EVERYTHING, "--rpc", "16", "--full")
        reply = record["reply_message"]
        assert bytes.fromhex(reply["data"])[120:157] == b"/a/long/target/path/for/readlink/test"
        assert reply["complete"] is True
        assert sum(extent["length"] for extent in reply["extents"]) == 160
        assert [extent["frame"] for extent in reply["extents"]] == [106, 107, 108]
        assert "data" not in objects("show", EVERYTHING, "--rpc", "16")[0]

    def test_a_frame(self) -> None:
        page = run("show", EVERYTHING, "--frame", "109").stdout
        assert "RDMA_NOMSG" in page
        assert "(good)" in page
        assert "It belongs to RPC 16 (NFSv3 READLINK" in page
        (record,) = objects("show", EVERYTHING, "--frame", "43")
        hold_names([record])
        assert record["rpc"] is None
        assert "RPC-over-RDMA private data" in [layer["layer"] for layer in record["layers"]]

    def test_from_standard_input(self) -> None:
        result = run("show", "-", "--rpc", "20", stdin=unpacked(LONG_CALLS))
        assert result.stdout == run("show", LONG_CALLS, "--rpc", "20").stdout
        assert "▶" in result.stdout

    @pytest.mark.parametrize("options", [(), ("--rpc", "1", "--frame", "2")])
    def test_one_thing_at_a_time(self, options: tuple[str, ...]) -> None:
        result = run("show", EVERYTHING, *options)
        assert result.exit_code == 2
        assert result.stderr.startswith("rdmascope: give the number of an RPC, or one of --rpc, --xid and --frame")

    @pytest.mark.parametrize("option", ["--rpc", "--xid", "--frame"])
    def test_what_is_not_there(self, option: str) -> None:
        result = run("show", LONG_CALLS, option, "999999")
        assert result.exit_code == 2
        assert not result.stdout
        assert result.stderr.startswith(f"rdmascope: {LONG_CALLS}: no ")
        assert len(result.stderr.splitlines()) == 1


class TestPackets:
    def test_json_has_stable_names(self) -> None:
        records = objects("packets", LONG_CALLS)
        hold_names(records)
        assert len(records) == 268
        halves = Counter(record["rpc"] for record in records if record["protocol"].startswith("NFS"))
        assert set(halves) == {*range(1, 45)} - {31, 32, 33}  # The others are of MOUNT and portmap.
        assert set(halves.values()) == {2}

    def test_lines(self) -> None:
        lines = run("packets", EVERYTHING, "--frame", "104-110").stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["No.", *map(str, range(104, 111))]
        assert "10.77.0.2 → 10.77.0.1       NFS         230 V3 READLINK Call" in lines[1]
        assert "(Reply In 109)" in lines[1]
        assert "RC Acknowledge" in lines[2]
        assert "RPC 16 reply chunk" in lines[3]
        assert "(Call In 104)" in lines[6]

    def test_no_more_than_asked_for(self) -> None:
        assert len(run("packets", EVERYTHING, "-c", "5").stdout.splitlines()) == 6
        assert run("packets", EVERYTHING, "--frame", "1").stdout == ""

    def test_trees(self) -> None:
        page = run("packets", EVERYTHING, "--frame", "104", "-V").stdout
        for line in ("BTH", "RPC-over-RDMA", "├── opcode RC SEND Only"):
            assert line in page.splitlines()

    def test_trees_of_results(self) -> None:
        page = run("packets", EVERYTHING, "--frame", "86", "-V").stdout
        assert "results (ACCESS3res)" in page.splitlines()
        assert "Raw" not in page

    def test_a_range_that_is_none(self) -> None:
        assert "neither a frame number nor a range" in run("packets", EVERYTHING, "--frame", "9-3").stderr


class TestTransport:
    def test_json_has_stable_names(self) -> None:
        records = objects("transport", LOSS)
        hold_names(records)
        assert [record["number"] for record in records] == [1, 2]
        for record in records:
            assert record["path_mtu"] == 4096
            assert (
                record["retransmission_count"]
                == len(record["retransmissions"])
                == sum(record["retransmissions_by_cause"].values())
            )
        assert objects("transport", LOSS, "--connection", "2") == records[1:]

    def test_rpcs_tell_what_they_paid(self) -> None:
        delays = {record["number"]: record["retransmission_delay_ns"] for record in objects("rpcs", LOSS)}
        paid = {one["rpc"]: one["delay_ns"] for record in objects("transport", LOSS) for one in record["delayed_rpcs"]}
        assert paid == {number: delay for number, delay in delays.items() if delay}
        assert len(paid) > 20

    @pytest.mark.parametrize("columns", [80, 160])
    @pytest.mark.parametrize("file", [LOSS, BOTH_WAYS])
    def test_the_page_fits(self, columns: int, file: str) -> None:
        result = run("transport", file, "--all", columns=columns)
        assert result.exit_code == 0
        assert max(map(len, result.stdout.splitlines())) <= columns
        assert "…" not in result.stdout
        assert ("implied NAK" in result.stdout) is (file == LOSS)

    def test_the_report_shows_the_troubles(self) -> None:
        page = " ".join(run("report", LOSS).stdout.split())
        assert "client: 599 packets retransmitted (2.34 MiB: 599 implied NAK)" in page
        assert "8 requests of the client unanswered for 61.7 s; none of them was retransmitted" in page
        assert "no retransmissions, losses or congestion marks" in " ".join(run("report", EVERYTHING).stdout.split())

    def test_invariant_crcs(self) -> None:
        (record,) = objects("transport", LONG_CALLS, "--icrc", "--connection", "1")
        assert record["icrc_checked"] == 216
        assert record["active"]["icrc_failures"] == record["passive"]["icrc_failures"] == []
        assert objects("transport", LONG_CALLS, "--connection", "1")[0]["icrc_checked"] == 216

    def test_a_connection_that_is_not_there(self) -> None:
        result = run("transport", LONG_CALLS, "--connection", "9")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"rdmascope: {LONG_CALLS}: no connection 9; there are 7\n"


class TestExport:
    def test_says_what_it_wrote(self, tmp_path: Path) -> None:
        out = tmp_path / "out.pcapng"
        (record,) = objects("export", LONG_CALLS, "-o", str(out))
        hold_names([record])
        assert (record["messages"], record["incomplete"], record["not_reconstructed"]) == (94, 0, 0)
        assert list(tmp_path.iterdir()) == [out]

    def test_incomplete_messages_are_never_passed_off_as_whole(self, tmp_path: Path) -> None:
        result = run("export", LOSS, "-o", str(tmp_path / "whole"), "--json")
        written = json.loads(result.stdout)
        assert written["incomplete"] == 8
        skipping = run("export", LOSS, "-o", str(tmp_path / "part"), "--skip-incomplete", "--json")
        assert json.loads(skipping.stdout)["messages"] == written["messages"] - 8
        reported = run("export", LOSS, "-o", str(tmp_path / "reported")).stderr
        assert reported == "rdmascope: 8 messages written with bytes missing\n"

    def test_to_standard_output(self, tmp_path: Path) -> None:
        out = tmp_path / "out.pcapng"
        run("export", LONG_CALLS, "-o", str(out))
        result = run("export", LONG_CALLS, "-o", "-")
        assert result.stdout_bytes == out.read_bytes()
        assert "94 messages" in result.stderr

    def test_never_overwrites_its_input(self, tmp_path: Path) -> None:
        source = tmp_path / "capture.pcap"
        source.write_bytes(unpacked(LONG_CALLS))
        result = run("export", str(source), "-o", str(source))
        assert result.exit_code == 2
        assert source.read_bytes() == unpacked(LONG_CALLS)
