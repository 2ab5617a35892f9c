"""Descriptors of many connections."""

from __future__ import annotations

import os
import resource

import pytest

from rdmascope.captures.verbs.descriptors import readable


def test_more_descriptors_than_select_takes() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2200:
        pytest.skip("this machine does not allow so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2200, hard))
    pipes = [os.pipe() for _ in range(1040)]
    try:
        assert pipes[-1][0] > 1024
        reading = [pipe[0] for pipe in pipes]
        assert readable(reading, 0) == []
        os.write(pipes[-1][1], b"x")
        assert readable(reading, 1_000_000_000) == [pipes[-1][0]]
    finally:
        for pipe in pipes:
            os.close(pipe[0])
            os.close(pipe[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
