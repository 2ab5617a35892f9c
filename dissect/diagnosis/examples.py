"""How many there are of something, and the worst of them, in little memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..arrays import Int64s

MAX_EXAMPLES = 5


@dataclass(slots=True)
class Examples:
    """How many there are of something, how much in all, and the worst of them."""

    count: int = 0
    total: int = 0
    _worst: Sequence[int] = ()
    """Weight, negative number and frame of each, ascending, in the least memory."""

    def add(self, weight: int, number: int, frame: int) -> None:
        """An RPC and its first frame."""
        self.count += 1
        self.total += weight
        if len(self._worst) < 3 * MAX_EXAMPLES or weight >= self._worst[0]:
            self._keep([(weight, -number, frame)])

    def add_each(self, rpcs: Sequence[tuple[int, int, int]]) -> None:
        """Weight, number and first frame of some RPCs."""
        self.count += len(rpcs)
        self.total += sum([weight for weight, _, _ in rpcs])
        self._keep([(weight, -number, frame) for weight, number, frame in rpcs])

    def add_all(self, weights: Int64s, numbers: Int64s, frames: Int64s) -> None:
        """Many RPCs."""
        if len(weights) > MAX_EXAMPLES:
            worst = np.argpartition(weights, -MAX_EXAMPLES)[-MAX_EXAMPLES:]
            self.count += len(weights) - MAX_EXAMPLES
            self.total += int(weights.sum()) - int(weights[worst].sum())
            weights, numbers, frames = weights[worst], numbers[worst], frames[worst]
        self.add_each([*zip(weights.tolist(), numbers.tolist(), frames.tolist(), strict=True)])

    def join(self, other: Examples) -> None:
        """Take over those of another one."""
        self.count += other.count
        self.total += other.total
        self._keep(other._examples)

    def _keep(self, more: list[tuple[int, int, int]]) -> None:
        kept = sorted(self._examples + more)[-MAX_EXAMPLES:]
        self._worst = array("q", chain.from_iterable(kept))

    @property
    def _examples(self) -> list[tuple[int, int, int]]:
        return [*zip(self._worst[::3], self._worst[1::3], self._worst[2::3], strict=True)]

    @property
    def rpcs(self) -> tuple[int, ...]:
        """Numbers, the worst first."""
        return tuple(-number for _, number, _ in reversed(self._examples))

    @property
    def frames(self) -> tuple[int, ...]:
        return tuple(frame for _, _, frame in reversed(self._examples) if frame)
