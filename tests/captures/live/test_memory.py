"""What a long capture gives back."""

from __future__ import annotations

import ctypes

import pytest

from rdmascope.captures.live.session import release, resident


def test_gaps_are_given_back() -> None:
    """100 MB in blocks below the size that is mapped by itself, with one in use behind them."""
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("not the C library of GNU")
    blocks = [bytes([number % 256]) * 50_000 for number in range(2000)]
    behind = bytes(50_000)
    del blocks[1::2]  # Gaps, which the end of the heap does not give back.
    before = resident()
    release()
    assert before - resident() > 30_000_000
    assert len(behind) == 50_000 and all(len(one) == 50_000 for one in blocks)
