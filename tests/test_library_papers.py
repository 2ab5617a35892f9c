"""The library's papers: the tutorial runs; the reference, the tables and the picture of the rooms are the code's.

``python tests/test_library_papers.py`` writes what the tutorial prints, and ``api``, ``tables`` and ``architecture``.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

import rdmascope
from rdmascope.dissect.records.rpc_columns import DTYPES, SQL_TYPES

ROOT = Path(__file__).parents[1]
TUTORIAL, API, TABLES, ARCHITECTURE = (
    ROOT / "docs" / f"{name}.md" for name in ("tutorial", "api", "tables", "architecture")
)
STEP = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```\n", re.DOTALL)


def printed_by_the_tutorial() -> list[str]:
    """What each block prints, all of them in one interpreter."""
    names: dict[str, object] = {}
    printed = []
    before = Path.cwd()
    os.chdir(ROOT / "captures" / "samples")
    try:
        for code, _ in STEP.findall(TUTORIAL.read_text()):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, "tutorial", "exec"), names)
            printed.append(out.getvalue())
    finally:
        os.chdir(before)
    return printed


def test_the_tutorial_runs() -> None:
    text = TUTORIAL.read_text()
    assert len(STEP.findall(text)) == text.count("```python") >= 12
    assert printed_by_the_tutorial() == [shown for _, shown in STEP.findall(text)]


# The reference


def paragraphs(docstring: str | None) -> str:
    return inspect.cleandoc(docstring or "").replace("``", "`")


def members(thing: type) -> Iterator[str]:
    """Fields with what is said below them, properties, and methods with their signatures."""
    (node,) = ast.parse(inspect.getsource(thing)).body
    assert isinstance(node, ast.ClassDef)
    for at, one in enumerate(node.body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            behind = node.body[at + 1] if at + 1 < len(node.body) else None
            said = behind.value.value if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant) else ""
            yield entry(f"{one.target.id}: {ast.unparse(one.annotation)}", str(said))
        elif isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            is_property = any(ast.unparse(decorator) == "property" for decorator in one.decorator_list)
            returns = ast.unparse(one.returns) if one.returns else "None"
            if is_property:
                yield entry(f"{one.name}: {returns}", ast.get_docstring(one))
            else:
                for argument in one.args.posonlyargs[:1] or one.args.args[:1]:
                    if argument.arg in ("self", "cls"):
                        (one.args.posonlyargs or one.args.args).pop(0)
                yield entry(f"{one.name}({ast.unparse(one.args)}) -> {returns}", ast.get_docstring(one))


def entry(head: str, docstring: str | None) -> str:
    said = paragraphs(docstring).split("\n\n")[0].replace("\n", " ")
    return f"- `{head}`" + (f": {said}" if said else "")


def reference() -> str:
    parts = [
        "# The library",
        "Made from the docstrings by `python tests/test_library_papers.py`. [tutorial.md](tutorial.md) has examples.",
        paragraphs(rdmascope.__doc__),
    ]
    for name in rdmascope.__all__:
        thing = getattr(rdmascope, name)
        if inspect.isfunction(thing):
            parts += [f"## `{name}`", f"```python\n{name}{inspect.signature(thing)}\n```", paragraphs(thing.__doc__)]
        elif inspect.isclass(thing):
            parts += [f"## `{name}`", paragraphs(thing.__doc__)]
            if listed := "\n".join(members(thing)):
                parts.append(listed)
    parts += ["## Tables", "[tables.md](tables.md) has what `Capture.table` gives, column by column."]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def test_the_reference_is_that_of_the_code() -> None:
    assert reference() == API.read_text()


# The tables

TABLES_HEAD = """# The tables

Made from `dissect/records/tables.py` by `python tests/test_library_papers.py`; a test compares
them.

`rdmascope sql` queries these tables ([questions.md](questions.md)), and `Capture.table` of the library returns their
columns as NumPy arrays. Columns have the names of [the records of --json](records.md), with units:

- `_ns` is nanoseconds, `_bytes` bytes. `time` is a timestamp in UTC, `time_ns` the same moment in
  nanoseconds since the Unix epoch.
- Values that are not known or do not apply are NULL; in NumPy they are masked.
- `rpc` is the `number` of a row of `rpcs`, `connection` that of `connections`, `file` that of `files`.

| type | SQL | NumPy |
| --- | --- | --- |
| int | BIGINT | int64 |
| uint | UBIGINT | uint64 |
| float | DOUBLE | float64 |
| bool | BOOLEAN | bool |
| time | TIMESTAMP_NS | datetime64[ns] |
| text | VARCHAR | object (str) |
| texts | VARCHAR[] | object (tuple of str) |
"""


def tables() -> str:
    parts = [TABLES_HEAD]
    for table in rdmascope.TABLES.values():
        rows = "".join(f"| `{one.name}` | {one.type} | {one.meaning} |\n" for one in table.columns)
        parts += [
            f"## {table.name}",
            f"A row is {table.meaning}.",
            f"| column | type | what |\n| --- | --- | --- |\n{rows}",
        ]
        if table.headings:
            shown = ", ".join(f"`{name}` {column}" for name, column in table.headings.items() if name != column)
            parts.append(f"On the screen: {shown}.")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def test_the_tables_are_those_of_the_declarations() -> None:
    assert tables() == TABLES.read_text()
    for name, (dtype, _) in DTYPES.items():
        kind = {"text": "object (str)", "texts": "object (tuple of str)"}.get(name, np.dtype(dtype).name)
        assert f"| {name} | {SQL_TYPES[name]} | {kind} |\n" in TABLES_HEAD


# The rooms


def project() -> ModuleType:
    """The rules of the project, which know the import graph."""
    spec = importlib.util.spec_from_file_location("project_rules", Path(__file__).with_name("test_project.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LINE = """```text
file, interface, probe -> Frame -> Packet -> Operation -> Message -> Rpc -> Finding -> record -> view, JSON, table
```"""


def architecture() -> str:
    rules = project()
    rooms: dict[str, set[str]] = {}
    for module, used in rules.graph().items():
        rooms.setdefault(rules.room(module), set()).update(rules.room(one) for one in used)
    order = [name for name in rules.BELOW if name in rooms]
    shown = {name: rooms[name] & {*rules.BELOW[name]} for name in order}
    lines = ["```mermaid", "graph TD"]
    lines += [f"    {name.replace('.', '_')}[{name}]" for name in order]
    lines += [
        f"    {name.replace('.', '_')} --> {used.replace('.', '_')}" for name in order for used in sorted(shown[name])
    ]
    lines.append("```")
    table = "| room | what it does | imports |\n| --- | --- | --- |\n"
    for name in order:
        folder = ROOT.joinpath(*name.split("."))
        said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        first = said.split("\n\n")[0].replace("\n", " ").replace("``", "`").replace("|", "\\|")
        used = ", ".join(f"`{one}`" for one in sorted(rooms[name] - {name}))
        table += f"| `{name.replace('.', '/')}/` | {first} | {used or 'nothing'} |\n"
    return (
        "\n\n".join(
            [
                "# How the code is laid out",
                "Drawn from the imports by `python tests/test_library_papers.py`; a test keeps it so.",
                "A capture passes through six nouns, and everything else asks questions of them:",
                LINE,
                "Each folder has one duty. Imports run down the picture, never up and never in a circle. `dissect`"
                " opens nothing, prints nothing and reads no clock.",
                "\n".join(lines),
                table.strip("\n"),
                "Start with the nouns: `dissect/frames.py`, `dissect/link/packets.py`,"
                " `dissect/transport/operations.py`, `dissect/rpcrdma/messages.py`, `dissect/rpcrdma/rpcs.py`,"
                " `dissect/audit/rule.py`;"
                " `dissect/rpcrdma/analyzer.py` joins them, `captures/session/session.py` is one pass"
                " over a capture, `captures/library.py` has what `import rdmascope` gives.",
            ]
        )
        + "\n"
    )


def test_the_picture_of_the_rooms_is_drawn_from_the_imports() -> None:
    assert architecture() == ARCHITECTURE.read_text()


def main() -> None:
    printed = iter(printed_by_the_tutorial())
    text = TUTORIAL.read_text()
    TUTORIAL.write_text(STEP.sub(lambda step: f"```python\n{step[1]}```\n\n```text\n{next(printed)}```\n", text))
    API.write_text(reference())
    TABLES.write_text(tables())
    ARCHITECTURE.write_text(architecture())


if __name__ == "__main__":
    main()
