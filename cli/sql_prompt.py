"""The prompt of ``rdmascope sql``: statements to their semicolon, with completion and history."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import RenderableType
from rich.text import Text

from rdmascope.captures.tables.database import QueryError
from rdmascope.dissect.records.tables import TABLES

from .terminal import complain, console, show

WORDS = (
    "SELECT", "DISTINCT", "FROM", "JOIN", "LEFT", "USING", "ON", "WHERE", "AND", "OR", "NOT", "IN", "LIKE", "BETWEEN",
    "IS", "NULL", "GROUP", "BY", "ALL", "HAVING", "ORDER", "DESC", "LIMIT", "WITH", "AS", "CASE", "WHEN", "THEN",
    "ELSE", "END", "UNION", "DESCRIBE", "SUMMARIZE", "PIVOT", "CREATE", "TABLE", "count", "sum", "avg", "min", "max",
    "median", "quantile_cont", "arg_max", "arg_min", "count_if", "date_trunc", "round", "string_agg",
)  # fmt: skip
"""Words of SQL that are completed."""
TABLES_AFTER = re.compile(r"(?:\b(?:from|join|describe|summarize|pivot)|\\d)\s+\w*$", re.IGNORECASE)

HELP = """\
\\d          the tables
\\d rpcs     the columns of a table
\\q          leave, as Ctrl-D does
A statement ends with a semicolon, and may take several lines. Tab completes; the arrow keys go through what was asked
before."""


class SqlCompleter(Completer):
    """Tables where one is expected; else the columns of the tables that the statement names, tables and words."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        word = document.get_word_before_cursor(pattern=re.compile(r"\\?\w+"))
        for text, meaning in candidates(before, document.text):
            if text.lower().startswith(word.lower()):
                yield Completion(text, -len(word), display_meta=meaning)


def candidates(before: str, statement: str) -> Iterator[tuple[str, str]]:
    """What may stand behind ``before``, and what it means."""
    if TABLES_AFTER.search(before):
        yield from ((table.name, table.meaning) for table in TABLES.values())
        return
    words = set(re.findall(r"\w+", statement.lower()))
    seen: set[str] = set()
    for table in [TABLES[name] for name in TABLES if name in words] or TABLES.values():
        for column in table.columns:
            if column.name not in seen:
                seen.add(column.name)
                yield column.name, column.meaning
    yield from ((table.name, table.meaning) for table in TABLES.values())
    yield from ((word, "") for word in WORDS)


def history_path() -> Path:
    """Where statements are remembered, for this user only."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "rdmascope" / "sql_history"


def _history() -> History:
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def is_whole(text: str) -> bool:
    """Whether Enter sends it: a command, nothing, or a statement with its semicolon."""
    stripped = text.strip()
    return not stripped or stripped.startswith("\\") or stripped.endswith(";") or stripped.lower() in ("exit", "quit")


def ask(answer: Callable[[str], None], described: Callable[[str], RenderableType]) -> None:
    """Read statements until Ctrl-D; ``answer`` prints what each gives, and raises QueryError where it cannot.

    ``described`` is the page of a table's columns, or, of '', of all tables.
    """
    session = _session()
    out = console()
    show(out, Text("SQL over the tables of the capture; \\? for help, \\d for the tables, Ctrl-D to leave.", "dim"))
    while True:
        try:
            text = session.prompt("sql> ").strip()
        except KeyboardInterrupt:  # The line is dropped, as in a shell.
            continue
        except EOFError:
            return
        if text.lower().rstrip(";") in ("\\q", "exit", "quit"):
            return
        if text.startswith("\\"):
            _command(text.rstrip(";"), described)
        elif text:
            try:
                answer(text)
            except QueryError as error:
                complain(str(error))
            except KeyboardInterrupt:
                complain("interrupted")


def _session() -> PromptSession[str]:
    keys = KeyBindings()

    @Condition
    def whole() -> bool:
        return is_whole(session.default_buffer.text)

    @keys.add("enter", filter=whole & ~has_completions)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    session: PromptSession[str] = PromptSession(
        completer=SqlCompleter(),
        complete_while_typing=False,
        history=_history(),
        key_bindings=keys,
        multiline=True,
        prompt_continuation="...> ",
    )
    return session


def _command(text: str, described: Callable[[str], RenderableType]) -> None:
    out = console()
    name, _, table = text.partition(" ")
    wanted = table.strip().lower()
    if name == "\\d" and (not wanted or wanted in TABLES):
        show(out, described(wanted))
    elif name == "\\d":
        complain(f"no table {wanted}; there are {', '.join(TABLES)}")
    elif name in ("\\?", "\\h", "\\help"):
        show(out, Text(HELP))
    else:
        complain(f"no command {name}; \\? lists them")
