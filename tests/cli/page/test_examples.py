"""What a page shows of a single RPC."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from playbook import Wire, call, fetch, nfs3, reply, write_pcap
from playbook.facts import START, retransmitted
from rdmascope.captures.library import read
from rdmascope.cli.page.examples import MAX_STEPS, example_html
from rdmascope.cli.page.over_time import PageFacts
from rdmascope.dissect.transport.retransmissions import CAUSES


def test_a_ladder_is_bounded_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    wire = Wire(mtu=1024)
    connection, data = wire.connect(), bytes(100 << 10)
    exchange = call(connection, nfs3.write(0, data), reads={0: connection.register(len(data))})
    fetch(exchange, split=1024)
    reply(exchange, nfs3.write_reply(len(data)))
    write_pcap(wire.frames(), tmp_path / "reads.pcap")
    page = PageFacts(read(tmp_path / "reads.pcap").session(), audited=False)
    [shown] = page.examples.slowest.values()
    assert [one.words for one in shown.steps if one.sender < 0] == [f"{202 - MAX_STEPS} more"]
    assert len(shown.steps) == MAX_STEPS + 1

    meanwhile = replace(shown, begin=START, end=START)
    html = example_html(meanwhile, retransmitted(CAUSES[0], 70))
    assert html.count("10 packets retransmitted") == MAX_STEPS and f"{70 - MAX_STEPS} more retransmissions" in html
    assert "more retransmissions" not in example_html(meanwhile, retransmitted(CAUSES[0], MAX_STEPS))
