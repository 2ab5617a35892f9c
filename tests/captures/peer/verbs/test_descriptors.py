"""Descriptors of many connections."""

from __future__ import annotations

import os
import resource

import pytest

from rdmascope.captures.peer.verbs.interface import readable


def test_more_descriptors_than_select_takes() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2200:
        pytest.skip("this machine does not allow so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2200), hard))
    descriptors: list[int] = []
    try:
        for _ in range(520):
            descriptors += os.pipe()
        assert descriptors[-1] > 1024
        reading = descriptors[::2]
        assert readable(reading, 0) == []
        os.write(descriptors[-1], b"x")
        assert readable(reading, 1_000_000_000) == [reading[-1]]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
