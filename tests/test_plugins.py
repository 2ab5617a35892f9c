"""Plug-ins from files and from a package, as docs/plugins.md has them; and those that fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from struct import pack

import pytest

from playbook import Call, Capture, Reply, Wire, call, nfs3, reply
from playbook.capture import write_pcap
from playbook.commands import SAMPLES
from playbook.rpc import opaque, u32
from playbook.terminal import Terminal

PAGE = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text()
EXAMPLES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
LOW = str(SAMPLES / "v2-settles.pcap.zst")


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    folder = tmp_path / "some plug-ins"
    folder.mkdir()
    for name, text in EXAMPLES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def private(tmp_path: Path) -> str:
    """Polls with NULL, and a call of a program of its own."""
    wire = Wire()
    conn = wire.connect()
    for _ in range(5):
        reply(call(conn, Call(nfs3.PROGRAM, 3, 0)), Reply())
    reply(call(conn, Call(0x20049999, 1, 1, (opaque(b"old") + opaque(b"newer"),))), Reply((u32(7),)))
    write_pcap(Capture(wire).frames, tmp_path / "private.pcap")
    return str(tmp_path / "private.pcap")


def run(*arguments: str, status: int = 0, **more: str) -> tuple[str, str]:
    program = [sys.executable, "-m", "rdmascope", *arguments]
    environment = {**os.environ, "COLUMNS": "120", **more}
    done = subprocess.run(program, capture_output=True, text=True, env=environment, cwd=SAMPLES)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    return done.stdout, done.stderr


def test_a_rule(plugins: Path, tmp_path: Path) -> None:
    given = "--plugin", str(plugins / "site_rule.py")
    found, errors = run("audit", LOW, "--json", *given)
    findings = [one for one in map(json.loads, found.splitlines()) if one["type"] == "finding"]
    assert "SITE-CREDITS" in {one["rule"] for one in findings} and errors == ""
    verdicts = [one for one in map(json.loads, found.splitlines()) if one.get("rule") == "SITE-CREDITS"]
    assert any("credits granted" in str(one) for one in verdicts)
    assert "the nightly backup waits" in run("rules", "SITE-CREDITS", *given)[0]
    assert "SITE-CREDITS" in run("rules", *given)[0] and "SITE-CREDITS" not in run("rules")[0]
    run("report", LOW, "-o", str(tmp_path / "page.html"), *given)
    assert "SITE-CREDITS" in (tmp_path / "page.html").read_text()
    rule = ["sql", LOW, "SELECT DISTINCT rule FROM findings WHERE rule LIKE 'SITE%'", "--json", *given]
    assert json.loads(run(*rule)[0]) == {"rule": "SITE-CREDITS"}


def test_a_rule_is_asked_of_every_message(plugins: Path) -> None:
    """However alike those are for the rules of rdmascope."""
    given = "--plugin", str(plugins / "site_rule.py")
    capture = str(SAMPLES / "loss-siw.pcap.zst")
    printed, _ = run("audit", capture, "--rule", "SITE-CREDITS", *given)
    replies = len(
        [one for one in map(json.loads, run("rpcs", capture, "--json")[0].splitlines()) if one["reply_frame"]]
    )
    assert re.search(rf"server .* 1 +- +- +- +{replies}$", printed, re.MULTILINE), printed


def test_processes_load_them_too(plugins: Path, private: str, tmp_path: Path) -> None:
    """Those of ``batch``, which begin anew, and those of ``--jobs``; what fails in several is said once."""
    fails = EXAMPLES["site_rule.py"].replace("SITE-CREDITS", "SITE-FAILS")
    (plugins / "fails.py").write_text(fails.replace("credits = sent", "credits = 1 // 0 + sent"))
    (plugins / "broken.py").write_text("def (")
    given = [f"--plugin={plugins / name}" for name in ("site_rule.py", "fails.py", "broken.py", "host_program.py")]
    data_set = str(tmp_path / "set")
    _, errors = run("batch", LOW, private, "-o", data_set, "--jobs", "2", *given)
    assert sorted(re.findall("plug-in (.*?): .*?: (.*?):", errors)) == [
        ("broken.py", "SyntaxError"),
        ("fails.py", "ZeroDivisionError"),
    ]
    query = "SELECT DISTINCT rule FROM findings WHERE rule LIKE 'SITE%'"
    assert json.loads(run("sql", data_set, query, "--json")[0]) == {"rule": "SITE-CREDITS"}
    query = "SELECT count(*) AS renamed FROM rpcs WHERE procedure = 'RENAME_HOST'"
    assert json.loads(run("sql", data_set, query, "--json")[0]) == {"renamed": 1}
    one, two = (run("audit", LOW, "--json", "--jobs", jobs, *given[:1])[0] for jobs in "12")
    assert "SITE-CREDITS" in one and one == two


def test_a_detector(plugins: Path, private: str, tmp_path: Path) -> None:
    given = "--plugin", str(plugins / "null_polls.py")
    printed, _ = run("diagnose", private, *given, status=1)
    assert "5 of 6 RPCs are NULL" in printed
    (found,) = (json.loads(line) for line in run("diagnose", private, "--json", *given, status=1)[0].splitlines())
    assert "null-polls" in str(found)
    run("report", private, "-o", str(tmp_path / "page.html"), *given)
    assert "5 of 6 RPCs are NULL" in (tmp_path / "page.html").read_text()
    assert "null-polls" in run("rules", "null-polls", *given)[0]
    assert "NULL calls" not in run("diagnose", str(SAMPLES / "meta-rxe.pcap.zst"), *given)[0]


def test_a_program(plugins: Path, private: str) -> None:
    shown, _ = run("show", private, "--rpc", "6", "--plugin", str(plugins / "host_program.py"))
    assert "RENAME_HOST" in shown and "newer" in shown and "HOSTD" in shown
    assert "RENAME_HOST" not in run("show", private, "--rpc", "6")[0]


def test_they_are_in_browse(plugins: Path, private: str, tmp_path: Path) -> None:
    def browsed(capture: str, *names: str) -> Terminal:
        (tmp_path / names[0]).mkdir()
        given = [f"--plugin={plugins / name}" for name in names]
        return Terminal([sys.executable, "-m", "rdmascope", "browse", capture, *given], tmp_path / names[0])

    with_program = browsed(private, "host_program.py", "null_polls.py")
    with_program.until("RENAME_HOST")
    with_program.press("5")
    with_program.until("5 of 6 RPCs are NULL")
    with_rule = browsed(LOW, "site_rule.py")
    with_rule.until("NULL")
    with_rule.press("\x1b[Z")  # The list before the first one is that of findings.
    with_rule.until("SITE-CREDITS")
    for terminal in (with_program, with_rule):
        terminal.press("q")
        assert terminal.ended() == 0


def test_an_exporter(plugins: Path, private: str, tmp_path: Path) -> None:
    given = "--to", "lines", "-o", str(tmp_path / "out"), "--plugin", str(plugins / "lines.py")
    run("export", private, *given)
    assert (tmp_path / "out").read_text().splitlines()[0] == "1 NULL OK"
    assert len((tmp_path / "out").read_text().splitlines()) == 6
    (plugins / "lines.py").write_text(EXAMPLES["lines.py"].replace("for rpc", "1 // 0\n    for rpc"))
    refused = run("export", private, *given, status=2)[1]
    assert refused.startswith("rdmascope: plug-in lines.py: lines: ZeroDivisionError: ") and refused.count("\n") == 1
    assert (tmp_path / "out").read_text().startswith("1 NULL OK")


def test_a_file_format(plugins: Path, tmp_path: Path) -> None:
    wire = Wire()
    reply(call(wire.connect(), Call(nfs3.PROGRAM, 3, 0)), Reply())
    frames = Capture(wire).frames
    trace = tmp_path / "x.trace"
    trace.write_bytes(b"OURTRACE" + b"".join(pack(">QI", one.time, len(one.data)) + one.data for one in frames))
    given = "--plugin", str(plugins / "tracer.py")
    assert "our tracer's" in run("info", str(trace), *given)[0]
    (rpc,) = run("rpcs", str(trace), "--json", *given)[0].splitlines()
    assert (json.loads(rpc)["procedure"], json.loads(rpc)["state"]) == ("NULL", "complete")
    assert "not a capture" in run("info", str(trace), status=2)[1]
    trace.write_bytes(trace.read_bytes() + b"cut")
    refused = run("rpcs", str(trace), *given, status=2)[1]
    assert "x.trace: plug-in tracer.py: frames: error: unpack requires" in refused


def test_from_a_package_of_their_own(plugins: Path, private: str) -> None:
    info = plugins / "ours-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: ours\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[rdmascope.rules]\nsite = site_rule\n[rdmascope.detectors]\npolls = null_polls\n"
        "[rdmascope.programs]\nhost = host_program\nbroken = nowhere\n"
    )
    printed, errors = run("rules", PYTHONPATH=str(plugins))
    assert "SITE-CREDITS" in printed
    assert errors == (
        "rdmascope: plug-in broken: loading it: ModuleNotFoundError: No module named 'nowhere';"
        " left out, the rest goes on\n"
    )
    assert "5 of 6 RPCs are NULL" in run("diagnose", private, PYTHONPATH=str(plugins), status=1)[0]


BROKEN = {
    "syntax": ("def (", "loading it: SyntaxError"),
    "exit": ("raise SystemExit(3)", "loading it: SystemExit"),
    "taken": (EXAMPLES["site_rule.py"].replace("SITE-CREDITS", "V1-VERSION"), "there is a rule V1-VERSION already"),
    "judge": (EXAMPLES["site_rule.py"].replace("credits = sent", "credits = 1 // 0 + sent"), "ZeroDivisionError"),
    "detect": (EXAMPLES["null_polls.py"].replace("share = calls", "share = 1 // 0 + calls"), "ZeroDivisionError"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_that_fails_is_named_and_the_rest_goes_on(name: str, plugins: Path) -> None:
    text, words = BROKEN[name]
    (plugins / "broken.py").write_text(text)
    command = "diagnose" if name == "detect" else "audit"
    capture = str(SAMPLES / "loss-rxe.pcap.zst")
    alone, _ = run(command, capture, "--json", status=1)
    printed, errors = run(command, capture, "--json", "--plugin", str(plugins / "broken.py"), status=1)
    assert errors.startswith("rdmascope: plug-in broken.py: ") and words in errors and errors.count("\n") == 1
    ours = [line for line in printed.splitlines() if "SITE-CREDITS" not in line and '"type":"audit"' not in line]
    assert ours == [line for line in alone.splitlines() if '"type":"audit"' not in line]


def test_a_file_that_is_not_there() -> None:
    assert run("rules", "--plugin", "/nowhere/x.py", status=2)[1] == "rdmascope: /nowhere/x.py: no such plug-in\n"
    assert "--plugin takes a FILE" in run("rules", "--plugin", status=2)[1]
