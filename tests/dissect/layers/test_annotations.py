"""A type checker knows every layer, and what its fields hold."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from rdmascope.dissect import layers

ROOM = Path(layers.__file__).parent
LAYERS: dict[str, Any] = {name: getattr(layers, name) for name in layers.__all__}


def checked_only(module: str) -> list[ast.stmt]:
    """What stands under ``if TYPE_CHECKING``."""
    body = ast.parse((ROOM / f"{module}.py").read_text()).body
    return [
        inside
        for statement in body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
        for inside in statement.body
    ]


def annotated(layer: Any) -> dict[str, str]:
    """Field names with their types, those declared for type checkers alone included."""
    found: dict[str, str] = {}
    for base in reversed(layer.__mro__):
        found |= vars(base).get("__annotations__", {})
    for statement in checked_only(layer.__module__.rpartition(".")[2]):
        if isinstance(statement, ast.ClassDef) and statement.name == layer.__name__:
            for line in statement.body:
                assert isinstance(line, ast.AnnAssign)
                found[ast.unparse(line.target)] = ast.unparse(line.annotation)
    return found


def test_every_layer_can_be_imported_by_name() -> None:
    imports = [one for one in checked_only("__init__") if isinstance(one, ast.ImportFrom)]
    assert sorted(alias.name for one in imports for alias in one.names) == sorted(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_every_field_is_annotated_with_a_type_that_its_default_has(name: str) -> None:
    types = annotated(LAYERS[name])
    for field in LAYERS[name].fields_desc:
        words = types[field.name]
        if field.default is None:
            assert words == "Any" or words.endswith("| None"), (field.name, words)
        else:
            beginning = "bytes" if words == "int | bool | bytes" else words.partition("[")[0].partition(" ")[0]
            default = next((base.__name__ for base in (bytes, str) if isinstance(field.default, base)), "")
            default = default or type(field.default).__name__
            assert beginning == default, (field.name, words)
