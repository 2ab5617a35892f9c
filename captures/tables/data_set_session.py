"""A data set in place of a capture: a Session over all its captures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, cast

from rdmascope.dissect.records.details import CaptureSums, DetailError, from_json
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from ..errors import CaptureError
from .data_set import Numbering, entries, make_views_of
from .data_set_folder import copies, is_data_set
from .database import Database
from .saved_rpcs import saved_rpcs
from .saved_session import Noun, SavedSession


class DataSetSession(SavedSession):
    """Reads the tables of all captures of a data set as those of one."""

    def __init__(self, path: str) -> None:
        self._numbering = Numbering(entries(path))
        super().__init__(path)
        self.path = copies.get(path, path)

    def host(self, connection: int) -> str | None:
        return self._numbering.host(connection)

    def _rpcs(self, database: Database, conversations: dict[int, Conversation]) -> Iterator[RpcTable]:
        for one in self._numbering.entries:
            if one.rpcs:
                behind = make_views_of(database.connection, self.paths[0], self._numbering, one)
                yield from saved_rpcs(database.connection, conversations, behind=behind)

    def _details(self, database: Database, kind: str, noun: type[Noun]) -> list[Noun]:
        rows = database.connection.execute(
            "SELECT details.capture, content FROM details JOIN numbering USING (capture) WHERE kind = ?"
            " ORDER BY frames_before",
            [kind],
        ).fetchall()
        try:
            found = [
                from_json(noun, json.dumps(_moved(kind, json.loads(content), self._numbering.offsets[capture])))
                for capture, content in rows
            ]
        except (DetailError, ValueError) as error:
            raise CaptureError(f"{self.path}: another version of rdmascope wrote this data set: {error}") from None
        if kind == "capture":
            return [cast(Noun, _summed(cast(list[CaptureSums], found)))]
        if kind == "passed over":
            return [cast(Noun, [path for one in found for path in cast(list[str], one)])]
        return found


def open_saved_session(path: str) -> SavedSession:
    """Of saved tables, or of a data set."""
    return DataSetSession(path) if is_data_set(path) else SavedSession(path)


def _moved(kind: str, value: Any, before: dict[str, int]) -> Any:
    """The JSON of a noun, with the numbers that it has over all captures."""
    moved = _renumbered(value, before)
    if kind in ("conversation", "evicted conversation", "credits"):
        moved["connection"]["number"] += before["connections"]
    elif kind == "file":
        moved["number"] += before["files"]
    elif kind == "capture":
        moved["unplaced"] = [[number + before["connections"], count] for number, count in moved["unplaced"]]
    return moved


def _renumbered(value: Any, before: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_renumbered(one, before) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inner in value.items():
        if type(inner) is int and inner > 0:
            if name == "frame" or name.endswith("_frame"):
                inner += before["frames"]
            elif name == "connection":
                inner += before["connections"]
            elif name == "rpc":
                inner += before["rpcs"]
        elif name.endswith("frames") and isinstance(inner, list) and all(type(one) is int for one in inner):
            inner = [one + before["frames"] for one in inner]
        else:
            inner = _renumbered(inner, before)
        found[name] = inner
    return found


def _summed(captures: list[CaptureSums]) -> CaptureSums:
    """What the captures come to together."""
    evicted = Evicted()
    for field in fields(Evicted):
        setattr(evicted, field.name, sum(getattr(one.evicted, field.name) for one in captures))
    first = [one.first_time for one in captures if one.first_time is not None]
    earliest = [one.earliest_time for one in captures if one.earliest_time is not None]
    last = [one.last_time for one in captures if one.last_time is not None]
    return CaptureSums(
        sum(one.frames for one in captures),
        sum(one.truncated_frames for one in captures),
        sum(one.dropped_frames for one in captures),
        sum(one.packets for one in captures),
        min(first, default=None),
        min(earliest, default=None),
        max(last, default=None),
        sum((one.skipped for one in captures), Counter()),
        sum((one.other_packets for one in captures), Counter()),
        [undecoded for one in captures for undecoded in one.undecoded],
        {number: count for one in captures for number, count in one.unplaced.items()},
        evicted,
        [],
    )
