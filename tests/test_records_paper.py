"""The reference of the JSON: it is generated, and every record printed has exactly the fields that it declares.

``python tests/test_records_paper.py`` writes ``docs/records.md``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rdmascope.captures.peer.probe import probe_records as probe, serve as ping
from rdmascope.captures.peer.probe.checks import CHECKS, CheckVerdict, SuiteResult, VerdictKind
from rdmascope.captures.peer.verbs.interface import Depths, PeerAddress
from rdmascope.cli.main import main as rdmascope
from rdmascope.dissect.layers.rpcrdma_codes import PrivateData
from rdmascope.dissect.records.comparison import difference_record
from rdmascope.dissect.records.fields import RECORD_TYPES
from rdmascope.dissect.records.schema import VERSION, VERSIONS, record, schema
from rdmascope.dissect.verify.second_opinion import Difference

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "docs" / "records.md"
SAMPLES = sorted((ROOT / "captures" / "samples").glob("*.zst"))

HEAD = """# The records of --json

Made from `dissect/records` by `python tests/test_records_paper.py`; a test compares it with what the
commands print.

With `--json` a command prints JSON Lines: one object per line, in UTF-8. Each begins with two keys, which the tables
below leave out:

- `schema` names the layout: `rdmascope.TYPE/N`. N is the version of that type. It rises when a key goes away or
  changes its meaning, not when one is added: accept keys you do not know.
- `type` is TYPE alone.

In all of them:

- Names have units: `_ns` is nanoseconds. Times (`time_ns`, `first_time_ns`, …) are nanoseconds since the Unix epoch,
  UTC; all others are durations. Sizes and lengths are bytes.
- `null` means not known or not applicable. Types say which fields can be null, and which can be absent.
- Integers can have 64 bits: memory offsets are unsigned, and times need 61. JavaScript and older versions of jq
  read them as floating-point numbers, exact to 53 bits; times then lose less than a microsecond. 64-bit offsets,
  addresses and identifiers therefore also come as strings: after `offset`, `offset_hex` has `0x` and 16 hexadecimal
  digits, as for every such field of a frame's layers.
- If several files are read as one capture, frames are numbered through all of them, and each frame number is followed
  by its file and its number there: `frame` by `place`, `call_frame` by `call_place`, an object of `file` and `frame`
  (null for no frame); an array `frames` by an array `places`. The tables leave them out.
- Byte strings are hexadecimal.
- `a.b` is the key `b` of the object `a`, `a[].b` the key `b` of each object in the array `a`, and `a{}.b` the key `b`
  of each object in the map `a`. The keys of a map are data.

`credential`, `arguments` and `results` of `show --json` are values of the types in [nfs.md](nfs.md): a structure or a
union is an object with the RFC's names (a union begins with its discriminant), an array or a linked list an array,
an enum its name or, without one, its number, a bool a boolean, a mask of flags an integer, a bitmap4 an array of the
names of its bits, text a string, other opaque data hexadecimal, an absent optional value null. File contents, and
bytes that are missing or were not decoded, are replaced by an object with their `offset` and `length` in the message,
and a `note`.
"""


def generated() -> str:
    parts = [
        HEAD,
        "| type | version | what | printed by |\n| --- | --- | --- | --- |\n"
        + "".join(
            f"| [`{name}`](#{name}) | {VERSIONS.get(name, VERSION)} | {one.meaning} | {one.commands} |\n"
            for name, one in RECORD_TYPES.items()
        ),
    ]
    for name, one in RECORD_TYPES.items():
        rows = "".join(
            f"| `{path}` | {type.replace('|', ' or ')} | {meaning} |\n" for path, (type, meaning) in one.fields.items()
        )
        parts.append(
            f"## {name}\n\n{one.meaning} Schema `{schema(name)}`, printed by {one.commands}.\n\n"
            f"| field | type | meaning |\n| --- | --- | --- |\n{rows}"
        )
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def test_the_paper_is_that_of_the_declarations() -> None:
    assert PAPER.read_text() == generated()


# What is printed


SCALARS: dict[str, Callable[[Any], bool]] = {
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "string": lambda value: type(value) is str,
    "boolean": lambda value: type(value) is bool,
    "object": lambda value: type(value) is dict,
    "null": lambda value: value is None,
    "any": lambda value: True,
    "absent": lambda value: False,
}


@cache
def children(type: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Path of an object ('' for the record, 'chunks[]') -> its keys and their JSON types."""
    found: dict[str, dict[str, tuple[str, ...]]] = {"": {"schema": ("string",), "type": ("string",)}}
    for path, (types, _) in RECORD_TYPES[type].fields.items():
        parent, _, key = path.rpartition(".")
        found.setdefault(parent, {})[key] = tuple(types.split("|"))
    return found


def wrong(one: Mapping[str, Any]) -> Iterator[str]:
    """What a record has otherwise than it is declared."""
    yield from wrong_object(one, "", children(one["type"]))


def wrong_object(value: Mapping[str, Any], path: str, tables: dict[str, dict[str, tuple[str, ...]]]) -> Iterator[str]:
    declared = tables[path]
    for key in value.keys() - declared.keys():
        yield f"{path}.{key} is not declared"
    for key, types in declared.items():
        place = f"{path}.{key}".lstrip(".")
        if key in value:
            yield from wrong_value(value[key], types, place, tables)
        elif "absent" not in types:
            yield f"{place} is missing"


def wrong_value(
    value: Any, types: tuple[str, ...], place: str, tables: dict[str, dict[str, tuple[str, ...]]]
) -> Iterator[str]:
    for one in types:
        whole, _, inner = one.partition(" of ")
        if inner and type(value) is {"array": list, "map": dict}[whole]:
            for each in value if whole == "array" else value.values():
                below = (inner, "null") if whole == "map" and "null" in types else (inner,)
                yield from wrong_value(each, below, place + ("[]" if whole == "array" else "{}"), tables)
            return
        if not inner and SCALARS[one](value):
            if one == "object":
                yield from wrong_object(value, place, tables)
            return
    yield f"{place} is {value!r}, not {' or '.join(types)}"


def printed(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner(env={"RDMASCOPE_TRACEBACK": "1"}).invoke(rdmascope, [*arguments, "--json"])
    assert done.exit_code in (0, 1), done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(records: list[dict[str, Any]]) -> None:
    assert records
    for one in records:
        assert [f"{one['type']}: {what}" for what in wrong(one)] == []


COMMANDS = [
    "info --checksums",
    "report",
    "rpcs",
    "transport --icrc",
    "files",
    "audit",
    "transport --credits",
    "sessions",
    "packets",
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name.partition(".")[0])
def test_commands_print_what_is_declared(sample: Path) -> None:
    for command in COMMANDS:
        name, *options = command.split()
        if records := printed(name, str(sample), *options):
            check(records)
    check(printed("show", str(sample), "--rpc", "1", "--full"))
    check(printed("show", str(sample), "--frame", "9"))


def test_extracted_files_are_as_declared(tmp_path: Path) -> None:
    sample = next(path for path in SAMPLES if path.name.startswith("longcall"))
    check(printed("files", str(sample), "--extract", str(tmp_path / "out")))
    check([json.loads((tmp_path / "out" / "manifest.json").read_text())])


def test_what_needs_no_sample_is_as_declared(tmp_path: Path) -> None:
    for arguments in (["rules"], ["synth", "--list"], ["synth", "--keys"], ["synth", "--faults"]):
        check(printed(*arguments))
    check(printed("synth", "v1-chunks", "--fault", "grant-nothing", "-o", str(tmp_path / "wrong.pcapng")))
    check(printed("audit", str(tmp_path / "wrong.pcapng")))
    check(printed("compare", str(SAMPLES[0]), str(SAMPLES[1])))
    check(printed("export", str(tmp_path / "wrong.pcapng"), "-o", str(tmp_path / "out.pcapng")))
    check(
        printed(
            "export",
            "--to",
            "capture",
            str(tmp_path / "wrong.pcapng"),
            "--rpc",
            "1",
            "-o",
            str(tmp_path / "part.pcapng"),
        )
    )


# What the code makes, for the types that only probe, live and verify print


def made() -> Iterator[tuple[str, set[str], bool]]:
    """Type, keys, and whether there are more, of each ``record("type", …)`` in the code."""
    for folder in ("captures", "cli", "dissect"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(func=ast.Name(id="record"), args=[ast.Constant(value=str(type)), *_]):
                        names = {one.arg for one in node.keywords if one.arg is not None}
                        yield type, names, len(names) < len(node.keywords)


CONTENTS = ("credential", "arguments", "arguments_problem", "results", "results_problem")


def test_the_code_makes_what_is_declared() -> None:
    seen = set()
    for type, names, more in made():
        seen.add(type)
        declared = {path for path in RECORD_TYPES[type].fields if not re.search(r"[.\[{]", path)}
        optional = {
            "file",
            "filter",
            "extracted",
            "holes",
            "call_message",
            "reply_message",
            "comment",
            "violated",
            *CONTENTS,
        }
        assert names <= declared, type
        assert more or declared - names <= optional, type
    assert seen == set(RECORD_TYPES)


def test_probe_and_verify_make_what_is_declared() -> None:
    target = PeerAddress("10.0.0.1", 20049)
    settings = PrivateData(1, False, 4096, 4096, 0)
    results: list[ping.PingResult] = [
        ping.Reached("rxe0", "", 5, b"\x01", settings, 4096, 4096, Depths(), 64, None),
        ping.Round(1, None, "no reply"),
        ping.Echoed(1, 4096, 7, None),
        ping.VersionTwoProbe(None, (1, 1), False, {1: 4096, 99: b"\x01"}),
        ping.Program(100003, (3, 4), None, None, "answers"),
    ]
    check([probe.finding(one, target) for one in results])
    check([probe.summary([ping.Round(1, 5)], target), probe.summary([], target)])
    suite = [SuiteResult(one, CheckVerdict(VerdictKind.PASS, "a reply"), 5) for one in CHECKS.values()]
    assert suite
    check([*(probe.result(one, target) for one in suite), probe.suite(suite, target)])
    check([probe.listening(["10.0.0.1:20049"], 2, None, 1 << 26, 20048), probe.served(1, 2, 0)])
    comparison = Difference("call", 7, "rpc.xid", (1,), None)
    check([difference_record(comparison)])


def test_a_wrong_record_is_found() -> None:
    good = record("probe_client", client=1, what="call", text="")
    assert list(wrong(good)) == []
    assert list(wrong({**good, "client": "1", "more": 0})) == [".more is not declared", "client is '1', not integer"]
    assert list(wrong(record("script", name="v1"))) == ["title is missing"]


if __name__ == "__main__":
    PAPER.write_text(generated())
