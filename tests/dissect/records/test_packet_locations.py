"""Frame numbers in records, and 64-bit numbers, for those who cannot use them as they are."""

from __future__ import annotations

import json

from click.testing import CliRunner

from playbook.samples import SAMPLES
from rdmascope.cli.main import main
from rdmascope.dissect.frames import Place
from rdmascope.dissect.records.schema import placed


def test_each_frame_number_gets_its_place() -> None:
    fields = {
        "type": "x",
        "frame": 3,
        "call_frame": None,
        "frames": [1, 2],
        "truncated_frames": 7,
        "inner": [{"first_frame": 4, "name": "frame"}],
    }
    found = placed(fields, lambda number: Place("f", number + 10) if number else None)
    assert found["place"] == {"file": "f", "frame": 13}
    assert [one["frame"] for one in found["places"]] == [11, 12]
    assert found["inner"][0]["first_place"] == {"file": "f", "frame": 14}
    assert "truncated_places" not in found and "truncated_place" not in found and "call_place" not in found
    assert {name: found[name] for name in fields if name != "inner"} == {
        name: fields[name] for name in fields if name != "inner"
    }


def _numbers(value: object) -> list[int]:
    if isinstance(value, dict):
        return [
            one
            for name, inner in value.items()
            if not name.endswith("_ns") and f"{name}_hex" not in value
            for one in _numbers(inner)
        ]
    if isinstance(value, list):
        return [one for inner in value for one in _numbers(inner)]
    return [value] if type(value) is int else []


def test_what_has_more_than_53_bits_is_there_in_hexadecimal() -> None:
    """Times apart, whose last digits do not matter."""
    wide = 0
    for name in ("rxe-nfs-all", "siw-nfs-all"):
        path = str(SAMPLES / f"{name}.pcap.zst")
        for arguments in (("rpcs",), ("packets", "--frame", "1-400"), ("show", "--frame", "104-108"), ("report",)):
            result = CliRunner().invoke(main, [arguments[0], path, *arguments[1:], "--json"])
            assert result.exit_code == 0, result.output
            for line in result.stdout.splitlines():
                assert all(abs(number) < 1 << 53 for number in _numbers(json.loads(line))), line
                wide += '_hex":"0x' in line
    assert wide > 100
