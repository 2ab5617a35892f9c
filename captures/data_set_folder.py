"""What is recognised as a data set, without a look into it."""

from __future__ import annotations

import os

MANIFEST = "manifest"
"""Folder of a data set that has an entry for each capture."""


def is_data_set(path: str) -> bool:
    """Whether ``path`` has the tables of many captures; see ``data_set``."""
    return os.path.isdir(os.path.join(path, MANIFEST))
