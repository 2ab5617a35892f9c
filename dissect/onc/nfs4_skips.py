"""Steps over the arguments and results of NFSv4 operations, made from their declarations in ``shapes``.

A result begins with the operation number and its status; ``RESULTS`` steps over what follows where the status is
NFS4_OK, ``FAILURES`` over what follows another status, where that is anything at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from .shapes.attributes4 import ATTRIBUTE_BITS, FATTR4, NUMBERED
from .shapes.nfs4 import CALLBACK_OPERATIONS, OPERATIONS
from .shapes.procedures import OperationShape
from .shapes.rfc7530 import CREATE4ARGS, OPEN4ARGS, READ4RESOK
from .shapes.skips import place_of, skip_of, skip_of_arm, steps_behind, steps_to
from .shapes.types import XdrStruct
from .xdr import Shape, as_skip


def _arguments(operations: Mapping[int, OperationShape]) -> dict[int, tuple[str, Shape]]:
    return {number: (one.name, skip_of_arm(one.arguments)) for number, one in operations.items()}


def _results(operations: Mapping[int, OperationShape]) -> dict[int, Shape]:
    return {number: skip_of_arm(one.results.arms[0]) for number, one in operations.items()}


ARGUMENTS = _arguments(OPERATIONS)
CALLBACK_ARGUMENTS = _arguments(CALLBACK_OPERATIONS)
RESULTS = _results(OPERATIONS)
CALLBACK_RESULTS = _results(CALLBACK_OPERATIONS)
FAILURES: dict[tuple[int, int], Shape] = {
    (number, status): skip_of_arm(arm)
    for number, one in OPERATIONS.items()
    for status, arm in one.results.arms.items()
    if status
}
ALWAYS: dict[int, Shape] = {
    number: skip_of_arm(one.results.default) for number, one in OPERATIONS.items() if one.results.default is not None
}
"""What comes with every other status: attrsset of SETATTR."""

BITMAP = as_skip(skip_of(ATTRIBUTE_BITS))
FATTR = as_skip(skip_of(FATTR4))
ATTRIBUTES = {number: as_skip(skip_of(type)) for number, (_, type) in NUMBERED.items()}
"""By attribute number."""


@cache
def place_in_arguments(operation: int, field: str) -> int:
    """Bytes from the beginning of an operation's arguments to one of their fields, behind others of fixed size."""
    arguments = OPERATIONS[operation].arguments
    assert isinstance(arguments, XdrStruct)
    return place_of(arguments, field)


DATA_IN_READ_RESULT = place_of(READ4RESOK, "data")
BEHIND_CREATE_TYPE = steps_behind(CREATE4ARGS, "objtype")
TO_CREATE_NAME = steps_to(CREATE4ARGS, "objname")
TO_CREATE_ATTRIBUTES = steps_to(CREATE4ARGS, "createattrs")
TO_OPEN_HOW = steps_to(OPEN4ARGS, "openhow")
TO_OPEN_CLAIM = steps_to(OPEN4ARGS, "claim")
