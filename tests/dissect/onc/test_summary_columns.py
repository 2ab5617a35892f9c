"""What calls and replies say in columns is what it is one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.onc import summary
from rdmascope.dissect.onc.naming import stateid_hash


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=8))
def test_hashes_of_stateids(stateids: list[bytes]) -> None:
    data = np.frombuffer(b"".join([*stateids, bytes(16)]), np.uint8)
    starts = np.arange(len(stateids)) * 16
    assert summary._stateids(data, starts, starts + 16).tolist() == [*map(stateid_hash, stateids)]
