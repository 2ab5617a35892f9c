"""A trace of a kernel in the panes."""

from __future__ import annotations

from playbook.browsing import Browsing, browse

TRACE = "tests/captures/read/client-6.1.trace.dat"


def test_a_trace_has_its_rpcs_and_where_their_time_went() -> None:
    async def steps(b: Browsing) -> None:
        assert b.status.startswith("RPCs 1 of 595")
        for _ in range(26):
            await b.press("down")
        await b.until(lambda: any("registered" in line for line in b.lines("ladder")))
        assert any("queued" in line for line in b.lines("ladder"))

    browse(TRACE, steps)
