"""Pieces of HTML.  Whatever comes from the wire or a file name passes ``text`` or ``of_rich`` here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from html import escape
from itertools import pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from ..sanitize import harmless_line

MAX_TEXT = 240
"""Characters of a name or a remark that may be of any length."""


def text(value: object) -> str:
    """On one line, with nothing in it that acts."""
    return escape(harmless_line(str(value)))


def shortened(value: str) -> str:
    """No longer than MAX_TEXT, without its middle."""
    if len(value) <= MAX_TEXT:
        return value
    half = MAX_TEXT // 2
    return f"{value[:half]} … {len(value) - 2 * half:,} more … {value[-half:]}"


def tag(name: str, *content: str, **attributes: object) -> str:
    """``content`` is HTML, attributes are text; one that is None or False is left out, True has no value.

    ``_`` at the end of a name is for those that Python has; others become hyphens.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{text(value)}"')
    return f"<{' '.join(parts)}>{''.join(content)}</{name}>"


def listed(items: Iterable[str], **attributes: object) -> str:
    """HTML of a list; '' without items."""
    found = [tag("li", item) for item in items]
    return tag("ul", *found, **attributes) if found else ""


def details(summary: str, *content: str, **attributes: object) -> str:
    """What opens on demand; all of it is HTML."""
    return tag("details", tag("summary", summary), *content, **attributes)


def data_script(id: str, value: Any) -> str:
    """JSON that a script of the page reads."""
    encoded = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{escape(id)}">{encoded}</script>'


def of_rich(renderable: RenderableType) -> str:
    """A view of the terminal as HTML: lines of text, and trees as nested lists."""
    if isinstance(renderable, Group):
        return "".join(map(of_rich, renderable.renderables))
    if isinstance(renderable, Padding):
        return of_rich(renderable.renderable)
    if isinstance(renderable, Tree):
        return tag("ul", _branch(renderable), class_="tree")
    if isinstance(renderable, Text):
        return tag("div", styled(renderable), class_="line")
    return tag("div", text(renderable), class_="line")


def _branch(tree: Tree) -> str:
    label = styled(tree.label) if isinstance(tree.label, Text) else of_rich(tree.label)
    below = "".join(map(_branch, tree.children))
    return tag("li", label, tag("ul", below) if below else "")


def styled(line: Text) -> str:
    """With the styles as classes."""
    return "".join(
        tag("span", text(part), class_=" ".join(f"s-{style}" for style in styles)) if styles else text(part)
        for part, styles in _parts(line)
    )


def _parts(line: Text) -> Iterator[tuple[str, list[str]]]:
    edges = sorted({0, len(line), *(edge for span in line.spans for edge in (span.start, span.end))})
    for first, behind in pairwise(edges):
        styles = [str(line.style)] + [str(one.style) for one in line.spans if one.start <= first < one.end]
        yield line.plain[first:behind], sorted({word for style in styles for word in style.split()})
