"""Filters that can match nothing say so, and what there is; those that might match stay silent."""

from __future__ import annotations

import pytest

from playbook.commands import EVERYTHING, LOSS, run

WHERE_WRITE = ("--where", "procedure = 'WRITE'")


@pytest.mark.parametrize(
    ("commands", "condition", "words"),
    [
        ("rpcs report", ("--where", "\"procedure\" = 'NOSUCH'"), "the procedure 'NOSUCH'; there is COMPOUND, NULL"),
        ("diagnose files", ("--user", "root"), "the user 'root'; there is 0"),
        ("rpcs files", ("--path", "/nosuch"), "the path '/nosuch'; there is /, /big, /dir, /r1m"),
        ("report diagnose", ("--where", "path = '/nosuch'"), "the path '/nosuch'; there is /, /big, /dir, /r1m"),
    ],
)
def test_what_no_rpc_has(commands: str, condition: tuple[str, ...], words: str) -> None:
    for command in commands.split():
        done = run(command, LOSS, *condition)
        assert done.exit_code == 2
        assert f"no RPC has {words}" in done.stderr


@pytest.mark.parametrize(
    "condition",
    [
        ("--where", "state = 'no call'"),
        ("--where", "status = 'NFS4ERR_DELAY'"),
        ("--where", "procedure = 'COMPOUND' AND latency_ns > 1e15"),
        ("--path", "/*", "--slower-than", "1h"),
        ("--user", "0", "--slower-than", "1h"),
    ],
)
def test_what_might_have_been_there(condition: tuple[str, ...]) -> None:
    done = run("rpcs", LOSS, *condition)
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_procedure_that_was_called_or_might_have_been() -> None:
    assert run("rpcs", EVERYTHING, *WHERE_WRITE).exit_code == 0
    of_version_4 = run("rpcs", LOSS, *WHERE_WRITE)
    assert of_version_4.exit_code == 0 and "WRITE" in of_version_4.stdout
    assert run("rpcs", EVERYTHING, "--where", "procedure = 'RENAME' AND version = 3").exit_code == 0
