"""The extcap protocol, asked as Wireshark asks; and tshark itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from playbook.commands import BOTH_WAYS, EVERYTHING, objects, run
from rdmascope.captures import CaptureError
from rdmascope.captures.wireshark import extcap
from rdmascope.captures.wireshark.second_opinion import find_tshark
from rdmascope.cli.commands.extcap import command

SENTENCE = re.compile(r"\{(\w+)=([^}]*)\}")


def sentences(text: str) -> list[tuple[str, dict[str, str]]]:
    """First word and values of each line."""
    return [(line.partition(" ")[0], dict(SENTENCE.findall(line))) for line in text.splitlines()]


def test_interfaces_are_listed(tmp_path: Path) -> None:
    (tmp_path / "rxe0").mkdir()
    (tmp_path / "mlx5_0").mkdir()
    found = extcap.interfaces(tmp_path)
    names = ["nfs-rdma-mlx5_0", "nfs-rdma-rxe0", "nfs-rdma-interface", "nfs-rdma-file"]
    assert [one.value for one in found] == names
    (about, *listed) = sentences(run("extcap", "--extcap-interfaces", "--extcap-version=4.0").stdout)
    assert about[0] == "extcap" and about[1]["version"]
    assert all(kind == "interface" and set(values) == {"value", "display"} for kind, values in listed)
    assert {"nfs-rdma-file", "nfs-rdma-interface"} <= {values["value"] for _, values in listed}


def test_link_types() -> None:
    ((kind, values),) = sentences(run("extcap", "--extcap-interface", "nfs-rdma-file", "--extcap-dlts").stdout)
    assert (kind, values["number"], values["name"]) == ("dlt", "101", "RAW")


@pytest.mark.parametrize(
    ("interface", "calls"),
    [
        ("nfs-rdma-file", ["--file", "--port", "--where"]),
        ("nfs-rdma-interface", ["--device", "--port", "--where"]),
        ("nfs-rdma-rxe0", ["--port", "--where"]),
    ],
)
def test_options_are_those_of_the_command(interface: str, calls: list[str]) -> None:
    listed = sentences(run("extcap", "--extcap-interface", interface, "--extcap-config").stdout)
    options = [values for kind, values in listed if kind == "arg"]
    assert [values["call"] for values in options] == calls
    assert [values["number"] for values in options] == [str(number) for number in range(len(calls))]
    known = {name for parameter in command.params for name in parameter.opts}
    assert set(calls) <= known
    values = [value["value"] for kind, value in listed if kind == "value"]
    assert ("any" in values) == (interface == "nfs-rdma-interface")


@pytest.mark.parametrize(
    ("filter", "said"), [("latency_ns > 1e6", ""), ("latncy > 1", "latncy"), ("tcp.port ==", "syntax error")]
)
def test_a_filter_is_judged_while_it_is_typed(filter: str, said: str) -> None:
    result = run("extcap", "--extcap-interface", "nfs-rdma-file", "--extcap-capture-filter", filter)
    assert result.exit_code == 0 and bool(result.stdout) == bool(said) and said in result.stdout


def piped(tmp_path: Path, *arguments: str) -> tuple[bytes, str, int]:
    """What goes through the pipe, what is said, and the status."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    result = run("extcap", "--capture", "--fifo", str(pipe), *arguments)
    reader.join()
    return found[0], result.stderr, result.exit_code


def test_a_capture_that_cannot_be_made_closes_the_pipe(tmp_path: Path) -> None:
    file = ("--extcap-interface", "nfs-rdma-file")
    for number, (arguments, words) in enumerate(
        [
            (file, "takes a file"),
            ((*file, "--file", str(tmp_path / "none")), "no such file"),
            ((*file, "--file", BOTH_WAYS, "--where", "no_column = 1"), "no_column"),
            (("--extcap-interface", "nfs-rdma-none"), "no such interface"),
            (("--extcap-interface", "nfs-rdma-interface", "--device", "none0"), "no such device"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        data, said, status = piped(folder, *arguments)
        assert words in said and status == 2 and len(data) < 200
    plain = tmp_path / "plain"
    plain.write_bytes(b"mine")
    refused = run("extcap", "--capture", "--fifo", str(plain), *file, "--file", BOTH_WAYS)
    assert refused.exit_code == 2 and "named pipe" in refused.stderr and plain.read_bytes() == b"mine"


def test_the_launcher_replaces_no_other_program(tmp_path: Path) -> None:
    path = extcap.install(tmp_path / "extcap")
    assert os.access(path, os.X_OK) and extcap.install(tmp_path / "extcap") == path
    done = subprocess.run([str(path), "--extcap-interfaces"], capture_output=True, text=True, check=True)
    assert "{value=nfs-rdma-file}" in done.stdout
    path.write_text("#!/bin/sh\necho mine\n")
    with pytest.raises(CaptureError, match="another program"):
        extcap.install(tmp_path / "extcap")


@pytest.fixture
def personal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """tshark, for a user without any settings, after ``rdmascope extcap --install``."""
    for name in ("WIRESHARK_CONFIG_DIR", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("WIRESHARK_EXTCAP_DIR", raising=False)
    tshark = find_tshark().path
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not on the PATH")
    result = run("extcap", "--install")
    assert result.exit_code == 0 and Path(result.stdout.partition(": ")[0]).is_relative_to(tmp_path)
    return tshark


def test_tshark_lists_the_interfaces(personal: str) -> None:
    done = subprocess.run([personal, "-D"], capture_output=True, text=True)
    if "extcap" not in subprocess.run([personal, "-G", "folders"], capture_output=True, text=True).stdout.lower():
        pytest.skip("this tshark is built without extcap")
    assert "nfs-rdma-file (NFS over RDMA: a capture file)" in done.stdout


@pytest.mark.parametrize("where", ["", "latency_ns > 45e6"])
def test_tshark_captures_as_many_calls_as_there_are(where: str, personal: str) -> None:
    chosen = objects("rpcs", EVERYTHING, *(("--where", where) if where else ()))
    arguments = [personal, "-i", "nfs-rdma-file", "-o", f"extcap.nfs_rdma_file.file:{EVERYTHING}"]
    arguments += ["-f", where] if where else []
    fields = ("rpc.msgtyp", "rpc.xid", "frame.comment")
    arguments += [
        "-l",
        "-Y",
        "rpc",
        "-T",
        "fields",
        "-E",
        "occurrence=f",
        *(part for one in fields for part in ("-e", one)),
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    calls = [int(xid, 16) for kind, xid, _ in lines if kind == "0"]
    assert sorted(calls) == sorted(one["xid"] for one in chosen if one["call_frame"]), done.stderr
    assert len(calls) == len(chosen) > 50
    assert all(comment.startswith("RPC ") for *_, comment in lines)
