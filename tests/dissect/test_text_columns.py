"""Lines made of columns are those that Python's formatting makes one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.text_columns import (
    Decimal,
    EncodedLines,
    Hexadecimal,
    KnownTexts,
    Piece,
    Texts,
    chosen,
    lines,
    page_of,
    words_of,
)

NUMBERS = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 11), st.sampled_from([9_999, 10_000, 99_999_999, 10**9]))


@given(st.lists(NUMBERS, min_size=1, max_size=9), st.integers(0, 25))
def test_numbers(numbers: list[int], width: int) -> None:
    values = np.array(numbers, np.uint64)
    pieces: list[Piece] = [
        Decimal(values), " ", Decimal(values, width), "é", Decimal(values, width, "0"), Hexadecimal(values), ";",
        Hexadecimal(values, width),
    ]  # fmt: skip
    expected = [f"{one} {one:{width}}é{one:0{width}}{one:x};{one:0{width}x}" for one in numbers]
    if width == 0:
        expected = [f"{one} {one}é{one}{one:x};{one:x}" for one in numbers]
    assert [line.decode() for line in lines(pieces, len(values))] == expected


@given(st.lists(st.one_of(st.none(), NUMBERS), min_size=1, max_size=9))
def test_numbers_that_are_not_there(numbers: list[int | None]) -> None:
    values = Decimal(
        np.array([one or 0 for one in numbers], np.uint64), null=np.array([one is None for one in numbers])
    )
    expected = ["<null>" if one is None else f"<{one}>" for one in numbers]
    assert [line.decode() for line in lines(["<", values, ">"], len(numbers))] == expected
    turned = chosen(values, np.arange(len(numbers))[::-1])
    assert [line.decode() for line in lines(["<", turned, ">"], len(numbers))] == expected[::-1]


@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "u4", "i8", "u8"])
def test_numbers_of_any_size(dtype: str) -> None:
    values = np.array([0, 1, 99, 100, 127], dtype)
    assert lines([Decimal(values, 4)], 5) == [b"   0", b"   1", b"  99", b" 100", b" 127"]


@given(st.lists(st.tuples(st.text(st.characters(exclude_characters="\0\n", codec="utf-8")), st.integers(0, 2))))
def test_words(rows: list[tuple[str, int]]) -> None:
    texts = ["", "née", "a longer one"]
    known = Texts(texts, np.array([index for _, index in rows], np.int64))
    pieces: list[Piece] = ["<", Texts([text for text, _ in rows]), "|", known, ">"]
    expected = [f"<{text}|{texts[index]}>" for text, index in rows]
    assert [line.decode() for line in lines(pieces, len(rows))] == expected
    half = np.arange(len(rows)) % 2 == 0
    chosen_lines = lines([chosen(piece, half) for piece in pieces], (len(rows) + 1) // 2)
    assert [line.decode() for line in chosen_lines] == expected[::2]


@given(st.lists(st.tuples(NUMBERS, st.text(st.characters(exclude_characters="\0\n", codec="utf-8"))), min_size=1))
def test_pages_of_lines_that_are_encoded_once(rows: list[tuple[int, str]]) -> None:
    number = Decimal(np.array([one for one, _ in rows], np.uint64))
    odd = np.arange(len(rows)) % 2
    parts = (
        EncodedLines(["<", number, "", Texts([text for _, text in rows]), number, Texts(["is even ", "odd"], odd)]),
        EncodedLines([Texts(["!", "né?"], odd), ">"]),
    )
    expected = [f"<{one}{text}{one}" + ("odd" if i % 2 else "is even ") for i, (one, text) in enumerate(rows)]
    backwards = np.arange(len(rows))[::-1]
    # The second part is that of the first line in all of them.
    page = page_of([(parts[0], backwards), (parts[1], backwards * 0)], len(rows)).decode()
    assert page == "".join(f"{one}!>\n" for one in reversed(expected))
    assert page_of([(one, backwards[:0]) for one in parts], 0) == b""


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))))
def test_texts_of_which_some_are_not_known(texts: list[str | None]) -> None:
    column = KnownTexts.of(texts)
    assert column.listed() == [column.row(index) for index in range(len(texts))] == texts
    twice = column.rows(np.arange(2 * len(texts)) // 2)
    assert twice.listed()[::2] == twice.listed()[1::2] == texts and len(twice.texts) == len(texts)
    odd = column.rows(np.arange(len(texts)) % 2 == 1)
    assert odd.listed() == odd.texts == texts[1::2]


def test_words_of_values_are_asked_for_once() -> None:
    asked: list[int] = []

    def word(value: int) -> str:
        asked.append(value)
        return f"<{value}>"

    assert lines([words_of(np.array([5, 3, 5, 5]), word)], 4) == [b"<5>", b"<3>", b"<5>", b"<5>"]
    assert asked == [3, 5]


def test_an_encoder_makes_the_texts_harmless_and_not_the_ends_of_lines() -> None:
    found = lines(("<", Texts(["a\nb", "c"])), 2, lambda text: text.replace("\n", "\\n").encode())
    assert found == [b"<a\\nb", b"<c"]
