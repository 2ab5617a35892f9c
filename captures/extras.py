"""What a plain installation leaves out: libraries that only some commands take."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from .errors import CaptureError

EXTRAS = {
    "bokeh": ("a page takes Bokeh", "html"),
    "distributed": ("--scheduler takes Dask", "cluster"),
    "duckdb": ("conditions, SQL and saved tables take DuckDB", "sql"),
    "pandas": ("a DataFrame takes pandas", ""),
    "prompt_toolkit": ("the prompt of sql takes prompt_toolkit", "sql"),
    "pyarrow": ("Arrow takes pyarrow", "arrow"),
    "pyshark": ("a second opinion takes pyshark", "verify"),
    "scapy": ("frames in full, synth and probe take Scapy", "layers"),
    "textual": ("browse takes Textual", "browse"),
}
"""Module -> what takes it, and the extra of rdmascope that brings it; '' where none does."""


def need(name: str) -> None:
    """Before a module is imported: raise CaptureError, with what to install, where it is not there."""
    if sys.modules.get(name, name) is None or find_spec(name) is None:
        raise CaptureError(not_installed(name))


def not_installed(name: str) -> str:
    words, extra = EXTRAS[name]
    wanted = f"'rdmascope[{extra}]'" if extra else name
    return f"{words}, which is not installed: pip install {wanted}"
