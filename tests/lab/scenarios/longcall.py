"""Long calls (position-zero Read chunks) and long replies (Reply chunks): attributes and symbolic links."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, equal, records
from ..guests import Outcome


def judge(outcome: Outcome) -> Iterator[Check]:
    rpcs = records(outcome, "rpcs", "--full")
    long = [rpc for rpc in rpcs if any(chunk["position"] == 0 for chunk in rpc["chunk_list"])]
    yield Check("at least 3 long calls", str(len(long)), len(long) >= 3)
    replies = [
        rpc for rpc in rpcs if rpc["reply_rdma_procedure"] == "RDMA_NOMSG"
    ]  # fmt: skip
    yield Check("at least 3 long replies", str(len(replies)), len(replies) >= 3)
    yield equal("attributes read back in the guest", {"True"}, set(outcome.those("same").values()))
    yield from always(outcome)
