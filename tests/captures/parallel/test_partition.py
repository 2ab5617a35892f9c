"""What two hosts say to each other over TCP goes to one worker, and the whole is as that of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from playbook import call, nfs3, reply
from playbook.capture import frame_batch, write_pcap
from playbook.commands import run
from playbook.iwarp import IwarpCapture, IwarpWire
from rdmascope.captures.parallel.processes import Partition
from rdmascope.dissect.link.frame_decoder import FrameDecoder


def several_hosts(cm: bool) -> IwarpWire:
    """Five clients of two servers in turn; each server is a client of the other, too."""
    wire = IwarpWire(seed=7)
    hosts = [("10.0.0.9", "10.0.0.1"), ("10.0.0.2", "10.0.0.8"), ("10.0.0.8", "10.0.0.1"), ("10.0.0.3", "10.0.0.1")]
    hosts += [("10.0.0.1", "10.0.0.8"), ("10.0.0.4", "10.0.0.8")]
    connections = [wire.connect(*pair, cm=cm) for pair in hosts]
    for turn in range(8):
        for at, connection in enumerate(connections):
            if (turn + at) % 3:
                read = call(connection, nfs3.read(0, 3000), writes=[connection.register(3000)])
                reply(read, nfs3.read_reply(bytes(3000)))
            else:
                reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    return wire


def test_all_tcp_of_two_hosts_goes_to_one_worker() -> None:
    decoded = FrameDecoder().take(frame_batch(IwarpCapture(several_hosts(True)).frames))
    shares = [one.segments for one in Partition(3).deal(decoded)]
    pairs = [
        {tuple(sorted(pair)) for pair in zip(rows["source"].tolist(), rows["destination"].tolist(), strict=True)}
        for rows in shares
        if rows is not None
    ]
    assert len(pairs) == 3
    assert sum(map(len, pairs)) == len(set.union(*pairs)) == 5
    frames = np.concatenate([rows["frame"] for rows in shares if rows is not None])
    assert sorted(frames.tolist()) == list(range(1, len(decoded) + 1))


@pytest.mark.parametrize("cm", [True, False])
def test_workers_find_the_connections_of_one_process(cm: bool, tmp_path: Path) -> None:
    capture = tmp_path / "several.pcap"
    write_pcap(IwarpCapture(several_hosts(cm)).frames, capture)
    for words in (("sql", "--csv", "-q", "FROM rpcs; FROM connections; FROM details"), ("report", "--json")):
        alone, divided = (run(*words, "--jobs", jobs, str(capture)) for jobs in ("1", "3"))
        assert "10.0.0.9" in alone.output
        assert divided.output == alone.output
