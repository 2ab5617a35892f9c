"""A page as a file: what ``rdmascope report -o`` and ``rdmascope.write_page`` do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from rdmascope.captures.errors import need
from rdmascope.captures.session.session import Session
from rdmascope.captures.write.output import check_outputs, write_output

if TYPE_CHECKING:
    from rdmascope.captures.library import Capture
    from rdmascope.captures.tables.condition import Condition
    from rdmascope.dissect.measure.service_levels import ServiceLevel


def write_page(
    capture: Capture, path: str | os.PathLike[str], *, where: Sequence[str] = (), top: int = 10, audit: bool = True
) -> int:
    """The report of a capture as one HTML page that needs no network, as ``rdmascope report -o`` writes it.

    Takes Bokeh (``pip install 'rdmascope[html]'``) and rich.

    Args:
        capture: what ``read`` gave; it is read once.
        path: of the page, which may be none of the files that are read.
        where: conditions in SQL over the columns of the table ``rpcs``: only RPCs of which these are all true.
        top: how many of the slowest RPCs are on it.
        audit: judge both ends by the rules of the audit.

    Returns its size in bytes.  Raises CaptureError where it cannot be written, or the capture cannot be read to its
    end: the page then has what is before the damage.
    """
    given = (capture.paths,) if isinstance(capture.paths, str | os.PathLike) else capture.paths
    inputs = [os.fspath(one) for one in given]
    check_page(path, inputs)
    with ExitStack() as stack:
        condition = None
        if where:
            from rdmascope.captures.tables.condition import Condition

            condition = stack.enter_context(closing(Condition(tuple(where))))
        session = capture.session()
        size, _ = write_page_of(session, path, inputs, top, audit, condition)
        session.check()
    return size


def check_page(path: str | os.PathLike[str], inputs: Sequence[str]) -> None:
    """Before the work begins: raises CaptureError where no page can be written there."""
    need("bokeh")
    check_outputs([path], inputs)


def write_page_of(
    session: Session,
    path: str | os.PathLike[str],
    inputs: Sequence[str],
    top: int,
    audit: bool,
    condition: Condition | None,
    levels: Sequence[ServiceLevel] = (),
) -> tuple[int, set[str]]:
    """Read a session that was not read yet, and write its page; returns the page's bytes, and the verdicts on service
    levels.  Raises CaptureError."""
    from .document import page_html
    from .over_time import PageFacts

    page = PageFacts(session, top, condition, audit, levels)
    if condition is not None:
        session.refuse(condition.problem(session))
    if not session.analyzer.packets:
        session.check()
    html = page_html(page)
    write_output(path, html, inputs)
    return len(html.encode()), {level.verdict for level in page.levels}
