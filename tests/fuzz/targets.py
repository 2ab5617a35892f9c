"""All targets by name."""

from __future__ import annotations

from .commands import COMMAND_TARGETS
from .conversations import CONVERSATION_TARGETS
from .decoders import DECODERS
from .target import Target

TARGETS: dict[str, Target] = DECODERS | CONVERSATION_TARGETS | COMMAND_TARGETS
