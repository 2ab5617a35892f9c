"""The machine behind every record: its type, and the version of the layouts.

A record names its layout in ``schema`` ("rdmascope.rpc/2.0") and the type in ``type`` ("rpc").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..named_tuple import NamedTuple

if TYPE_CHECKING:
    from ..frames import Place  # With it NumPy, which not every command waits for.

Record = dict[str, Any]
"""What becomes a JSON object."""

VERSION = "1.0"
"""Version of the layouts: the first number rises when a name goes or changes its meaning, the second when one is added.
"""
VERSIONS = {"live": "1.1", "rpc": "2.0", "runs": "1.1"}
"""Versions of the layouts with another one."""


def wide(name: str, value: int | None) -> Record:
    """A field of 64 bits, and its hexadecimal string: not every reader of JSON has integers beyond 53 bits."""
    return {name: value, f"{name}_hex": None if value is None else f"{value:#018x}"}


def decoded(value: bytes | None) -> str | None:
    """Text from the wire; bytes that are no UTF-8 are escaped."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def schema(type: str) -> str:
    """The name of a type's layout: 'rdmascope.rpc/2.0'."""
    return f"rdmascope.{type}/{VERSIONS.get(type, VERSION)}"


def record(type: str, **fields: Any) -> Record:
    """The fields, and before them what they are."""
    return {"schema": schema(type), "type": type, **fields}


Fields = dict[str, tuple[str, str]]
"""Path -> JSON type and meaning."""


class RecordType(NamedTuple):
    """What a record type is, which commands print it, and its fields."""

    meaning: str
    commands: str
    fields: Fields


COMMON: Fields = {
    "file": ("string", "path of the capture as given; several are joined"),
    "connection": ("integer", "number of the connection, from 1"),
    "frame": ("integer", "number of the frame, from 1"),
    "first_frame": ("integer", "first frame of it"),
    "last_frame": ("integer", "last frame of it"),
    "time_ns": ("integer", "when"),
    "first_time_ns": ("integer", "time of its first frame"),
    "last_time_ns": ("integer", "time of its last frame"),
    "xid": ("integer", "RPC transaction ID (unsigned, 32 bits)"),
    "transport": ("string", "RoCEv1, RoCEv2, InfiniBand or iWARP"),
    "target": ("string", "address and port of the server that was probed"),
    "call_bytes": ("integer", "bytes of RPC calls, chunks included"),
    "reply_bytes": ("integer", "bytes of RPC replies, chunks included"),
    "rpcs": ("integer", "RPCs"),
    "problem": ("string|null", "what went wrong; null for nothing"),
}
"""What the same name means in several types."""


def common(*names: str) -> Fields:
    return {name: COMMON[name] for name in names}


def below(path: str, fields: Mapping[str, tuple[str, str]]) -> Fields:
    """The fields of an object, an array's (``name[]``) or a map's (``name{}``) objects."""
    return {f"{path}.{name}": field for name, field in fields.items()}


def objects(path: str, type: str, meaning: str, fields: Mapping[str, tuple[str, str]]) -> Fields:
    """A field that holds objects, and their fields."""
    if type.startswith("array of object"):
        inner = f"{path}[]"
    elif type.startswith("map of object"):
        inner = path + "{}"
    else:
        inner = path
    return {path: (type, meaning), **below(inner, fields)}


LATENCY: Fields = {
    "total_ns": ("integer", "from the call's first packet to the reply's last"),
    "call_ns": ("integer", "part in which the call was sent"),
    "reads_ns": ("integer", "part in which the server fetched Read chunks"),
    "server_ns": ("integer", "part in which the server worked"),
    "writes_ns": ("integer", "part in which the server sent RDMA Writes"),
    "reply_ns": ("integer", "part in which the reply was sent"),
    "retransmission_ns": ("integer", "part in which it waited for retransmissions, in none of the others"),
}

DISTRIBUTION: Fields = {
    "count": ("integer", "values"),
    "min_ns": ("integer", "least"),
    "median_ns": ("integer", "median"),
    "p99_ns": ("integer", "99th percentile"),
    "max_ns": ("integer", "greatest"),
}

RANGE: Fields = {
    "lowest": ("integer", "lowest value"),
    "highest": ("integer", "highest value"),
}

RPC_NAMES: Fields = {
    "direction": ("string", "forward (called by the client) or backward"),
    "program": ("string|null", "name of the RPC program"),
    "program_number": ("integer|null", "its number"),
    "version": ("integer|null", "program version"),
    "minor_version": ("integer|null", "NFSv4 minor version; null for other programs"),
    "procedure": ("string|null", "name of the procedure"),
    "procedure_number": ("integer|null", "its number"),
    "operations": ("array of string", "operations of an NFSv4 COMPOUND, in order"),
}

SENT: Fields = {
    "packets": ("integer|null", "packets it sent; null with iWARP"),
    "segments": ("integer|null", "TCP segments with payload it sent; null without iWARP"),
    "fpdus": ("integer|null", "FPDUs it sent, each counted once; null without iWARP"),
    "bytes": ("integer", "payload bytes it sent, retransmissions included (iWARP: these as TCP payload)"),
    "retransmitted_packets": ("integer|null", "packets it retransmitted; null with iWARP"),
    "retransmitted_segments": ("integer|null", "TCP segments it retransmitted; null without iWARP"),
    "retransmitted_bytes": ("integer", "payload bytes it retransmitted"),
    "missing_packets": ("integer|null", "packets it sent that are not in the capture; null with iWARP"),
    "missing_segments": ("integer|null", "TCP segments it sent that are not in the capture; null without iWARP"),
}
"""What an endpoint sent."""


_FRAME = "frame"


def placed(fields: Record, place: Callable[[int], Place | None]) -> Record:
    """The record, and behind each frame number an object with the file and the number of the frame in it.

    Behind ``frame`` it is ``place``, behind ``call_frame`` ``call_place``, behind an array ``frames`` an array
    ``places``; in objects inside the record, too.
    """
    with_places: Record = {}
    for name, value in fields.items():
        with_places[name] = _placed(value, place)
        numbers = value if isinstance(value, list) else [value]
        named = name.removesuffix("s") if isinstance(value, list) else name
        if not (named == _FRAME or named.endswith(f"_{_FRAME}")) or not all(type(number) is int for number in numbers):
            continue
        places = [_place(place(number)) for number in numbers]
        stem = named.removesuffix(_FRAME)
        with_places[f"{stem}places" if isinstance(value, list) else f"{stem}place"] = (
            places if isinstance(value, list) else places[0]
        )
    if fields.get("type") == _FRAME:
        with_places["place"] = _place(place(fields["number"]))
    return with_places


def _placed(value: Any, place: Callable[[int], Place | None]) -> Any:
    if isinstance(value, dict):
        return placed(value, place)
    if isinstance(value, list):
        return [_placed(inner, place) for inner in value]
    return value


def _place(place: Place | None) -> Record | None:
    return None if place is None else place._asdict()
