"""Texts and names as SQL writes them."""

from __future__ import annotations


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def encodable(text: str) -> str:
    """With what no UTF-8 can say written out: bytes of a file name, for instance."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
