"""What the two ends of a connection agreed on by messages: the version, and transport characteristics over time.

Version negotiation: version-two-01, 5.  Characteristics: xcharext-02.  ``Conversation`` tells what is in force.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from ..layers.characteristics_codes import Characteristic, option_name
from ..layers.rpcrdma_codes import ERR_INVAL_OPTION, ERR_VERS, error_name
from ..named_tuple import NamedTuple
from .characteristics import InitXch, ReqXch, RespXch, UpdXch, decode_option
from .messages import Message, TransportHeader

MAX_KEPT = 4096
"""Announcements, requests, refusals and version changes kept per connection, of each kind."""
VERSION_2_INLINE = 4096
"""Inline threshold of version 2 in bytes if no Receive Buffer Size was announced (version-two-01, 2.3)."""

_NOTHING: Mapping[int, tuple[int, frozenset[int]]] = MappingProxyType({})
_Kept = TypeVar("_Kept")


class InForce(NamedTuple):
    """The value in force at some frame, since when, and how that is known."""

    value: int | bool | None
    """None: the capture does not tell."""
    frame: int
    """Frame from which on it holds; 0 if from the start, or unknown."""
    source: str
    """'ROPT_INITXCH in frame 12', 'default of version 2', 'private data', 'not seen: …'."""


class VersionUse(NamedTuple):
    """A message that shows a version."""

    frame: int
    endpoint: int
    version: int
    xid: int
    length: int
    """Bytes of the Send."""


class VersionRefusal(NamedTuple):
    """An RDMA_ERR_VERS: the versions that its sender has (version-two-01, 5.2)."""

    frame: int
    endpoint: int
    xid: int
    name: str
    """As in the version of its header: 'RDMA_ERR_VERS', 'RDMA2_ERR_VERS'."""
    low: int | None
    high: int | None
    """The range of versions; None if it is missing."""
    refused_version: int | None
    """The version of the message it answers; None if that was not seen."""
    refused_frame: int

    @property
    def range(self) -> str:
        return "a range that is not there" if self.low is None else f"{self.low}..{self.high}"

    def allows(self, version: int) -> bool:
        return self.low is not None and self.high is not None and self.low <= version <= self.high


class Announcement(NamedTuple):
    """An endpoint has this value of a characteristic from ``frame`` on."""

    frame: int
    endpoint: int
    characteristic: Characteristic
    by: str
    """The option: 'ROPT_INITXCH', 'ROPT_RESPXCH', 'ROPT_UPDXCH'."""

    @property
    def source(self) -> str:
        problem = self.characteristic.problem
        doubt = f", {problem}" if problem and self.characteristic.value is None else ""
        return f"{self.by} in frame {self.frame}{doubt}"


def _frame(announcement: Announcement) -> int:
    return announcement.frame


@dataclass(slots=True, eq=False)
class CharacteristicRequest:
    """A ROPT_REQXCH, and what became of it.  Its sets are positions in ``want``."""

    frame: int
    requester: int
    xid: int
    want: tuple[Characteristic, ...]
    whole: bool
    """``want`` is the whole request; otherwise it ends before the first characteristic that could not be decoded."""
    answer_frame: int = 0
    """Frame of the ROPT_RESPXCH; 0 if none was seen."""
    done: frozenset[int] = frozenset()
    rejected: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    """As in the answer."""
    cleared: dict[int, int] = field(default_factory=dict)
    """By position: frame of the ROPT_UPDXCH that ended the pending change."""
    refused_frame: int = 0
    """Frame of an RDMA2_ERROR that answered it instead; 0 for none."""

    @property
    def open(self) -> frozenset[int]:
        """Positions that are still pending."""
        return self.pending - self.cleared.keys()


class OptionRefusal(NamedTuple):
    """An RDMA2_ERR_INVAL_OPTION: ``endpoint`` does not support the option (version-two-01, 3.1)."""

    frame: int
    endpoint: int
    option: int


@dataclass(slots=True, eq=False)
class Negotiation:
    """What the ends of one connection agreed on.  Built message by message; may be read at any time."""

    requested: VersionUse | None = None
    """The client's first message."""
    answers: tuple[VersionUse, ...] = ()
    """The server's first message that is no error, and every later one in another version than the one before."""
    refusals: tuple[VersionRefusal, ...] = ()
    continued: VersionUse | None = None
    """The client's first message after the first refusal."""
    announcements: tuple[Announcement, ...] = ()
    nochange: Mapping[int, tuple[int, frozenset[int]]] = field(default_factory=lambda: _NOTHING)
    """By endpoint: frame of its ROPT_INITXCH, and the characteristics that it does not expect to change."""
    requests: tuple[CharacteristicRequest, ...] = ()
    option_refusals: tuple[OptionRefusal, ...] = ()
    overflow: int = 0
    """First frame whose contents could not be kept; nothing is known from there on.  0: all was kept."""
    _options: tuple[dict[int, tuple[int, int | None]], ...] | None = None
    """By endpoint and XID: frame and rdma_opttype of each RDMA2_OPTIONAL that an error may still answer."""
    _latest: dict[tuple[int, int], list[Announcement]] | None = None
    """The announcements by endpoint and characteristic."""

    # Built

    def note_version(self, this: VersionUse, answers: bool) -> int:
        """Note a message in another version than the last answer, or the next one after a refusal.

        ``answers``: nothing contradicts its header, and it is no RDMA_ERROR.  Returns the version in which messages
        need not be noted any more, 0 for none."""
        if this.endpoint == 0:
            if self.requested is None:
                self.requested = this
            if self.refused and self.continued is None:
                self.continued = this
        elif answers and self.settled != this.version:
            self.answers = self._with(self.answers, this, this.frame)
        return 0 if self.refused and self.continued is None else self.settled

    def note_error(self, sender: int, message: Message, call: Message | None) -> bool:
        """Note an RDMA_ERROR and the call it answers, if any; True if it answers an option without a call instead."""
        header = message.header
        earlier = self._options[1 - sender].get(header.xid) if self._options else None
        about_option = earlier is not None and (call is None or header.error == ERR_INVAL_OPTION)
        refused: tuple[int | None, int] = (None, 0) if call is None else (call.header.version, call.frame)
        if about_option and earlier is not None:
            refused = 2, earlier[0]
        if header.error == ERR_VERS:
            low, high = header.supported or (None, None)
            self.refusals = self._with(
                self.refusals,
                VersionRefusal(
                    message.frame,
                    sender,
                    header.xid,
                    error_name(header.version, ERR_VERS),
                    low,
                    high,
                    *refused,
                ),
                message.frame,
            )
        if about_option:
            assert earlier is not None
            assert self._options is not None
            del self._options[1 - sender][header.xid]
            option = earlier[1]
            if header.error == ERR_INVAL_OPTION and option is not None:
                refusal = OptionRefusal(message.frame, sender, option)
                self.option_refusals = self._with(self.option_refusals, refusal, message.frame)
            request = self._request(1 - sender, header.xid)
            if request is not None:
                request.refused_frame = message.frame
        return about_option and (call is None or earlier is None or earlier[0] != call.frame)

    def note_option(self, sender: int, message: Message) -> str:
        """Note an RDMA2_OPTIONAL; returns what is wrong with it, '' for nothing."""
        header, frame = message.header, message.frame
        if self._options is None:
            self._options = {}, {}
        options = self._options[sender]
        options.pop(header.xid, None)
        options[header.xid] = frame, header.option
        if len(options) > MAX_KEPT:
            del options[next(iter(options))]
        if header.option is None:
            return ""
        noun = decode_option(header.option, header.optinfo, header.truncated)
        by = option_name(header.option)
        if isinstance(noun, InitXch):
            for item in noun.start:
                self._announce(frame, sender, item, by)
            if not noun.truncated:
                chosen = frozenset(noun.start[at].which for at in noun.nochange if at < len(noun.start))
                self.nochange = {**self.nochange, sender: (frame, chosen)}
        elif isinstance(noun, ReqXch):
            request = CharacteristicRequest(frame, sender, header.xid, noun.want, not noun.problem)
            self.requests = self._with(self.requests, request, frame)
        elif isinstance(noun, RespXch):
            if not self._answer(sender, frame, header.xid, noun) and not noun.problem:
                return "it answers no request that was seen"
        elif isinstance(noun, UpdXch) and noun.now is not None:
            self._announce(frame, sender, noun.now, by)
            if noun.pending_clear:
                self._clear(sender, frame, noun.now.which)
        return noun.problem

    def _announce(self, frame: int, endpoint: int, item: Characteristic, by: str) -> None:
        announcement = Announcement(frame, endpoint, item, by)
        before = self.announcements
        self.announcements = self._with(before, announcement, frame)
        if self.announcements is not before:
            if self._latest is None:
                self._latest = {}
            insort(self._latest.setdefault((endpoint, item.which), []), announcement, key=_frame)

    def _answer(self, sender: int, frame: int, xid: int, noun: RespXch) -> bool:
        request = self._request(1 - sender, xid)
        if request is None:
            return False
        request.answer_frame = frame
        request.done, request.rejected, request.pending = noun.done, noun.rejected, noun.pending
        for position in sorted(noun.done):
            if position < len(request.want):
                self._announce(frame, sender, request.want[position], "ROPT_RESPXCH")
        return True

    def _request(self, requester: int, xid: int) -> CharacteristicRequest | None:
        """The oldest unanswered request with this XID; None for none."""
        for request in self.requests:
            if (
                request.requester == requester
                and request.xid == xid
                and not (request.answer_frame or request.refused_frame)
            ):
                return request
        return None

    def _clear(self, sender: int, frame: int, which: int) -> None:
        """End the oldest change of characteristic ``which`` that is pending at ``sender``."""
        for request in self.requests:
            if request.requester == 1 - sender:
                for position in sorted(request.open):
                    if position < len(request.want) and request.want[position].which == which:
                        request.cleared[position] = frame
                        return

    def _with(self, kept: tuple[_Kept, ...], latest: _Kept, frame: int) -> tuple[_Kept, ...]:
        """``kept`` with ``latest`` appended; unchanged if it is full."""
        if len(kept) < MAX_KEPT:
            return *kept, latest
        self.overflow = self.overflow or frame
        return kept

    # Read

    @property
    def settled(self) -> int:
        """The version of the last answer; 0 before any."""
        return self.answers[-1].version if self.answers else 0

    @property
    def refused(self) -> VersionRefusal | None:
        """The first refusal of a version that the client requested."""
        return next((refusal for refusal in self.refusals if refusal.endpoint == 1), None)

    def answer_before(self, frame: int | None) -> VersionUse | None:
        """The last answer before ``frame``, or of all; it settles the version in which ``frame`` is sent."""
        latest = None
        for answer in self.answers:
            if frame is not None and answer.frame >= frame:
                break
            latest = answer
        return latest

    def announced(self, which: int, endpoint: int, frame: int | None) -> Announcement | None:
        """The last announcement of a characteristic before ``frame``, or of all; None for none."""
        announcements = self._latest.get((endpoint, which), []) if self._latest else []
        before = len(announcements) if frame is None else bisect_left(announcements, frame, key=_frame)
        return announcements[before - 1] if before else None

    def answered_by(self, frame: int) -> CharacteristicRequest | None:
        """The request that a ROPT_RESPXCH in ``frame`` answers."""
        return next((request for request in self.requests if request.answer_frame == frame), None)

    def pending(self, endpoint: int, frame: int | None = None) -> list[tuple[CharacteristicRequest, int]]:
        """Changes requested of ``endpoint`` but not made before ``frame``: the request and a position in it.

        A request without an answer is pending as a whole.
        """
        requests: list[tuple[CharacteristicRequest, int]] = []
        for request in self.requests:
            if request.requester == endpoint or (frame is not None and request.frame >= frame):
                continue
            refused = request.refused_frame and (frame is None or request.refused_frame < frame)
            answered = request.answer_frame and (frame is None or request.answer_frame < frame)
            for position in range(len(request.want)):
                if answered:
                    cleared = request.cleared.get(position)
                    left = position in request.pending and (cleared is None or (frame is not None and cleared >= frame))
                else:
                    left = not refused
                if left:
                    requests.append((request, position))
        return requests


def sound(header: TransportHeader) -> bool:
    """Whether nothing contradicts the part of a header that was captured."""
    return header.procedure is not None and (not header.problem or header.truncated)
