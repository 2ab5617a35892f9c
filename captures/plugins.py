"""Plug-ins: packages that are installed with entry points, and files that are named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from rdmascope.dissect import plugged
from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.diagnosis.facts import all_detectors

from .errors import CaptureError

GROUPS = ("rdmascope.rules", "rdmascope.detectors", "rdmascope.programs", "rdmascope.formats", "rdmascope.exporters")
"""Entry points that name modules.  Which of them is for readers alone: a module may register all kinds."""
FILES = "RDMASCOPE_PLUGINS"
"""Files, as PATH has folders: also what other processes of a command load."""
_loaded: set[str] = set()


def load_plugins(files: Iterable[str] = ()) -> None:
    """Load what is installed and what is named, each once.  One that fails is named, and the others are loaded.

    Raises CaptureError for a file that is not there.
    """
    named = [os.path.abspath(file) for file in files]
    named += [file for file in os.environ.get(FILES, "").split(os.pathsep) if file and file not in named]
    installed = [point for group in GROUPS for point in entry_points(group=group)]
    if not named and not installed:
        return
    for file in named:
        if not Path(file).is_file():
            raise CaptureError(f"{file}: no such plug-in")
    os.environ[FILES] = os.pathsep.join(named)
    all_rules(), all_detectors()  # Ours come first: a plug-in cannot take the name of one.
    for point in installed:
        if point.value not in _loaded:
            _load(point.name, point.value, point.load)
    for file in named:
        if file not in _loaded:
            _load(Path(file).name, file, lambda file=file: _run(file))


def _load(name: str, key: str, load: object) -> None:
    _loaded.add(key)
    with plugged.registering(name):
        try:
            load()  # type: ignore[operator]
        except (Exception, SystemExit) as error:
            plugged.report[-1](plugged.failure(name, "loading it", error))


def _run(file: str) -> None:
    name = f"rdmascope_plugin_{Path(file).stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError("is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
