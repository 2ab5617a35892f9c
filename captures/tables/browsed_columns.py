"""The columns of browsed tables, by when they come."""

from __future__ import annotations

from collections.abc import Collection

from rdmascope.dissect.records.tables import TABLES

LEFT_OUT = {"file", "call_place_file", "call_place_frame", "reply_place_file", "reply_place_frame"}
"""Columns of rpcs that running traffic does without, and that are not looked for a text: the first takes as long as all
others together."""
LATER = {
    "paths": {one.name for one in TABLES["rpcs"].columns if one.needs in ("contents", "paths")},
    "places": LEFT_OUT,
}
"""Columns of rpcs that take more time than the rows themselves, and come in passes of their own, by what they say."""


def first_columns(table: str) -> Collection[str] | None:
    """The columns of a table that come with its rows."""
    if table == "rpcs":
        return {one.name for one in TABLES[table].columns}.difference(*LATER.values())
    if table == "connections":  # The others take the contents of messages: they come with the paths.
        return {one.name for one in TABLES[table].columns if not one.needs}
    return None


def live_columns(table: str) -> Collection[str] | None:
    """The columns of a table that are filled while traffic passes."""
    return {one.name for one in TABLES["rpcs"].columns} - LEFT_OUT if table == "rpcs" else None
