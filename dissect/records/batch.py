"""What ``batch`` did, as records."""

from __future__ import annotations

from .schema import RecordType

TYPES: dict[str, RecordType] = {
    "batch_capture": RecordType(
        "A capture of a data set.",
        "`batch`",
        {
            "capture": ("string", "its name in the data set, made of its contents"),
            "host": ("string", "where it was made, as the folders say"),
            "files": ("array of string", "paths; several where they are rotated"),
            "known": ("boolean", "the data set had it"),
            "problem": ("string|null", "why it could not be read at all"),
            "damage": ("string|null", "why it was not read to its end"),
            "frames": ("integer", "frames read"),
            "rpcs": ("integer", "RPCs"),
            "connections": ("integer", "connections"),
        },
    ),
    "batch": RecordType(
        "All captures of a data set.",
        "`batch`",
        {
            "data_set": ("string", "path"),
            "captures": ("integer", "captures that were given"),
            "known": ("integer", "of these, already in the data set"),
            "unread": ("integer", "of these, unreadable"),
        },
    ),
}
