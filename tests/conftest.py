"""Property tests have no deadline, for a busy machine is no fault of what they test.

Continuous integration tries the same examples every time, so that a failure is that of a change, and fewer; elsewhere
every run tries others.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

CI = "CI" in os.environ
settings.register_profile("rdmascope", deadline=None, derandomize=CI, max_examples=20 if CI else 60)
settings.load_profile("rdmascope")


def pytest_collection_finish() -> None:
    """Look for garbage less often, and not among what was loaded: a third of the time of property tests went there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_in_the_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the commands that they run, find a temporary folder of their own, and leave it empty."""
    folder = tmp_path_factory.mktemp("temporary")
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    yield
    tempfile.tempdir = None
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    assert sorted(path.name for path in folder.iterdir()) == []
