"""Holds what rdmascope finds in a capture against what others counted: md5sum, the kernels, tshark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rdmascope.dissect.measure.kernel_counters import parse_mountstats

from .guests import Outcome

RDMASCOPE = Path(sys.executable).with_name("rdmascope")
MINUTES = 10
"""Longer no analysis may take."""

Record = dict[str, Any]


class Check(NamedTuple):
    """One line of the table."""

    expected: str
    found: str
    holds: bool


def equal(what: str, theirs: object, ours: object) -> Check:
    return Check(f"{what}: {theirs}", "the same" if ours == theirs else str(ours), ours == theirs)


def command(*words: str | Path) -> str:
    """What a command prints.  Raises CalledProcessError where it fails, with what it complained about."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=MINUTES * 60
    )
    if done.returncode:
        raise Failed(f"{Path(words[0]).name} {words[1]}: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


class Failed(Exception):
    """A command that the judgement needs did not end well."""


def records(outcome: Outcome, name: str, *options: str) -> list[Record]:
    """The JSON records of ``rdmascope NAME`` about the capture; of RPCs those over RDMA and those of mounts over TCP,
    without MOUNT and portmap."""
    found = lines(command(RDMASCOPE, name, "--json", outcome.capture, *options))
    if name != "rpcs":
        return found
    return [one for one in found if one["rdma_version"] is not None or one["program"] in OF_MOUNTS]


def over_rdma(found: Iterable[Record]) -> list[Record]:
    """RPCs without those of MOUNT and portmap, which go over TCP and UDP."""
    return [one for one in found if one["rdma_version"] is not None]


def lines(text: str) -> list[Record]:
    return [json.loads(line) for line in text.splitlines()]


def checksums(outcome: Outcome, without: Iterable[str] = ()) -> Iterator[Check]:
    """``fact md5 PATH``: those files as they were put together from the wire, without a hole or a conflict.

    NFSv3 calls the export's root /export, NFSv4 / (RFC 8881, 7.4).
    """
    folder = outcome.folder / "files"
    command(RDMASCOPE, "files", outcome.capture, "--extract", folder, "--force")
    manifest = json.loads((folder / "manifest.json").read_text())["files"]
    ours = {
        one["path"].removeprefix("/export"): one["md5"] if one["complete"] and not one["conflicts"] else "in doubt"
        for one in manifest
        if one["path"] is not None
    }
    theirs = {path: md5 for path, md5 in outcome.those("md5").items() if path not in without}
    wrong = [f"{path}: {ours.get(path, 'not found')}" for path, md5 in theirs.items() if ours.get(path) != md5]
    found = "; ".join(wrong[:3]) + f" and {len(wrong) - 3} more" * (len(wrong) > 3)
    yield Check(f"{len(theirs)} files with the guests' checksums", found or "the same", bool(theirs) and not wrong)


def marks(outcome: Outcome) -> list[tuple[int, str]]:
    """What ``mark`` said, with the number of the frame; an ICMP error that quotes it says nothing."""
    said = "udp.dstport == 9 and not icmp"
    listed = command("tshark", "-r", outcome.capture, "-Y", said, "-T", "fields", "-e", "frame.number", "-e", "data")
    return [
        (int(frame), bytes.fromhex(data).decode().strip())
        for frame, data in (line.split("\t") for line in listed.splitlines())
    ]


def parts(outcome: Outcome, names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The capture from the mark of each name to that of the next, in a file ``NAME.pcap``; without a mark, none."""
    wanted = set(names)
    begins = [(frame, word) for frame, word in marks(outcome) if word in wanted]
    ends = [frame - 1 for frame, _ in begins[1:]] + [1 << 31]
    for (begin, name), end in zip(begins, ends, strict=True):
        part = outcome.folder / f"{name}.pcap"
        command("editcap", "-r", outcome.capture, part, f"{begin}-{end}")
        yield name, part


def diagnosed(part: Path) -> dict[str, Record]:
    """What the diagnosis of a capture names, by kind."""
    found = lines(command(RDMASCOPE, "diagnose", "--json", "--fail-on", "never", part))
    return {one["kind"]: one for one in found}


OF_MOUNTS = ("NFS", "NFSACL")
"""Programs of which a mount's transport counts the calls; MOUNT, portmap and callbacks have others."""


def counted(outcome: Outcome) -> list[Record]:
    """The forward RPCs before the client's counters were noted: between a mark "unmounted" and the next "counted"."""
    frames = marks(outcome)

    def before_the_count(frame: int) -> bool:
        return next((word for at, word in frames if at > frame), "").startswith("counted")

    forward = [rpc for rpc in records(outcome, "rpcs", "--full") if rpc["direction"] == "forward" and rpc["call"]]
    return [rpc for rpc in forward if rpc["program"] in OF_MOUNTS and before_the_count(rpc["call_frame"])]


def client_counters(outcome: Outcome) -> Iterator[Check]:
    """The calls, replies and chunks that the client's transport counted, over all mounts that it noted."""
    theirs: Counter[str] = Counter()
    for path in sorted(outcome.folder.glob("mountstats.*")):
        for mount in parse_mountstats(path.read_text()):
            for line in mount.transports:
                theirs.update(line.counters)
    rpcs = counted(outcome)
    answers = [rpc for rpc in records(outcome, "rpcs") if rpc["direction"] == "backward" and rpc["reply_frame"]]
    yield equal("calls and backward replies that the client sent", theirs["sends"], len(rpcs) + len(answers))
    yield equal("replies that it received", theirs["receives"], sum(rpc["reply_frame"] is not None for rpc in rpcs))
    ours = Counter(chunk["kind"] for rpc in rpcs for chunk in rpc["chunk_list"] for _ in chunk["segments"])
    kinds = ("read", "write", "reply")
    segments = ", ".join(f"{theirs[f'{kind}_segments']} {kind}" for kind in kinds)
    found = ", ".join(f"{ours[kind]} {kind}" for kind in kinds)
    if theirs["failed_marshals"]:
        # A call that waits for memory to be registered is marshalled again, and its chunks are counted again.
        yield Check(
            f"at most {segments} segments", found, all(ours[kind] <= theirs[f"{kind}_segments"] for kind in kinds)
        )
    else:
        yield equal("segments", segments, found)


def client_procedures(outcome: Outcome, name: str, version: int) -> Iterator[Check]:
    """How often the client called which procedure of NFS, on the mount whose counters it noted under that name."""
    mounts = parse_mountstats(outcome.text(f"mountstats.{name}"))
    theirs = {
        name: one.calls
        for mount in mounts
        if mount.version == version
        for name, one in mount.operations.items()
        if one.calls
    }
    ours = Counter(rpc["procedure"] for rpc in counted(outcome) if (rpc["program"], rpc["version"]) == ("NFS", version))
    wrong = {
        name: (theirs.get(name, 0), ours[name])
        for name in theirs.keys() | ours.keys()
        if theirs.get(name) != ours[name]
    }
    what = f"{sum(theirs.values())} calls of {len(theirs)} procedures of NFSv{version}"
    yield Check(what, str(wrong) if wrong or not theirs else "the same", bool(theirs) and not wrong)


def unanswered(outcome: Outcome) -> Iterator[Check]:
    """No RPC in a state that a whole capture of a network without loss cannot explain."""
    states = Counter(rpc["state"] for rpc in records(outcome, "rpcs"))
    odd = {state: count for state, count in states.items() if state not in {"complete", "error", "no reply"}}
    yield Check(f"{states.total()} RPCs, all of them whole", str(odd or "they are"), not odd and states.total() > 0)


def wireshark(outcome: Outcome) -> Iterator[Check]:
    """tshark about the capture itself, and about the export of its RPCs to TCP."""
    reported = records(outcome, "verify")[-1]
    compared = {what: count["compared"] for what, count in reported["compared"].items()}
    unexplained = sum(count["unexplained"] for count in reported["compared"].values())
    what = f"tshark reads {compared['packet']:,} packets, {compared['call']:,} calls alike"
    yield Check(what, "it does" if reported["agree"] else f"{unexplained} differences", reported["agree"])

    exported = outcome.folder / "rpcs.pcapng"
    command(RDMASCOPE, "export", outcome.capture, "--to", "tcp-pcapng", "--skip-incomplete", "-o", exported)
    fields = [word for name in ("rpc.xid", "rpc.msgtyp", "_ws.malformed") for word in ("-e", name)]
    theirs: Counter[tuple[int, str]] = Counter()
    malformed = 0
    for row in command(
        "tshark", "-n", "-r", exported, "-2", "-Y", "rpc", "-T", "fields", "-E", "occurrence=a", *fields
    ).splitlines():
        xids, types, bad = row.split("\t")
        theirs.update((int(xid, 0), type) for xid, type in zip(xids.split(","), types.split(","), strict=True))
        malformed += bool(bad)
    ours: Counter[tuple[int, str]] = Counter()
    for rpc in lines(command(RDMASCOPE, "rpcs", "--json", outcome.capture)):
        if rpc["contents"] == "whole":
            ours.update(
                (rpc["xid"], type) for type, half in (("0", rpc["call_frame"]), ("1", rpc["reply_frame"])) if half
            )
    problems = (theirs - ours).total() + (ours - theirs).total() + malformed
    expected = f"tshark reads {ours.total():,} RPC messages in the export"
    yield Check(expected, f"{problems} missing or malformed" if problems else "it does", not problems)


def audited(outcome: Outcome, *options: str, known: Iterable[str] = ()) -> Iterator[Check]:
    """The audit finds no rule broken but the known ones."""
    broken = Counter(one["rule"] for one in findings(outcome, *options) if one["type"] == "finding")
    new = {rule: count for rule, count in broken.items() if rule not in set(known)}
    expected = "no rule broken" + f" but {', '.join(known)}" * bool(known)
    yield Check(expected, ", ".join(f"{rule} ×{count}" for rule, count in new.items()) or "none", not new)


def findings(outcome: Outcome, *options: str) -> list[Record]:
    """``rdmascope audit --json``, whose exit status tells whether there are any."""
    done = subprocess.run(
        [RDMASCOPE, "audit", "--json", outcome.capture, *options], capture_output=True, text=True, timeout=MINUTES * 60
    )
    if not done.stdout:
        raise Failed(f"audit: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return lines(done.stdout)


OF_KNFSD = ("PD-INVALIDATE-AGREED",)
"""Rules that Linux 6.1's knfsd breaks on every connection: it invalidates without having set R."""
OF_CLIENTS = ("V1-HANDLE-PREDICTABLE",)
"""Linux's client counts the handles of each index up; how often in a row depends on the order of the calls."""


def always(outcome: Outcome) -> Iterator[Check]:
    """What holds of every capture of NFS: all who counted agree."""
    if any(outcome.folder.glob("mountstats.*")):
        yield from client_counters(outcome)
    yield from unanswered(outcome)
    yield from wireshark(outcome)
    yield from audited(outcome, known=OF_KNFSD + OF_CLIENTS)


def healthy(outcome: Outcome) -> Iterator[Check]:
    """Neither kernel complained."""
    words = re.compile(r"BUG:|WARNING:|Oops|general protection|Call Trace|blocked for more than")
    found = [
        f"{role}: {line.strip()}"
        for role in ("server", "client")
        for line in outcome.text(f"{role}.dmesg").splitlines()
        if words.search(line)
    ]
    yield Check("both kernels content", found[0][:70] if found else "they are", not found)
