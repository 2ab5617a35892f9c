"""What is recognised as a data set, without a look into it."""

from __future__ import annotations

import os

MANIFEST = "manifest"
"""Folder of a data set that has an entry for each capture."""

copies: dict[str, str] = {}
"""Folders of this machine that are copies of data sets at URLs, and those."""


def is_data_set(path: str) -> bool:
    """Whether ``path`` has the tables of many captures; see ``data_set``."""
    return os.path.isdir(os.path.join(path, MANIFEST))
