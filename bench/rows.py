"""What is measured, and the bars: every row compares two commands on one input.

A command is a tuple of words; the input's path follows them.
"""

from __future__ import annotations

from typing import NamedTuple

Command = tuple[str, ...]

PROGRAMS: Command = ("tshark", "-2", "-q", "-z", "rpc,programs", "-r")
"""tshark in two passes, with the statistics that need what reassembly gives."""
LIST: Command = ("tshark", "-r")
"""tshark's list of packets, in one pass."""
REPORT: Command = ("rdmascope", "report", "--json")

MEMORY = 1 / 3
"""The part of tshark's memory that must not be reached."""


class Row(NamedTuple):
    name: str
    input: str
    ours: Command
    against: Command
    speed: float
    """How many times as fast as ``against`` it has to be."""
    memory: Command | None
    """The command that has to need more than three times the memory; None for no bar."""
    usual: bool = True
    """Measured where no rows are named."""


ROWS = (
    Row("metadata-report", "metadata", REPORT, PROGRAMS, 3.0, PROGRAMS),
    Row("metadata-audit", "metadata", ("rdmascope", "audit"), PROGRAMS, 1.0, PROGRAMS),
    Row("metadata-packets", "metadata", ("rdmascope", "packets"), LIST, 1.0, LIST),
    Row("metadata-rpcs", "metadata", ("rdmascope", "rpcs", "--json"), REPORT, 0.5, PROGRAMS),
    Row("mount-report", "mount", REPORT, PROGRAMS, 3.0, PROGRAMS),
    Row("short-report", "short", REPORT, PROGRAMS, 3.0, PROGRAMS),
    Row("bulk-4096-report", "bulk-4096", REPORT, PROGRAMS, 4.5, PROGRAMS),
    Row("bulk-1024-report", "bulk-1024", REPORT, PROGRAMS, 4.5, PROGRAMS),
    Row("server-report", "server", REPORT, PROGRAMS, 3.0, PROGRAMS),
    Row("server-jobs", "server", (*REPORT, "--jobs", "2"), (*REPORT, "--jobs", "1"), 1.6, None),
    *(Row(f"curve-{power}", f"curve-{power}", REPORT, PROGRAMS, 0.0, PROGRAMS, usual=False) for power in (4, 5, 6, 7)),
)
"""In the order in which they are measured; the curve, 10^4 to 10^7 frames, only where it is asked for by name."""
