"""Which paths are URLs, and which can be read again; what reads URLs is in ``remote``, loaded where there is one."""

from __future__ import annotations

import os
import re

from ..errors import CaptureError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OUTPUT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""A Path has one / of two."""
HTTP = ("http", "https")


def scheme(path: str) -> str:
    """The scheme of a URL, in lower case; '' of a path."""
    return found[1].lower() if (found := _URL.match(path)) else ""


def is_url(path: str) -> bool:
    """Whether ``path`` is a URL, and not of a file of this machine."""
    return scheme(path) not in ("", "file")


def without_query(path: str) -> str:
    """A URL of HTTP without what follows ?; others, in which it is a wildcard, as they are."""
    return path.partition("?")[0] if scheme(path) in HTTP else path


def local(path: str) -> str:
    """A URL of a file of this machine as its path; others as they are."""
    if scheme(path) != "file":
        return path
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(path).path)


def refuse_url(output: str | os.PathLike[str]) -> None:
    """Raise CaptureError for an output: what is written goes into files of this machine."""
    if _OUTPUT.match(os.fspath(output)):
        raise CaptureError(f"{os.fspath(output)}: cannot write to a URL; write to a file or folder, and copy it there")


def stays(path: str) -> bool:
    """It can be read again."""
    return path != "-" and (is_url(path) or os.path.isfile(path) or os.path.isdir(path))
