"""How the work grows with the input: the lines of Python that run are counted, nothing is timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any


def work(function: Callable[[], object]) -> int:
    """Lines of Python that run, each as often as it does, in functions that are called anew."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def growth(made: Callable[[int], Callable[[], object]], size: int) -> list[float]:
    """What twice the input costs, at ``size`` and at twice that: 2 is linear, 4 is quadratic.

    ``made`` gives what is to be run for an input of a size; making it does not count.
    """
    works = [work(made(factor * size)) for factor in (1, 2, 4)]
    return [later / earlier for earlier, later in pairwise(works)]
