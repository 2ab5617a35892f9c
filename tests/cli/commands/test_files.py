"""``rdmascope files`` on the samples, whose contents the client printed while they were recorded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from playbook import Capture, Wire, call, fetch, nfs3, reply, write_pcap
from playbook.packets import Packet
from rdmascope.cli.main import main

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"
R1M_MD5 = {
    "loss-rxe": "cd0370fb1fcc9bd88804d295c50bbf3e",
    "nconnect-rxe": "d93872aab88e122ef792b600dc9845f0",
    "ipv6-rxe": "d68d100f94ffa40c80149d188fca296b",
}


def sample(name: str) -> str:
    return str(SAMPLES / f"{name}.pcap.zst")


def run(*arguments: str | Path, columns: int = 99) -> Result:
    env = {"COLUMNS": str(columns), "RDMASCOPE_TRACEBACK": "1"}
    return CliRunner(env=env).invoke(main, ["files", *map(str, arguments)])


def records(*arguments: str | Path) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def extract(capture: str | Path, directory: Path) -> dict[str, dict[str, Any]]:
    """The manifest's files by name, held against what is in the directory."""
    result = run(capture, "--extract", directory)
    assert result.exit_code == 0, result.stderr
    manifest = json.loads((directory / "manifest.json").read_text())
    assert (manifest["schema"], manifest["type"]) == ("rdmascope.manifest/1.0", "manifest")
    files = {file["name"]: file for file in manifest["files"]}
    assert {path.name for path in directory.iterdir()} == {*files, "manifest.json"}
    for name, file in files.items():
        data = (directory / name).read_bytes()
        assert file["schema"] == "rdmascope.file/1.0"
        assert len(data) == file["length"]
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
        assert hashlib.md5(data).hexdigest() == file["md5"]
        covered = sorted((part["offset"], part["length"]) for part in (*file["ranges"], *file["holes"]))
        reached = 0
        for offset, length in covered:
            assert offset == reached
            reached += length
        assert reached == len(data)
        for hole in file["holes"]:
            assert not any(data[hole["offset"] : hole["offset"] + hole["length"]])
    return files


def test_four_protocol_versions_read_and_write_the_same(tmp_path: Path) -> None:
    files = extract(sample("rxe-nfs-all"), tmp_path / "out")
    assert all(file["complete"] and not file["conflicts"] and not file["versions"] for file in files.values())
    r1m = files["r1m"]
    assert r1m["protocols"] == ["NFSv3", "NFSv4.0", "NFSv4.1", "NFSv4.2"]
    assert (r1m["path"], r1m["size"], r1m["read"]) == ("/export/r1m", 1_024_000, 4 * 1_024_000)
    assert (tmp_path / "out" / "hello.txt").read_bytes() == b"hello\n"
    for version in "3", "4.0", "4.1", "4.2":
        assert (tmp_path / "out" / f"odd{version}").read_bytes() == b"abc"
        zeros = tmp_path / "out" / f"w{version}"
        assert zeros.read_bytes() == bytes(1 << 20)
        assert files[zeros.name]["path"] == f"/export/d{version}/{zeros.name}"
        assert files[zeros.name]["written"] == 1 << 20


@pytest.mark.parametrize("name", R1M_MD5)
def test_r1m_is_what_the_client_saw(name: str, tmp_path: Path) -> None:
    files = extract(sample(name), tmp_path / "out")
    assert files["r1m"]["md5"] == R1M_MD5[name]
    assert files["r1m"]["complete"]
    if name == "nconnect-rxe":
        assert files["copy"]["md5"] == R1M_MD5[name]


def test_what_was_written_again_after_the_connection_broke(tmp_path: Path) -> None:
    """The server never fetched the data of eight WRITEs that got no reply; others brought them."""
    big = extract(sample("loss-rxe"), tmp_path / "out")["big"]
    assert (big["size"], big["written_unconfirmed"], big["complete"]) == (6 << 20, 8 << 18, True)
    assert (tmp_path / "out" / "big").read_bytes() == bytes(6 << 20)


def test_what_was_changed_on_the_server_meanwhile(tmp_path: Path) -> None:
    """hello.txt grew three times between the client's reads of it."""
    hello = extract(sample("bidir-rxe"), tmp_path / "out")["hello.txt"]
    assert hello["complete"]
    assert (tmp_path / "out" / "hello.txt").read_bytes() == b"hello\nagain\nagain\n"


def test_every_range_names_the_rpc_that_brought_it(tmp_path: Path) -> None:
    files = extract(sample("rxe-nfs-all"), tmp_path / "out")
    result = CliRunner().invoke(main, ["rpcs", sample("rxe-nfs-all"), "--json"])
    rpcs = {rpc["number"]: rpc for rpc in map(json.loads, result.stdout.splitlines())}
    for file in files.values():
        for part in file["ranges"]:
            rpc = rpcs[part["rpc"]]
            assert part["from"].upper() in (rpc["procedure"], *rpc["operations"])
            assert part["first_frame"] == rpc["call_frame"]
            assert part["last_frame"] == rpc["reply_frame"]


NAMES = (
    "schema type number server handle handle_hash path other_paths removed_path earlier_names file_type protocols"
    " reads writes latency size least_size read written written_unconfirmed write_refused uncommitted verifier_changed"
    " missing calls holes"
    " extracted"
)


def test_json_is_one_object_a_file(tmp_path: Path) -> None:
    seen = records(sample("rxe-nfs-all"))
    assert all(set(one) == set(NAMES.split()) for one in seen)
    assert {one["schema"] for one in seen} == {"rdmascope.file/1.0"}
    assert [one["calls"] for one in seen if one["path"] == "/export/odd3"] == [
        {"CREATE": 1, "WRITE": 1, "GETATTR": 1, "ACCESS": 1}
    ]
    everything = records(sample("rxe-nfs-all"), "--all")
    assert len(everything) == len(seen) + 200
    assert (
        sum(one["path"].startswith("/export/dir/a-rather-long-file-name") for one in everything if one["path"]) == 200
    )
    (hello,) = [one for one in records(sample("rxe-nfs-all"), "--extract", tmp_path / "out") if one["size"] == 6]
    assert hello["extracted"]["name"] == "hello.txt"
    assert hello["extracted"]["md5"] == hashlib.md5(b"hello\n").hexdigest()


def test_the_table() -> None:
    lines = run(sample("rxe-nfs-all")).stdout.splitlines()
    assert lines[0].split() == ["handle", "path", "size", "read", "written", "calls", "holes"]
    assert ["0x765c6af5", "/export/hello.txt", "6", "B", "24", "B", "-", "24", "none"] in [
        line.split() for line in lines
    ]
    assert "/export/d3/w3: /export/w3 from 9.870870 s to 10.622787 s: renamed" in lines
    assert not [line for line in lines if line.startswith("/export/s3")]  # removed, as the table says
    assert lines[-1] == "200 more files were neither read nor written; --all lists them"


def test_a_wide_table_has_counts_and_latencies() -> None:
    lines = [line.split() for line in run(sample("rxe-nfs-all"), columns=120).stdout.splitlines()]
    assert " ".join(lines[0]) == "handle path size reads read writes written median p99 calls holes"
    (r1m,) = [line for line in lines if line[1:2] == ["/export/r1m"]]
    assert " ".join(r1m[2:]) == "0.98 MiB 16 3.91 MiB - - 10.5 ms 24.9 ms 36 none"
    assert "reads" not in run(sample("rxe-nfs-all"), columns=119).stdout.splitlines()[0]


def test_latencies_are_those_of_the_rpcs_with_reads_and_writes(tmp_path: Path) -> None:
    (r1m,) = [one for one in records(sample("rxe-nfs-all")) if one["path"] == "/export/r1m"]
    sought = ["rpcs", sample("rxe-nfs-all"), "--json", "--where", "path = '/export/r1m' AND operations GLOB '*READ'"]
    sought[-1] += " OR path = '/export/r1m' AND procedure = 'READ'"
    rpcs = [json.loads(line) for line in CliRunner().invoke(main, sought).stdout.splitlines()]
    times = sorted(rpc["latency_ns"] for rpc in rpcs)
    assert (r1m["reads"], r1m["writes"]) == (len(times), 0)
    assert (r1m["latency"]["min_ns"], r1m["latency"]["max_ns"]) == (times[0], times[-1])
    assert (r1m["latency"]["count"], r1m["latency"]["total_ns"]) == (len(times), sum(times))


DATA = bytes(number * 11 & 0xFF for number in range(8192))


def made(path: Path, wire: Wire, packets: list[Packet] | None = None) -> Path:
    write_pcap(Capture(wire, packets).frames, path)
    return path


def test_a_conflict_is_reported(tmp_path: Path) -> None:
    wire = Wire()
    conn = wire.connect()
    for data in DATA, DATA[:100] + b"?" + DATA[101:]:
        reply(call(conn, nfs3.read(0, 8192), writes=[conn.register(8192)]), nfs3.read_reply(data, eof=True))
    capture = made(tmp_path / "conflict.pcap", wire)
    (file,) = extract(capture, tmp_path / "out").values()
    (conflict,) = file["conflicts"]
    assert (conflict["offset"], conflict["length"]) == (100, 1)
    assert (conflict["earlier"]["rpc"], conflict["later"]["rpc"]) == (1, 2)
    assert "1 conflict" in run(capture, "--extract", tmp_path / "again").stdout


def test_a_write_without_a_reply_is_written_and_marked(tmp_path: Path) -> None:
    wire = Wire()
    conn = wire.connect()
    fetch(call(conn, nfs3.write(0, DATA), reads={0: conn.register(len(DATA))}))
    (file,) = extract(made(tmp_path / "unanswered.pcap", wire), tmp_path / "out").values()
    assert {part["doubt"] for part in file["ranges"]} == {"no reply to the WRITE"}
    assert (file["complete"], file["written"], file["written_unconfirmed"]) == (False, 0, len(DATA))
    assert (tmp_path / "out" / file["name"]).read_bytes() == DATA


def test_a_packet_that_was_not_recorded_is_a_hole_that_says_why(tmp_path: Path) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    reply(call(conn, nfs3.read(0, 8192), writes=[conn.register(8192)]), nfs3.read_reply(DATA, eof=True))
    packets = [packet for packet in wire.packets if packet.kind != "write" or packet.at != 2048]
    (file,) = extract(made(tmp_path / "lossy.pcap", wire, packets), tmp_path / "out").values()
    (hole,) = file["holes"]
    assert (hole["offset"], hole["length"]) == (2048, 1024)
    assert hole["why"] not in ("", "never read or written")
    assert not file["complete"]
    assert (tmp_path / "out" / file["name"]).read_bytes() == DATA[:2048] + bytes(1024) + DATA[3072:]


def test_a_directory_with_something_in_it_needs_force(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    refused = run(sample("ipv6-rxe"), "--extract", tmp_path)
    assert refused.exit_code == 2
    assert "not empty" in refused.stderr
    assert run(sample("ipv6-rxe"), "--extract", tmp_path, "--force").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "r1m", "manifest.json"}
    assert run(sample("ipv6-rxe"), "--force").exit_code == 2


def test_what_is_no_capture_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no capture")
    assert run(tmp_path / "notes.txt", "--extract", tmp_path / "out").exit_code == 2
    assert not (tmp_path / "out").exists()


def test_several_captures_are_extracted_as_one(tmp_path: Path) -> None:
    names = "ipv6-rxe", "bidir-rxe"
    result = run(*map(sample, names), "--extract", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    together = json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]
    assert all(hashlib.md5((tmp_path / "out" / one["name"]).read_bytes()).hexdigest() == one["md5"] for one in together)
    apart = [one["md5"] for name in names for one in extract(sample(name), tmp_path / name).values()]
    assert len(apart) > 1
    assert sorted(one["md5"] for one in together) == sorted(apart)


def test_nothing_is_written_over_the_capture_that_is_read(tmp_path: Path) -> None:
    wire = Wire()
    conn = wire.connect()
    reply(call(conn, nfs3.read(0, 4096), writes=[conn.register(4096)]), nfs3.read_reply(DATA[:4096]))
    name = next(iter(extract(made(tmp_path / "capture.pcap", wire), tmp_path / "first")))
    directory = tmp_path / "inputs"
    directory.mkdir()
    capture = made(directory / name, wire)
    before = capture.read_bytes()
    for given, reason in (capture, "is the capture itself"), (directory, "its captures are read"):
        refused = run(given, "--extract", directory, "--force")
        assert refused.exit_code == 2 and not refused.stdout
        assert reason in refused.stderr
        assert [one.read_bytes() for one in directory.iterdir() if one.name != "manifest.json"] == [before]
