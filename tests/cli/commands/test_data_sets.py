"""Every command that reads captures, on a data set of several: it answers as the captures do, in numbers of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from playbook.commands import objects, run
from playbook.fleets import Before, Fleet, make_fleet
from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.read.open import open_capture
from rdmascope.cli.main import main

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    found = make_fleet(tmp_path_factory.mktemp("fleet"))
    assert [(host, len(paths)) for host, paths, _ in found.captures] == [("db", 2), ("web1", 1), ("web2", 1)]
    assert all(before.frames and before.rpcs and before.connections for _, _, before in found.captures[1:])
    return found


NUMBERS = {"rpc": "rpcs", "connection": "connections", "frame": "frames", "number": "rpcs"}


def moved(value: Any, before: Before, type: str = "") -> Any:
    """A record with its numbers behind others, without what only several files have."""
    if isinstance(value, list):
        return [moved(one, before, type) for one in value]
    if not isinstance(value, dict):
        return value
    type = value.get("type", "")
    found = {}
    for name, inner in value.items():
        if name in ("place", "places", "host", "time_ns") or name.endswith(("_place", "_places")):
            continue
        if name == "number" and type not in ("rpc", "frame", "packet"):
            of = ""
        elif (name == "number" and type == "frame") or name in ("frame",) or name.endswith("_frame"):
            of = "frames"
        else:
            of = NUMBERS.get(name, "")
        if of and isinstance(inner, int):
            inner += getattr(before, of)
        elif name == "frames" and isinstance(inner, list):
            inner = [one + before.frames for one in inner]
        elif name == "rpcs" and isinstance(inner, list):
            inner = [one + before.rpcs for one in inner]
        elif name == "info" and isinstance(inner, str):
            inner = re.sub(r"(?<= In )\d+", lambda at: str(int(at[0]) + before.frames), inner)
            inner = re.sub(r"(?<=\bRPC )\d+", lambda at: str(int(at[0]) + before.rpcs), inner)
            inner = re.sub(r"(?<=\bconn )\d+", lambda at: str(int(at[0]) + before.connections), inner)
        else:
            inner = moved(inner, before)
        found[name] = inner
    return found


NOWHERE = Before(0, 0, 0)


def test_one_rpc_is_that_of_its_capture(fleet: Fleet) -> None:
    for host, paths, before in fleet.captures:
        for number in (1, 7):
            (wanted,) = objects("show", *paths, "--rpc", str(number), "--full")
            (found,) = objects("show", fleet.data_set, "--rpc", str(number + before.rpcs), "--full")
            assert found["host"] == host and found["call_place"]["file"] == paths[0]
            assert found["call_place"]["frame"] == wanted["call_frame"]
            assert moved(found, NOWHERE) == moved(wanted, before)
            (by_xid,) = objects("show", fleet.data_set, "--xid", hex(wanted["xid"]), "--full")
            assert by_xid == found
        page = run("show", fleet.data_set, "--rpc", str(before.rpcs + 1)).stdout
        assert page.startswith(f"RPC {before.rpcs + 1} ") and f", host {host}\n" in page


def test_one_frame_is_that_of_its_capture(fleet: Fleet) -> None:
    for _, paths, before in fleet.captures:
        rpc = objects("show", *paths, "--rpc", "1")[0]
        number = rpc["call_frame"]
        (wanted,) = objects("show", *paths, "--frame", str(number))
        (found,) = objects("show", fleet.data_set, "--frame", str(number + before.frames))
        assert found["rpcs"] == [before.rpcs + 1] and found["place"]["frame"] == number
        assert moved(found, NOWHERE) == moved(wanted, before)


def test_packets_are_those_of_the_captures_one_after_the_other(fleet: Fleet) -> None:
    wanted = [moved(one, before) for _, paths, before in fleet.captures for one in objects("packets", *paths)]
    assert [moved(one, NOWHERE) for one in objects("packets", fleet.data_set)] == wanted
    slow = ("--where", "latency_ns > 10e6")
    some = [moved(one, before) for _, paths, before in fleet.captures for one in objects("packets", *paths, *slow)]
    assert [moved(one, NOWHERE) for one in objects("packets", fleet.data_set, *slow)] == some != wanted
    first = fleet.captures[1][2].frames
    between = objects("packets", fleet.data_set, "--frame", f"{first - 20}-{first + 60}")
    assert {one["frame"] <= first for one in between} == {True, False}
    assert len(objects("packets", fleet.data_set, "-c", "3")) == 3
    tree = run("packets", fleet.data_set, "-V", "--frame", str(between[-1]["frame"])).stdout
    assert f" {between[-1]['frame']} " in tree


def test_what_is_not_there_is_said(fleet: Fleet) -> None:
    for arguments, words in (
        (("show", "--rpc", "100000"), "no RPC 100000; there are "),
        (("show", "--xid", "0x77"), "no RPC with xid 0x00000077"),
        (("show", "--frame", "100000"), "no frame 100000; there are "),
        (("packets", "--frame", "100000"), "no frame 100000; there are "),
        (("packets", "--where", "xid = 1"), "no RPC of "),
        (("export", "--to", "capture", "--rpc", "100000", "-o", os.devnull), "no RPC 100000; there are "),
        (("export", "--where", "xid = 1", "-o", os.devnull), "no RPC of "),
        (("show", "--rpc", "1", "--port", "7"), "--port and --as"),
        (("packets", "--follow"), "--follow is for a capture that is still written"),
    ):
        refused = run(arguments[0], fleet.data_set, *arguments[1:])
        assert refused.exit_code == 2 and words in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1 and fleet.data_set in refused.stderr


def test_frames_of_several_captures_are_one_capture_in_the_order_of_time(fleet: Fleet, tmp_path: Path) -> None:
    numbers = [before.rpcs + 3 for _, _, before in fleet.captures]
    output = tmp_path / "cut.pcapng"
    options = [word for number in numbers for word in ("--rpc", str(number))]
    (said,) = objects("export", "--to", "capture", fleet.data_set, "-o", str(output), *options)
    assert said["rpcs"] == said["connections"] == 3
    with open_capture(output) as capture:
        batches = [*capture.batches()]
        assert {one.name for one in capture.interfaces} == {host for host, *_ in fleet.captures}
    times = [time for batch in batches for time in batch.rows["time"].tolist()]
    assert times == sorted(times) and len(times) == said["frames"]
    cut = {one["xid"]: one["status"] for one in objects("rpcs", str(output))}
    whole = {one["number"]: one for one in objects("rpcs", fleet.data_set)}
    assert cut == {whole[number]["xid"]: whole[number]["status"] for number in numbers}
    comments = {text.split(", host ")[-1] for batch in batches for text in batch.comments.values()}
    assert comments == {host for host, *_ in fleet.captures}
    found = run(
        "export", "--to", "capture", fleet.data_set, "-o", str(output), "--where", "latency_ns > 10e6", "--anonymize"
    )
    assert found.exit_code == 0
    with open_capture(output) as capture:
        assert not any(text for batch in capture.batches() for text in batch.comments.values() if "host" in text)


def test_frames_are_of_files_with_names_that_tell_them_apart(tmp_path: Path) -> None:
    files = []
    for day, name in (("monday", "longcall-rxe"), ("tuesday", "loss-siw")):
        folder = tmp_path / "captures" / "web1" / day
        folder.mkdir(parents=True)
        files.append(str(shutil.copy(SAMPLES / MANIFEST[name]["file"], folder / "nfs.pcap.zst")))
    data_set, output = str(tmp_path / "set"), tmp_path / "cut.pcapng"
    assert run("batch", str(tmp_path / "captures"), "--out", data_set).exit_code == 0
    for paths, host in (([data_set], ", host web1"), (files, "")):
        assert (
            run("export", "--to", "capture", *paths, "--where", "number IN (3, 50)", "-o", str(output)).exit_code == 0
        )
        with open_capture(output) as capture:
            comments = [text for batch in capture.batches() for text in batch.comments.values()]
        assert {re.sub(r"^frame \d+ of ", "", text) for text in comments} == {path + host for path in files}


def test_messages_of_several_captures_are_one_capture(fleet: Fleet, tmp_path: Path) -> None:
    (said,) = objects("export", fleet.data_set, "-o", str(tmp_path / "all.pcapng"))
    apart = [objects("export", *paths, "-o", str(tmp_path / "one.pcapng"))[0] for _, paths, _ in fleet.captures]
    for name in ("messages", "incomplete", "skipped", "not_reconstructed", "packets"):
        assert said[name] == sum(one[name] for one in apart)
    (few,) = objects("export", fleet.data_set, "-o", str(tmp_path / "few.pcapng"), "--slower-than", "50ms")
    slow = objects("rpcs", fleet.data_set, "--slower-than", "50ms")
    assert few["messages"] == 2 * len(slow)


@needs_tshark
def test_wireshark_judges_each_capture(fleet: Fleet) -> None:
    found = objects("verify", fleet.data_set)
    wanted: Records = [moved(one, before) for _, paths, before in fleet.captures for one in objects("verify", *paths)]
    for records in (found, wanted):
        for one in records:
            if one.get("field") in ("frame.number", "rpc.reqframe", "rpc.repframe") or one["type"] == "verification":
                del one["schema"]
    for one in wanted:  # Fields that are numbers of frames are compared as such.
        one.pop("file", None)
    assert [one["type"] for one in found] == [one["type"] for one in wanted]
    sums = [one["compared"] for one in found if one["type"] == "verification"]
    assert sums == [one["compared"] for one in wanted if one["type"] == "verification"]
    assert [one.get("frame") for one in found] == [one.get("frame") for one in wanted]
    own = [one for one in found if one.get("field") == "frame.number" and one["rdmascope"]]
    assert own and all(one["rdmascope"] == [one["frame"]] for one in own)
    assert run("verify", fleet.data_set).stdout.count("beside tshark") == len(fleet.captures)


def test_wireshark_is_opened_on_all_of_it(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "wireshark"
    program.write_text(f'#!/bin/sh\nfor last; do :; done; cp "$last" {tmp_path}/seen.pcapng\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run("export", "--to", "wireshark", fleet.data_set).exit_code == 0
    run("export", fleet.data_set, "-o", str(tmp_path / "all.pcapng"))
    assert (tmp_path / "seen.pcapng").read_bytes() == (tmp_path / "all.pcapng").read_bytes()


def test_what_is_gone_or_changed_is_named_and_the_others_answer(fleet: Fleet, tmp_path: Path) -> None:
    (there, *_), (_, before) = fleet.of("web2")[0], fleet.of("web2")
    last = str(before.rpcs + 1)
    kept = tmp_path / "kept"
    shutil.move(there, kept)
    try:
        listed = run("packets", fleet.data_set, "--json")
        assert listed.exit_code == 2 and f"web2: {there}: no such file" in listed.stderr
        assert len(listed.stderr.splitlines()) == 1
        assert {json.loads(line)["place"]["file"] for line in listed.stdout.splitlines()} == {
            path for host, paths, _ in fleet.captures if host != "web2" for path in paths
        }
        both = run("show", fleet.data_set, "--rpc", "1", "--rpc", last)
        assert both.exit_code == 2 and both.stdout.startswith("RPC 1 ") and there in both.stderr
        assert run("show", fleet.data_set, "--rpc", "1").exit_code == 0
        alone = run("export", "--to", "capture", fleet.data_set, "--rpc", last, "-o", str(tmp_path / "none.pcapng"))
        assert alone.exit_code == 2 and alone.stderr.startswith(f"rdmascope: {fleet.data_set}: web2: {there}: ")
        frames = run("show", fleet.data_set, "--frame", f"{before.frames}-{before.frames + 3}")
        assert frames.stdout.startswith(f"frame {before.frames} is ") and frames.stderr.count(there) == 1
        Path(there).write_bytes(kept.read_bytes()[:-100])
        changed = run("show", fleet.data_set, "--rpc", last)
        assert changed.exit_code == 2 and f"{there}: not what was analysed any more" in changed.stderr
        shutil.copyfile(kept, there)  # The same contents at another time.
        assert run("show", fleet.data_set, "--rpc", last).exit_code == 0
    finally:
        shutil.move(kept, there)


REST: dict[str, Callable[[Fleet, Path], tuple[str, ...]]] = {
    "audit": lambda fleet, folder: (),
    "compare": lambda fleet, folder: (fleet.data_set,),
    "diagnose": lambda fleet, folder: (),
    "export": lambda fleet, folder: ("--to", "parquet", "-o", str(folder / "tables")),
    "files": lambda fleet, folder: (),
    "info": lambda fleet, folder: (),
    "report": lambda fleet, folder: (),
    "rpcs": lambda fleet, folder: (),
    "sessions": lambda fleet, folder: (),
    "sql": lambda fleet, folder: ("SELECT count(*) FROM rpcs",),
    "transport": lambda fleet, folder: (),
}
"""Commands that read tables, or all captures as one, and what else they are given."""
ASKED = {"show", "packets", "verify", "browse"}
"""Those above; of browse in its own tests."""
NOT_OF_CAPTURES = {"record", "batch", "demo", "extcap", "help", "live", "probe", "rules", "synth"}


def test_no_command_is_left_out() -> None:
    assert isinstance(main, click.Group)
    commands = set(main.list_commands(click.Context(main)))
    assert commands - NOT_OF_CAPTURES == ASKED | REST.keys()


@pytest.mark.parametrize("command", sorted(REST))
def test_the_other_commands_read_it(command: str, fleet: Fleet, tmp_path: Path) -> None:
    result = run(command, fleet.data_set, *REST[command](fleet, tmp_path))
    assert result.exit_code in (0, 1) and result.stdout and "internal error" not in result.stderr
    for line in result.stderr.splitlines():
        assert "the tables do not hold" in line
