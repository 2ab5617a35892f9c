"""Writes the chosen part of a capture: in a pass that finds the RPCs, and another that finds their frames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.audit.rule import Finding, all_rules
from rdmascope.dissect.diagnosis.facts import all_detectors
from rdmascope.dissect.frames import Frame, Place
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.capture_points import without_other_point
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.transport.connection import Connection

from ..errors import CaptureError
from ..read.merge import MergedCaptures, open_captures
from ..session.diagnosis_pass import diagnosis_of
from ..session.session import Session
from ..tables.condition import ChosenRpcs, Condition
from ..write.output import check_outputs, open_output
from ..write.pcapng_writer import PcapngWriter
from .anonymize import AnonymousFrames, AnonymousOperations, Pseudonyms
from .frames import Carriers, FrameChooser, TcpRanges

MAX_FINDINGS = 1 << 20
"""Findings of a rule whose RPCs are taken."""


@dataclass(frozen=True, slots=True)
class Choice:
    """RPCs that pass the condition, those with these numbers, all of these connections, and these frames."""

    condition: Condition | ChosenRpcs | None = None
    rpcs: frozenset[int] = frozenset()
    connections: frozenset[int] = frozenset()
    """With every packet of theirs, whatever it carries."""
    frames: frozenset[int] = frozenset()

    def mask(self, table: RpcTable, session: Session) -> NDArray[np.bool_]:
        """Which rows of a table are chosen."""
        chosen = np.isin(table.rows["number"], list(self.rpcs)) if self.rpcs else np.zeros(len(table), np.bool_)
        if self.connections:
            chosen |= np.isin(table.rows["connection"], list(self.connections))
        if self.condition is not None:
            judged = self.condition
            chosen |= judged.mask(table) if isinstance(judged, ChosenRpcs) else judged.mask(table, session)
        return chosen


@dataclass(slots=True)
class FindingPlaces:
    """The RPCs of findings; of those that name none, the frames and connections."""

    rpcs: set[int] = field(default_factory=set)
    frames: set[int] = field(default_factory=set)
    connections: set[int] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        if finding.rpc is not None:
            self.rpcs.add(finding.rpc)
        else:
            self.frames.update(finding.frames)


def places_of_findings(opened: Callable[[], Session], ids: Collection[str]) -> FindingPlaces:
    """Where rules of the audit were broken, or what detectors name, by their IDs; in passes of their own.

    Raises CaptureError for an ID that none has, where there is no such finding, and where it is about the capture as a
    whole.
    """
    rules, detectors = all_rules(), all_detectors()
    places = FindingPlaces()
    said: list[str] = []
    for id in ids:
        if id.upper() not in rules and id.lower() not in detectors:
            raise CaptureError(f"no rule and no detector {id!r}; 'rdmascope rules' and docs/diagnosis.md list them")
    broken = [rules[id.upper()] for id in ids if id.upper() in rules]
    if broken:
        opened().audit(Auditor(broken, MAX_FINDINGS, on_finding=lambda finding, _: places.add(finding)))
    if kinds := [id.lower() for id in ids if id.lower() in detectors]:
        for statement in diagnosis_of(opened(), kinds).statements:
            said.append(statement.cause.text)
            places.rpcs.update(statement.cause.rpcs)
            if not statement.cause.rpcs:
                places.frames.update(statement.cause.frames)
                places.connections.update(statement.cause.connections)
    if not places.rpcs and not places.frames and not places.connections:
        if said:
            raise CaptureError(f"'{said[0]}' is about the capture as a whole: it names no RPCs, frames or connections")
        raise CaptureError(f"nothing is found by {', '.join(ids)}")
    return places


APPLICATION = "rdmascope extract"


class Extracted(NamedTuple):
    """Counts of what was written."""

    rpcs: int
    connections: int
    frames: int
    bytes: int
    """Bytes of the frames written."""
    left_out: int
    """Frames that could not be made anonymous."""


@dataclass(slots=True)
class ChosenTraffic:
    """What was chosen, before any of it is written."""

    carriers: Carriers = field(default_factory=Carriers)
    tcp: TcpRanges = field(init=False)
    whole: dict[int, Connection] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tcp = TcpRanges(self.carriers)


Opened = Callable[[], Session]
"""A pass over the same captures."""


class ExtractSource(NamedTuple):
    """A capture that something is taken of."""

    opened: Opened
    choice: Choice
    host: str = ""
    """Where it was made; '' where it is not one of several."""


def extract(opened: Opened, output: Path, choice: Choice, snaplen: int = 0, anonymize: bool = False) -> Extracted:
    """Write the frames of what is chosen to a pcapng, with their times, and their numbers as comments.

    ``snaplen``: bytes kept of each frame, 0 for all.  ``anonymize``: with other addresses, names, handles and other
    opaque bytes, and zeros for data; frames that cannot be made so are left out.

    Raises CaptureError where ``output`` is what is read, where nothing is chosen, and where the capture is damaged:
    behind what could be read of it.
    """
    read: list[Session] = []
    extracted = extract_of_each([ExtractSource(opened, choice)], output, snaplen, anonymize, read.append)
    read[0].check()
    return extracted


def extract_of_each(
    sources: Iterable[ExtractSource],
    output: Path,
    snaplen: int,
    anonymize: bool,
    on_end: Callable[[Session], None],
) -> Extracted:
    """Write the chosen frames of several captures, each analysed by itself, into one pcapng in the order of time.
    ``on_end`` gets each session when the choice from it is known."""
    paths: list[str] = []
    parts: list[tuple[int, Iterator[Chosen]]] = []
    rpcs = connections = 0
    made_anonymous: list[AnonymousFrames] = []
    with ExitStack() as stack:
        pseudonyms = Pseudonyms()
        for source in sources:
            session, choice = source.opened(), source.choice
            check_outputs([output], session.paths)
            anonymous: AnonymousFrames | None = None
            operations: AnonymousOperations | None = None
            if anonymize:
                operations = stack.enter_context(AnonymousOperations(pseudonyms, output.parent))
                anonymous = AnonymousFrames(pseudonyms, operations)
                made_anonymous.append(anonymous)
            part = _chosen(session, choice, operations)
            if not part.carriers.rpcs and not part.whole and not choice.frames:
                session.refuse(choice.condition.problem(session) if choice.condition is not None else "")
                session.refuse(_unknown(choice, session))
            if part.carriers.iwarp:
                part.tcp.keep = anonymous.keep if anonymous is not None else None
                part.tcp.find(source.opened())
            paths += session.paths
            origin = FrameOrigin(len(parts), "", {})
            if not anonymize:
                origin = FrameOrigin(len(parts), source.host, session.names if session.several else {})
            frames = _frames(session.paths, session.frames_before, part, choice, anonymous, origin)
            parts.append((session.analyzer.earliest_time or 0, frames))
            rpcs += part.carriers.rpcs
            connections += len(part.carriers.connections.keys() | part.whole.keys())
            on_end(session)
            del session
        cut = _Cut(stack.enter_context(open_output(output, paths)), snaplen)
        for entry in in_order_of_time(parts):
            cut.write(*entry)
    left_out = sum(sum(anonymous_frames.refused.values()) for anonymous_frames in made_anonymous)
    return Extracted(rpcs, connections, cut.frames, cut.bytes, left_out)


def extract_record(output: str, extracted: Extracted) -> Record:
    """What was written, as a record."""
    return record("extract", output=output, **extracted._asdict())


def _unknown(choice: Choice, session: Session) -> str:
    """Why nothing was chosen."""
    if choice.rpcs:
        return f"no RPC {', '.join(map(str, sorted(choice.rpcs)[:5]))}"
    if choice.connections:
        return f"no connection {', '.join(map(str, sorted(choice.connections)[:5]))}"
    return "no RPC was chosen" if session.analyzer.packets else ""


def _chosen(session: Session, choice: Choice, operations: AnonymousOperations | None) -> ChosenTraffic:
    part = ChosenTraffic()
    for table in session.tables():
        for rpc in table.selected(choice.mask(table, session)) if len(table) else ():
            tags = part.carriers.add(rpc)
            if operations is not None:
                operations.add(rpc, tags)
        del table
    for connection in session.analyzer.connections:
        if connection.number in choice.connections:
            part.whole[connection.number] = connection
    return part


class FrameOrigin(NamedTuple):
    """Which of several captures frames are from."""

    source: int
    """Index."""
    host: str
    names: Mapping[str, str]
    """Names of files by path, for comments that say which file a frame is from; empty for no such comments."""


Chosen = tuple[Frame, Place, tuple[int, str, int], FrameOrigin]
"""A frame, where it is from, and the link type, name and snap length of its interface."""


def in_order_of_time(parts: Iterable[tuple[int, Iterator[Chosen]]]) -> Iterator[Chosen]:
    """The frames of captures that begin at these times; each is opened when it is its turn."""
    waiting = sorted(parts, key=itemgetter(0), reverse=True)
    heads: list[tuple[int, int, Chosen, Iterator[Chosen]]] = []
    while heads or waiting:
        while waiting and (not heads or waiting[-1][0] <= heads[0][0]):
            _, frames = waiting.pop()
            _push(heads, frames)
        if heads:
            _, _, chosen, frames = heappop(heads)
            yield chosen
            _push(heads, frames)


def _push(heads: list[tuple[int, int, Chosen, Iterator[Chosen]]], frames: Iterator[Chosen]) -> None:
    chosen = next(frames, None)
    if chosen is not None:
        heappush(heads, (chosen[0].time, chosen[3].source, chosen, frames))


def _frames(
    paths: Sequence[str],
    before: int,
    part: ChosenTraffic,
    choice: Choice,
    anonymous: AnonymousFrames | None,
    origin: FrameOrigin,
) -> Iterator[Chosen]:
    chooser = FrameChooser(part.carriers, part.tcp, part.whole)
    addresses = AddressTable()
    extra = np.array(sorted(choice.frames), np.int64)
    if anonymous is not None:
        anonymous.begin(chooser.streams)
    try:
        with open_captures(paths) as capture:
            capture.number_behind(before)
            for batch in filter(len, capture.batches()):
                located = locate(batch, addresses)
                if isinstance(capture, MergedCaptures) and capture.hosts_elsewhere:
                    located = without_other_point(batch, located, addresses, capture.hosts_elsewhere)
                chosen = chooser.choose(batch, located, addresses)
                if anonymous is not None:
                    anonymous.batch(batch, located, addresses, chosen.frames.tolist(), chosen.tags.tolist())
                frames = np.concatenate((chosen.frames, extra[np.isin(extra, batch.rows["number"])]))
                for number in np.unique(frames).tolist():
                    frame: Frame | None = batch.frame(number)
                    assert frame is not None
                    about = capture.interface(frame.interface)
                    named = (about.name, about.snaplen) if about is not None else ("", 0)
                    merged_place = capture.places.find(number) if isinstance(capture, MergedCaptures) else None
                    if anonymous is not None:
                        frame, named = anonymous.anonymous(frame), ("", named[1])
                    if frame is not None:
                        place = merged_place or Place(capture.path, number - before)
                        yield frame, place, (frame.link_type, *named), origin
    except CaptureError:
        pass  # The first pass met the same damage, and has it.


class _Cut:
    """The file that is written."""

    def __init__(self, file: BinaryIO, snaplen: int) -> None:
        self.frames = self.bytes = 0
        self._writer = PcapngWriter(file, None, application=APPLICATION)
        self._snaplen = snaplen
        self._interfaces: dict[tuple[int, int, int, str, int], int] = {}
        """By index of the capture, index in it, link type, name and snap length."""

    def write(self, frame: Frame, place: Place, about: tuple[int, str, int], origin: FrameOrigin) -> None:
        key = origin.source, frame.interface, *about
        if key not in self._interfaces:
            link_type, name, snaplen = about
            kept = min(filter(None, (snaplen, self._snaplen)), default=0)
            self._interfaces[key] = self._writer.add_interface(link_type, kept, f"{origin.host} {name}".strip())
        data = frame.data[: self._snaplen] if self._snaplen else frame.data
        where = f"frame {place.frame}"
        if origin.names:
            where += f" of {origin.names[place.file]}"
        where += f", host {origin.host}" if origin.host else ""
        comment = f"{where}; {frame.comment}" if frame.comment else where
        self._writer.write(frame.time, data, frame.original, comment, self._interfaces[key])
        self.frames += 1
        self.bytes += len(data)
