"""Detector: one small function over the facts of a capture, and all that there is to say about what it finds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from ..plugged import guarded
from .facts import Facts
from .statement import Cause, Severity


class Threshold(NamedTuple):
    """A number that decides whether a detector speaks."""

    value: float
    meaning: str
    """What is compared with it, with its unit."""


Limits = Mapping[str, float]
"""The thresholds by name."""

Detect = Callable[[Facts, Limits], Iterable[Cause]]


class Detector(NamedTuple):
    """``detect`` gives causes where something is wrong, and none on a healthy capture."""

    kind: str
    title: str
    severity: Severity
    looks_at: str
    """What it reads: statistics, transport health, …"""
    thresholds: Mapping[str, Threshold]
    next_steps: tuple[str, ...]
    needs: str
    """'' or what has to be gathered for it beside the RPCs: 'files', 'audit', 'sessions'."""
    uses: str
    """The same of what makes it surer, where it is there."""
    detect: Detect
    leads: bool = False
    """What it says comes before all else: it explains the rest."""
    follows_from: tuple[str, ...] = ()
    """Kinds whose statements have its own as evidence where they are about the same procedures, or connections."""

    @property
    def limits(self) -> Limits:
        return {name: threshold.value for name, threshold in self.thresholds.items()}

    @property
    def explanation(self) -> str:
        """The docstring, one line of text."""
        return " ".join((inspect.getdoc(self.detect) or "").split())


_DETECTORS: dict[str, Detector] = {}


def detector(
    kind: str,
    title: str,
    severity: Severity,
    looks_at: str,
    thresholds: Mapping[str, tuple[float, str]],
    next_steps: Iterable[str],
    *,
    needs: str = "",
    uses: str = "",
    leads: bool = False,
    follows_from: Iterable[str] = (),
) -> Callable[[Detect], Detect]:
    """Register the function below."""

    def register(detect: Detect) -> Detect:
        if kind in _DETECTORS and inspect.unwrap(_DETECTORS[kind].detect).__code__ != detect.__code__:
            raise ValueError(f"there is a detector {kind} already")
        data = {name: Threshold(*one) for name, one in thresholds.items()}
        _DETECTORS[kind] = Detector(
            kind,
            title,
            severity,
            looks_at,
            data,
            tuple(next_steps),
            needs,
            uses,
            guarded(detect, ()),
            leads,
            tuple(follows_from),
        )
        return detect

    return register


def all_detectors() -> dict[str, Detector]:
    """Every detector of the package by kind, in the order of kinds."""
    package = __name__.rpartition(".")[0] + ".detectors"
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
    return dict(sorted(_DETECTORS.items()))
