"""What is measured, and the bars: every row compares two commands on one input.

A command is a tuple of words; the input's path follows them.  ``{folder}`` in one is a new and empty folder.
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
    """How many times as fast as ``against`` it has to be, in seconds of processor time."""
    memory: Command | None = None
    """The command that has to need more than three times the memory; None for no bar."""
    limit: int | None = None
    """MiB of memory that must not be reached."""
    usual: bool = True
    """Measured where no rows are named."""
    elapsed: bool = False
    """Seconds on the clock count, not those of the processors."""


def command(*words: str) -> Command:
    return "rdmascope", *words


ROWS = (
    Row("metadata-report", "metadata", REPORT, PROGRAMS, 4.3, PROGRAMS, 100),
    Row("metadata-packets", "metadata", command("packets"), LIST, 1.0, LIST),
    *(
        # A third as fast is three times the cost.
        Row(f"metadata-{name}", "metadata", words, REPORT, 1 / times, PROGRAMS)
        for name, times, words in (
            ("diagnose", 3, command("diagnose")),
            ("page", 3, command("report", "-o", "{folder}/page.html")),
            ("audit", 2.5, command("audit")),
            ("rpcs", 2, command("rpcs", "--json")),
            ("where", 1.7, command("rpcs", "--json", "--where", "latency_ns > 1s")),
            ("sessions", 1.7, command("sessions", "--json")),
            ("files", 1.7, command("files", "--json")),
            ("transport", 1.7, command("transport", "--json")),
            ("credits", 1.7, command("transport", "--credits", "--json")),
            ("info", 1.7, command("info", "--json")),
            ("export", 5, command("export", "-o", "{folder}/rpcs.pcapng")),
            ("parquet", 5, command("export", "--to", "parquet", "-o", "{folder}/tables")),
            ("sql", 5, command("sql", "-q", "SELECT procedure, count(*) FROM rpcs GROUP BY ALL")),
        )
    ),
    *(
        Row(f"{name}-report", name, REPORT, PROGRAMS, speed, PROGRAMS, 150)
        for name, speed in (
            ("missing-0.1", 3.5),
            ("missing-1", 3.5),
            ("retransmitted", 3.5),
            ("reordered", 3.5),
            ("mirrored", 4.0),
            ("truncated", 3.0),
            ("iwarp-metadata", 2.0),
            ("tcp-metadata", 3.0),
            ("iwarp-bulk", 3.0),
            ("krb5", 3.5),
            ("mount", 4.3),
            ("short", 2.5),
            ("bulk-4096", 5.0),
            ("bulk-1024", 5.0),
            ("server", 3.0),
        )
    ),
    Row("server-jobs", "server", (*REPORT, "--jobs", "2"), (*REPORT, "--jobs", "1"), 1.6, elapsed=True),
    *(Row(f"curve-{power}", f"curve-{power}", REPORT, PROGRAMS, 0.0, PROGRAMS, usual=False) for power in (4, 5, 6, 7)),
)
"""In the order in which they are measured; the curve, 10^4 to 10^7 frames, only where it is asked for by name."""
