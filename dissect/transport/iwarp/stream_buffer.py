"""The bytes of one direction whose FPDUs are not decoded yet, with their markers and without."""

from __future__ import annotations

import numpy as np

from ...arrays import Bytes, Int64s, Rows
from ...layers.fpdus import MarkerGrid, fpdu_bytes
from .stream import STRETCH, Chunk
from .window import Window


class PendingBytes:
    """Stretches in order.  Places are positions in the stream that do not count markers (see ``MarkerGrid``)."""

    def __init__(self) -> None:
        self.grid: MarkerGrid | None = None
        """Where markers stand; None: there are none, as far as known."""
        self._incoming: list[Rows] = []
        self._wire = np.zeros(0, STRETCH)
        """As they were in the stream, where it has markers."""
        self._rows = np.zeros(0, STRETCH)
        self._datas: list[Bytes] = []
        self._windows: tuple[Window, Window] | None = None

    def __len__(self) -> int:
        """Stretches that are pending; 0 where nothing is."""
        return len(self._incoming) or len(self._rows)

    def take(self, chunks: list[Chunk]) -> None:
        """Take what follows in the stream."""
        for data, rows in chunks:
            if not self._datas or self._datas[-1] is not data:
                self._datas.append(data)
            rows["chunk"] = len(self._datas) - 1
            self._incoming.append(rows)

    @property
    def window(self) -> Window:
        """Without markers."""
        return self._gathered()[0]

    @property
    def wire(self) -> Window:
        """As sent."""
        return self._gathered()[1]

    @property
    def datas(self) -> list[Bytes]:
        """What the rows of both windows refer to; never changed in place."""
        return self._datas.copy()

    def _gathered(self) -> tuple[Window, Window]:
        if self._incoming:
            fresh = np.concatenate(self._incoming)
            self._incoming.clear()
            self._windows = None
            if self.grid is not None:
                self._wire = np.concatenate((self._wire, fresh))
                fresh = without_markers(fresh, self.grid)
            self._rows = np.concatenate((self._rows, fresh)) if len(self._rows) else fresh
        if self._windows is None:
            datas = self.datas
            window = Window(self._rows, datas)
            self._windows = window, window if self.grid is None else Window(self._wire, datas)
        return self._windows

    def set_grid(self, grid: MarkerGrid) -> None:
        """There are markers in all that is pending and in what follows; what lies before the first is dropped."""
        self._wire = self.window.rows
        self._rows = without_markers(self._wire, grid)
        self.grid = grid
        self._windows = None

    def in_stream(self, places: Int64s) -> Int64s:
        """Positions in the stream of places where FPDUs begin or end."""
        return places if self.grid is None else self.grid.start(places)

    def read_fpdu(self, place: int, ulpdu_length: int) -> bytes | None:
        """A whole FPDU as sent; None where some of it was not captured."""
        end = place + fpdu_bytes(ulpdu_length)
        if self.grid is not None:
            place, end = self.grid.start(place), self.grid.start(end)
        data = self.wire.read(place, end - place)
        return data if len(data) == end - place else None

    def forget(self, place: int) -> None:
        """Let go of what lies before a place."""
        window, wire = self._gathered()
        self._rows = window.rows[int(np.searchsorted(window.end, place, side="right")) :].copy()
        used = np.unique(self._rows["chunk"])
        if self.grid is not None:
            start = self.grid.start(place)
            self._wire = wire.rows[int(np.searchsorted(wire.end, start, side="right")) :].copy()
            used = np.union1d(used, self._wire["chunk"])
            self._wire["chunk"] = np.searchsorted(used, self._wire["chunk"])
        self._datas = [self._datas[number] for number in used.tolist()]
        self._rows["chunk"] = np.searchsorted(used, self._rows["chunk"])
        self._windows = None


def without_markers(rows: Rows, grid: MarkerGrid) -> Rows:
    """STRETCH rows without the markers in them, at places instead of positions.

    What lies before ``grid.base`` is dropped.
    """
    start = rows["at"]
    owner, low, high = grid.data(np.maximum(start, grid.base), start + rows["length"])
    out: Rows = rows[owner]
    skipped = low - start[owner]
    out["at"] = grid.place(low)
    out["payload"] += skipped
    out["length"] = high - low
    out["captured"] = np.clip(out["captured"] - skipped, 0, high - low)
    return out
