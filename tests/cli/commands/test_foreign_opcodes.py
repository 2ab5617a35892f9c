"""Packets of a transport service that is not decoded: every command says so, and none takes them for something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from playbook.capture import write_pcap
from playbook.commands import objects, run
from playbook.packets import Packet, encode_frames

SOME = Packet(1, 10**18, 1, 0, "send", "10.0.0.1", "10.0.0.2", 4791, 0x44, 0x1234, 7, b"", bytes(range(64)))


@pytest.fixture
def mellanox(tmp_path: Path) -> str:
    path = tmp_path / "dc.pcap"
    packets = [
        replace(SOME, uid=number, opcode=opcode, psn=number)
        for number, opcode in enumerate((0x44, 0x4A, 0x51, 0x57, 0x5F))
    ]
    write_pcap(encode_frames(packets), path)
    return str(path)


def test_packets_names_the_opcode_and_reads_nothing_behind_the_bth(mellanox: str) -> None:
    text = run("packets", mellanox).stdout
    assert text.count("DC or RD opcode 0x") == text.count("(not decoded)") == 5
    assert text.count("64 bytes") == 5 and "R_key" not in text and "MSN" not in text
    assert {one["opcode_name"] for one in objects("packets", mellanox)} >= {"DC or RD opcode 0x57 (not decoded)"}


def test_packets_shows_the_rest_raw(mellanox: str) -> None:
    text = run("packets", "-V", mellanox).stdout
    assert text.count("Raw") == 5 and "DETH" not in text and "RETH" not in text


def test_info_counts_them_apart(mellanox: str) -> None:
    (record,) = objects("info", mellanox)
    assert record["not_decoded"] == {"RoCEv2, DC or RD opcode, not decoded": 5}


def test_report_lists_them_as_not_decoded(mellanox: str) -> None:
    found = [one for one in objects("report", mellanox) if one["type"] == "undecoded"]
    assert [(one["reason"], one["count"]) for one in found] == [("DC or RD, not Reliable Connection", 5)]
