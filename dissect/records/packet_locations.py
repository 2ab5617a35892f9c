"""Where several files are read as one capture: each frame number of a record with its file, and its number there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..frames import Place
from .schema import Record

FRAME = "frame"


def placed(fields: Record, place: Callable[[int], Place | None]) -> Record:
    """The record, and behind each frame number an object with the file and the number of the frame in it.

    Behind ``frame`` it is ``place``, behind ``call_frame`` ``call_place``, behind an array ``frames`` an array
    ``places``; in objects inside the record, too.
    """
    found: Record = {}
    for name, value in fields.items():
        found[name] = _inner(value, place)
        numbers = value if isinstance(value, list) else [value]
        named = name.removesuffix("s") if isinstance(value, list) else name
        if not (named == FRAME or named.endswith(f"_{FRAME}")) or not all(type(one) is int for one in numbers):
            continue
        places = [_fields(place(number)) for number in numbers]
        stem = named.removesuffix(FRAME)
        found[f"{stem}places" if isinstance(value, list) else f"{stem}place"] = (
            places if isinstance(value, list) else places[0]
        )
    if fields.get("type") == FRAME:
        found["place"] = _fields(place(fields["number"]))
    return found


def _inner(value: Any, place: Callable[[int], Place | None]) -> Any:
    if isinstance(value, dict):
        return placed(value, place)
    if isinstance(value, list):
        return [_inner(one, place) for one in value]
    return value


def _fields(place: Place | None) -> Record | None:
    return None if place is None else place._asdict()
