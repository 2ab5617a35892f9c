"""A type checker knows every layer by name."""

from __future__ import annotations

import ast
from pathlib import Path

from rdmascope.dissect import layers


def test_every_layer_can_be_imported_by_name() -> None:
    tree = ast.parse(Path(layers.__file__).read_text())
    [checked_only] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in checked_only.body if isinstance(node, ast.ImportFrom)]
    assert sorted(alias.name for node in imports for alias in node.names) == sorted(layers.__all__)
