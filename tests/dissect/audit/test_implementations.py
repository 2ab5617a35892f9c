"""The page of known deviations says what the audit finds in the captures that it names."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from playbook.samples import SAMPLES
from rdmascope.captures.library import read

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "implementations.md").read_text()
EXTRACTS = Path(__file__).parent / "implementations"
ROW = re.compile(
    r"^\| (?:Linux|NFS-Ganesha|Chimera)[^|]*\| (server|client) \| ([\w-]+) \| (\d+) \| ([\w.-]+) \|$", re.M
)
ENDS = {"client": 0, "server": 1}


def expected() -> dict[str, Counter[tuple[str, int]]]:
    """By capture: how often each rule was broken, by the end that broke it."""
    found: dict[str, Counter[tuple[str, int]]] = {}
    for end, rule, times, capture in ROW.findall(PAGE):
        found.setdefault(capture, Counter())
        if rule != "none":
            found[capture][rule, ENDS[end]] += int(times)
    return found


def path_of(capture: str) -> Path:
    extract = EXTRACTS / f"{capture}.pcapng.zst"
    return extract if extract.exists() else SAMPLES / f"{capture}.pcap.zst"


@pytest.mark.parametrize("capture", sorted(expected()))
def test_the_audit_finds_what_the_page_says_and_nothing_else(capture: str) -> None:
    found = Counter((one.rule.id, one.endpoint) for one in read(str(path_of(capture))).findings())
    assert found == expected()[capture]


def test_every_extract_is_on_the_page() -> None:
    names = {path.name.removesuffix(".pcapng.zst") for path in EXTRACTS.glob("*.zst")}
    assert names and all(f"`{name}`" in PAGE or f"| {name} |" in PAGE for name in names)
    assert len(expected()) >= 9


def test_ganesha_pads_write_chunks_by_the_length_modulo_four() -> None:
    lengths = set()
    for rpc in read(str(EXTRACTS / "ganesha-6.5-reads.pcapng.zst")).rpcs():
        (chunk,) = (one for one in rpc.chunks if one.kind == "write")
        lengths.add(chunk.returned)
    assert lengths == {2, 4, 6, 1026, 4098, 5002, 34468, 40962}


def test_ganesha_loses_its_place_behind_an_odd_inline_write() -> None:
    capture = read(str(EXTRACTS / "ganesha-6.5-odd-writes.pcapng.zst"))
    assert [rpc.status for rpc in capture.rpcs()] == ["NFS4ERR_OP_ILLEGAL"] * 5
    assert not list(capture.findings())
    (said,) = capture.diagnosis("calls-failed").statements
    assert said.cause.text == "5 RPCs failed with NFS4ERR_OP_ILLEGAL"


def test_chimera_grants_what_it_is_asked_for() -> None:
    for one in read(str(EXTRACTS / "chimera-2026-05-26.pcapng.zst")).conversations:
        assert one.credits_granted == one.credits_requested is not None
        assert one.private_data(1) is None
