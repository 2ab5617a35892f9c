"""Where one XID is used again and again: whether each call has its reply before the next."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..arrays import Int64s, Rows
from .plain_sends import PlainSends

_NEITHER, NO_TURN = 5, 6
"""In place of a call or reply: what is never right, and what nothing may follow."""


def in_turn(
    link: Int64s, sender: Int64s, frame: Rows, read: PlainSends, others: Mapping[int, int]
) -> tuple[Int64s, Int64s]:
    """Of each Send the next with its connection and XID, and a number for these two.

    -1 where there is none, and for all of an XID whose calls and replies do not take turns.  ``others``: what came
    before, by connection << 32 | XID: twice the caller where it is an open call, which is what a call counts as, and
    a reply as one more than its call; else ``NO_TURN``.
    """
    keys = link << 32 | read.xids
    order = np.lexsort((frame, keys))
    keys = keys[order]
    first = np.append(True, keys[1:] != keys[:-1])
    sent = np.where(read.call, 2 * sender, np.where(read.reply, 3 - 2 * sender, _NEITHER))[order]
    before = np.where(first, 1, np.roll(sent, 1))
    known = np.array([*others], np.int64)
    places = keys.searchsorted(known)
    there = keys.take(places, mode="clip") == known
    before[places[there]] = np.array([*others.values()], np.int64)[there]
    wrong = np.where(before & 1, sent & 1, sent != before + 1)
    grouped = np.cumsum(first) - 1
    following, numbers = np.full(len(keys), -1), np.empty_like(grouped)
    following[order[:-1]] = np.where(first[1:] | (np.bincount(grouped, wrong) > 0)[grouped[1:]], -1, order[1:])
    numbers[order] = grouped
    return following, numbers
