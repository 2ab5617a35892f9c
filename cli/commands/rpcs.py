"""``rdmascope rpcs``: one line per RPC."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial, reduce
from itertools import chain, compress, repeat
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from rdmascope.captures.session.session import Session
from rdmascope.dissect.arrays import among
from rdmascope.dissect.measure.call_order import MAX_HELD, CallOrder
from rdmascope.dissect.measure.file_names import MAX_LATE, LatePaths, LateRow, NamedRpc, PathLearner, is_whole
from rdmascope.dissect.measure.filters import unknown_xids
from rdmascope.dissect.records.rpc_lines import RpcLines
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.text_columns import Page

from ..options import XID, Parsed, filter_options
from ..reading import file_argument, follow_options, following, jobs_option, opened, recognition_options
from ..sanitize import harmless_line
from ..terminal import console, json_value, print_page

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from rdmascope.captures.tables.condition import Condition
    from rdmascope.dissect.records.rpc_columns import TableColumn


SORT: Parsed[tuple[TableColumn, ...]] = Parsed("column", "dissect.records.tables:sort_columns")
Keys = Callable[[RpcTable], Iterable[Any]]
"""What the RPCs of a table are sorted by."""


@click.command("rpcs")
@file_argument
@click.option("--xid", "xids", type=XID, multiple=True, help="Only this XID: 0x1a2b3c4d or decimal.")
@filter_options
@click.option(
    "--sort",
    type=SORT,
    metavar="COLUMN",
    help="By a column of the table rpcs, such as latency: the slowest, the largest, else the lowest first; by default"
    " in the order of the calls.",
)
@click.option("--absolute", is_flag=True, help="Dates and times of day (UTC) in place of seconds.")
@click.option("--json", "as_json", is_flag=True, help=f"One {schema('rpc')} object a line.")
@click.option(
    "--full", is_flag=True, help="With --json: the messages, their chunks, and the parts of the latency, too."
)
@follow_options
@recognition_options
@jobs_option
def command(
    files: tuple[str, ...],
    xids: tuple[int, ...],
    sort: tuple[TableColumn, ...] | None,
    absolute: bool,
    as_json: bool,
    full: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    follow: bool,
    idle: int | None,
    condition: Condition | None,
) -> None:
    """One line per RPC, with filters and sorting.

    Times are seconds since the first frame of the capture. "how" says how payloads travelled: r Read chunk, 0
    position-zero Read chunk, w Write chunk, R Reply chunk, nothing where everything was inline; "<" marks a backward
    call, made by the server. A wide terminal shows the caller, offset and count of READs, WRITEs and the like, and the
    status, which is "accepted" if the results are encrypted. The path is that of the file that a call names, by its
    name at that time, which may come from a later reply. If 20,000 lines wait for a name, the whole capture is read for
    names first (not with --follow or a pipe). … stands for directories that no call named, FH for a file known only by
    its handle.

    Example: which calls took more than 100 ms, the slowest first?

    \b
      $ rdmascope rpcs rxe-nfs-all.pcap.zst --slower-than 100ms --sort latency
      RPC       time conn        xid latency    frames how ...
      181 106.636979   10 0x9bc24159  208 ms 2803-2805 ... DESTROY_CLIENTID
      ...
      104 100.962649    7 0xe16103b9  121 ms 1509-1835 ... GETATTR  /export/w4.0

    A filter given more than once matches any of its values; one that can match nothing is an error. A time of day is on
    the capture's first day, or on the next if it is earlier than the first frame. Times are UTC unless they end in a
    zone: 10:02+02:00, 2024-05-01T10:02Z.

    RPCs are listed in the order of their calls, so a call that was never answered is listed where it was made. While a
    call waits for its reply, at most 10,000 RPCs behind it are held back. With --follow RPCs are listed as they end.

    RPC 104 sent 256 KiB in a Read chunk.  For a script: the latency of every READ, and the bytes it transferred:

    \b
      $ rdmascope rpcs rxe-nfs-all.pcap.zst --procedure READ --json |
          jq -r '[.path, .latency_ns, .reply_chunk_bytes] | @tsv'
      /export/hello.txt  43260000  6
      /export/r1m        10542000  262144
      ...
    """
    reading = opened(
        files, ports, force, streaming=sort is None, follow=following(follow, idle), jobs=jobs, condition=condition
    )
    found_xids: set[int] = set()

    def refuse_the_impossible() -> None:
        reading.refuse(unknown_xids(xids, found_xids) or ("" if condition is None else condition.impossible(reading)))

    if as_json:
        _print_json(reading, xids, found_xids, None if sort is None else sort_keys(sort, reading), full, condition)
        refuse_the_impossible()
        reading.check()
        return

    # Only here: the lines of JSON above would wait for rich.
    from rich.text import Text

    from ..views import rpc as views

    out = console()
    width = reading.place_width(13) if reading.several else 0
    layout = views.RpcLine(0, out.width if out.is_terminal else None, absolute, width)

    def row(named: NamedRpc, path: str | None) -> Text:
        rpc, place = named.rpc, None
        if reading.several:
            place = f"{reading.place_words(rpc.call_frame, rpc.reply_frame):<{reading.place_width(13)}}"
        return views.line(rpc, named.fields, path, layout._replace(first_time=reading.first_time), place)

    rows = _rows(reading, xids, found_xids, row, None if sort is None else sort_keys(sort, reading), condition)
    first = next(rows, None)
    if first is None:
        refuse_the_impossible()
    if first is not None or reading.damage is None:
        layout = layout._replace(place_width=reading.place_width(13) if reading.several else 0)
        _print_line(out, Text(views.header(layout).plain, "dim"))
    for line in rows if first is None else chain((first,), rows):
        _print_line(out, line)
    refuse_the_impossible()
    reading.check()


def _rows(
    reading: Session,
    xids: Collection[int],
    found_xids: set[int],
    row: Callable[[NamedRpc, str | None], Text],
    sort: Keys | None,
    condition: Condition | None,
) -> Iterator[Text]:
    """What is printed of the RPCs that pass, in the order asked for; ``found_xids``: the XIDs that were there."""
    order: CallOrder[Text | LateRow[Text]] = CallOrder(0 if reading.follow else MAX_HELD)
    learner = reading.path_learner()
    late: LatePaths[Text] = LatePaths(learner, 0 if reading.follow else MAX_LATE)
    kept: list[tuple[Any, NamedRpc]] = []
    for named, passes, key in _judged(reading, learner, condition, sort):
        if xids and named.rpc.xid in xids:
            found_xids.add(named.rpc.xid)
        elif xids:
            passes = False
        if sort is None:
            yield from late.add(order.add(named.rpc.number, _late(named, row) if passes else None))
        elif passes:
            kept.append((key, named))
    yield from late.add(order.rest())
    yield from late.rest()
    if sort is not None:
        # Of equals, the earliest call first.
        kept.sort(key=lambda row: (row[0], row[1].rpc.number))
        yield from (row(named, named.path()) for _, named in kept)


def _judged(
    reading: Session, learner: PathLearner, condition: Condition | None, sort: Keys | None
) -> Iterator[tuple[NamedRpc, bool, Any]]:
    """All RPCs, whether the condition passes them, and what they are sorted by."""
    for table in reading.tables():
        passes = repeat(True) if condition is None else condition.mask(table, reading).tolist()
        yield from zip(learner.named(table), passes, repeat(None) if sort is None else sort(table), strict=False)
        del table


def sort_keys(sort: tuple[TableColumn, ...], reading: Session) -> Keys:
    """The sum of columns: amounts from the greatest, all else from the lowest, and the unknown last."""
    from rdmascope.captures.session.grouping import columns_of

    columns = columns_of([column.name for column in sort], reading)

    def keys(table: RpcTable) -> Iterator[tuple[bool, Any]]:
        by_name = columns(table)
        for value in reduce(add, [by_name[column.name] for column in sort]).tolist():
            yield value is None, -value if sort[0].amount and value is not None else value

    return keys


def _late(named: NamedRpc, row: Callable[[NamedRpc, str | None], Text]) -> Text | LateRow[Text]:
    path = named.path()
    if named.file is None or is_whole(path) or named.file.sure:
        return row(named, path)
    return LateRow(named.file, partial(row, named))


def _print_json(
    reading: Session,
    xids: Collection[int],
    found_xids: set[int],
    sort: Keys | None,
    full: bool,
    condition: Condition | None,
) -> None:
    """The records of the RPCs that pass, in the order asked for; ``found_xids``: the XIDs that were there."""

    def pages() -> Iterator[Page]:
        lines = RpcLines(
            reading.path_learner(),
            json_value,
            lambda: reading.place if reading.several else None,
            full,
            sys.maxsize if sort is not None else 0 if reading.follow else MAX_HELD,
        )
        for table in reading.tables():
            passes = np.ones(len(table), np.bool_) if condition is None else condition.mask(table, reading)
            if xids:
                found_xids.update(set(table.rows["xid"].tolist()).intersection(xids))
                passes &= among(table.rows["xid"].astype(np.int64), np.array([*xids]))
            if sort is not None:
                keys.extend(compress(zip(table.rows["number"].tolist(), sort(table), strict=True), passes.tolist()))
            yield from lines.add(table, passes)
            del table
        yield from lines.rest()

    keys: list[tuple[int, Any]] = []
    if sort is None:
        for page in pages():
            print_page(page)
        return
    lines = b"".join(pages()).splitlines(keepends=True)
    keys.sort(key=itemgetter(0))
    # Of equals, the earliest call first.
    for _, line in sorted(zip((key for _, key in keys), lines, strict=True), key=itemgetter(0)):
        print_page(line)


def _print_line(out: Console, line: Text) -> None:
    if out.is_terminal:
        out.print(line, no_wrap=True, overflow="ellipsis")
    else:
        sys.stdout.write(harmless_line(line.plain) + "\n")
