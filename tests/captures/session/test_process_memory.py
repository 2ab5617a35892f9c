"""What is freed stays in the heap for what comes next, but not without bound."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rdmascope.captures.session.process_memory import KEPT

FREED_AND_TAKEN = """
import resource, sys
import numpy as np
from rdmascope.captures.session.process_memory import keep_freed
if sys.argv[1] == "kept":
    keep_freed()

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def batch():
    return [np.ones(2 << 20, np.uint8) for _ in range(int(sys.argv[2]))]

del batch()[:]
before = pages()
for _ in range(10):
    del batch()[:]
print(pages() - before)
"""
PAGE = 4096


def cleared(way: str, arrays: int) -> int:
    """Pages that the system cleared for ten batches of so many arrays of 2 MiB."""
    words = [sys.executable, "-c", FREED_AND_TAKEN, way, str(arrays)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library of GNU")
def test_pages_of_one_batch_are_used_by_the_next() -> None:
    arrays = 6
    assert arrays * (2 << 20) < KEPT
    one = arrays * (2 << 20) // PAGE
    assert cleared("kept", arrays) < one < 5 * one < cleared("usual", arrays)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library of GNU")
def test_more_than_that_is_given_back() -> None:
    arrays = 12
    assert cleared("kept", arrays) > 5 * arrays * (2 << 20) // PAGE
