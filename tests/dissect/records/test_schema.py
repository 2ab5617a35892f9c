"""Every type of record has a version, and every version a record."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmascope.dissect.records.schema import VERSIONS, record

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


def test_every_type_that_is_made_has_a_version_and_every_version_is_of_a_type_that_is_made() -> None:
    assert set(made()) == set(VERSIONS)


def test_the_table_is_sorted_and_counts_from_1() -> None:
    assert list(VERSIONS) == sorted(VERSIONS)
    assert min(VERSIONS.values()) >= 1


@pytest.mark.parametrize("kind", VERSIONS)
def test_a_record_begins_with_its_schema_and_type(kind: str) -> None:
    made = record(kind, number=7)
    assert list(made.items()) == [("schema", f"rdmascope.{kind}/{VERSIONS[kind]}"), ("type", kind), ("number", 7)]


def test_a_type_without_a_version_is_refused() -> None:
    with pytest.raises(KeyError):
        record("rumour")
