"""Every type of record is declared, and made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from rdmascope.dissect.records.fields import RECORD_TYPES
from rdmascope.dissect.records.schema import VERSION, record

ROOT = Path(__file__).parents[3]


def made() -> Iterator[str]:
    """The types that are given to ``record`` anywhere in the program."""
    for top in ("rdmascope", "cli", "captures", "dissect"):
        for path in sorted((ROOT / top).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            imported = {
                alias.name
                for node in nodes
                if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("schema")
                for alias in node.names
            }
            for node in nodes if "record" in imported else ():
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "record":
                    (kind,) = node.args
                    assert isinstance(kind, ast.Constant) and isinstance(kind.value, str), (
                        f"line {node.lineno} of {path}"
                    )
                    yield kind.value


def test_every_type_that_is_made_is_declared() -> None:
    assert set(made()) == set(RECORD_TYPES)


def test_a_record_begins_with_its_schema_and_type() -> None:
    made = record("file", number=7)
    assert list(made.items()) == [("schema", f"rdmascope.file/{VERSION}"), ("type", "file"), ("number", 7)]
