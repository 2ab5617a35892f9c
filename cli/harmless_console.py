"""A rich console on which nothing that is shown can act."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from .sanitize import harmless


class HarmlessConsole(Console):
    """Every piece of text goes through ``harmless`` before it becomes lines of the screen."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else harmless(text), style, control)
