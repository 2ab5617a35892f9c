"""No output overwrites what is read, whichever command writes it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from playbook.samples import SAMPLES
from rdmascope.captures import CaptureError
from rdmascope.captures.peer import shipped
from rdmascope.captures.write.output import open_output
from rdmascope.cli.main import COMMANDS, main

OVERWRITING = {
    ("audit", "junit_file"): ["audit", "{file}", "--junit", "{output}"],
    ("audit", "sarif_file"): ["audit", "{file}", "--sarif", "{output}"],
    ("batch", "data_set"): ["batch", "{file}", "--out", "{output}"],
    ("export", "output"): ["export", "{file}", "-o", "{output}"],
    ("files", "directory"): ["files", "{named}", "--extract", "{folder}"],
    ("packets", "output"): ["packets", "{file}", "-w", "{output}"],
    ("report", "output"): ["report", "{file}", "-o", "{output}"],
    ("sql", "output"): ["sql", "{file}", "SELECT 1", "-o", "{output}"],
    ("sql", "save"): ["sql", "{file}", "--save", "{output}"],
    ("synth", "output"): ["synth", "{script}", "-o", "{output}"],
}
"""What would overwrite what is read, for every option that names something to be written."""
READ_NO_FILE = {
    ("live", "path"),
    ("record", "output"),
    ("probe", "junit_file"),
    ("probe", "write_file"),
    ("extcap", "fifo"),
}
"""Options of commands that read none."""
WRITING = {"--output", "-o", "-w", "--write", "--save", "--junit", "--sarif", "--extract", "--fifo"}
"""Names of options that name something to be written."""


def options() -> set[tuple[str, str]]:
    """Every option that names something to be written."""
    context = click.Context(main, **main.context_settings)
    found = set()
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.is_flag:
                words = (parameter.help or "").lower()
                about = words.startswith(("write", "file to write", "keep the packets", "where to", "keep all"))
                if about or WRITING & {*parameter.opts}:
                    found.add((name, str(parameter.name)))
    return found


def test_every_output_is_known() -> None:
    assert options() == OVERWRITING.keys() | READ_NO_FILE


@pytest.mark.parametrize("name", ["itself", "symbolic link", "hard link"])
@pytest.mark.parametrize("option", OVERWRITING, ids=" ".join)
def test_every_command_refuses_to_overwrite_what_it_reads(option: tuple[str, str], name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.pcap.zst"
    shutil.copy(SAMPLES / "rxe-nfs-all.pcap.zst", file)
    folder = tmp_path / "files"  # Where the contents of /hello.txt would go.
    named = folder / "hello.txt"
    folder.mkdir()
    shutil.copy(file, named)
    script = tmp_path / "a.toml"
    shutil.copy(next(iter(sorted((Path(shipped.__file__).parent / "scripts").glob("*.toml")))), script)
    output = file if option[0] != "synth" else script
    if name == "symbolic link":
        output = tmp_path / "output"
        output.symlink_to(script if option[0] == "synth" else file)
    elif name == "hard link":
        output = tmp_path / "output"
        output.hardlink_to(script if option[0] == "synth" else file)
    before = contents(tmp_path)
    values = {"output": output, "file": file, "folder": folder, "named": named, "script": script}
    result = CliRunner().invoke(main, [one.format(**values) for one in OVERWRITING[option]])
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    kept = contents(tmp_path)
    assert {path: kept[path] for path in before} == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", "{file}", "--junit", "{new}", "--sarif", "{new}"], "two outputs cannot be one file"),
        (["probe", "127.0.0.1", "--suite", "conformance", "--write", "{new}", "--junit", "{new}"], "two outputs"),
        (["audit", "{file}", "--junit", "{none}/x"], "no such directory"),
        (["export", "{file}", "-o", "{file}/x"], "is no directory"),
        (["export", "{file}", "-o", "{folder}"], "is a directory"),
        (["synth", "v2-settles", "-o", "{folder}"], "is a directory"),
        (["probe", "127.0.0.1", "--write", "{none}/x"], "no such directory"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_done(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    file = shutil.copy(SAMPLES / "bidir-rxe.pcap.zst", tmp_path / "a.pcap.zst")
    names = {"file": file, "folder": tmp_path, "new": tmp_path / "new", "none": tmp_path / "none"}
    result = CliRunner().invoke(main, [argument.format(**names) for argument in arguments])
    message = str(result.exception) if isinstance(result.exception, CaptureError) else result.stderr
    assert words in message and result.exit_code, result.output
    assert [path.name for path in tmp_path.iterdir()] == ["a.pcap.zst"] and not result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "{file}", "--junit", "{file}"],
        ["audit", "{file}", "--sarif", "{file}"],
        ["audit", "{folder}", "--junit", "{file}"],
        ["audit", "{folder}", "--sarif", "{file}"],
        ["export", "{file}", "-o", "{file}"],
        ["export", "{folder}", "-o", "{file}"],
        ["synth", "{file}", "-o", "{file}"],
    ],
)
def test_no_output_overwrites_what_is_read(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "a.pcap.zst"
    shutil.copy(next(iter(sorted(SAMPLES.glob("*.zst")))), file)
    before = hashlib.sha256(file.read_bytes()).digest()
    result = CliRunner().invoke(main, [one.format(file=file, folder=tmp_path) for one in arguments])
    assert result.exit_code == 2, result.output
    assert hashlib.sha256(file.read_bytes()).digest() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.pcap.zst"]


@pytest.mark.parametrize("command", ["export", "report"])
def test_a_file_on_standard_input_is_an_input(command: str, tmp_path: Path) -> None:
    file = tmp_path / "a.pcap.zst"
    shutil.copy(SAMPLES / "longcall-rxe.pcap.zst", file)
    before = contents(tmp_path)
    words = [command, "-", "-o", str(file)]
    program = [sys.executable, "-c", "from rdmascope.cli.main import main; main()", *words]
    with file.open("rb") as stream:
        done = subprocess.run(program, stdin=stream, capture_output=True, text=True)
    assert (done.returncode, "would overwrite what is read" in done.stderr) == (2, True)
    assert contents(tmp_path) == before


def test_links_are_followed(tmp_path: Path) -> None:
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"capture")
    link.symlink_to(file)
    with pytest.raises(CaptureError, match="would overwrite"), open_output(link, [str(file)]):
        pass
    with pytest.raises(CaptureError, match="no such directory"), open_output(tmp_path / "none" / "x", []):
        pass
    with open_output(link, []) as written:
        written.write(b"output")
    assert link.is_symlink() and file.read_bytes() == b"output"
