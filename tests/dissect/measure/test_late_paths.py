"""Rows that wait for their paths."""

from __future__ import annotations

from rdmascope.dissect.measure.late_paths import LatePaths, LateRow


class File:
    def __init__(self) -> None:
        self.known: str | None = None

    def path(self) -> str | None:
        return self.known

    @property
    def sure(self) -> bool:
        return self.known is not None


def test_rows_wait_behind_the_first_whose_path_is_not_known() -> None:
    late: LatePaths[str] = LatePaths()
    first, second = File(), File()
    assert late.add(["a", LateRow(first, "b {}".format), "c"]) == ["a"]
    assert late.add([LateRow(second, "d {}".format)]) == []
    first.known = "/x"
    assert late.add(["e"]) == ["b /x", "c"]
    second.known = "/y"
    assert late.rest() == ["d /y", "e"]
    assert late.rest() == []


def test_no_more_wait_than_are_allowed() -> None:
    late: LatePaths[str] = LatePaths(2)
    file = File()
    assert late.add([LateRow(file, "a {}".format), "b", "c"]) == ["a None", "b", "c"]
    assert LatePaths[str](0).add([LateRow(file, "a {}".format)]) == ["a None"]
