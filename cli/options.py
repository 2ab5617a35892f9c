"""Option values: durations, XIDs, frames, moments in time.  What they mean is the library's to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import click

from rdmascope.dissect.measure.moments import Moment, parse_moment
from rdmascope.dissect.measure.selection import FrameRange, parse_duration, parse_frames, parse_xid, procedure_names

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


def procedures(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """A callback for ``--procedure``, with lists and repetitions."""
    try:
        return procedure_names(given)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
