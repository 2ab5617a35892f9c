"""The prompt of ``rdmascope sql``, with keys from a pipe in place of a keyboard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from playbook.commands import EVERYTHING, PROGRAM
from rdmascope.captures.tables.database import QueryError
from rdmascope.cli.sql_prompt import SqlCompleter, ask, candidates, history_path, is_whole
from rdmascope.cli.views.tables import described
from rdmascope.dissect.records.tables import TABLES


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield


def typed(keys: str, wrong: str = "wrong") -> list[str]:
    """The statements that these keys make."""
    asked: list[str] = []

    def answer(text: str) -> None:
        asked.append(text)
        if text.startswith(wrong):
            raise QueryError("the query: wrong")

    with create_pipe_input() as pipe:
        pipe.send_text(keys)
        with create_app_session(input=pipe, output=DummyOutput()):
            ask(answer, described)
    return asked


def test_a_statement_ends_with_its_semicolon() -> None:
    assert typed("SELECT 1\rFROM rpcs;\rSELECT 2;\r\x04") == ["SELECT 1\nFROM rpcs;", "SELECT 2;"]
    assert typed("\rFROM rpcs;\rexit\rFROM files;\r") == ["FROM rpcs;"]


def test_an_error_is_one_line_and_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("wrong;\rSELECT 2;\r\x04") == ["wrong;", "SELECT 2;"]
    assert capsys.readouterr().err == "rdmascope: the query: wrong\n"


def test_control_c_drops_the_line() -> None:
    assert typed("SELECT 1\x03SELECT 2;\r\x04") == ["SELECT 2;"]


@pytest.mark.parametrize(
    ("text", "completed"),
    [("SELECT latency_n", ["latency_ns"]), ("FROM rp", ["rpcs"]), ("\\d seg", ["segments"]), ("sel", ["SELECT"])],
)
def test_tab_completes_tables_and_columns(text: str, completed: list[str]) -> None:
    found = list(SqlCompleter().get_completions(Document(text), CompleteEvent(completion_requested=True)))
    assert [one.text for one in found] == completed
    assert all(text.endswith(text[one.start_position :]) for one in found)


def test_help_lists_tables_and_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("\\d\r\\d chunks\r\\?\r\\d nothing\r\\x\r\x04") == []
    printed = capsys.readouterr()
    assert all(name in printed.out for name in TABLES)
    assert all(column.name in printed.out for column in TABLES["chunks"].columns)
    assert "Ctrl-D" in printed.out
    assert printed.err.splitlines() == [
        f"rdmascope: no table nothing; there are {', '.join(TABLES)}",
        "rdmascope: no command \\x; \\? lists them",
    ]


def test_what_was_asked_is_remembered_for_this_user_only() -> None:
    typed("SELECT 1;\r\x04")
    assert history_path().stat().st_mode & 0o777 == 0o600
    assert typed("\x1b[A\r\x04") == ["SELECT 1;"]


def test_where_nothing_can_be_remembered_it_works_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")
    assert typed("SELECT 1;\r\x04") == ["SELECT 1;"]


@pytest.mark.parametrize(
    ("before", "statement", "there", "absent"),
    [
        ("SELECT * FROM ", "", "segments", "latency_ns"),
        ("\\d ", "", "files", "SELECT"),
        ("SELECT ", "SELECT  FROM chunks", "position", "latency_ns"),
        ("SEL", "SEL", "SELECT", "\\d"),
    ],
)
def test_what_may_come_next(before: str, statement: str, there: str, absent: str) -> None:
    found = [text for text, _ in candidates(before, statement)]
    assert there in found and absent not in found


@pytest.mark.parametrize(("text", "whole"), [("", True), ("\\d", True), ("SELECT", False), ("SELECT 1; ", True)])
def test_when_enter_sends(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_the_command_on_a_terminal() -> None:
    import pty

    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="dumb", COLUMNS="80")
        os.execv(PROGRAM[0], [*PROGRAM, "sql", EVERYTHING])
    seen = b""
    sent = 0
    keys = [(b"sql> ", b"SELECT count(*) AS calls FROM rpcs;\r"), (b"237\r\n", b"\\q\r")]
    while True:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            break
        if sent < len(keys) and keys[sent][0] in seen:
            os.write(terminal, keys[sent][1])
            sent += 1
    _, status = os.waitpid(process, 0)
    assert (os.waitstatus_to_exitcode(status), sent) == (0, 2)
