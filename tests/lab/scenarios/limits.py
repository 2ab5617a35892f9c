"""One slot for a session, then a delegation that comes back late: each is what the diagnosis names."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from ..evidence import RDMASCOPE, Check, Record, command, lines
from ..guests import Outcome

TRANSPORTS = ("rxe",)
DEADLINE = 500
NAMED = {"slots": "slots-exhausted", "recall": "recall-stalls"}
"""What is to be found behind each mark.  No credits: an emulated client needs more than the 100 µs within which
the next call follows the reply that brings a credit back."""


def judge(outcome: Outcome) -> Iterator[Check]:
    marks = command(
        "tshark", "-r", outcome.capture, "-Y", "udp.dstport == 9", "-T", "fields", "-e", "frame.number", "-e", "data"
    )
    frames = [(int(frame), bytes.fromhex(data).decode().strip()) for frame, data in map(str.split, marks.splitlines())]
    begins = {name: frame for frame, name in frames if name in NAMED}
    ends = [*begins.values(), 1 << 31][1:]
    for (name, begin), end in zip(begins.items(), ends, strict=True):
        part = outcome.folder / f"{name}.pcap"
        cut(outcome.capture, part, begin, end)
        kinds = {one["kind"]: one for one in diagnosed(part)}
        found = kinds[NAMED[name]]["text"] if NAMED[name] in kinds else ", ".join(kinds) or "nothing"
        yield Check(f"the diagnosis finds {NAMED[name]}", found, NAMED[name] in kinds)
        others = ", ".join(set(NAMED.values()) & kinds.keys() - {NAMED[name]})
        yield Check("and not the other", others or "none", not others)
    yield Check("both parts", str(len(begins)), len(begins) == len(NAMED))


def cut(capture: Path, part: Path, begin: int, end: int) -> None:
    """The frames from one to before the other."""
    subprocess.run(["editcap", "-r", capture, part, f"{begin}-{end - 1}"], check=True, timeout=120)


def diagnosed(part: Path) -> list[Record]:
    return lines(command(RDMASCOPE, "diagnose", "--json", "--fail-on", "never", part))
