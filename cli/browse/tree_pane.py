"""A tree that can be folded: of one noun, or of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from .lines_pane import LinesPane
from .nodes import TreeNode


class TreePane(LinesPane):
    """Nodes, a line each; Enter folds, or goes where a node leads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "fold", show=False),
        Binding("right,l", "unfold", show=False),
    ]

    def __init__(self, id: str, title: str, empty: str) -> None:
        super().__init__(id)
        self.border_title = title
        self._empty = empty
        self._roots: Sequence[TreeNode] = ()
        self._visible: list[tuple[int, TreeNode]] = []
        """With their depth."""

    @property
    def count(self) -> int:
        return len(self._visible) or 1

    @property
    def node(self) -> TreeNode | None:
        """The one with the cursor."""
        return self._visible[self.cursor][1] if self.cursor < len(self._visible) else None

    def show(self, nodes: Sequence[TreeNode], keep: bool = False) -> None:
        """Other nodes; ``keep``: with the cursor where it is."""
        self._roots = nodes
        self._lay_out()
        if not keep:
            self.cursor = self.left = 0
            self.scroll_to(y=0, animate=False, force=True, immediate=True)
        self.renew()

    def say(self, text: str) -> None:
        """In place of nodes."""
        self._empty = text
        self.show(())

    def _lay_out(self) -> None:
        self._visible = [*_visible(self._roots, 0)]

    def line(self, index: int) -> Text:
        if not self._visible:
            return Text(self._empty, "dim")
        depth, node = self._visible[index]
        mark = ("▾ " if node.opened else "▸ ") if node.children else ("→ " if node.goes_to else "  ")
        text = Text("  " * depth)
        text.append(mark, "dim")
        return text.append_text(node.label)

    def action_choose(self) -> None:
        node = self.node
        if node is not None and node.children and node.goes_to is None:
            self._set(node, not node.opened)
        elif node is not None:
            super().action_choose()

    def action_fold(self) -> None:
        node = self.node
        if node is None:
            return
        if self.left:
            self.action_sideways(-1)
            return
        if node.children and node.opened:
            self._set(node, False)
            return
        depth = self._visible[self.cursor][0]
        above = [at for at, (other, _) in enumerate(self._visible[: self.cursor]) if other < depth]
        if above:
            self.move_to(above[-1])

    def action_unfold(self) -> None:
        node = self.node
        if node is not None and node.children:
            if node.opened:
                self.move_to(self.cursor + 1)
            else:
                self._set(node, True)
        elif node is not None and self.line(self.cursor).cell_len > self.left + self.scrollable_content_region.width:
            self.action_sideways(1)

    def _set(self, node: TreeNode, opened: bool) -> None:
        node.opened = opened
        self._lay_out()
        self.renew()


def _visible(nodes: Sequence[TreeNode], depth: int) -> Iterator[tuple[int, TreeNode]]:
    for node in nodes:
        yield depth, node
        if node.opened:
            yield from _visible(node.children, depth + 1)
