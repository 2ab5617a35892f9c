"""Property tests have no deadline: a busy machine is no fault of what they test."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("rdmascope", deadline=None)
settings.load_profile("rdmascope")
