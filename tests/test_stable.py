"""What docs/stable.md promises: nothing that a program may rely on goes, or comes, without being noted.

``python tests/test_stable.py`` notes in ``tests/public.txt`` what there is, and prints what has gone.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import click
import pytest

import rdmascope
import rdmascope.plugins
from rdmascope.captures.plugins import GROUPS
from rdmascope.cli.main import COMMANDS, main
from rdmascope.cli.terminal import EXIT_STATUS
from rdmascope.dissect.records.fields import RECORD_TYPES
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.records.tables import TABLES

NOTED = Path(__file__).with_name("public.txt")
NOTE = "if it is meant, say it in CHANGELOG.md and run python tests/test_stable.py"


def options(command: click.Command) -> list[str]:
    return [
        name for one in command.params if isinstance(one, click.Option) for name in (*one.opts, *one.secondary_opts)
    ]


def public() -> dict[str, set[str]]:
    """A kind of name, such as the options of a command -> the names."""
    found = {"rdmascope": {*COMMANDS, *options(main)}, "exit status": set(map(str, EXIT_STATUS))}
    for name in COMMANDS:
        found[f"rdmascope {name}"] = {*options(import_module(f"rdmascope.cli.commands.{name}").command)}
    found["import rdmascope"] = set(rdmascope.__all__)
    for name in rdmascope.__all__:
        thing = getattr(rdmascope, name)
        if inspect.isclass(thing):
            found[f"rdmascope.{name}"] = {one for one in dir(thing) if not one.startswith("_")}
        elif inspect.isfunction(thing):
            found[f"rdmascope.{name}"] = set(inspect.signature(thing).parameters)
    found["import rdmascope.plugins"] = {one for one in vars(rdmascope.plugins) if not one.startswith("_")} - {
        "annotations"
    }
    found["entry points"] = set(GROUPS)
    for name, one in RECORD_TYPES.items():
        found[f"json {schema(name)}"] = set(one.fields)
    for name, table in TABLES.items():
        found[f"table {name}"] = {column.name for column in table.columns}
    return found


def noted() -> dict[str, set[str]]:
    lines = [line.partition(":") for line in NOTED.read_text().splitlines()]
    return {kind: set(names.split()) for kind, _, names in lines}


def beyond(some: dict[str, set[str]], others: dict[str, set[str]]) -> dict[str, list[str]]:
    """What is in the first alone."""
    missing = {kind: sorted(names - others.get(kind, set())) for kind, names in some.items()}
    return {kind: names for kind, names in missing.items() if names or kind not in others}


def test_nothing_has_gone_unsaid() -> None:
    assert beyond(noted(), public()) == {}, NOTE


def test_nothing_has_come_unsaid() -> None:
    assert beyond(public(), noted()) == {}, NOTE


@pytest.mark.parametrize("kind", ["rdmascope report", "import rdmascope", "exit status", "table rpcs"])
def test_a_name_that_goes_is_named(kind: str) -> None:
    there = public()
    gone = there[kind].pop()
    assert beyond(noted(), there) == {kind: [gone]}


if __name__ == "__main__":
    now = public()
    for kind, names in beyond(noted(), now).items():
        print("gone:", kind, *names)
        if kind.startswith("json ") and kind in now:
            print(f"{kind}: stays noted until the version of the layouts is another (dissect/records/schema.py)")
            now[kind].update(names)
    NOTED.write_text("".join(f"{kind}: {' '.join(sorted(names))}".rstrip() + "\n" for kind, names in now.items()))
