"""Rows that wait for their paths."""

from __future__ import annotations

from rdmascope.dissect.measure.file_names import LatePaths, LateRow, Pathed


class File:
    def __init__(self) -> None:
        self.known: str | None = None

    def path(self) -> str | None:
        return self.known

    @property
    def sure(self) -> bool:
        return self.known is not None


class LookUp:
    """Finds what is not known yet, or nothing."""

    def __init__(self, found: str | None = None) -> None:
        self.found = found
        self.knows_all = False

    def path(self, called: Pathed) -> str | None:
        if called.sure or self.found is None:
            return called.path()
        self.knows_all = True
        return self.found


def test_rows_wait_behind_the_first_whose_path_is_not_known() -> None:
    late: LatePaths[str] = LatePaths(LookUp())
    first, second = File(), File()
    assert late.add(["a", LateRow(first, "b {}".format), "c"]) == ["a"]
    assert late.add([LateRow(second, "d {}".format)]) == []
    first.known = "/x"
    assert late.add(["e"]) == ["b /x", "c"]
    second.known = "/y"
    assert late.rest() == ["d /y", "e"]
    assert late.rest() == []


def test_no_more_wait_than_are_allowed() -> None:
    late: LatePaths[str] = LatePaths(LookUp(), 2)
    file = File()
    assert late.add([LateRow(file, "a {}".format), "b", "c"]) == ["a None", "b", "c"]
    assert LatePaths[str](LookUp(), 0).add([LateRow(file, "a {}".format)]) == ["a None"]


def test_what_has_waited_for_long_enough_is_looked_up_and_then_nothing_waits() -> None:
    late: LatePaths[str] = LatePaths(LookUp("/x"), 1)
    file = File()
    assert late.add([LateRow(file, "a {}".format)]) == []
    assert late.add(["b", LateRow(file, "c {}".format)]) == ["a /x", "b", "c /x"]


def test_at_the_end_nothing_is_looked_up() -> None:
    late: LatePaths[str] = LatePaths(LookUp("/x"))
    assert late.add([LateRow(File(), "a {}".format)]) == []
    assert late.rest() == ["a None"]
