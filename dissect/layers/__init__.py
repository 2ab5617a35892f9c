"""The headers, as Scapy packets named and documented after their specifications.

``from rdmascope.dissect.layers import *`` gives a Scapy user every layer and binds them; so does naming one,
as in ``from rdmascope.dissect.layers import BTH, RETH``.  Nothing is loaded before that, because the tables
beside the layers (``opcodes``) are used where starting Scapy would take longer than the work itself.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


@cache
def _layers() -> dict[str, type[Any]]:
    """Every Packet class that a module of this folder declares, by name."""
    from scapy.packet import Packet

    found: dict[str, type[Any]] = {}
    for module in iter_modules(__path__, f"{__name__}."):
        for name, value in vars(import_module(module.name)).items():
            declared = isinstance(value, type) and value.__module__ == module.name
            if declared and issubclass(value, Packet) and not name.startswith("_"):
                found[name] = value
    return found


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_layers())
    if name.startswith("__") or any(module.name == name for module in iter_modules(__path__)):
        raise AttributeError(name)
    try:
        return _layers()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_layers()})
