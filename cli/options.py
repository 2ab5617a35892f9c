"""Option values: durations, XIDs, frames, moments in time, whose meaning is the library's to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from rdmascope.dissect.measure.filters import FrameRange, procedure_names
from rdmascope.dissect.units import parse_size

from .terminal import complain

if TYPE_CHECKING:
    from rdmascope.dissect.measure.time_options import Moment, TimeSpan

Value = TypeVar("Value")


class Parsed(click.ParamType[Value], Generic[Value]):
    """An option that a function makes of text; its ValueError is the message.

    The function is named as 'module:function', and loaded where the option is given: every command would wait for it.
    """

    def __init__(self, name: str, parse: str) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        module, _, function = self._parse.partition(":")
        try:
            return getattr(import_module(f"rdmascope.{module}"), function)(value)  # type: ignore[no-any-return]
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(Parsed[int]):
    """Bytes, with or without a unit, between two bounds."""

    def __init__(self, minimum: str, maximum: str) -> None:
        super().__init__("size", "dissect.units:parse_size")
        self._minimum, self._maximum = minimum, maximum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = super().convert(value, param, ctx)
        if not parse_size(self._minimum) <= size <= parse_size(self._maximum):
            self.fail(f"{value!r} is not from {self._minimum} to {self._maximum}", param, ctx)
        return size


DURATION: Parsed[int] = Parsed("duration", "dissect.measure.time_options:parse_duration")
BYTES: Parsed[int] = Parsed("size", "dissect.units:parse_size")
XID: Parsed[int] = Parsed("xid", "dissect.measure.filters:parse_xid")
MOMENT: Parsed[Moment] = Parsed("time", "dissect.measure.time_options:parse_moment")
MOMENTS: Parsed[TimeSpan] = Parsed("span", "dissect.measure.time_options:parse_span")
FRAMES: Parsed[tuple[FrameRange, ...]] = Parsed("frames", "dissect.measure.filters:parse_frames")


def refuse_options(*wrong: tuple[object, str]) -> None:
    """Raise UsageError for options that do not go together, with the words of the first pair that applies."""
    for given, words in wrong:
        if given:
            raise click.UsageError(words, click.get_current_context())


def procedures(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """A callback for ``--procedure``, with lists and repetitions."""
    try:
        return procedure_names(given)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


class Grouped(click.Command):
    """A command whose options stand in its help by what they are about."""

    groups: Mapping[str, Sequence[str]] = {}
    """Heading -> names of parameters; what is in none comes last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        listed = {str(option.name): record for option in options if (record := option.get_help_record(ctx))}
        groups = {heading: [listed.pop(name) for name in names] for heading, names in self.groups.items()}
        for heading, records in {**groups, "Options": [*listed.values()]}.items():
            with formatter.section(heading):
                formatter.write_dl(records)


FILTERS = (
    click.option(
        "--where",
        "conditions",
        multiple=True,
        metavar="SQL",
        help="Filter: only RPCs that match a condition over the columns of the table rpcs, such as 'latency > 10ms'"
        " (rdmascope help questions).",
    ),
    click.option("--client", "clients", multiple=True, metavar="ADDRESS", help="Only of this client."),
    click.option("--server", "servers", multiple=True, metavar="ADDRESS", help="Only of this server."),
    click.option(
        "--path",
        "paths",
        multiple=True,
        metavar="PATH",
        help="Only on this file, below this directory, or on files such as '/home/*'.",
    ),
    click.option("--user", "users", multiple=True, metavar="ID", help="Only of this user ID."),
    click.option(
        "--procedure",
        "procedures",
        multiple=True,
        callback=procedures,
        metavar="NAME",
        help="Only this procedure or operation: READ, NFS.READ, READ,WRITE, 'OPEN*'.",
    ),
    click.option(
        "--connection",
        "connections",
        type=click.IntRange(1),
        multiple=True,
        metavar="N",
        help="Only this connection; may be repeated.",
    ),
    click.option("--slower-than", type=DURATION, help="Only with more latency: 10ms, 250us, 1.5s."),
    click.option("--errors", is_flag=True, help="Only RPCs that failed or are incomplete."),
    click.option("--since", type=MOMENT, help="Only calls from then on: 1.5 (seconds), 10:02 or a date."),
    click.option("--until", type=MOMENT, help="Only calls before then."),
)
"""Which RPCs are meant: the filters of every command.  They add up; a filter with several values passes each."""

FILTER_NAMES = tuple(str(option(lambda: None).__click_params__[0].name) for option in FILTERS)  # type: ignore[attr-defined]


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``FILTERS``, which become one argument, ``condition``; None where no filter is given."""
    return _with_filters(command, ())


def connection_filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``FILTERS`` for commands about connections, with a second argument: ``connections``, their numbers. A number
    alone is no condition, because a connection may have no RPCs.
    """
    return _with_filters(command, ("connections",))


def _with_filters(command: Callable[..., Any], beside: tuple[str, ...]) -> Callable[..., Any]:
    @wraps(command)
    def filtered(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in FILTER_NAMES}
        options |= {name: given[name] for name in beside}
        conditions = given.pop("conditions")
        if not conditions and not any(given[name] not in (None, (), False) for name in given.keys() - {*beside}):
            return command(*arguments, condition=None, **options)
        from rdmascope.captures.tables.condition import Condition, Filters

        with closing(Condition(conditions, Filters(**given))) as condition:
            for remark in condition.remarks:
                complain(remark)
            return command(*arguments, condition=condition, **options)

    for option in reversed(FILTERS):
        filtered = option(filtered)
    return filtered


pager_option = click.option("--pager/--no-pager", default=True, help="On a terminal: page by page.  [default: pager]")
