"""Conversations that break one rule of the audit each, and one that breaks none.

Every script is named after its rule and gives who broke it, and in which of its messages.
"""

from . import backward, bindings, chunks, errors, headers, sizes
from .kept import proper
from .scripts import CLIENT, SCRIPTS, SERVER, Broken, hello

__all__ = [
    "CLIENT", "SCRIPTS", "SERVER", "Broken", "backward", "bindings", "chunks", "errors", "headers", "hello", "proper",
    "sizes",
]  # fmt: skip
