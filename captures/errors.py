"""The one exception of this folder."""

from __future__ import annotations


class CaptureError(Exception):
    """What is wrong with a capture and where, in one line a user can act on."""
