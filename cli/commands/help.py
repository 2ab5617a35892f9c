"""``rdmascope help``: the pages of ``docs/``, wherever it is installed."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib.resources import files

import click

from ..terminal import paged, say, show, terminal


@click.command("help")
@click.argument("topic", required=False)
def command(topic: str | None) -> None:
    """Read a page of the documentation, or list the pages in the order in which to read them.

    \b
    Example: which formats are read?
      $ rdmascope help reads | head -1
      # What is read, and how missing data is treated
    """
    pages = {
        entry.name.removesuffix(".md"): entry.read_text("utf-8")
        for entry in files("rdmascope.docs").iterdir()
        if entry.name.endswith(".md")
    }
    names = [name for name in re.findall(r"\]\(([\w-]+)\.md\)", pages.pop("index")) if name in pages]
    if topic is None:
        width = max(map(len, names))
        for name in names:
            say(f"{name:{width}}  {pages[name].partition(chr(10))[0].removeprefix('# ')}")
        return
    name = topic.removesuffix(".md")
    if name not in pages:
        near = get_close_matches(name, pages, 2, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
        raise click.UsageError(f"no page {topic!r}; {hint}", click.get_current_context())
    out = terminal()
    if out is None:
        click.echo(pages[name], nl=False)
        return
    from rich.text import Text

    with paged(out, True):
        show(out, Text(pages[name].rstrip()))
