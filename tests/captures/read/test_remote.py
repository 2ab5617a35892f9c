"""Captures by URL: read as they come, recognised without being read again, and every problem in one line."""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import fsspec
import pytest
from zstandard import ZstdDecompressor

from playbook.commands import EVERYTHING, LONG_CALLS, objects, run
from playbook.fleets import entries
from playbook.stores import Files, s3_bucket, served
from rdmascope.captures import CaptureError, open_capture
from rdmascope.captures.fleet.batch import analyse, divided, prepare, units
from rdmascope.captures.read.remote import BLOCK, FileStamp, same_contents, stamp
from rdmascope.dissect.rpcrdma.analyzer import Options

Store = tuple[str, list[tuple[str, str]]]
"""The URL of a folder, and what its server is asked for."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("fleet")
    (made / "web1" / "monday").mkdir(parents=True)
    shutil.copy(LONG_CALLS, made / "web1" / "monday")
    shutil.copy(LONG_CALLS, made / "db.pcap.zst")
    (made / "secret.pcap").write_bytes(b"")
    (made / "notes.txt").write_text("no capture at all")
    return made


@pytest.fixture(scope="module")
def web(folder: Path) -> Iterator[Store]:
    with served(folder, Files) as (url, requests):
        yield url, requests


@pytest.fixture(scope="module")
def bucket(folder: Path) -> Iterator[Store]:
    with s3_bucket(folder) as found:
        yield found


@pytest.fixture(params=["http", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue({"http": "web", "s3": "bucket"}[request.param])
    return found


def test_commands_read_it_as_they_read_the_file(store: Store) -> None:
    url = f"{store[0]}/web1/monday/{Path(LONG_CALLS).name}"
    for command in (["rpcs"], ["sql", "SELECT frame, info FROM packets"]):
        name, *more = command
        there, here = (objects(name, path, *more) for path in (url, LONG_CALLS))
        assert [one | {"file": ""} for one in there] == [one | {"file": ""} for one in here] != []
    alone = run(f"{store[0]}/db.pcap.zst")
    assert alone.exit_code == 0 and "47 RPCs" in alone.stdout


def test_every_problem_is_one_line(store: Store) -> None:
    url, _ = store
    for name, words in {
        "none.pcap": "no such file",
        "secret.pcap": "no permission to read it",
        "notes.txt": "not a capture but a text file",
    }.items():
        result = run("report", f"{url}/{name}")
        assert (result.exit_code, result.stderr) == (2, f"rdmascope: {url}/{name}: {words}\n")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["report", "s3://elsewhere/a.pcap"], "s3://elsewhere/a.pcap: no such file"),
        (["batch", "s3://elsewhere/*", "--out", "set"], "s3://elsewhere/*: no file matches"),
        (["report", "s3://captures/web1"], "s3://captures/web1: is a folder; of URLs only captures are read"),
        (["rpcs", "s3://captures/db.pcap.zst", "--follow"], "only a file of this machine can be followed"),
        (["batch", LONG_CALLS, "--out", "s3://elsewhere/x"], "s3://elsewhere/x: no such file"),
        (["export", LONG_CALLS, "-o", "s3://elsewhere/x.pcapng"], "s3://elsewhere/x.pcapng: no such file"),
        (["export", LONG_CALLS, "-o", "https://captures/x"], "https://captures/x: cannot write to a URL"),
        (["export", "s3://captures/db.pcap.zst", "-o", "s3://captures/db.pcap.zst"], "would overwrite what is read"),
        (["sql", LONG_CALLS, "--save", "s3://captures/x.duckdb"], "s3://captures/x.duckdb: cannot write to a URL"),
        (["report", "gopher://a/b.pcap"], "gopher://a/b.pcap: Protocol not known: gopher"),
        (["report", "http://127.0.0.1:1/a.pcap"], "http://127.0.0.1:1/a.pcap: Cannot connect"),
    ],
)
def test_what_cannot_be_done_is_one_line(bucket: Store, arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1, result.stderr


@pytest.mark.parametrize("missing, url", [("fsspec", "s3://a/b"), ("s3fs", "s3://a/b"), ("aiohttp", "http://a/b")])
def test_the_extra_is_named_where_it_is_missing(missing: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object, **__: object) -> NoReturn:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(fsspec, "url_to_fs", without)
    result = run("report", url)
    assert result.exit_code == 2
    assert result.stderr.endswith("needs more packages: pip install 'rdmascope[remote]'\n"), result.stderr


def test_a_pattern_finds_captures_and_their_hosts(store: Store) -> None:
    url, _ = store
    for pattern in ("/**/*.pcap*", "/"):
        found = {one.host: one.paths for one in units([url + pattern])}
        assert found == {
            "db": (f"{url}/db.pcap.zst",),
            "secret": (f"{url}/secret.pcap",),
            "web1": (f"{url}/web1/monday/{Path(LONG_CALLS).name}",),
        }
    with pytest.raises(CaptureError, match="no file matches"):
        units([f"{url}/*.erf"])


def test_a_signed_url_is_no_pattern() -> None:
    (unit,) = units(["http://host/web1/a.pcap?signature=*"])
    assert unit == ("a", ("http://host/web1/a.pcap?signature=*",))


def test_what_is_in_the_data_set_is_not_read_again(bucket: Store, tmp_path: Path) -> None:
    url, requests = bucket
    data_set = str(tmp_path / "set")
    prepare(data_set)
    first, second = units([f"{url}/**/*.zst"])
    entry = analyse(first, data_set, Options())
    assert (entry.problem, entry.rpcs, entry.host) == ("", 47, "db")
    requests.clear()
    assert analyse(second, data_set, Options()) == entry  # The same contents under another name.
    assert {method for method, _ in requests} == {"HEAD"}
    known, others = divided([first, second], data_set, Options())
    assert ([one.unit for one in known], others) == ([first], [second])
    assert len(entries(data_set)) == 1
    assert len(objects("rpcs", data_set)) == 47


def test_what_a_server_says_nothing_of_is_known_by_its_contents(
    web: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = web
    monkeypatch.setattr("rdmascope.captures.fleet.batch.stamp", lambda *_, **__: FileStamp(None, None))
    data_set = str(tmp_path / "set")
    prepare(data_set)
    first, second = units([f"{url}/**/*.zst"])
    local = units([LONG_CALLS])[0]
    entry = analyse(first, data_set, Options())
    assert entry.problem == "" and analyse(second, data_set, Options()) == entry == analyse(local, data_set, Options())
    assert divided([first], data_set, Options()) == ([], [first])


def test_a_capture_that_changes_while_it_is_read_is_tried_again_the_next_time(
    web: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = iter([FileStamp(1, 2), FileStamp(2, 3)])
    monkeypatch.setattr("rdmascope.captures.fleet.batch.stamp", lambda *_, **__: next(stamps))
    data_set = str(tmp_path / "set")
    prepare(data_set)
    (unit,) = units([f"{web[0]}/db.pcap.zst"])
    entry = analyse(unit, data_set, Options())
    assert entry.problem == f"{web[0]}/db.pcap.zst: changed while it was read"


def test_a_store_that_is_gone_costs_the_others_nothing(web: Store, tmp_path: Path) -> None:
    data_set = str(tmp_path / "set")
    prepare(data_set)
    found = [analyse(unit, data_set, Options()) for unit in units([f"{web[0]}/none.pcap", LONG_CALLS])]
    assert [one.problem for one in found] == ["", f"{web[0]}/none.pcap: no such file"]
    assert len(objects("rpcs", data_set)) == 47


def test_only_some_blocks_are_in_memory() -> None:
    """Of a capture of many of them."""
    system = fsspec.filesystem("memory")
    data = b"".join(ZstdDecompressor().read_to_iter(Path(EVERYTHING).read_bytes()))
    system.pipe("/fleet/a.pcap", data)
    system.pipe("/fleet/b.pcap.gz", gzip.compress(data))
    sizes = []
    with open_capture("memory://fleet/a.pcap") as capture:
        assert capture.mapped is None and capture.size == len(data)
        for batch in capture.batches():
            sizes.append(len(batch.data))
        assert capture.position == len(data)
    assert max(sizes) <= BLOCK
    there = [one | {"file": ""} for one in objects("rpcs", EVERYTHING)]
    for name in ("a.pcap", "b.pcap.gz"):
        assert [one | {"file": ""} for one in objects("rpcs", f"memory://fleet/{name}")] == there
    assert [one.host for one in units(["memory://fleet/*"])] == ["a", "b"]
    assert stamp("memory://fleet/a.pcap").certain


def test_contents_are_the_same_where_the_store_says_so() -> None:
    one = FileStamp(10, None, "0123")
    assert same_contents("s3://a/b", one) == same_contents("s3://c/d", one)
    assert same_contents("s3://a/b", one) != same_contents("s3://a/b", one._replace(tag="4567"))
    assert same_contents("http://a/b", one) != same_contents("http://a/c", one)
    assert same_contents("s3://a/b", FileStamp(10, 5)) != same_contents("s3://c/d", FileStamp(10, 5))
    assert not FileStamp(10, None).certain and FileStamp(10, 5).certain and one.certain
