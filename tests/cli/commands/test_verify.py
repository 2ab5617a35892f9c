"""``rdmascope verify`` with tshark, with one that misreads, and with none."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import struct
import subprocess
import threading
from asyncio.base_subprocess import BaseSubprocessTransport
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner, Result

from playbook import Capture, Wire, call, cm, faults, nfs3, reply, write_pcap
from playbook.iwarp import IwarpCapture, IwarpConnection, IwarpWire
from playbook.shapes import read, write
from rdmascope.captures.wireshark import second_opinion as wireshark
from rdmascope.cli.main import main

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"
LONG_CALLS = str(SAMPLES / "longcall-rxe.pcap.zst")
BOTH_WAYS = str(SAMPLES / "bidir-rxe.pcap.zst")
TSHARK = shutil.which("tshark")

needs_tshark = pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")


def run(*arguments: str, columns: int = 120, stdin: bytes | None = None) -> Result:
    environment = {"COLUMNS": str(columns), "RDMASCOPE_TRACEBACK": "1"}
    return CliRunner(env=environment).invoke(main, ["verify", *arguments], input=stdin)


@cache
def long_calls() -> list[dict[str, Any]]:
    return objects(LONG_CALLS)


def objects(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


def conversation() -> Wire:
    wire = Wire(mtu=1024, seed=1)
    conn = wire.connect()
    write(conn)
    read(conn)
    return wire


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One WRITE and one READ, under a path that fits on one line of the screen."""
    monkeypatch.chdir(tmp_path)
    write_pcap(Capture(conversation()).frames, tmp_path / "small.pcap")
    return "small.pcap"


def install(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Another tshark, the only one on the path."""
    program = directory / "bin" / "tshark"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent))


VERSION = 'test "$1" = -v && { echo "TShark (Wireshark) 4.0.17 (for tests)"; exit 0; }'


@needs_tshark
class TestAgreement:
    def test_a_sample(self) -> None:
        result = run(LONG_CALLS)
        assert result.exit_code == 0, result.output
        lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
        assert "they agree, 16 differences explained" in lines
        assert "packets 216 216 - -" in lines
        assert "calls 41 36 5 -" in lines
        assert "fields 3,309 3,308 1 -" in lines
        assert "107 call frame.number 107 113" in lines
        assert "… and 5 more (--limit 0 lists all)" in lines

    @pytest.mark.parametrize("columns", [80, 100])
    def test_the_page_fits(self, columns: int) -> None:
        lines = run(LONG_CALLS, columns=columns).stdout.splitlines()
        assert max(map(len, lines)) <= columns
        assert not [line for line in lines if line != line.rstrip()]

    def test_a_reply_whose_first_packet_arrived_damaged(self, tmp_path: Path) -> None:
        wire = Wire(mtu=1024, seed=1)
        conn = wire.connect()
        for _ in range(2):
            answered = call(conn, nfs3.getattr_())
            reply(answered, nfs3.getattr_reply())
        number = answered.true.reply_operation
        index = next(at for at, packet in enumerate(wire.packets) if packet.operation == number)
        frames = Capture(wire, faults.ghost(wire.packets, index, 0)).frames
        data = frames[index].data
        frames[index] = replace(frames[index], data=data[:-1] + bytes([data[-1] ^ 1]))  # of its ICRC
        path = tmp_path / "first-damaged.pcap"
        write_pcap(frames, path)
        result = run(str(path))
        assert result.exit_code == 0, result.output
        assert f"rpc.reqframe {index + 2}" in " ".join(result.stdout.split())

    def test_nothing_to_explain(self) -> None:
        result = run(BOTH_WAYS, "--headers")
        assert result.exit_code == 0
        assert "they agree" in result.stdout.splitlines()

    def test_json_has_stable_names(self) -> None:
        *differences, inside, summary = long_calls()
        assert len(differences) == 15
        assert (inside["what"], inside["field"], inside["right"], inside["wireshark"]) == (
            "field", "seqid", "rdmascope", None,
        )  # fmt: skip
        for one in differences:
            assert one["schema"] == "rdmascope.difference/1.0"
            assert set(one) == {
                "schema", "type", "what", "frame", "field", "rdmascope", "wireshark", "right", "explained", "reason",
                "reference",
            }  # fmt: skip
            assert one["right"] == "both" and one["explained"] is True and one["reason"] and one["reference"]
        assert {(one["what"], one["frame"]) for one in differences} >= {("call", 107), ("reply", 114)}
        assert summary["schema"] == "rdmascope.verification/1.0"
        assert set(summary) == {"schema", "type", "file", "tshark", "agree", "field_names", "compared"}
        assert {"nfs.fh.hash", "nfs.slotid", "nfs.count4", "rpc.xid"} <= set(summary["field_names"])
        assert summary["agree"] is True
        assert summary["compared"]["transport_header"] == {
            "compared": 82, "equal": 82, "explained": 0, "unexplained": 0,
        }  # fmt: skip

    def test_limits(self) -> None:
        assert len(objects(LONG_CALLS, "--limit", "4")) == 4 + 1 + 1
        full = run(LONG_CALLS, "--limit", "0").stdout
        assert "more" not in full
        assert sum("rpc.time" in line for line in full.splitlines()) == 5

    def test_standard_input_and_several_files(self, tmp_path: Path) -> None:
        plain = zstandard.ZstdDecompressor().stream_reader(Path(LONG_CALLS).read_bytes()).read()
        result = run("-", stdin=plain)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[0].startswith("standard input beside tshark")
        both = objects(LONG_CALLS, BOTH_WAYS)[-1]
        each = [long_calls()[-1], objects(BOTH_WAYS)[-1]]
        for what, tally in both["compared"].items():
            assert tally["compared"] == sum(one["compared"][what]["compared"] for one in each)

    def test_what_wireshark_gets_wrong(self, tmp_path: Path) -> None:
        """A capture that does not hold the connection's set-up."""
        wire = Wire(mtu=1024, seed=1)
        conn = wire.connect(cm=False)
        for _ in range(4):
            read(conn)
        path = tmp_path / "late.pcap"
        write_pcap(Capture(wire).frames, path)
        result = run(str(path))
        assert result.exit_code == 0, result.output
        assert "rdmascope is right: the connection's set-up is not in the capture" in result.stdout

    def test_truncated_frames(self, tmp_path: Path) -> None:
        wire = conversation()
        path = tmp_path / "cut.pcap"
        write_pcap(Capture(wire, faults.snap(wire.packets, 160)).frames, path)
        result = run(str(path))
        assert result.exit_code == 0, result.output

    @pytest.mark.parametrize("compressed", [False, True])
    def test_native_infiniband(self, compressed: bool, tmp_path: Path) -> None:
        """tshark does not read LINKTYPE_INFINIBAND, but the same packets as ERF records."""
        bth = struct.pack(">BBHII", 0x04, 0x40, 0xFFFF, 0x11, 0x80000001)
        link = struct.pack(">HHHH", 0x0002, 1, (8 + len(bth) + 16 + 4) // 4, 2)
        frame = link + bth + bytes(16) + bytes(6)
        contents = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 247)
        contents += struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame
        path = tmp_path / "native.pcap"
        path.write_bytes(zstandard.compress(contents) if compressed else contents)
        summary = objects(str(path))[-1]
        assert summary["agree"] is True
        assert summary["compared"]["packet"]["equal"] == 1

    def test_iwarp(self, tmp_path: Path) -> None:
        wire = IwarpWire(mss=1460, seed=2)
        conn = wire.connect(revision=2, cutting="merged")
        write(conn)
        read(conn)
        path = tmp_path / "iwarp.pcap"
        write_pcap(IwarpCapture(wire, wire.sent()).frames, path)
        *differences, summary = objects(str(path))
        assert summary["agree"] is True
        assert summary["compared"]["packet"]["compared"] == summary["compared"]["packet"]["equal"] > 10
        assert summary["compared"]["call"]["compared"] == summary["compared"]["reply"]["compared"] == 2
        assert {one["right"] for one in differences} == {"both"}

    @pytest.mark.parametrize(
        ("layer", "kind", "code"), [(0, 1, 0), (0, 2, 6), (0, 0, 0), (1, 1, 3), (1, 2, 2), (2, 0, 2)]
    )
    def test_terminates(self, layer: int, kind: int, code: int, tmp_path: Path) -> None:
        wire = IwarpWire(mss=1460, seed=2)
        conn = wire.connect()
        read(conn)
        assert isinstance(conn, IwarpConnection)
        conn.terminate(1, layer, kind, code)
        path = tmp_path / "terminate.pcap"
        write_pcap(IwarpCapture(wire, wire.sent()).frames, path)
        *differences, summary = objects(str(path))
        assert [one["field"] for one in differences if one["what"] == "packet"] == []
        assert summary["agree"] is True

    def test_the_set_up_of_a_connection_without_messages(self, tmp_path: Path) -> None:
        wire = IwarpWire(mss=1460, seed=2)
        wire.connect(markers=(True, False))
        path = tmp_path / "setup.pcap"
        write_pcap(IwarpCapture(wire, wire.sent()).frames, path)
        assert objects(str(path))[-1]["compared"]["packet"]["equal"] == 2

    def test_atomics_and_management(self, tmp_path: Path) -> None:
        """A CMP_SWAP with its acknowledgement, a CM REJ, and a datagram of subnet management."""
        wire = Wire(mtu=1024, seed=1)
        conn = wire.connect()
        assert conn.sides is not None
        conn._mad(1, cm.REJ, cm.reject(conn.sides[1], conn.sides[0], 28))
        conn._packet(0, "other", 0x13, 7, struct.pack(">QIQQ", 0x1000, 5, 1 << 63, 2), b"")
        conn._packet(1, "other", 0x12, 7, struct.pack(">IQ", 0x1F000001, 1 << 62), b"")
        path = tmp_path / "atomic.pcap"
        write_pcap(Capture(wire).frames, path)
        *differences, summary = objects(str(path))
        assert (differences, summary["compared"]["packet"]["equal"]) == ([], 6)

    def test_fields_that_this_tshark_does_not_know(
        self, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lacking = "infiniband.cm.req.retrcount"
        complaint = f"tshark: Some fields aren\\047t valid:\\n\\t{lacking}\\n"
        install(
            tmp_path,
            monkeypatch,
            f'case "$*" in *{lacking}*) printf "{complaint}" >&2; exit 1;; esac\nexec {TSHARK} "$@"',
        )
        result = run(small)
        assert (result.exit_code, result.stdout.splitlines()[1][:10]) == (0, "they agree")
        assert f"does not know {lacking}, so this is not compared" in result.stderr

    def test_a_damaged_file_is_compared_as_far_as_it_goes(self, small: str) -> None:
        Path("half.pcap").write_bytes(Path(small).read_bytes()[:-10])
        result = run("half.pcap")
        assert result.exit_code == 2
        assert result.stdout.splitlines()[1].startswith("they agree")
        assert "ends" in result.stderr or "truncated" in result.stderr


@needs_tshark
class TestDisagreement:
    """The real tshark, one value altered on its way."""

    @pytest.fixture
    def misread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: str) -> str:
        sed = shutil.which("sed")
        fields = 'case "$*" in *"-T fields"*) "$real" "$@" | "$sed" "5s/0x[0-9a-f]*/0x00abcd/" ;; *) exec "$real" "$@"'
        install(tmp_path, monkeypatch, f"real={TSHARK}; sed={sed}\n{fields};; esac")
        return small

    def test_it_is_found_and_shown_in_wiresharks_own_words(self, misread: str) -> None:
        result = run(misread)
        assert result.exit_code == 1
        lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
        assert lines[1] == "1 difference without explanation"
        assert "Undecided" in lines
        (row,) = (line for line in lines if "infiniband.bth." in line and line.startswith("5 packet"))
        assert row.endswith(" 0xabcd")
        (words,) = (line for line in lines if "in Wireshark's words" in line)
        assert words.startswith("frame 5 in Wireshark's words: ")

    def test_a_tshark_that_ends_when_it_is_killed_has_not_crashed(
        self, misread: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever kills it finds that it has ended, and what waits for it then has no exit status."""
        killed = threading.Event()
        watchers: Any = asyncio.ThreadedChildWatcher
        kill, wait = BaseSubprocessTransport.kill, watchers._do_waitpid

        def kill_what_has_ended(transport: Any) -> None:
            os.waitid(os.P_PID, transport.get_pid(), os.WEXITED | os.WNOWAIT)
            kill(transport)
            killed.set()

        def wait_behind(watcher: Any, *given: Any) -> None:
            killed.wait(60)
            wait(watcher, *given)

        monkeypatch.setattr(BaseSubprocessTransport, "kill", kill_what_has_ended)
        monkeypatch.setattr(watchers, "_do_waitpid", wait_behind)
        result = run(misread)
        assert (result.exit_code, result.stderr) == (1, "")
        assert "frame 5 in Wireshark's words: " in result.stdout

    def test_it_is_in_the_json(self, misread: str) -> None:
        found = objects(misread)
        (one,) = (record for record in found[:-1] if not record["explained"])
        assert (one["what"], one["frame"], one["right"], one["reason"]) == ("packet", 5, "undecided", None)
        assert one["wireshark"] == [0xABCD] != one["rdmascope"]
        assert found[-1]["agree"] is False
        assert found[-1]["compared"]["packet"]["unexplained"] == 1


class TestUnusable:
    @pytest.mark.parametrize(
        ("script", "complaint"),
        [
            ('echo "TShark (Wireshark) 3.4.16"', "is tshark 3.4.16; 4.0.0 or later is needed"),
            ('echo "Terminal Shark, no number"', "does not tell its version as tshark would"),
            ("exit 7", "does not run (exit status 7)"),
            (f"{VERSION}; echo 'tshark: no memory left' >&2; exit 2", "tshark 4.0.17 failed: no memory left"),
            (f"{VERSION}; exit 3", "tshark 4.0.17 failed: exit status 3"),
            (f"{VERSION}; echo what", "what tshark printed is not what was asked for"),
        ],
    )
    def test_a_tshark_that_is_of_no_use(
        self, script: str, complaint: str, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(tmp_path, monkeypatch, script)
        result = run(small)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert complaint in result.stderr
        assert result.stderr.count("\n") == 1

    def test_no_tshark(self, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        result = run(small)
        assert result.exit_code == 2
        assert result.stderr == "rdmascope: tshark is not installed: a second opinion needs Wireshark's command line\n"

    @pytest.mark.parametrize("contents", [b"", b"not a capture at all"])
    def test_no_capture(self, contents: bytes, tmp_path: Path) -> None:
        path = tmp_path / "some.file"
        path.write_bytes(contents)
        result = run(str(path))
        assert result.exit_code == 2
        assert result.stderr.startswith(f"rdmascope: {path}: ")
        assert result.stderr.count("\n") == 1


@needs_tshark
def test_tshark_gets_every_frame_of_a_compressed_capture(tmp_path: Path) -> None:
    from rdmascope.captures import open_capture

    with wireshark.TsharkInput([LONG_CALLS]) as readable, open_capture(LONG_CALLS) as capture:
        for batch in capture.batches():
            readable.add(batch)
        readable.finish()
        assert readable.path != LONG_CALLS
        lines = wireshark.field_lines(wireshark.find_tshark(), readable.path, ["frame.number", "frame.len"], "frame")
        lengths = [int(length) for _, length in lines]
        copy = Path(readable.path)
    assert not copy.exists()
    plain = tmp_path / "plain.pcap"
    plain.write_bytes(zstandard.ZstdDecompressor().stream_reader(Path(LONG_CALLS).read_bytes()).read())
    shown = subprocess.run(
        ["tshark", "-r", plain, "-T", "fields", "-e", "frame.len"], capture_output=True, text=True, check=True
    )
    assert lengths == [int(length) for length in shown.stdout.split()]
