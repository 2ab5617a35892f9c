"""What a command that reads packets is given: a capture, or those behind a data set, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rdmascope.captures import CaptureError, Follow
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.saved import is_data_set
from rdmascope.dissect.measure.filters import CaptureExtent, FrameRange, unknown_frames, unknown_rpcs
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.rpcrdma.analyzer import Options

from .reading import Reading

if TYPE_CHECKING:
    from rdmascope.captures.extract.cut import Choice, Extracted
    from rdmascope.captures.fleet.batch import CaptureBehind, CapturesBehind
    from rdmascope.captures.tables.condition import ChosenRpcs, Condition
    from rdmascope.captures.write.export import Exported

MAX_NAMED = 5
"""Captures of a data set that were not read, in a sentence."""


@dataclass(frozen=True)
class EachCapture:
    """A capture that a command reads: the one given, or one behind a data set."""

    paths: Sequence[str]
    options: Options
    name: str
    """The name that is shown."""
    behind: CaptureBehind | None = None
    """Its entry in a data set; None for a single capture."""

    @property
    def host(self) -> str | None:
        """Where the capture of a data set was made."""
        return None if self.behind is None else self.behind.entry.host

    def has_rpc(self, number: int) -> bool:
        """It may have the RPC of this number."""
        return self.behind is None or self.behind.has_rpc(number)

    def with_host(self, place: str) -> str:
        """Words for frames in files, of a data set with the host."""
        return place if self.behind is None else f"{place}, host {self.host}"

    def placed(self, reading: Session, fields: Record) -> Record:
        """A record with the places of its frames, of a data set with the host, too."""
        placed = reading.placed(fields)
        return placed if self.behind is None else {**placed, "host": self.host}

    def reading(self, streaming: bool = False, follow: Follow | None = None, jobs: int | None = None) -> Reading:
        """A pass over it, with its numbers."""
        before = None if self.behind is None else self.behind.before
        jobs = jobs if self.behind is None else None
        made = Reading(self.paths, self.options, streaming=streaming, follow=follow, jobs=jobs, before=before)
        if self.behind is None:
            made.path = self.name
        return made


class GivenCaptures:
    """What the argument FILE of a command means.

    Of a data set every capture is read by itself, with the options that it was analysed with, and has its numbers of
    the data set.  Those that are gone, or are others now, are left out, as damage is: it is said at the end.
    """

    def __init__(self, files: Sequence[str], options: Options, paths: Sequence[str] | None = None) -> None:
        """``paths``: from which ``files`` are read.  Raises CaptureError where a data set does not stand alone."""
        self.files = files
        self._options, self._paths = options, files if paths is None else paths
        self._problems: dict[str, None] = {}
        """In order, each once."""
        self._changed: dict[str, str] = {}
        """By capture of a data set: why it cannot be read as it was."""
        self._read: Session | None = None
        """The last pass over a capture that is no data set."""
        self.behind: CapturesBehind | None = None
        if any(map(is_data_set, files)):
            from rdmascope.captures.fleet.batch import CapturesBehind

            if len(files) > 1:
                raise CaptureError("a data set stands alone, without other files")
            if options.ports != Options().ports or options.force:
                raise CaptureError(f"{files[0]}: its captures are read with the --port and --as that they were given")
            self.behind = CapturesBehind(files[0])

    def __iter__(self) -> Iterator[EachCapture]:
        return self.some(lambda capture: True)

    def some(self, wanted: Callable[[CaptureBehind], bool]) -> Iterator[EachCapture]:
        """The captures of a data set that are wanted; else the capture given."""
        if self.behind is None:
            yield EachCapture(self._paths, self._options, Reading(self.files).path)
            return
        for behind in filter(wanted, self.behind.captures):
            capture = behind.entry.capture
            if capture not in self._changed:
                self._changed[capture] = behind.problem()
            if words := self._changed[capture]:
                self._problems[f"{behind.entry.host}: {words}"] = None
                continue
            options = behind.options._replace(contents=self._options.contents)
            yield EachCapture(behind.paths, options, behind.name, behind)

    @property
    def inputs(self) -> Sequence[str]:
        """Paths of all that may be read."""
        return (
            self._paths if self.behind is None else [path for capture in self.behind.captures for path in capture.paths]
        )

    def with_frames(
        self, wanted: Sequence[FrameRange], chosen: ChosenRpcs | Condition | None = None
    ) -> Iterator[EachCapture]:
        """The captures of a data set with some of these frames (all where none are given) and some of these RPCs."""

        has_chosen = self.having(chosen)

        def has_some(capture: CaptureBehind) -> bool:
            first, last = capture.frames
            among = any(frames.first <= last and frames.last >= first for frames in wanted) or not wanted
            return among and has_chosen(capture)

        return self.some(has_some)

    def having(self, chosen: ChosenRpcs | Condition | None) -> Callable[[CaptureBehind], bool]:
        """Whether a capture of a data set has some of those RPCs: all are meant where None is given."""
        numbers = getattr(chosen, "numbers", None)
        if self.behind is None or numbers is None:
            return lambda capture: True
        there = self.behind.divided("rpcs", numbers)
        return lambda capture: capture.entry.capture in there

    def session(self, condition: Condition | None = None) -> Session:
        """A session over the tables of a data set, or over those of RPCs that pass."""
        from rdmascope.captures.tables.saved_session import open_saved_session

        return open_saved_session(self.files[0], condition)

    def extract(self, output: Path, choice: Choice, snaplen: int = 0, anonymize: bool = False) -> Extracted:
        """Write what is chosen of all of them into one capture; ``check`` says what was wrong with some."""
        from rdmascope.captures.extract.cut import Choice, ExtractSource, extract_of_each
        from rdmascope.captures.tables.condition import ChosenRpcs

        if self.behind is None:
            (capture,) = self
            return extract_of_each([ExtractSource(capture.reading, choice)], output, snaplen, anonymize, self.ended)
        meant = choice.condition
        if meant is not None and not isinstance(meant, ChosenRpcs):
            meant = meant.chosen_rpcs(self.session(meant))
        self.refuse(unknown_rpcs(choice.rpcs, range(1, self.behind.rpcs + 1), self.behind.rpcs))
        numbers = choice.rpcs if meant is None else choice.rpcs | meant.numbers

        divided = [
            self.behind.divided(noun, those)
            for noun, those in (("rpcs", numbers), ("connections", choice.connections), ("packets", choice.frames))
        ]

        def of(behind: CaptureBehind) -> Choice:
            return Choice(None, *(of_capture.get(behind.entry.capture, frozenset()) for of_capture in divided))

        sources = [
            ExtractSource(capture.reading, of(capture.behind), capture.behind.entry.host)
            for capture in self.some(lambda behind: of(behind) != Choice())
            if capture.behind is not None
        ]
        if not sources:
            self.check()
            self.refuse("nothing was chosen")
        return extract_of_each(sources, output, snaplen, anonymize, self.ended)

    def export_tcp(
        self,
        output: Path | BinaryIO,
        skip_incomplete: bool = False,
        condition: Condition | None = None,
        comments: bool = True,
        jobs: int | None = None,
    ) -> Exported:
        """``export_tcp`` of all of them, into one file; ``refuse_nothing`` and ``check`` say what was wrong."""
        from rdmascope.captures.write.export import export_tcp_of_each

        meant = self.chosen(condition)

        def opened() -> Iterator[tuple[Session, str]]:
            for capture in self.some(self.having(meant)):
                reading = capture.reading(jobs=jobs)
                yield reading, capture.name if self.behind is not None else ""
                self.ended(reading)

        return export_tcp_of_each(opened(), self.inputs, output, skip_incomplete, meant, comments)

    def refuse_nothing(self, condition: Condition | None) -> None:
        """Raise CaptureError for a condition that nothing exported passes; of a data set that was done before."""
        if condition is not None and self._read is not None:
            self._read.refuse(condition.problem(self._read))

    def chosen(self, condition: Condition | None) -> ChosenRpcs | Condition | None:
        """What chooses RPCs: of a data set those that pass, as its tables have them; of a capture the condition."""
        if self.behind is None or condition is None:
            return condition
        return condition.chosen_rpcs(self.session(condition))

    def refuse(self, problem: str) -> None:
        """Raise CaptureError for a ``problem`` with what was asked for; '' is none."""
        if self._read is not None:
            self._read.refuse(problem)
        elif problem:
            self._problems = {problem: None, **self._problems}
            self.check()

    def refuse_frames(self, wanted: Sequence[FrameRange]) -> None:
        """Raise CaptureError for frames that a data set does not have; a capture tells only when it is read."""
        if self.behind is not None:
            self.refuse(unknown_frames(wanted, CaptureExtent(self.behind.frames)))

    def ended(self, reading: Session) -> None:
        """One was read: ``check`` says what was wrong with it."""
        if self.behind is None:
            self._read = reading
            return
        try:
            reading.check()
        except CaptureError as error:
            self._problems[str(error)] = None

    def check(self) -> None:
        """Raise CaptureError for captures that were not read, or not to their end."""
        if self._read is not None:
            self._read.check()
        if self._problems:
            left = len(self._problems) - MAX_NAMED
            more = f"; and {left:,} more" if left > 0 else ""
            raise CaptureError(
                f"{self.behind.name if self.behind else self.files[0]}: "
                f"{'; '.join([*self._problems][:MAX_NAMED])}{more}"
            )
