"""Exporters of plug-ins: ``rdmascope export --to NAME``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from rdmascope.dissect.plugged import failure, origin
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from ..errors import CaptureError

Write = Callable[[Iterator[Rpc], BinaryIO], None]


class Exporter(NamedTuple):
    """A function that writes RPCs, and the plug-in that brought it."""

    write: Write
    plugin: str

    def run(self, rpcs: Iterator[Rpc], file: BinaryIO) -> None:
        """Raises CaptureError where it fails: what it wrote until then is not whole."""
        try:
            self.write(rpcs, file)
        except (CaptureError, OSError):
            raise
        except Exception as error:
            words = failure(self.plugin, self.write.__name__, error).partition("; left out")[0]
            raise CaptureError(words) from error


EXPORTERS: dict[str, Exporter] = {}


def exporter(name: str) -> Callable[[Write], Write]:
    """Register the function below: it is given the RPCs as they end, and the file to write."""

    def register(write: Write) -> Write:
        if name in EXPORTERS:
            raise ValueError(f"there is an exporter {name} already")
        EXPORTERS[name] = Exporter(write, origin())
        return write

    return register
