"""``make lab``: builds what is missing, plays the scenarios in turn, and says what was expected and what was found."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import click
from rich import box
from rich.console import Console
from rich.table import Table

from . import build, guests
from .evidence import Check, healthy

SCENARIOS = sorted(path.stem for path in (build.LAB / "scenarios").glob("*.py"))
DEADLINE = 240
"""Seconds for a scenario that does not set its own, from power on to power off."""


class Result(NamedTuple):
    scenario: str
    transport: str
    checks: list[Check]
    seconds: float

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


USUAL: dict[str, str] = {}
"""Kernels by role, where both boot the usual one."""


def module(scenario: str) -> ModuleType:
    """Has ``judge(outcome)``; may have TRANSPORTS, SMOKE (transports), KERNELS, DEADLINE and WIRE_DELAY (seconds).

    ``KERNELS`` are dictionaries from a role to its version; the scenario is played once with each.
    """
    return importlib.import_module(f"{__package__}.scenarios.{scenario}")


def chosen(names: tuple[str, ...], transport: str | None, smoke: bool) -> Iterator[tuple[str, str]]:
    for name in names or SCENARIOS:
        for one in (
            getattr(module(name), "SMOKE", ()) if smoke else getattr(module(name), "TRANSPORTS", guests.TRANSPORTS)
        ):
            if transport in (None, one):
                yield name, one


def kernels(scenario: str, given: Mapping[str, str], smoke: bool) -> list[dict[str, str]]:
    """Which to play a scenario with; ``given``: what the command line asks for."""
    if given:
        return [dict(given)]
    return [USUAL] if smoke else getattr(module(scenario), "KERNELS", [USUAL])


def judged(outcome: guests.Outcome, judge: Callable[[guests.Outcome], Iterator[Check]]) -> list[Check]:
    """What was found; a judgement that breaks off is a check that does not hold."""
    checks = [Check("both guests do their part", outcome.problem or "they did", outcome.problem is None)]
    checks += healthy(outcome)
    try:
        checks += judge(outcome)
    except Exception as error:  # whatever the guests left: it must not take the other scenarios' results with it
        checks.append(Check("a judgement", f"{type(error).__name__}: {error}", False))
    return checks


def run_name(scenario: str, transport: str, kernels: Mapping[str, str]) -> str:
    return "-".join((scenario, transport, *(f"{role}-{version}" for role, version in kernels.items())))


def play(folder: Path, scenario: str, transport: str, kernels: Mapping[str, str]) -> Result:
    begun = time.monotonic()
    scripts = {
        role: path
        for role in guests.MEMORY
        if (path := build.LAB / "scenarios" / f"{scenario}.{role}.sh").exists()
    }  # fmt: skip
    over = ", ".join((transport, *(f"{role} {version}" for role, version in kernels.items())))
    try:
        with build.built(click.echo, wanted_kernels(kernels)) as parts:
            guests.prepare(parts, folder, scripts)
    except build.Broken as error:  # A newer kernel, say: the other scenarios can be played.
        checks = [Check("the guests have what they boot", str(error), False)]
        return Result(scenario, over, checks, time.monotonic() - begun)
    deadline = getattr(module(scenario), "DEADLINE", DEADLINE)
    wire_delay = getattr(module(scenario), "WIRE_DELAY", None)
    outcome = guests.play(parts, folder, scenario, transport, deadline, wire_delay, kernels)
    checks = judged(outcome, module(scenario).judge)
    return Result(scenario, over, checks, time.monotonic() - begun)


def wanted_kernels(given: Mapping[str, str]) -> set[str]:
    return {given.get(role, build.KERNELS[0]) for role in guests.MEMORY}


def attempt(folder: Path, scripts: dict[str, Path], transport: str, kernels: Mapping[str, str]) -> None:
    """Play scripts that no scenario has yet; prints the client's log."""
    with build.built(click.echo, wanted_kernels(kernels)) as parts:
        guests.prepare(parts, folder, scripts)
    outcome = guests.play(parts, folder, "attempt", transport, DEADLINE, kernels=kernels)
    click.echo(outcome.text("client.log"))
    click.echo(f"{outcome.problem or 'both guests did their part'}; {outcome.seconds:.0f} s, {folder}")
    sys.exit(outcome.problem is not None)


def table(results: list[Result]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for title in ("scenario", "over"):
        shown.add_column(title, no_wrap=True)
    shown.add_column("expected", ratio=3)
    shown.add_column("found", ratio=2)
    shown.add_column("s", justify="right", no_wrap=True)
    for result in results:
        for number, check in enumerate(result.checks):
            first = (result.scenario, result.transport) if number == 0 else ("", "")
            found = check.found if check.holds else f"[red]✗ {check.found}[/red]"
            shown.add_row(*first, check.expected, found, f"{result.seconds:.0f}" if number == 0 else "")
        shown.add_section()
    return shown


def width() -> int | None:
    return None if sys.stdout.isatty() else 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("scenario", nargs=-1, type=click.Choice(SCENARIOS))
@click.option("--transport", type=click.Choice(guests.TRANSPORTS), help="Only over this one.")
@click.option("--smoke", is_flag=True, help="Only the few that continuous integration runs.")
@click.option("--output", type=click.Path(path_type=Path), help="Where captures and logs go; work/runs without.")
@click.option("--client", type=click.Path(exists=True, path_type=Path), help="Instead, play this script in the client.")
@click.option("--server", type=click.Path(exists=True, path_type=Path), help="And this one in the server.")
@click.option("--client-kernel", type=click.Choice(build.KERNELS), help="The version that the client boots.")
@click.option("--server-kernel", type=click.Choice(build.KERNELS), help="The version that the server boots.")
@click.option("--build", "only_built", is_flag=True, help="Make what the guests boot from, and run nothing.")
@click.option("--list", "listed", is_flag=True, help="Say what there is, and run nothing.")
def main(
    scenario: tuple[str, ...],
    transport: str | None,
    smoke: bool,
    output: Path | None,
    client: Path | None,
    server: Path | None,
    client_kernel: str | None,
    server_kernel: str | None,
    only_built: bool,
    listed: bool,
) -> None:
    """Play SCENARIOs, or all, in two guests each, and hold rdmascope's findings against what others counted."""
    if listed:
        for name in SCENARIOS:
            click.echo(f"{name:<10} {(module(name).__doc__ or '').splitlines()[0]}")
        return
    folder = (output or build.LAB / "work" / "runs").absolute()
    begun = time.monotonic()
    given = {role: one for role, one in (("client", client_kernel), ("server", server_kernel)) if one}
    try:
        with build.built(click.echo, wanted_kernels(given)):
            click.echo(f"lab: ready after {time.monotonic() - begun:.0f} s")
        if only_built:
            return
        if client or server:
            scripts = {role: path for role, path in (("client", client), ("server", server)) if path}
            attempt(folder / "attempt", scripts, transport or "rxe", given)
        else:
            runs = [
                (name, over, one)
                for name, over in chosen(scenario, transport, smoke)
                for one in kernels(name, given, smoke)
            ]
            play_all(runs, folder, begun, smoke)
    except build.CannotRun as error:
        click.echo(f"lab: skipped, it cannot run here: {error}")
    except build.Broken as error:
        raise click.ClickException(str(error)) from None


def told(result: Result) -> Result:
    """The same, after its verdict was printed, with what did not hold."""
    verdict = "as expected" if result.holds else "NOT as expected"
    click.echo(f"{result.scenario} over {result.transport}: {verdict}, {result.seconds:.0f} s")
    for check in result.checks:
        if not check.holds:
            click.echo(f"  expected {check.expected}, found {check.found}")
    return result


def play_all(runs: Iterable[tuple[str, str, dict[str, str]]], folder: Path, begun: float, again: bool) -> None:
    """Play them in turn, and print the table; exits with 1 where anything was not as expected.

    ``again``: what is not as expected is played once more, and that counts.  Guests share a processor with whatever
    else the machine does, and a kernel that gets none drops what it would have captured.
    """
    results = []
    for name, transport, kernels in runs:
        at = folder / run_name(name, transport, kernels)
        result = told(play(at, name, transport, kernels))
        if again and not result.holds:
            at.rename(at.with_name(f"{at.name}-first-time-{time.time():.0f}"))
            result = told(play(at, name, transport, kernels))
        results.append(result)
    Console(width=width(), highlight=False).print(table(results))
    failed = [f"{result.scenario} over {result.transport}" for result in results if not result.holds]
    checks = [check for result in results for check in result.checks]
    click.echo(
        f"{len(results)} runs, {sum(check.holds for check in checks)} of {len(checks)} checks hold, "
        f"{time.monotonic() - begun:.0f} s; captures and logs: {folder}"
    )
    if failed:
        click.echo(f"not as expected: {', '.join(failed)}")
        for result in results:
            told(result)
        sys.exit(1)


if __name__ == "__main__":
    main()
