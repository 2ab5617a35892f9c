"""Who may read what is written."""

from __future__ import annotations

import os

PRIVATE, PUBLIC = 0o600, 0o666
"""Permissions of new files, less the umask: of those that may hold secrets (contents of captures), and of others."""
UMASK = "RDMASCOPE_UMASK"
"""Environment variable; where it is set, the umask alone says who may read what is written."""


def mode_of(mode: int) -> int:
    """The permissions that a new file is made with."""
    return PUBLIC if UMASK in os.environ else mode
