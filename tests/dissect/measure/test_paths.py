"""Paths of files: from which replies they are known, from when, and for which calls."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from playbook import Call, Capture, Reply, Wire
from playbook.judge import analyze
from playbook.rpc import opaque, u32
from playbook.samples import MANIFEST, SAMPLES
from playbook.wire import Connection
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure.file_names import (
    NamedFile,
    PathLearner,
    Paths,
    SpannedPaths,
    always_named,
    printable,
)
from rdmascope.dissect.measure.files import FileTable
from rdmascope.dissect.onc.file_operations import NAMED, REMOVED, RENAMED, ROOT, FileEvent
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .test_files import DATA, FILE, OK, OTHER, ROOT as TOP, SUB, ask, lookup, read, remove, rename

SERVER = "10.0.0.2"


class Reported:
    """What replies said, and the paths that follow."""

    def __init__(self) -> None:
        self.paths: Paths[NamedFile] = Paths(NamedFile)
        self.paths.learn(SERVER, FileEvent(ROOT, TOP), 0)

    def named(self, time: int, directory: bytes, name: bytes, handle: bytes, made: bool = False) -> None:
        self.paths.learn(SERVER, FileEvent(NAMED, handle, directory, name, made=made), time)

    def removed(self, time: int, directory: bytes, name: bytes) -> None:
        self.paths.learn(SERVER, FileEvent(REMOVED, None, directory, name), time)

    def renamed(self, time: int, directory: bytes, name: bytes, to: bytes, to_name: bytes) -> None:
        event = FileEvent(RENAMED, None, directory, name, to_directory=to, to_name=to_name)
        self.paths.learn(SERVER, event, time)

    def path(self, handle: bytes, time: int) -> str | None:
        return SpannedPaths().at(self.paths.file(SERVER, handle), time)[2]


def test_a_name_holds_for_what_was_before_it() -> None:
    reported = Reported()
    reported.named(100, SUB, b"file", FILE)
    assert reported.path(FILE, 50) == reported.path(FILE, 150) == "…/file"
    reported.named(200, TOP, b"sub", SUB)
    assert reported.path(FILE, 50) == "/sub/file"


def test_names_before_and_after_a_rename() -> None:
    reported = Reported()
    reported.named(100, TOP, b"a", FILE)
    reported.named(100, TOP, b"sub", SUB)
    reported.renamed(200, TOP, b"a", SUB, b"b")
    reported.renamed(300, TOP, b"sub", TOP, b"moved")
    reported.removed(400, SUB, b"b")
    assert [reported.path(FILE, time) for time in (50, 150, 250, 350, 450)] == [
        "/a", "/a", "/sub/b", "/moved/b", "/moved/b"
    ]  # fmt: skip


def test_a_name_that_was_made_holds_from_then_on() -> None:
    reported = Reported()
    reported.named(100, TOP, b"old", FILE)
    reported.named(200, TOP, b"link", FILE, made=True)
    reported.removed(300, TOP, b"old")
    assert [reported.path(FILE, time) for time in (150, 250, 350)] == ["/old", "/link", "/link"]


def test_a_name_may_stand_for_one_file_after_the_other() -> None:
    reported = Reported()
    reported.named(100, TOP, b"name", FILE)
    reported.named(200, TOP, b"name", OTHER)
    assert reported.path(FILE, 150) == reported.path(OTHER, 250) == "/name"
    (name,) = reported.paths.file(SERVER, FILE).names
    assert (name.until, name.ended) == (200, "replaced")


def test_the_directory_above() -> None:
    reported = Reported()
    reported.named(100, SUB, b"file", FILE)
    reported.named(100, SUB, b"..", TOP)
    assert reported.path(FILE, 150) == "/…/file"
    reported.named(200, TOP, b"sub", SUB)
    assert reported.path(FILE, 150) == "/sub/file"


def test_servers_have_files_of_their_own() -> None:
    reported = Reported()
    reported.named(100, TOP, b"file", FILE)
    assert SpannedPaths().at(reported.paths.file("10.0.0.3", FILE), 150)[2] is None


@given(st.lists(st.tuples(st.sampled_from("nru"), *[st.sampled_from([TOP, SUB, FILE, OTHER])] * 2,
                          st.sampled_from([b"a", b"b", b"..", b"\x1b[2J/", b""])), max_size=40))  # fmt: skip
def test_whatever_is_told_paths_end_and_harm_no_terminal(reported: list[tuple[str, bytes, bytes, bytes]]) -> None:
    """Directories in each other, too."""
    replies = Reported()
    for time, (kind, directory, handle, name) in enumerate(reported):
        if kind == "n":
            replies.named(time, directory, name, handle)
        elif kind == "r":
            replies.renamed(time, directory, name, handle, b"c")
        else:
            replies.removed(time, directory, name)
    spanned = SpannedPaths()
    for handle in (TOP, SUB, FILE, OTHER):
        file = replies.paths.file(SERVER, handle)
        paths = [replies.path(handle, time) for time in range(len(reported) + 1)]
        for time, path in enumerate(paths):
            assert path is None or (path.isprintable() and path[0] in "/…")
            for known in (spanned, SpannedPaths()):
                since, until, same, _ = known.at(file, time)
                assert same == path and since <= time < until
                assert set(paths[max(since, 0) : until]) == {path}
        assert not always_named(file) or len(set(paths)) <= 1


def mount(conn: Connection, path: bytes, handle: bytes) -> None:
    """RFC 1813, 5.2.1."""
    ask(conn, Call(100005, 3, 1, (opaque(path),)), Reply((OK + opaque(handle) + u32(1, 1),)))


def paths_of(wire: Wire) -> list[str | None]:
    """Of all calls, when all is known."""
    learner = PathLearner()
    named = list(learner.named(RpcTable(list(analyze(Capture(wire))))))
    return [one.path() for one in sorted(named, key=lambda one: one.rpc.number)]


def test_what_calls_name() -> None:
    wire = Wire()
    conn = wire.connect()
    read(conn, 0, DATA)
    mount(conn, b"/export/\x07", TOP)
    lookup(conn, TOP, b"file", FILE)
    rename(conn, TOP, b"file", TOP, b"new")
    read(conn, 0, DATA)
    remove(conn, TOP, b"new")
    read(conn, 0, DATA, handle=OTHER)
    at = "/export/\\x07"
    assert paths_of(wire) == [f"{at}/file", None, f"{at}/file", f"{at}/file", f"{at}/new", f"{at}/new", None]


def test_two_connections_to_one_server_see_the_same_files() -> None:
    wire = Wire()
    one, two = wire.connect(), wire.connect()
    read(one, 0, DATA)
    lookup(two, TOP, b"file", FILE)
    assert paths_of(wire) == ["…/file", "…/file"]


def test_what_is_not_known_yet_is_looked_up_once() -> None:
    wire = Wire()
    conn = wire.connect()
    read(conn, 0, DATA)
    early = list(analyze(Capture(wire)))
    lookup(conn, TOP, b"file", FILE)
    asked = []

    def read_names() -> Paths[NamedFile]:
        asked.append(1)
        whole = PathLearner()
        whole.learn_names(RpcTable(list(analyze(Capture(wire)))))
        return whole.paths

    learner = PathLearner(read_names=read_names)
    _, (file,) = learner.learn(RpcTable(early))
    assert file is not None and file.path() is None and not learner.knows_all
    assert [learner.path(file), learner.path(file), asked] == ["…/file", "…/file", [1]] and learner.knows_all


def test_names_that_are_forgotten_are_those_of_no_directory_and_then_all() -> None:
    reported = Reported()
    for number in range(10):
        reported.named(1, SUB, b"%d" % number, b"file %d" % number)
    reported.paths.forget(5)
    assert [reported.path(b"file %d" % number, 2) for number in range(5, 10)] == [None, None, "…/7", "…/8", "…/9"]
    reported.named(3, SUB, b"1", b"file 1")
    assert reported.path(b"file 1", 4) == "…/1"
    reported.paths.forget(1)
    assert reported.path(SUB, 5) is None and len(reported.paths) == 1


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_columns_teach_what_each_rpc_does(name: str) -> None:
    learner, files = PathLearner(), FileTable()
    for table in Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=3000)).tables():
        called = learner.learn(table)[1]
        known = called.paths()
        assert [known.texts[place] for place in known.which] == [one and one.path() for one in called]
        assert [known.sure[place] for place in known.which] == [one is None or one.sure for one in called]
        for rpc in table:
            files.add(rpc)
    for file in files:
        found = learner.paths.file(file.server, file.handle)
        assert found.root == file.root
        assert [(one.raw, one.since, one.made, one.until, one.ended, one.directory.handle) for one in found.names] == [
            (one.raw, one.since, one.made, one.until, one.ended, one.directory.handle) for one in file.names
        ]


def test_components() -> None:
    assert printable("ümlaut.txt".encode()) == "ümlaut.txt"
    assert printable(b"a/b\\\xff\x9b") == "a\\x2fb\\x5c\\xff\\x9b"


def test_no_file_stands_in_itself() -> None:
    reported = Reported()
    reported.named(100, SUB, b"again", SUB)
    reported.named(200, TOP, b"..", TOP)
    assert "again" not in (reported.path(SUB, 150) or "")
    assert reported.path(TOP, 250) == "/"
