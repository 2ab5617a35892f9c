"""Property tests have no deadline, for a busy machine is no fault of what they test.

Continuous integration tries the same examples every time, so that a failure is that of a change; elsewhere every run
tries others.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("rdmascope", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("rdmascope")
