"""Option values: durations, XIDs, frames, moments in time.  What they mean is the library's to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from rdmascope.dissect.measure.moments import Moment, parse_moment
from rdmascope.dissect.measure.selection import FrameRange, parse_duration, parse_frames, parse_xid, procedure_names

if TYPE_CHECKING:
    from rdmascope.captures.condition import Condition

Value = TypeVar("Value")


class Parsed(click.ParamType[Value], Generic[Value]):
    """An option that ``parse`` makes of text; its ValueError is the message."""

    def __init__(self, name: str, parse: Callable[[str], Value]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Parsed[int] = Parsed("duration", parse_duration)
XID: Parsed[int] = Parsed("xid", parse_xid)
MOMENT: Parsed[Moment] = Parsed("time", parse_moment)
FRAMES: Parsed[tuple[FrameRange, ...]] = Parsed("frames", parse_frames)

connection_option = click.option(
    "--connection",
    "connections",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="Only this connection; may be repeated.",
)


WHERE_OPTIONS = (
    click.option(
        "--where",
        "conditions",
        multiple=True,
        metavar="SQL",
        help="Only RPCs of which this is true, a condition over the columns of the table rpcs (docs/tables.md), such as"
        " 'latency_ms > 10'.",
    ),
    click.option("--client", "clients", multiple=True, metavar="ADDRESS", help="Only of this active side."),
    click.option("--server", "servers", multiple=True, metavar="ADDRESS", help="Only of this passive side."),
    click.option(
        "--path",
        "paths",
        multiple=True,
        metavar="PATH",
        help="Only on this file, below this directory, or on files such as '/home/*'.",
    ),
    click.option("--user", "users", multiple=True, metavar="ID", help="Only of this user ID."),
)
"""Filters that ``rpcs`` has beside its own."""


def where_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``WHERE_OPTIONS`` alone, for a command that has the others itself; as one argument, ``condition``."""

    @wraps(command)
    def filtered(
        *arguments: Any,
        conditions: tuple[str, ...],
        clients: tuple[str, ...],
        servers: tuple[str, ...],
        paths: tuple[str, ...],
        users: tuple[str, ...],
        **others: Any,
    ) -> Any:
        with _conditions(conditions, clients=clients, servers=servers, paths=paths, users=users) as condition:
            return command(*arguments, condition=condition, **others)

    for option in reversed(WHERE_OPTIONS):
        filtered = option(filtered)
    return filtered


@contextmanager
def _conditions(conditions: tuple[str, ...], **given: Any) -> Iterator[Condition | None]:
    """What the options come to; None where none is given."""
    if not conditions and not any(value is not None and value != () and value is not False for value in given.values()):
        yield None
        return
    from rdmascope.captures.condition import Condition, Sugar

    condition = Condition(conditions, Sugar(**given))
    try:
        yield condition
    finally:
        condition.close()


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which RPCs are meant: the same options for every command, which become one argument, ``condition``."""
    options = (
        *WHERE_OPTIONS,
        click.option(
            "--procedure",
            "procedure_names",
            multiple=True,
            callback=procedures,
            metavar="NAME",
            help="Only this procedure or operation: READ, NFS.READ, READ,WRITE, 'OPEN*'.",
        ),
        connection_option,
        click.option("--slower-than", type=DURATION, help="Only with more latency: 10ms, 250us, 1.5s."),
        click.option("--errors", is_flag=True, help="Only RPCs that failed or are incomplete."),
        click.option("--since", type=MOMENT, help="Only calls from then on: 1.5 (seconds), 10:02 or a date."),
        click.option("--until", type=MOMENT, help="Only calls before then."),
    )

    @wraps(command)
    def filtered(
        *arguments: Any,
        conditions: tuple[str, ...],
        procedure_names: tuple[str, ...],
        connections: tuple[int, ...],
        clients: tuple[str, ...],
        servers: tuple[str, ...],
        paths: tuple[str, ...],
        users: tuple[str, ...],
        slower_than: int | None,
        errors: bool,
        since: Moment | None,
        until: Moment | None,
        **others: Any,
    ) -> Any:
        given: dict[str, Any] = {"procedures": procedure_names, "connections": connections, "clients": clients}
        given |= {"servers": servers, "paths": paths, "users": users, "slower_than": slower_than, "errors": errors}
        with _conditions(conditions, since=since, until=until, **given) as condition:
            return command(*arguments, condition=condition, **others)

    for option in reversed(options):
        filtered = option(filtered)
    return filtered


def procedures(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """A callback for ``--procedure``, with lists and repetitions."""
    try:
        return procedure_names(given)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
