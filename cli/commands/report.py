"""``rdmascope report``: what a capture holds."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import click

from rdmascope.captures import CaptureError
from rdmascope.dissect.link.packets import skipped_words
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.records import nouns as records
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

from ..reading import Reading, analyzer_options, follow_options, following, recognition_options
from ..terminal import EXIT_BAD_INPUT, complain, console, print_json, show

THROUGHPUT_BINS = 100
"""Stretches of time in --json."""


@click.command("report")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--top", default=10, show_default=True, type=click.IntRange(0, 1000), help="How many of the slowest.")
@click.option("--all", "everything", is_flag=True, help="Every procedure, however many there are.")
@click.option("--each", is_flag=True, help="Each file is a capture of its own, reported one after the other.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; see below.")
@follow_options
@recognition_options
def command(
    files: tuple[str, ...],
    top: int,
    everything: bool,
    each: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    follow: bool,
    idle: float | None,
) -> None:
    """Summary of a capture: connections, procedures, latencies, payloads, and what was slow.

    FILE is a pcap, pcapng or ERF file, plain or compressed, a directory of such, or - for standard input.  Several
    files are read as one capture in time order, unless --each is given.

    Example: a client lost packets.  What did it cost?

    \b
      $ rdmascope report loss-rxe.pcap.zst
      78 RPCs on 2 RPC-over-RDMA connections: 64 complete, 8 no reply, 6 error
      ...
        # client    QP   server          QP   RPCs    calls  replies retrans missing
        1 10.77.0.2 0x11 10.77.0.1:20049 0x11   30 1.51 MiB 3.53 KiB     219       0
        2 10.77.0.2 0x12 10.77.0.1:20049 0x12   48 7.51 MiB 1.03 MiB     779       0

    Some 1,000 packets were retransmitted ("retrans") and none is missing from the capture ("missing"): the network
    lost packets, not the capture.

    \b
        procedure              RPCs err     min  median     95%     99%     max
        NFSv4.1
          WRITE GETATTR          44   6 86.1 ms  128 ms  369 ms  373 ms  373 ms
          READ                    4   - 8.14 ms 10.3 ms 14.5 ms 14.5 ms 14.5 ms
    \b
        procedure                  up     down call   Reads  server  Writes reply
        NFSv4.1
          WRITE GETATTR      9.01 MiB 5.91 KiB    - 23.1 ms  174 ms       -     -

    Writes are slow.  The parts of a latency are the call's Send, the RDMA Reads by which the server fetches data, the
    server, its RDMA Writes, and the reply's Send.  For one of the slowest, and every packet of it:

    \b
      $ rdmascope show loss-rxe.pcap.zst --rpc 55

    \b
    With --json, for each capture in this order; "schema" is rdmascope.TYPE/1:
      capture      frames, packets, times, RPCs by state
      connection   endpoints, queue pairs, what was agreed: private data,
                   version, characteristics, thresholds, credits
      evicted      sums of earlier connections, where there were too many
      transport    losses, retransmissions, congestion, as in rdmascope transport
      procedure    RPCs, errors, bytes, latency and its parts, in nanoseconds
      transfer     messages, chunks, bytes of one kind of transfer
      slowest      the slowest RPCs with their frames
      histogram    RPCs with a latency of low_ns up to high_ns
      throughput   RPCs and bytes in equal intervals
      undecoded    what was ignored or is damaged, and why
    """
    failed = False
    sources: list[str | tuple[str, ...]] = list(files) if each else [files]
    for at, source in enumerate(sources):
        if at and not as_json:
            click.echo()
        reading = Reading(source, analyzer_options(ports, force), follow=following(follow, idle))
        try:
            statistics = Statistics(max_slowest=top)
            add = statistics.add
            for rpc in reading.rpcs(statistics.evict):
                add(rpc)
            if as_json:
                print_records(reading, statistics)
            else:
                print_page(reading, statistics, everything)
            reading.check()
        except CaptureError as error:
            complain(str(error))
            failed = True
    if failed:
        click.get_current_context().exit(EXIT_BAD_INPUT)


class Read(Protocol):
    """What was read."""

    path: str
    """What it is called."""
    analyzer: Analyzer
    damage: CaptureError | None


UNIDENTIFIED = "with too little traffic to identify"


def print_page(reading: Read, statistics: Statistics, everything: bool = False) -> None:
    """The report for people."""
    from rich.text import Text

    from ..views import report as views
    from ..views.tables import heading
    from ..views.transport import troubles_view

    analyzer = reading.analyzer
    out = console()
    conversations = analyzer.conversations
    show(
        out,
        views.summary(
            reading.path,
            frames=analyzer.frames,
            truncated_frames=analyzer.truncated_frames,
            packets=analyzer.packets,
            first_time=analyzer.first_time,
            last_time=analyzer.last_time,
            conversations=conversations,
            statistics=statistics,
            evicted=analyzer.evicted,
        ),
    )
    sections = [("Connections", "", views.connections_view(conversations, statistics, analyzer.evicted))]
    if statistics.calls:
        slowest = statistics.slowest()
        sections += [
            ("Procedures", "latency as seen where the capture was taken",
             views.procedures_view(statistics.procedures(), out.width, everything)),
            ("How payloads travelled", "", views.transfers_view(statistics.transfers, out.width)),
            ("Latency", "RPCs by latency", views.histogram_view(statistics, out.width)),
            ("Over time", "", views.throughput_view(statistics, out.width)),
        ]  # fmt: skip
        if slowest:
            sections.append(
                ("Slowest", "rdmascope show FILE --rpc N has each in full", views.slowest_view(slowest, out.width))
            )
    if conversations:
        healths = [(one.connection, analyzer.health(one.connection.number)) for one in conversations]
        sections.append(("Transport", "rdmascope transport FILE has each connection in full", troubles_view(healths)))
    sections.append(("Not decoded", "", views.undecoded_view(_undecoded(reading, statistics))))
    for title, remark, view in sections:
        show(out, Text(), heading(title, remark), view)


def print_records(reading: Read, statistics: Statistics) -> None:
    """The report for scripts."""
    from .transport import transport_record

    analyzer = reading.analyzer

    def emit(record: records.Record) -> None:
        print_json({**record, "file": reading.path})

    emit(
        records.capture_record(
            frames=analyzer.frames,
            truncated_frames=analyzer.truncated_frames,
            packets=analyzer.packets,
            first_time=analyzer.first_time,
            last_time=analyzer.last_time,
            connections=len(analyzer.connections) + analyzer.evicted.connections,
            states=statistics.states,
            error=None if reading.damage is None else str(reading.damage),
        )
    )
    for conversation in analyzer.conversations:
        number = conversation.connection.number
        emit(records.connection_record(conversation, statistics.connections.get(number)))
    for conversation in analyzer.conversations:
        emit(transport_record(conversation, analyzer.health(conversation.connection.number)))
    if analyzer.evicted.connections:
        emit(records.evicted_record(analyzer.evicted, statistics.evicted))
    for procedure in statistics.procedures():
        emit(records.procedure_record(procedure))
    for way, transfer in statistics.transfers.items():
        emit(records.transfer_record(way, transfer))
    for rank, slow in enumerate(statistics.slowest(), 1):
        emit(records.slowest_record(rank, slow))
    for low, high, number in statistics.histogram():
        emit(records.histogram_record(low, high, number))
    if statistics.calls:
        emit(records.throughput_record(*statistics.timeline.intervals(THROUGHPUT_BINS)))
    for what, reason, number in _undecoded(reading, statistics):
        emit(records.undecoded_record(what, reason, number))


def _undecoded(reading: Read, statistics: Statistics) -> list[tuple[str, str, int]]:
    """Rows of (what is counted, why it was not decoded, how many)."""
    analyzer = reading.analyzer
    rows = [("frames", skipped_words(kind), number) for kind, number in analyzer.skipped.items()]
    rows += [("packets", f"{kind}, not Reliable Connection", number) for kind, number in analyzer.other_packets.items()]
    others: Counter[tuple[str, str]] = Counter()
    for conversation in analyzer.conversations:
        if conversation.protocol != "rpcrdma":
            name = conversation.protocol_name or "not recognised as RPC-over-RDMA"
            connection = conversation.connection
            unit, sent = (
                ("segments", connection.segments) if any(connection.segments) else ("packets", connection.packets)
            )
            kind = f"of another protocol: {name}" if conversation.protocol == "other" else UNIDENTIFIED
            others[unit, f"connections {kind}"] += sum(sent)
    rows += [(unit, reason, number) for (unit, reason), number in others.items()]
    first: dict[str, int] = {}
    reasons: Counter[str] = Counter()
    for note in analyzer.undecoded:
        first.setdefault(note.reason, note.frame)
        reasons[note.reason] += 1
    rows += [("Sends", f"{reason} (the first in frame {first[reason]})", number) for reason, number in reasons.items()]
    rows += [
        ("operations", f"connection {connection}: memory that no captured call advertised", number)
        for connection, number in analyzer.unplaced.items()
    ]
    if analyzer.evicted.undecoded:
        rows.append(("Sends", "on evicted connections", analyzer.evicted.undecoded))
    if analyzer.evicted.unplaced:
        rows.append(("operations", "evicted connections: memory that no captured call advertised",
                     analyzer.evicted.unplaced))  # fmt: skip
    rows += [("RPCs", reason, number) for reason, number in statistics.damage.items()]
    states = statistics.states
    rows += [("RPCs", state, states[state]) for state in ("no reply", "no call") if state in states]
    if reading.damage is not None:
        rows.append(("errors", str(reading.damage), 1))
    return sorted(rows, key=lambda row: (row[0], -row[2]))
