"""Every command that is printed as advice works."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from playbook.commands import LOSS, run
from rdmascope.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
ROOMS = ("rdmascope", "dissect", "captures", "cli")
MEANT = {
    "FILE": LOSS,
    "N": "1",
    "RULE": "V1-VERSION",
    "ID": "V1-VERSION",
    "SELECT": "SELECT 1",
    "TIME": "1s",
    "CLIENT": LOSS,
    "SERVER": LOSS,
}
OPTION = r" --(?:rpc|connection) N| --(?!rpc|connection|frame)[a-z-]+(?: [A-Z][A-Z_,]*| [a-z]+(?= --|$|:|,))?"
NAMED = rf"(?:{'|'.join(sorted(COMMANDS))}) (?:FILE(?: -o OUT)?|CLIENT SERVER|RULE|ID)(?! -[a-z] )"
ADVICE = re.compile(rf"\b(?:rdmascope |and )({NAMED}(?:{OPTION})*)")
QUOTED = re.compile(rf"'rdmascope ((?:{'|'.join(sorted(COMMANDS))})(?: -V| --[a-z]+| [a-z]+)*)'")
MAY_BE = re.compile(r"\brdmascope |\bFILE\b|\bCLIENT SERVER\b|\bRULE\b|\bID\b")
"""In the text of each module that has any; to parse the others takes seconds."""
ASKED = {"packets -V": "packets -V FILE -c 99", "sql": "sql FILE SELECT"}
"""Those of them that take more than is written there."""


def texts() -> Iterator[str]:
    """All texts of the product but for its docstrings, of which others run the examples."""
    modules = (path.read_text() for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    for tree in map(ast.parse, filter(MAY_BE.search, modules)):
        docstrings = {
            id(one.body[0].value)
            for one in ast.walk(tree)
            if isinstance(one, ast.Module | ast.ClassDef | ast.FunctionDef)
            and one.body
            and isinstance(one.body[0], ast.Expr)
        }
        for one in ast.walk(tree):
            if isinstance(one, ast.JoinedStr):
                docstrings.update(map(id, one.values))
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in one.values)
            elif isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in docstrings:
                yield one.value


def test_what_is_advised_runs(tmp_path: Path) -> None:
    said = list(texts())
    quoted = {match[1] for text in said for match in QUOTED.finditer(text)}
    advice = {match[1] for text in said for match in ADVICE.finditer(text)} | {ASKED.get(text, text) for text in quoted}
    some = {"rpcs FILE --errors", "show FILE --rpc N", "report FILE --by path --sort calls", "export FILE -o OUT"}
    assert some | {"synth --list", "packets -V FILE -c 99", "rules ID"} <= advice
    for number, command in enumerate(sorted(advice)):
        output = tmp_path / f"{number}.pcapng"
        meant = MEANT | {"OUT": str(output)}
        done = run(*(meant.get(word, word) for word in command.split()))
        assert done.exit_code in (0, 1), (command, done.stderr)
        assert done.stdout or output.exists(), command
