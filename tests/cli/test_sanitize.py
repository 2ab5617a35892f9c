"""Nothing that is shown acts on a terminal, and every terminal can show it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from playbook import Call, Capture, Reply, Wire, call, nfs3, nfs4, reply
from playbook.nfs4_client import Client
from playbook.rpc import opaque, u32
from playbook.xdr_encode import done, op
from rdmascope.captures.write.pcapng_writer import PcapngWriter
from rdmascope.cli.main import COMMANDS, main
from rdmascope.cli.sanitize import DRAWING, harmless, json_escaped, plain

SAMPLES = Path(__file__).parents[2] / "captures" / "samples"
SMALL = SAMPLES / "v2-falls-back.pcap.zst"
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "a\x1b[31m\x1b]0;x\x07\x85\x9b2J\u202eb\r\x7f\udcff"
"""Colours, a title, C1, a clearing of the screen, a turn of direction, no UTF-8."""
RUNS = {
    "report": (), "rpcs": (), "show": ("--rpc", "1"), "packets": (), "transport": (), "files": (), "audit": (),
    "sessions": (), "info": (), "export": ("-o", "out.pcapng"),
}  # fmt: skip


def run(*arguments: str, charset: str = "utf-8", **environment: str) -> Result:
    return CliRunner(charset=charset, env={"COLUMNS": "120", **environment}).invoke(main, list(arguments))


@given(st.text())
def test_harmless_text_does_not_act_and_stays_itself_otherwise(text: str) -> None:
    shown = harmless(text)
    assert not ACTS.search(shown)
    assert harmless(shown) == shown
    if not ACTS.search(text) and text.isascii():
        assert shown == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_is_the_same_json(text: str) -> None:
    line = json.dumps(text, ensure_ascii=False)
    for ascii_only in (False, True):
        escaped = json_escaped(line, ascii_only)
        assert json.loads(escaped) == text
        assert not ACTS.search(escaped)
        assert escaped.isascii() or not ascii_only


@given(st.text(st.sampled_from("".join(DRAWING)) | st.characters()))
def test_plain_text_is_ascii(text: str) -> None:
    assert plain(text).isascii()


def test_drawings_keep_their_width() -> None:
    assert {len(one) for one in DRAWING.values()} == {1}


@pytest.mark.parametrize("charset", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", RUNS)
def test_every_command_draws_in_ascii(
    command: str, charset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for more in ((), ("--json",)):
        result = run(command, str(SMALL), *RUNS[command], *more, charset=charset)
        assert result.exit_code in (0, 1), result.output
        assert result.stdout_bytes.isascii()
        assert not result.exception or isinstance(result.exception, SystemExit)
        assert "internal error" not in result.output
    assert run(command, "ni–chts…", charset=charset).exit_code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_is_drawn_in_ascii(command: str) -> None:
    result = run(command, "--help", charset="ascii")
    assert result.exit_code == 0 and result.stdout_bytes.isascii()


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}])
def test_a_process_with_another_encoding_ends_well(variables: dict[str, str]) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "rdmascope", "show", SAMPLES / "longcall-rxe.pcap.zst", "--rpc", "27"],
        env={**os.environ, "PYTHONUTF8": "0", "COLUMNS": "80", **variables}, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == b"" and done.stdout.isascii()
    assert b"|- SEND Only 256 B, RDMA_MSG ---" in done.stdout


@pytest.mark.parametrize("colour", [{}, {"FORCE_COLOR": "1"}], ids=["pipe", "terminal"])
@pytest.mark.parametrize("command", RUNS)
def test_names_of_files_do_not_act(
    command: str, colour: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{HOSTILE}.pcap.zst").symlink_to(SMALL)
    (tmp_path / f"{HOSTILE}.pcap").write_bytes(b"no capture")
    for name in (f"{HOSTILE}.pcap.zst", f"{HOSTILE}.pcap", f"{HOSTILE}.none"):
        for more in ((), ("--json",)):
            arguments = ["-o" + HOSTILE if one == "out.pcapng" else one for one in RUNS[command] if one != "-o"]
            result = run(command, name, *arguments, *more, **colour)
            assert "internal error" not in result.output
            assert not ACTS.search(COLOUR.sub("", result.output)), (name, more)


@pytest.fixture(scope="module")
def hostile_capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names of an interface, a program, a comment, files, hosts, owners and tags, all of which would act on a
    terminal."""
    name = HOSTILE.encode("utf-8", "surrogateescape")
    wire = Wire()
    conn = wire.connect()
    reply(call(conn, nfs3.symlink(name, name)), nfs3.symlink_reply())
    reply(call(conn, nfs3.readlink(), reply_chunk=conn.register(4096)), nfs3.readlink_reply(name))
    reply(call(conn, nfs3.readdirplus(), reply_chunk=conn.register(65536)), nfs3.readdirplus_reply([name]))
    named = Call(nfs3.PROGRAM, 3, 3, (opaque(nfs3.FH) + opaque(name),))
    reply(call(conn, named), Reply((u32(0) + opaque(b"handle") + u32(0, 0),)))
    reply(call(conn, nfs3.write(0, b"abc", b"handle")), nfs3.write_reply(3))
    asked = call(conn, nfs3.read(0, 3, b"handle"), writes=[conn.register(3)])
    reply(asked, nfs3.read_reply(b"abc"))
    sys_body = u32(1) + opaque(name) + u32(0, 0, 0)
    reply(
        call(conn, replace(nfs3.getattr_(b"handle"), credential=u32(1) + opaque(sys_body) + bytes(8))),
        nfs3.getattr_reply(),
    )
    tagged = nfs4.compound(nfs4.Op(24), nfs4.Op(15, (opaque(name),)), tag=name)
    reply(call(conn, tagged), nfs4.compound_reply(nfs4.Op(24), nfs4.failed(15, 2), tag=name))
    implementation = [{"nii_domain": name, "nii_name": name}]
    owner = {"co_verifier": b"verifier", "co_ownerid": name}
    server = {"so_minor_id": 1, "so_major_id": name}
    client = Client(wire.connect())
    client.alone(
        op("EXCHANGE_ID", eia_clientowner=owner, eia_client_impl_id=implementation),
        done("EXCHANGE_ID", eir_clientid=1, eir_server_owner=server, eir_server_scope=name,
             eir_server_impl_id=implementation),
    )  # fmt: skip
    client.create_session(1)
    client.ask(op("RECLAIM_COMPLETE"), done("RECLAIM_COMPLETE"))
    path = tmp_path_factory.mktemp("hostile") / "hostile.pcapng"
    text = HOSTILE[:-1]
    with path.open("wb") as file:
        writer = PcapngWriter(file, 1, name=text, filter=text, application=text)
        for number, frame in enumerate(Capture(wire).frames):
            writer.write(frame.time, frame.data, comment=text if number < 2 else None)
    return path


@pytest.mark.parametrize("colour", [{}, {"FORCE_COLOR": "1"}], ids=["pipe", "terminal"])
@pytest.mark.parametrize("arguments", [
    ("info",), ("report",), ("rpcs",), ("packets",), ("packets", "-V"), ("files", "--all"), ("transport",),
    ("show", "--rpc", "1", "--full"), ("show", "--rpc", "2", "--full"), ("audit",), ("transport", "--credits"),
    ("show", "--rpc", "7", "--full"), ("show", "--rpc", "8", "--full"), ("show", "--rpc", "9", "--full"),
    ("show", "--frame", "24"), ("sessions",), ("diagnose",), ("compare", str(SMALL)), ("sql", "FROM rpcs"),
    ("sql", "FROM files"), ("sql", "FROM packets"),
], ids=" ".join)  # fmt: skip
def test_names_in_captures_do_not_act(
    arguments: tuple[str, ...], colour: dict[str, str], hostile_capture: Path
) -> None:
    command, *options = arguments
    for more in ((), ("--json",)):
        result = run(command, str(hostile_capture), *options, *more, **colour)
        assert result.exit_code in (0, 1), result.output
        assert "internal error" not in result.output
        assert not ACTS.search(COLOUR.sub("", result.output)), more
    if command in ("info", "files"):
        assert "\\x1b[31m" in run(command, str(hostile_capture), *options, COLUMNS="200").output


@pytest.mark.parametrize("arguments", [("export", str(SMALL), "-o", "-"), ("synth", "v2-settles", "-o", "-")])
def test_a_terminal_gets_no_capture(arguments: tuple[str, ...]) -> None:
    leader, follower = os.openpty()
    try:
        done = subprocess.run(
            [Path(sys.executable).parent / "rdmascope", *arguments], stdout=follower, stderr=subprocess.PIPE
        )
    finally:
        os.close(leader)
        os.close(follower)
    assert done.returncode == 2
    assert b"a capture is not written to a terminal" in done.stderr


@pytest.mark.parametrize("command", ["rpcs", "packets", "files", "transport", "report"])
def test_what_cannot_be_read_gets_no_header(command: str, tmp_path: Path) -> None:
    path = tmp_path / "text.pcap"
    path.write_text("no capture, " * 20)
    result = run(command, str(path))
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_mistyped_command_is_guessed() -> None:
    result = run("reprot", str(SMALL))
    assert result.exit_code == 2
    assert "no command 'reprot'; did you mean report" in result.output
    assert "there are demo, help, info, report" in run("xyzzy").output
