"""``NamedTuple`` of ours is what ``typing`` has under that name, as far as it is used."""

from __future__ import annotations

import pickle
from typing import NamedTuple as TypingNamedTuple

import pytest

from rdmascope.dissect.named_tuple import NamedTuple


class Segment(NamedTuple):
    """Memory."""

    handle: int
    length: int = 4096
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.length


class Nothing(NamedTuple):
    """No fields."""


class TypingSegment(TypingNamedTuple):
    handle: int
    length: int = 4096
    offset: int = 0


def test_fields_by_place_and_by_name_with_defaults() -> None:
    segment = Segment(7, offset=8)
    assert segment == (7, 4096, 8)
    assert TypingSegment(7, offset=8) == (7, 4096, 8)
    assert (segment.handle, segment.length, segment.offset, segment.end) == (7, 4096, 8, 4104)
    assert Nothing() == ()
    match segment:
        case Segment(handle, offset=offset):
            assert (handle, offset) == (7, 8)


def test_what_typing_gives_a_class() -> None:
    segment, typing = Segment(7), TypingSegment(7)
    assert (Segment._fields, Segment._field_defaults) == (TypingSegment._fields, TypingSegment._field_defaults)
    assert segment._asdict() == typing._asdict()
    assert segment._replace(length=1) == (7, 1, 0)
    assert typing._replace(length=1) == (7, 1, 0)
    assert repr(segment) == repr(typing).replace("Typing", "")
    assert Segment._make([1, 2, 3]) == (1, 2, 3)
    assert pickle.loads(pickle.dumps(segment)) == segment
    assert type(pickle.loads(pickle.dumps(segment))) is Segment
    assert hash(segment) == hash(typing)


def test_two_classes_with_as_many_fields_have_their_own_names() -> None:
    class Other(NamedTuple):
        first: int
        second: str
        third: bytes

    assert Other(1, "2", third=b"3").second == "2"
    assert Segment(1, 2, 3).length == 2


def test_mistakes_are_errors() -> None:
    segment = Segment(7)
    with pytest.raises(TypeError, match="handle"):
        Segment()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="size"):
        Segment(7, size=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Segment(1, 2, 3, 4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="3 values, not 2"):
        Segment._make([1, 2])
    with pytest.raises(ValueError, match="size"):
        segment._replace(size=3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        segment.length = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        segment.size = 3  # type: ignore[attr-defined]
