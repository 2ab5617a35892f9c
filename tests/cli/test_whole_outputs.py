"""What every writing command leaves where it is interrupted, or the disk is full: the older file, and nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from playbook.commands import LONG_CALLS, PROGRAM, run
from playbook.samples import SAMPLES
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.read.open import open_capture
from rdmascope.captures.wireshark.second_opinion import TsharkInput
from rdmascope.captures.write.output import OutputFolder, named_spool, open_growing, open_output, write_output

BULK = str(SAMPLES / "loss-siw.pcap.zst")
FILES = {
    "extract": ("export", "--to", "capture", BULK, "--where", "true", "-o", "OUT.pcapng"),
    "extract --anonymize": ("export", "--to", "capture", BULK, "--where", "true", "--anonymize", "-o", "OUT.pcapng"),
    "packets -w": ("packets", BULK, "-w", "OUT.pcapng"),
    "export": ("export", BULK, "-o", "OUT.pcapng"),
    "sql -o": ("sql", BULK, "FROM packets", "-o", "OUT.csv"),
    "sql -o json": ("sql", BULK, "FROM packets", "-o", "OUT.json"),
    "sql --save": ("sql", BULK, "--save", "OUT.duckdb"),
    "synth": ("synth", "v2-settles", "-o", "OUT.pcapng"),
    "report -o": ("report", BULK, "-o", "OUT.html"),
    "audit --junit": ("audit", BULK, "--junit", "OUT.xml"),
    "audit --sarif": ("audit", BULK, "--sarif", "OUT.json"),
}
"""Commands that write one file."""
FOLDERS = {
    "files --extract": ("files", BULK, "--extract", "OUT"),
    "export --to parquet": ("export", BULK, "--to", "parquet", "-o", "OUT"),
    "export --to csv": ("export", BULK, "--to", "csv", "-o", "OUT"),
    "sql --save": ("sql", BULK, "--save", "OUT"),
    "batch": ("batch", BULK, "--out", "OUT", "-j", "1"),
}
SECRET = {*FILES, *FOLDERS} - {"synth", "report -o", "audit --junit", "audit --sarif"}
"""Commands whose outputs may hold what was in the capture."""
SMALL = 4 << 10
"""Bytes that a file may have on the full disk of these tests."""


def words(command: tuple[str, ...], folder: Path) -> list[str]:
    return [one.replace("OUT", str(folder / "out")) if one.startswith("OUT") else one for one in command]


def target(arguments: list[str]) -> Path:
    return next(Path(one) for one in arguments if os.path.basename(one).startswith("out"))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def on_a_full_disk(arguments: list[str], size: int, tmp: Path) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    # Python 3.11 writes half the bytecode of a module there without a word, and then no program can load it.
    environment = os.environ | {"TMPDIR": str(tmp), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, preexec_fn=limit, env=environment)


@pytest.mark.parametrize("command", FILES)
def test_the_older_file_stays_where_the_disk_is_full(command: str, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    arguments = words(FILES[command], tmp_path)
    target(arguments).write_bytes(b"older")
    size = 64 if command in ("synth", "audit --junit", "audit --sarif") else SMALL
    done = on_a_full_disk(arguments, size, tmp_path / "tmp")
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert "internal" not in line and (str(tmp_path) in line), line
    assert tree(tmp_path) == {str(target(arguments)): b"older"}


@pytest.mark.parametrize("command", FOLDERS)
def test_no_folder_is_begun_where_the_disk_is_full(command: str, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    arguments = words(FOLDERS[command], tmp_path)
    done = on_a_full_disk(arguments, SMALL, tmp_path / "tmp")
    assert done.returncode == 2, done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "internal" not in lines[0] and str(tmp_path) in lines[0], done
    left = [path for path in tree(tmp_path) if command != "batch" or "snapshots" not in path]
    assert left == []


@pytest.mark.parametrize(
    ("command", "free"),
    [("sql", 64), ("sql", 16), ("sql", 0), ("batch", 16), ("batch", 0), ("batch onto it", 64), ("batch onto it", 0)],
)
def test_one_line_where_a_disk_of_64_kib_is_full(command: str, free: int, tmp_path: Path) -> None:
    """The folder of temporary files, and in the last case of the data set, too; ``free``: KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = {
        "sql": ["sql", BULK, "FROM packets ORDER BY time", "--json"],
        "batch": ["batch", BULK, "-j", "1", "--out", str(tmp_path / "out")],
        "batch onto it": ["batch", BULK, "-j", "1", "--out", str(disk / "out")],
    }[command]
    mount = f"mount -t tmpfs -o size=64k none {disk} || exit 77"
    mount += f"; dd if=/dev/zero of={disk}/fill bs=1k count={64 - free} 2>/dev/null"
    script = f'{mount}; "$@"; status=$?; [ -z "$(ls -A {disk}/rdmascope-* 2>/dev/null)" ] || exit 78; exit $status'
    environment = os.environ | {"TMPDIR": str(disk)}
    mounted = ["unshare", "-m", "sh", "-c", script, "sh", *PROGRAM, *arguments]
    if os.geteuid() == 0 and shutil.which("unshare"):
        done = subprocess.run(mounted, capture_output=True, text=True, env=environment)
    if os.geteuid() or not shutil.which("unshare") or done.returncode in (1, 77):
        done = on_a_full_disk(arguments, SMALL, disk)
    lines = done.stderr.splitlines()
    if done.returncode == 0:  # It did without temporary files.
        assert command != "batch onto it" and lines == []
    else:
        assert done.returncode == 2 and len(lines) == 1 and "internal" not in lines[0], done
        assert str(disk) in lines[0] or str(tmp_path / "out") in lines[0]
        assert ("TMPDIR may name" in lines[0]) == (command != "batch onto it") and "None" not in lines[0]


@pytest.mark.parametrize("command", [*FILES, *FOLDERS])
def test_permissions(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o022)
    try:
        for asked in (False, True):
            if asked:
                monkeypatch.setenv("RDMASCOPE_UMASK", "1")
            folder = tmp_path / str(asked)
            folder.mkdir()
            arguments = words((FILES | FOLDERS)[command], folder)
            run(*arguments)
            modes = {stat.S_IMODE(os.stat(path).st_mode) for path in tree(folder)}
            assert modes == {0o600 if command in SECRET and not asked else 0o644}
    finally:
        os.umask(before)


class TestOutput:
    def test_nothing_is_there_before_it_is_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        path.write_bytes(b"older")
        for error in (ValueError, KeyboardInterrupt, SystemExit, CaptureError):
            with pytest.raises(error), open_output(path, ()) as file:
                file.write(b"newer" * 100_000)
                assert path.read_bytes() == b"older"
                raise error
            assert tree(tmp_path) == {str(path): b"older"}
        with open_output(path, ()) as file:
            file.write(b"newer")
        assert tree(tmp_path) == {str(path): b"newer"}

    def test_what_was_killed_is_removed_by_the_next(self, tmp_path: Path) -> None:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            with open_output(tmp_path / "out", ()) as file:
                file.write(b"contents of a capture")
                file.flush()
                os.write(writing, b"x")
                signal.pause()
        os.read(reading, 1)
        with open_output(tmp_path / "beside", ()) as file:
            file.write(b"1")
        assert any(b"contents" in data for data in tree(tmp_path).values())  # Its process lives.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with open_output(tmp_path / "beside", ()) as file:
            file.write(b"2")
        assert tree(tmp_path) == {str(tmp_path / "beside"): b"2"}

    def test_a_pipe_takes_bytes_as_they_come(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        write_output(tmp_path / "pipe", "text", ())
        assert os.read(reader, 10) == b"text"
        os.close(reader)
        write_output("/dev/null", "text", ())

    def test_a_folder_is_filled_at_once(self, tmp_path: Path) -> None:
        with OutputFolder(tmp_path / "made") as folder:
            for name in ("a", "b"):
                with folder.create(name) as file:
                    file.write(name.encode())
            assert not any(path.name in "ab" for path in (tmp_path / "made").iterdir())
        assert tree(tmp_path) == {str(tmp_path / "made" / name): name.encode() for name in "ab"}
        with pytest.raises(ValueError, match="later"), OutputFolder(tmp_path / "other") as folder:
            folder.create("a").close()
            raise ValueError("later")
        assert not (tmp_path / "other").exists()
        for name in ("..", "a/b", ""):
            with pytest.raises(ValueError, match="is no name"), OutputFolder(tmp_path / "other") as folder:
                folder.create(name)

    def test_a_file_that_may_not_be_written_is_not_replaced(self, tmp_path: Path) -> None:
        if os.geteuid() == 0:
            pytest.skip("root may write everything")
        path = tmp_path / "out"
        path.write_bytes(b"older")
        path.chmod(0o400)
        with pytest.raises(CaptureError, match="Permission denied"), open_output(path, ()):
            pass
        assert path.read_bytes() == b"older"

    def test_what_is_read_while_it_grows(self, tmp_path: Path) -> None:
        with open_growing(str(tmp_path / "live")) as file:
            file.write(b"frames")
            file.flush()
            assert (tmp_path / "live").read_bytes() == b"frames"
        assert stat.S_IMODE((tmp_path / "live").stat().st_mode) == 0o600


def test_what_tshark_reads_is_private_and_goes_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with TsharkInput([LONG_CALLS]) as readable, open_capture(LONG_CALLS) as capture:
            readable.add(next(capture.batches()))
            readable.finish()
            os.write(writing, readable.path.encode())
            signal.pause()
    copy = Path(os.read(reading, 4096).decode())
    assert copy.is_relative_to(tmp_path) and copy.stat().st_size > 10_000
    assert (stat.S_IMODE(copy.stat().st_mode), stat.S_IMODE(copy.parent.stat().st_mode)) == (0o600, 0o700)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with named_spool("messages.pcapng") as (path, _):
        assert not copy.exists() and Path(path).exists()
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_while_programs_start_is_one_line(number: signal.Signals, tmp_path: Path) -> None:
    """At every stage of the start-up: the program gets the signal as soon as it has imported so many modules."""
    program = (
        "import os, sys\n"
        "class Count:\n"
        "    left = int(sys.argv.pop(1))\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        self.left -= 1\n"
        f"        if not self.left: os.kill(os.getpid(), {int(number)})\n"
        "from rdmascope.__main__ import program\n"
        "sys.meta_path.insert(0, Count())\n"
        "program()\n"
    )
    for after in (2, 10, 30, 60, 100, 200, 300, 400):
        done = subprocess.run(
            [PROGRAM[0], "-c", program, str(after), "report", LONG_CALLS], capture_output=True, text=True
        )
        said = "rdmascope: interrupted\n" if number == signal.SIGINT and done.returncode else ""
        assert (done.returncode in (128 + number, 0, -number), done.stderr) == (True, said), after


def test_ctrl_c_does_not_leave_half_of_an_export(tmp_path: Path) -> None:
    """The first Ctrl-C ends the reading of a report; what is written would look like all of it."""
    pipe = tmp_path / "capture"
    os.mkfifo(pipe)
    target = tmp_path / "out.pcapng"
    target.write_bytes(b"older")
    with subprocess.Popen([*PROGRAM, "export", str(pipe), "-o", str(target)], stderr=subprocess.PIPE) as process:
        with pipe.open("wb") as writing:
            writing.write(Path(LONG_CALLS).read_bytes()[:50_000])
            writing.flush()
            process.send_signal(signal.SIGINT)
            process.wait(60)
        assert process.stderr is not None
        assert process.returncode == 130 and len(process.stderr.read().splitlines()) <= 1
    assert target.read_bytes() == b"older" and not [*tmp_path.glob(".*")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_a_callback_is_not_lost(number: signal.Signals, tmp_path: Path) -> None:
    """Python drops what is raised there, as of a weak reference while a module is imported."""
    pipe = tmp_path / "capture"
    os.mkfifo(pipe)
    program = (
        "import os, sys\n"
        "class Dropped:\n"
        f"    def __del__(self): os.kill(os.getpid(), {int(number)})\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'rdmascope.captures.read.file_info': Dropped()\n"
        "from rdmascope.cli.main import main\n"
        "sys.meta_path.insert(0, Finder())\n"
        "main()\n"
    )
    done = subprocess.run([PROGRAM[0], "-c", program, "info", str(pipe)], capture_output=True, text=True, timeout=60)
    said = "rdmascope: interrupted\n" if number == signal.SIGINT else ""
    assert (done.returncode, done.stderr) == (128 + number, said)
