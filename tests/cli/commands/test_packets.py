"""What tshark's users type lists the packets that tshark lists, with its times."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from playbook.commands import BOTH_WAYS, LOSS, PROGRAM, objects, run, unpacked
from rdmascope.captures.wireshark.second_opinion import find_tshark
from rdmascope.cli.views.packets import FORMATS


def times(*arguments: str) -> dict[int, str]:
    """By frame."""
    result = run("packets", LOSS, *arguments)
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()[1:]]
    return {int(words[0]): " ".join(words[1 : words.index("→") - 1]) for words in lines}


@pytest.mark.parametrize("format", FORMATS)
def test_times_are_those_of_tshark(format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plain.pcap"
    path.write_bytes(unpacked(LOSS))
    monkeypatch.setenv("TZ", "UTC")
    ours = times("-t", format)
    which = "frame" if format != "dd" else f"frame.number in {{{','.join(map(str, ours))}}}"
    arguments = [find_tshark().path, "-n", "-r", str(path), "-t", format, "-Y", which]
    arguments += ["-T", "fields", "-e", "frame.number", "-e", "_ws.col.Time"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    theirs = dict(line.split("\t") for line in done.stdout.splitlines())
    for frame, time in ours.items():
        whole, _, digits = theirs[str(frame)].partition(".")
        assert time == f"{whole}.{digits[:6]}", frame


def test_json_with_trees_is_json_alone() -> None:
    plain, trees = (objects("packets", LOSS, "-c", "9", *words) for words in ([], ["-V"]))
    layers = [record.pop("layers") for record in trees]
    assert trees == plain
    assert all("BTH" in [layer["layer"] for layer in one] for one in layers)


def test_with_trees_times_are_the_same() -> None:
    for format in ("d", "dd", "ud"):
        lines = run("packets", LOSS, "-V", "-c", "9", "-t", format).stdout.splitlines()
        listed = [line.split() for line in lines if " → " in line]
        shown = {int(words[0]): " ".join(words[1 : words.index("→") - 1]) for words in listed}
        assert shown == times("-t", format, "-c", "9")


def test_r_lists_packets() -> None:
    assert run("-r", LOSS).stdout == run("packets", LOSS).stdout
    assert run("-n", "-c", "3", f"-r{LOSS}", "-V").stdout == run("packets", LOSS, "-c", "3", "-V").stdout
    wanted = run("packets", LOSS, "--where", "program = 'NFS' AND latency_ns > 100e6", "-t", "e")
    assert run("-t", "e", "-r", LOSS, "-Y", "nfs && latency_ns > 100000000").stdout == wanted.stdout
    assert run("-r", LOSS, "-Y", "frame.number >= 100 && frame.number < 103").stdout == (
        run("packets", LOSS, "--frame", "100-102").stdout
    )
    assert run("-r", LOSS, "-Y", "frame.number == 20", "--frame", "21").exit_code == 2


@pytest.mark.parametrize("arguments", [["-r"], ["-Y", "nfs"], ["-n"], ["-r", ""], ["-r", LOSS, "-q"]])
def test_options_without_a_file_and_unknown_ones_are_one_line(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)


def test_w_writes_the_frames_of_the_rpcs(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    result = run("-r", LOSS, "-Y", "latency_ns > 100000000", "-w", str(path))
    assert (result.exit_code, result.output) == (0, "")
    wanted = {one["xid"] for one in objects("rpcs", LOSS, "--where", "latency_ns > 100e6")}
    assert {one["xid"] for one in objects("rpcs", str(path))} == wanted != set()
    everything = tmp_path / "all.pcapng"
    assert run("-r", LOSS, "-w", str(everything)).exit_code == 0
    assert len(objects("rpcs", str(everything))) == len(objects("rpcs", LOSS))


def test_w_overwrites_no_input(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(unpacked(BOTH_WAYS))
    before = path.read_bytes()
    result = run("-r", str(path), "-w", str(path))
    assert (result.exit_code, "would overwrite" in result.stderr) == (2, True) and path.read_bytes() == before


def test_a_file_alone_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(BOTH_WAYS, "--top", "3").stdout == run("report", BOTH_WAYS, "--top", "3").stdout != ""
    monkeypatch.chdir(tmp_path)
    Path("rules").write_bytes(unpacked(BOTH_WAYS))
    assert "V1-INLINE-EXCEEDED" in run("rules").stdout
    assert run("./rules").stdout == run("report", "rules").stdout.replace("rules", "./rules", 1)
    missing = run("nfs.pcap")
    assert (missing.exit_code, missing.stderr.startswith("rdmascope: nfs.pcap: no such file")) == (2, True)
    assert "did you mean report" in run("reprot").stderr


def test_a_filter_leaves_nothing_on_standard_error() -> None:
    done = subprocess.run([*PROGRAM, "rpcs", LOSS, "--where", "latency_ns > 100e6"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
