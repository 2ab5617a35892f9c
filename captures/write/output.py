"""The one door to files that are written: it refuses to overwrite an input, and leaves nothing half written."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from rdmascope.dissect.units import size

from ..errors import CaptureError
from ..read.merge import expand
from ..read.remote import HTTP, RemoteFolder, is_url, local, refuse_url, scheme
from .modes import PRIVATE, PUBLIC, mode_of
from .stale_tempdirs import PREFIX, FolderOfProcess

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def refuse_inputs(output: str | os.PathLike[str], inputs: Iterable[str]) -> None:
    """Raise CaptureError where ``output`` is one of ``inputs``, or a file of a directory among them."""
    try:
        there = os.stat(output)
    except OSError:
        return
    for path in input_files(inputs):
        try:
            same = os.path.samestat(os.stat(path), there)
        except OSError:
            continue
        if same:
            raise CaptureError(f"{os.fspath(output)}: would overwrite what is read; write to another file")


STANDARD_INPUT = "/dev/stdin"
"""Where standard input is a file, it is that file."""


def _files_of(given: str) -> Iterable[str]:
    if given == "-":
        return [STANDARD_INPUT]
    given = local(given)
    try:
        return [given, *(path for path, listed in expand(given) if listed)]
    except CaptureError:
        return [given]


def input_files(inputs: Iterable[str]) -> list[str]:
    """The files that are read, those of directories included."""
    return [path for given in inputs for path in _files_of(given)]


def check_outputs(outputs: Iterable[str | os.PathLike[str] | None], inputs: Iterable[str] = ()) -> None:
    """Before the work begins: raise CaptureError where these cannot be written, or not all of them.

    None and - stand for no file.
    """
    inputs = tuple(inputs)
    seen: set[str] = set()
    for output in outputs:
        if output is None or os.fspath(output) == "-":
            continue
        refuse_url(output)
        directory = Path(output).parent
        if not directory.is_dir():
            raise CaptureError(f"{directory}: {'is no directory' if directory.exists() else 'no such directory'}")
        if Path(output).is_dir():
            raise CaptureError(f"{os.fspath(output)}: is a directory")
        refuse_inputs(output, inputs)
        real = os.path.realpath(output)
        if real in seen:
            raise CaptureError(f"{os.fspath(output)}: two outputs cannot be one file")
        seen.add(real)


class OutputFile(io.FileIO):
    """A file that is written.  What the disk does not take is said with the name that the user knows."""

    def __init__(self, descriptor: int, shown: str) -> None:
        super().__init__(descriptor, "r+b")
        self._shown = shown

    def write(self, data: ReadableBuffer, /) -> int:
        """Raises CaptureError."""
        try:
            return super().write(data) or 0
        except OSError as error:
            wanted = os.fstat(self.fileno()).st_size + memoryview(data).nbytes
            raise not_written(self._shown, error, wanted) from None


def not_written(shown: str, error: OSError, wanted: int = 0) -> CaptureError:
    """The error of a file that could not be written; ``wanted``: the least number of bytes that it needs, if known."""
    full = wanted and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return CaptureError(f"{shown}: {error.strerror}" + (f"; it takes at least {size(wanted)}" if full else ""))


class OutputFolder:
    """Files that appear in a folder when all are whole, in place of those that had their names; or not at all.

    They are written in a folder beside, which goes however the process ends; where SIGKILL ended it, the next one that
    writes into the folder removes it.  A context manager.
    """

    def __init__(self, path: Path, mode: int = PRIVATE) -> None:
        """The folder is made where there is none.  Raises OSError."""
        self.path = path
        self._mode = mode_of(mode)
        self._names: list[str] = []
        self._made = False
        try:
            path.mkdir()
            self._made = True
        except FileExistsError:
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "is there and is no directory", str(path)) from None
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._beside = FolderOfProcess(str(path), f".{PREFIX}")
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._beside.remove()
            self._close()

    def _close(self) -> None:
        os.close(self.descriptor)
        if self._made:
            with suppress(OSError):  # Something is in it.
                self.path.rmdir()

    def others(self) -> list[str]:
        """Names of what is in the folder already."""
        return [name for name in os.listdir(self.descriptor) if name != os.path.basename(self._beside.path)]

    def create(self, name: str, inputs: Iterable[os.stat_result] = (), shown: str = "") -> OutputFile:
        """A new file, open for writing; ``inputs``: what is read in the same run; ``shown``: its name in messages.

        No link leads out of the folder.  Raises OSError, and ValueError for a name that is none.
        """
        shown = shown or str(self.path / name)
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} is no name in a directory")
        with suppress(FileNotFoundError):
            there = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            if any(os.path.samestat(there, given) for given in inputs):
                raise FileExistsError(errno.EEXIST, "is the capture itself", shown)
            if stat.S_ISDIR(there.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is there and is a directory", shown)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(f"{self._beside.path}/{name}", flags, self._mode)
        self._names.append(name)
        return OutputFile(descriptor, shown)

    def _finish(self) -> None:
        """Raises CaptureError."""
        try:
            for name in self._names:
                with open(f"{self._beside.path}/{name}", "rb") as written:
                    os.fsync(written.fileno())
            for name in self._names:
                os.replace(f"{self._beside.path}/{name}", name, dst_dir_fd=self.descriptor)
            os.fsync(self.descriptor)
        except OSError as error:
            raise not_written(str(self.path), error) from None


def spool(directory: Path | None = None) -> BinaryIO:
    """A file without a name, which goes with the process; in ``directory``, or among temporary files."""
    shown = os.path.abspath(directory or tempfile.gettempdir())
    with tempfile.TemporaryFile(dir=shown, buffering=0) as file:
        descriptor = os.dup(file.fileno())
    return io.BufferedRandom(OutputFile(descriptor, f"a temporary file in {shown}"), 1 << 20)


@contextmanager
def named_spool(name: str) -> Iterator[tuple[str, BinaryIO]]:
    """A temporary file for another program to read, and its path; what SIGKILL leaves, the next run removes."""
    with FolderOfProcess() as folder:
        path = str(folder / name)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        with io.BufferedRandom(OutputFile(descriptor, path), 1 << 20) as file:
            yield path, file


@contextmanager
def open_output(output: str | os.PathLike[str], inputs: Iterable[str], mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """A file for writing that is not read in the same run; it is there when the block ends without an error.

    What is no plain file, /dev/null or a named pipe, takes bytes as they come.  Raises CaptureError.
    """
    check_outputs([output], inputs)
    target = Path(os.path.realpath(output))
    with ExitStack() as stack:
        try:
            if target.exists() and not target.is_file():
                opened = OutputFile(os.open(target, os.O_WRONLY | os.O_CLOEXEC), os.fspath(output))
            else:
                if target.exists() and not os.access(target, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                opened = stack.enter_context(OutputFolder(target.parent, mode)).create(target.name, (), str(output))
        except OSError as error:
            raise not_written(os.fspath(output), error) from None
        yield stack.enter_context(io.BufferedWriter(opened))


def open_growing(output: str) -> BinaryIO:
    """A file that others read while it is written, with all that came so far: a live capture.  Raises CaptureError."""
    check_outputs([output])
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return io.BufferedWriter(OutputFile(os.open(output, flags, mode_of(PRIVATE)), output))
    except OSError as error:
        raise not_written(output, error) from None


def write_output(output: str | os.PathLike[str], text: str, inputs: Iterable[str]) -> None:
    """Write a text file that is not read in the same run.  Raises CaptureError."""
    with open_output(output, inputs, PUBLIC) as file:
        file.write(text.encode())


@contextmanager
def written_to(output: str, inputs: Iterable[str]) -> Iterator[Path]:
    """Where to write a file or folder on this machine: the output itself; or, of a URL, a temporary one.

    The latter is put into the store at the end, where nothing was raised.  Raises CaptureError for a URL that is read,
    or that cannot be written.
    """
    if not is_url(output):
        yield Path(output)
        return
    if scheme(output) in HTTP:
        refuse_url(output)
    if output in inputs:
        raise CaptureError(f"{output}: would overwrite what is read; write to another file")
    folder, _, name = output.rstrip("/").rpartition("/")
    if is_url(f"{folder}/"):
        store = RemoteFolder(folder)
    else:
        raise CaptureError(f"{output}: names no file")
    with FolderOfProcess() as made:
        path = made / name
        yield path
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            store.put(file, str(file.relative_to(made)))


@contextmanager
def seekable(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """What can be read twice: standard input is copied to a temporary file."""
    if "-" not in paths:
        yield paths
        return
    with FolderOfProcess() as folder:
        copy = str(folder / "copy")
        with open_output(copy, ()) as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield [copy if path == "-" else path for path in paths]
