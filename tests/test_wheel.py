"""The wheel, as a user has it: a program that uses the whole door is checked strictly against what is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import rdmascope
from rdmascope.captures.errors import EXTRAS

ROOT = Path(__file__).parents[1]
PROGRAM = '''"""A strict user of the door."""

from rdmascope import {names}

def slowest(path: str) -> list[tuple[int, str, int]]:
    with read(path, ports=[20050], limits=Limits()) as capture:
        return [(rpc.number, rpc.name, rpc.latency.total) for rpc in capture.rpcs() if rpc.latency is not None]

def rules(path: str) -> dict[str, int]:
    return {{finding.rule.id: finding.frames[0] for finding in Capture(path).findings("V1-*")}}

def handles(path: str) -> list[tuple[int, int]]:
    session = Session(path)
    found = [
        (one.advertised.handle, one.advertised.offset)
        for rpc in session.rpcs()
        for chunk in rpc.chunks
        for one in chunk.segments
    ]
    place: Place | None = session.place(1)
    return found if place is not None and place.frame == 1 else []

def packets(path: str) -> list[str]:
    return [packet.info for packet in read(path).packets(1, 60)]

def whole(rpc: Rpc) -> int:
    message: Reassembled | None = reassembled_call(rpc)
    return 0 if message is None else message.length

capture = {capture!r}
assert slowest(capture) and handles(capture) and packets(capture)
assert sum(whole(rpc) for rpc in read(capture)) > 0
assert len(read(capture).table("rpcs")["latency_ns"]) == len(slowest(capture))
assert rules(capture) is not None
print(__version__)
'''


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_strict_user_of_the_wheel(tmp_path: Path) -> None:
    source = tmp_path / "rdmascope"  # A copy, of the name that a clone has.
    parts = ["rdmascope", "cli", "captures", "dissect", "docs", "pyproject.toml", "setup.py", "README.md", "LICENSE"]
    for part in filter(Path.exists, (ROOT / part for part in parts)):
        if part.is_dir():
            shutil.copytree(part, source / part.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(part, source)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(source)]
    built = subprocess.run(build, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"pip cannot build a wheel here: {' '.join(built.stderr.split())[-200:]}")
    assert sorted(path.name for path in source.iterdir()) == sorted(parts)  # Building leaves nothing behind.
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    libraries = Path(
        run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(libraries)
    # What it depends on is taken from here; the package itself, which is installed before it, is not.
    (libraries / "here.pth").write_text(sysconfig.get_path("purelib"))
    capture = str(ROOT / "captures" / "samples" / "longcall-rxe.pcap.zst")
    (tmp_path / "user.py").write_text(PROGRAM.format(names=", ".join(rdmascope.__all__), capture=capture))
    where = run(str(python), "-c", "import rdmascope; print(rdmascope.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(libraries)
    for folder in (tmp_path, source, source / "cli"):  # No working directory breaks the import.
        run(str(python), "-c", "import rdmascope; rdmascope.read, rdmascope.CaptureError", cwd=folder)
    empty = tmp_path / "a folder"
    empty.mkdir()
    assert run(str(python), "-m", "rdmascope", "demo", cwd=empty).startswith("loss-rxe.pcap.zst: ")
    assert "4,473, 13.4 MiB" in run(str(python), "-m", "rdmascope", "info", "loss-rxe.pcap.zst", cwd=empty)
    assert run(str(python), "-m", "rdmascope", "help", "reads", cwd=empty).startswith("# What is read")
    assert run(str(python), "user.py", cwd=tmp_path).strip() == rdmascope.__version__
    # What the extras bring is no part of the door, and three times as much to analyse as all the rest.
    extras = ",".join(f"{name}.*" for name in (*EXTRAS, "hypothesis", "polars"))
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\n[mypy-{extras}]\nfollow_imports = skip\n")
    options = ["--num-workers=0", "--config-file=mypy.ini", "--python-executable", str(python)]
    checked = run(sys.executable, "-m", "mypy", *options, "user.py", cwd=tmp_path)
    assert "no issues found" in checked
