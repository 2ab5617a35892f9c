"""The inputs that ``make bench`` measures are what their names say."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import rdmascope

BENCH = Path(__file__).parents[1] / "bench"
USED = 60
"""Packets of the long mount's connection that are repeated here; no call is open behind them."""


def module(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """A module of bench/, which is on no path."""
    spec = spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, loaded)
    spec.loader.exec_module(loaded)
    return loaded


def made(build: ModuleType, name: str, times: int) -> rdmascope.Capture:
    """An input with fewer repetitions, read to its end; every RPC of it is complete, every ICRC right."""
    wanted = next(one for one in build.INPUTS if one.name == name)
    wanted = replace(wanted, times=times, first=wanted.first or USED)
    build.make(wanted)
    capture = rdmascope.read(wanted.path, icrc=True)
    assert {rpc.state for rpc in capture.rpcs()} == {"complete"}
    return capture


def test_a_long_mount_is_one_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = module(monkeypatch, "build")
    monkeypatch.setattr(build, "WORK", tmp_path)
    once, thrice = (made(build, "mount", times) for times in (1, 3))
    assert len(once.connections) == len(thrice.connections) == 1
    assert len(list(thrice.rpcs())) == 3 * len(list(once.rpcs()))


def test_short_connections_are_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = module(monkeypatch, "build")
    monkeypatch.setattr(build, "WORK", tmp_path)
    assert len(made(build, "short", 12).connections) == 12


def test_every_row_has_an_input_that_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    build, rows = module(monkeypatch, "build"), module(monkeypatch, "rows")
    assert {row.input for row in rows.ROWS} <= {one.name for one in build.INPUTS}
