"""The last line of the screen: keys and what they do, which can be clicked."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from .keys import KeyBinding

PALETTE = KeyBinding("ctrl+p", "^P", "command_palette", "palette", "all of them by their names")


SELDOM = ("x", "m", "w", "o", "y")
"""Keys that stand last: there may be no room for them."""


class KeyLine(Static):
    """One text, which is drawn at once; Textual's Footer has a widget for each key."""

    def __init__(self, keys: Sequence[KeyBinding]) -> None:
        *shown, leaving = [key for key in keys if key.in_footer]
        shown.sort(key=lambda key: key.keys in SELDOM)
        super().__init__(Content("").join([*map(_pressed, (leaving, *shown, PALETTE))]), id="keys")


def _pressed(key: KeyBinding) -> Content:
    action = Style.from_meta({"@click": f"app.{key.action}"})
    name = Content.styled(f" {key.shown} ", "bold $footer-key-foreground").append(f"{key.name} ")
    return name.stylize(action)
