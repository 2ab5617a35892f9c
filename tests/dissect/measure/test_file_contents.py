"""The contents of a file out of reads and writes, against a server that is asked by several clients at once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings, strategies as st

from rdmascope.dissect.measure.files import (
    ALTERED,
    RACED,
    READ,
    TRUNCATED,
    UNANSWERED,
    WRITE,
    ZEROS,
    Contents,
    ContentSource,
    ContentStep,
    in_order_of_time,
)

QUICK = settings(max_examples=120)


class File:
    """Steps and the bytes they moved."""

    def __init__(self) -> None:
        self.store = b""
        self.steps: list[ContentStep] = []

    def __call__(self, kind: str, begin: int, end: int | None, offset: int, data: bytes | int = b"") -> None:
        number = len(self.steps) + 1
        source = ContentSource(kind, begin, end, number, 10 * number, 10 * number + 1)
        if isinstance(data, int):
            self.steps.append(ContentStep(kind, offset, data, -1, source))
        else:
            self.steps.append(ContentStep(kind, offset, len(data), len(self.store), source))
            self.store += data

    def contents(self) -> Contents:
        contents = Contents(lambda at, count: self.store[at : at + count])
        for step in in_order_of_time(self.steps):
            contents.add(step)
        return contents


def shown(contents: Contents) -> list[tuple[int, bytes, str]]:
    return [(region.start, b"".join(contents.bytes_of(region)), region.doubt) for region in contents.regions]


def test_reads_side_by_side() -> None:
    file = File()
    file(READ, 1, 2, 4, b"efgh")
    file(READ, 3, 4, 0, b"abcd")
    file(READ, 5, 6, 12, b"mn")
    assert shown(file.contents()) == [(0, b"abcd", ""), (4, b"efgh", ""), (12, b"mn", "")]


def test_the_same_bytes_again_are_neither_conflict_nor_version() -> None:
    file = File()
    file(WRITE, 1, 2, 0, b"abcdef")
    file(READ, 3, 4, 2, b"cd")
    file(WRITE, 5, 6, 0, b"abc")
    contents = file.contents()
    assert b"".join(data for _, data, _ in shown(contents)) == b"abcdef"
    assert contents.conflicts == contents.versions == []
    assert {region.source.rpc for region in contents.regions} == {1}


def test_a_write_makes_a_new_version() -> None:
    file = File()
    file(READ, 1, 2, 0, b"abcdef")
    file(WRITE, 3, 4, 2, b"cX")
    file(READ, 5, 6, 0, b"abcXef")
    contents = file.contents()
    assert b"".join(data for _, data, _ in shown(contents)) == b"abcXef"
    (version,) = contents.versions
    assert (version.start, version.end, version.differing) == (3, 4, 1)
    assert (version.earlier.rpc, version.later.rpc) == (1, 2)
    assert contents.conflicts == []


def test_another_read_that_nothing_explains_is_a_conflict() -> None:
    file = File()
    file(READ, 1, 2, 0, b"abcdef")
    file(READ, 3, 4, 0, b"aXcdeX")
    contents = file.contents()
    (conflict,) = contents.conflicts
    assert (conflict.start, conflict.end, conflict.differing) == (1, 6, 2)
    assert (conflict.earlier.first_frame, conflict.later.first_frame) == (10, 20)
    assert shown(contents) == [(0, b"aXcdeX", "")]


def test_a_read_during_a_write_may_have_come_before_it() -> None:
    file = File()
    file(READ, 1, 2, 0, b"old")
    file(WRITE, 3, 6, 0, b"new")
    file(READ, 4, 7, 0, b"old")
    contents = file.contents()
    assert shown(contents) == [(0, b"new", "")]
    assert contents.conflicts == []


def test_two_writes_at_once_leave_a_doubt_until_it_is_read() -> None:
    file = File()
    file(WRITE, 1, 4, 0, b"one.")
    file(WRITE, 2, 3, 0, b"two.")
    assert shown(file.contents()) == [(0, b"two.", RACED)]
    file(READ, 3, 5, 0, b"two.")
    assert shown(file.contents()) == [(0, b"two.", RACED)]
    file(READ, 6, 7, 0, b"one.")
    contents = file.contents()
    assert shown(contents) == [(0, b"one.", "")]
    assert contents.conflicts == []


def test_a_write_without_a_reply_is_doubtful_until_it_is_read() -> None:
    file = File()
    file(READ, 1, 2, 0, b"abcdef")
    file(WRITE, 3, None, 0, b"abXdef")
    assert shown(file.contents()) == [(0, b"ab", ""), (2, b"X", UNANSWERED), (3, b"def", "")]
    file(READ, 4, 5, 0, b"abcdef")
    contents = file.contents()
    assert b"".join(data for _, data, _ in shown(contents)) == b"abcdef"
    assert not any(doubt for _, _, doubt in shown(contents))
    assert contents.conflicts == []


def test_a_truncated_file_is_not_compared_with_what_it_was() -> None:
    file = File()
    file(READ, 1, 2, 0, b"abcdef")
    file(TRUNCATED, 3, 4, 2)
    file(READ, 5, 6, 0, b"ab\0\0")
    contents = file.contents()
    assert shown(contents) == [(0, b"ab", ""), (2, b"\0\0", "")]
    assert contents.conflicts == []


def test_unseen_changes_leave_a_hole() -> None:
    file = File()
    file(READ, 1, 2, 0, b"abcdef")
    file(ALTERED, 3, 4, 2, 2)
    assert shown(file.contents()) == [(0, b"ab", ""), (4, b"ef", "")]


def test_a_write_that_is_still_under_way_may_come_after_what_is_read() -> None:
    file = File()
    file(WRITE, 1, 9, 0, b"new")
    file(ALTERED, 2, 4, 0, 3)
    file(READ, 5, 6, 0, b"old")
    assert shown(file.contents()) == [(0, b"old", RACED)]


def test_what_changes_contents_counts_from_its_call_on() -> None:
    """A READ that ended before the WRITE did may show what was written."""
    file = File()
    file(READ, 1, 2, 0, b"old")
    file(READ, 4, 5, 0, b"new")
    file(WRITE, 3, 6, 0, b"new")
    contents = file.contents()
    assert shown(contents) == [(0, b"new", "")]
    assert contents.conflicts == []


def test_zeros_that_did_not_cross_the_wire() -> None:
    file = File()
    file(ZEROS, 1, 2, 0, 1 << 62)
    file(READ, 3, 4, 8, b"\0\0")
    contents = file.contents()
    assert [(r.start, r.end, r.at >= 0) for r in contents.regions] == [
        (0, 8, False),
        (8, 10, True),
        (10, 1 << 62, False),
    ]
    file(READ, 5, 6, 9, b"xy")
    assert [(c.start, c.end, c.earlier.kind) for c in file.contents().conflicts] == [(9, 10, READ), (10, 11, ZEROS)]


SIZE = 12


@st.composite
def served(draw: st.DrawFn) -> tuple[File, bytes]:
    """Calls that overlap in time, each done by the server at some moment between call and reply, in any order;
    and what the file is at the end."""
    count = draw(st.integers(1, 9))
    calls = []
    for number in range(count):
        begin = draw(st.integers(0, 40))
        done = begin + draw(st.integers(0, 15))
        end = done + draw(st.integers(0, 15))
        # Moments differ: all that happens does so in an order.
        calls.append([begin * 3 * count + number, (done * 3 + 1) * count + number, (end * 3 + 2) * count + number])
    file, server = File(), bytearray(b"." * SIZE)
    done_in_order = sorted(calls, key=lambda call: call[1])
    for begin, _, end in done_in_order:
        kind = draw(st.sampled_from([READ, READ, READ, WRITE, WRITE, WRITE, TRUNCATED, ALTERED, "unanswered"]))
        start = draw(st.integers(0, SIZE - 1))
        stop = draw(st.integers(start + 1, SIZE))
        data = bytes(draw(st.lists(st.sampled_from(b"xy"), min_size=stop - start, max_size=stop - start)))
        if kind == READ:
            file(READ, begin, end, start, bytes(server[start:stop]))
            continue
        if kind == "unanswered":
            # Done at once or never.
            if not any(begin < other[1] < end for other in calls if other[0] != begin) and draw(st.booleans()):
                server[start:stop] = data
            file(WRITE, begin, None, start, data)
            continue
        if kind == TRUNCATED:
            stop, data = SIZE, bytes(SIZE - start)
        server[start:stop] = data
        file(kind, begin, end, start, data if kind == WRITE else stop - start)
    # RPCs are reported as they end, at last those that never did.
    file.steps.sort(key=lambda step: (step.source.end is None, step.source.end or 0))
    return file, bytes(server)


@QUICK
@given(served())
def test_what_is_sure_is_what_the_server_has(case: tuple[File, bytes]) -> None:
    file, server = case
    contents = file.contents()
    assert contents.conflicts == []
    assert all(a.end <= b.start for a, b in pairwise(contents.regions))
    for start, data, doubt in shown(contents):
        assert len(data) > 0
        if not doubt:
            assert server[start : start + len(data)] == data


@QUICK
@given(served(), st.data())
def test_one_call_after_the_other_leaves_no_doubt(case: tuple[File, bytes], data: st.DataObject) -> None:
    """The same calls in a row: every byte that was moved is there and sure, unless it was changed unseen."""
    file, server = File(), bytearray(SIZE)
    known = [False] * SIZE
    for number, step in enumerate(case[0].steps):
        begin, end = 10 * number, 10 * number + 5
        stop = SIZE if step.kind == TRUNCATED else step.offset + step.count
        fresh = bytes(
            data.draw(st.lists(st.sampled_from(b"xy"), min_size=stop - step.offset, max_size=stop - step.offset))
        )
        if step.kind == READ:
            file(READ, begin, end, step.offset, bytes(server[step.offset : stop]))
        else:
            server[step.offset : stop] = fresh
            file(step.kind, begin, end, step.offset, fresh if step.kind == WRITE else step.count)
        known[step.offset : stop] = [step.kind in (READ, WRITE)] * (stop - step.offset)
    contents = file.contents()
    assert contents.conflicts == []
    covered = [False] * SIZE
    for start, found, doubt in shown(contents):
        assert doubt == ""
        assert found == server[start : start + len(found)]
        covered[start : start + len(found)] = [True] * len(found)
    assert covered == known
