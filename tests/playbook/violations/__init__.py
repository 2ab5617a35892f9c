"""Conversations that break one rule of the audit each, and one that breaks none.

Every script is named after its rule and gives who broke it, and in which of its messages.
"""

from . import backward, bindings, characteristics, chunks, errors, headers, positions, sizes, version2
from .kept import proper, proper_second
from .scripts import CLIENT, SCRIPTS, SERVER, Broken, hello, opened

__all__ = [
    "CLIENT", "SCRIPTS", "SERVER", "Broken", "backward", "bindings", "characteristics", "chunks", "errors",
    "headers", "hello", "opened", "positions", "proper", "proper_second", "sizes", "version2",
]  # fmt: skip
