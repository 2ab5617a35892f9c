"""Which paths are URLs, and which can be read again; captures on other machines, by URL.

URLs are whatever fsspec has a file system for; fsspec is loaded here and nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdmascope.dissect.named_tuple import NamedTuple

from ..errors import CaptureError, Closing, system_errors
from ..write.modes import PRIVATE, mode_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from fsspec import AbstractFileSystem


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OUTPUT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""A Path has one / of two."""
HTTP = ("http", "https")


def scheme(path: str) -> str:
    """The scheme of a URL, in lower case; '' of a path."""
    return match[1].lower() if (match := _URL.match(path)) else ""


def is_url(path: str) -> bool:
    """Whether ``path`` is a URL, and not of a file of this machine."""
    return scheme(path) not in ("", "file")


def without_query(path: str) -> str:
    """A URL of HTTP without what follows ?; others, in which it is a wildcard, as they are."""
    return path.partition("?")[0] if scheme(path) in HTTP else path


def local(path: str) -> str:
    """A URL of a file of this machine as its path; others as they are."""
    if scheme(path) != "file":
        return path
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(path).path)


def refuse_url(output: str | os.PathLike[str]) -> None:
    """Raise CaptureError for an output: what is written goes into files of this machine."""
    if _OUTPUT.match(os.fspath(output)):
        raise CaptureError(f"{os.fspath(output)}: cannot write to a URL; write to a file or folder, and copy it there")


def stays(path: str) -> bool:
    """It can be read again."""
    return path != "-" and (is_url(path) or os.path.isfile(path) or os.path.isdir(path))


_CONTENT_TAGS = ("s3", "s3a")
"""Where equal ETags and sizes are equal contents; elsewhere a tag is of one URL (RFC 9110, 8.8.3)."""
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs")
"""Where folders are parts of names, and making one makes a bucket."""
BLOCK = 8 << 20
"""Bytes asked of a store at once."""
PATIENCE = 60
"""Seconds in which an HTTP server has to send something."""


class FileStamp(NamedTuple):
    """What tells whether a file is what it was."""

    size: int | None
    """Bytes."""
    modified_ns: int | None
    """None where there is a tag."""
    tag: str = ""
    """The store's ETag."""

    @property
    def certain(self) -> bool:
        """It tells; else only the contents do."""
        return bool(self.tag) or None not in (self.size, self.modified_ns)


class RemoteFile(Closing):
    """A file that is read from its begin to its end, a block at a time.  Raises CaptureError."""

    def __init__(self, url: str) -> None:
        self._url = url
        with _problems(url):
            system, path = _system(url)
            about = system.info(path)
            if about.get("type") == "directory":
                raise CaptureError(f"{url}: is a folder; of URLs only captures are read")
            self.size: int | None = about.get("size")
            # One answer that is read as it comes: not every HTTP server gives parts of a file.
            self._file = system.open(path, "rb", block_size=0 if scheme(url) in HTTP else BLOCK)

    def read(self, size: int) -> bytes:
        """The next bytes, at most ``size``; none at the end."""
        with _problems(self._url):
            chunk: bytes = self._file.read(size)
        return chunk

    def close(self) -> None:
        self._file.close()


class RemoteFolder:
    """A folder of a store, or what has its name before a /.  Raises CaptureError."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        with _problems(self.url):
            self._system, path = _system(self.url)
        self._path = path.rstrip("/")

    def files(self, below: str = "") -> dict[str, int]:
        """Names of its files, from the folder on, and their bytes."""
        with _problems(self.url):
            self._system.invalidate_cache()
            entries = self._system.find(f"{self._path}/{below}".rstrip("/"), detail=True)
        return {name.removeprefix(f"{self._path}/"): about.get("size") or 0 for name, about in entries.items()}

    def put(self, source: Path, name: str) -> None:
        """Copy a file of this machine to it, in place of what has this name."""
        with _problems(f"{self.url}/{name}"):
            self._make_folder_of(name)
            self._system.put_file(str(source), f"{self._path}/{name}")

    def read(self, name: str) -> bytes | None:
        """What is in a file, as it is now; None where there is none."""
        with _problems(f"{self.url}/{name}"):
            try:
                return bytes(self._system.cat_file(f"{self._path}/{name}"))
            except FileNotFoundError:
                return None

    def create(self, name: str, data: bytes) -> bool:
        """Make a file at once, where none has this name; else False."""
        with _problems(f"{self.url}/{name}"):
            self._make_folder_of(name)
            try:
                self._system.pipe_file(f"{self._path}/{name}", data, mode="create")
            except OSError as error:
                # Of S3 a failed condition (RFC 9110, 15.5.13), or another write at the same time.
                if isinstance(error, FileExistsError) or "Precondition" in str(error) or "Conflict" in str(error):
                    return False
                raise
        return True

    def remove(self, name: str) -> None:
        """Remove a file; nothing where there is none."""
        with _problems(f"{self.url}/{name}"), suppress(FileNotFoundError):
            self._system.rm_file(f"{self._path}/{name}")

    def opened_by(self, connection: DuckDBPyConnection, sizes: Mapping[str, int]) -> str:
        """Let DuckDB, once, read parts of these files, with their bytes; gives what is before their names there."""
        from .file_parts import register

        register(connection, self._system, {f"{self._path}/{name}": size for name, size in sizes.items()})
        return f"parts://{self._path}"

    def _make_folder_of(self, name: str) -> None:
        if scheme(self.url) not in _BUCKETS:
            self._system.makedirs(f"{self._path}/{name}".rpartition("/")[0], exist_ok=True)


class LocalFolder:
    """A local folder. Raises CaptureError."""

    def __init__(self, path: str) -> None:
        self.url = os.path.abspath(path)

    def files(self, below: str = "") -> dict[str, int]:
        sizes = {}
        for folder, _, names in os.walk(os.path.join(self.url, below)):
            for name in names:
                with suppress(FileNotFoundError):
                    path = os.path.join(folder, name)
                    sizes[os.path.relpath(path, self.url)] = os.path.getsize(path)
        return sizes

    def read(self, name: str) -> bytes | None:
        try:
            return Path(self.url, name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CaptureError(f"{self.url}/{name}: {error.strerror}") from None

    def create(self, name: str, data: bytes) -> bool:
        path = Path(self.url, name)
        made = path.with_name(f".{os.getpid()}-{os.urandom(6).hex()}")
        with system_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(made, "xb", opener=_private) as file:
                    file.write(data)
                os.link(made, path)
            except FileExistsError:
                return False
            finally:
                made.unlink(missing_ok=True)
        return True

    def put(self, source: Path, name: str) -> None:
        import shutil  # Only here: every start would pay for it.

        path = Path(self.url, name)
        with system_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}")
            with open(source, "rb") as made, open(part, "wb", opener=_private) as file:
                shutil.copyfileobj(made, file)
            part.replace(path)

    def remove(self, name: str) -> None:
        Path(self.url, name).unlink(missing_ok=True)

    def opened_by(self, connection: DuckDBPyConnection, sizes: Mapping[str, int]) -> str:
        return self.url


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode_of(PRIVATE))


Folder = LocalFolder | RemoteFolder


def folder_at(path: str) -> Folder:
    """The folder of this name: on this machine, or in an object store where it is a URL."""
    return RemoteFolder(path) if is_url(path) else LocalFolder(local(path))


def stamp(path: str, fresh: bool = False) -> FileStamp:
    """What tells whether a file or URL has changed: its contents are not read.

    ``fresh``: as it is now, not as a listing had it.  Raises OSError for a path, CaptureError for a URL.
    """
    if not is_url(path):
        there = os.stat(path)
        return FileStamp(there.st_size, there.st_mtime_ns)
    with _problems(path):
        system, name = _system(path)
        if fresh:
            system.invalidate_cache()
        about: dict[str, Any] = system.info(name)
    tag = about.get("ETag") or about.get("etag") or ""
    return FileStamp(about.get("size"), None if tag else _modified(about), str(tag).strip('"'))


def size_of(path: str) -> int | None:
    """Bytes of a file of this machine, or of a URL; None where there is no such file, or no size is known."""
    try:
        return stamp(path).size if is_url(path) or os.path.isfile(path) else None
    except (OSError, CaptureError):
        return None


def same_contents(url: str, stamp: FileStamp) -> str:
    """What files have in common that have the same contents for sure, as far as their stores tell."""
    name = scheme(url) if scheme(url) in _CONTENT_TAGS and stamp.tag else url
    return f"{name} {stamp.tag or stamp.modified_ns} {stamp.size}"


def matching(pattern: str, captures: str) -> tuple[str, list[str]]:
    """The URLs that a pattern matches, and the pattern: of a folder, the files in it and below that match ``captures``.

    Of HTTP, ? begins a query, and a folder ends in /.
    """
    import glob  # Only here: every start would pay for it.

    with _problems(pattern):
        system, path = _system(pattern)
        system.invalidate_cache()
        if not glob.has_magic(without_query(pattern)):
            # Whether a URL of HTTP is of a folder would be asked by reading all of it.
            if not (pattern.endswith("/") if scheme(pattern) in HTTP else system.isdir(path)):
                return pattern, [pattern]
            path = f"{path.rstrip('/')}/**/{captures}"
        names = [name for name, about in system.glob(path, detail=True).items() if about.get("type") == "file"]
        return str(system.unstrip_protocol(path)), [str(system.unstrip_protocol(name)) for name in names]


def _modified(about: dict[str, Any]) -> int | None:
    """When a file of a store was last changed, in nanoseconds since the Unix epoch."""
    for name in ("LastModified", "last_modified", "Last-Modified", "mtime", "updated", "modified", "created"):
        time = about.get(name)
        if isinstance(time, str):
            time = _date(time)
        if isinstance(time, datetime):
            time = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        if isinstance(time, int | float):
            return int(time * 1_000_000) * 1000
    return None


def _date(text: str) -> datetime | None:
    """A date as HTTP or ISO 8601 writes it."""
    from email.utils import parsedate_to_datetime

    for parsed in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError):
            return parsed(text)
    return None


def _system(url: str) -> tuple[AbstractFileSystem, str]:
    import fsspec

    options: dict[str, Any] = {}
    if scheme(url) in HTTP:
        from aiohttp import ClientTimeout

        options["client_kwargs"] = {"timeout": ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=PATIENCE)}
    system, path = fsspec.url_to_fs(url, **options)
    return system, path


@contextmanager
def _problems(url: str) -> Iterator[None]:
    """Whatever a file system raises, its libraries' own errors too, as one line."""
    try:
        yield
    except CaptureError:
        raise
    except ImportError:
        extra = "rdmascope[remote]" if scheme(url) in (*HTTP, *_CONTENT_TAGS) else f"fsspec[{scheme(url)}]"
        raise CaptureError(f"{url}: reading {scheme(url)}:// needs more packages: pip install '{extra}'") from None
    except Exception as error:
        # Of HTTP everything is a FileNotFoundError, whose cause says more.
        cause = error.__cause__ if scheme(url) in HTTP else None
        raise CaptureError(f"{url}: {_words(cause or error)}") from None


def _words(error: BaseException) -> str:
    """An error in one line."""
    # Of HTTP a status; of S3 a code, where s3fs does not translate it.
    status = getattr(error, "status", 0) or getattr(error, "response", {}).get("Error", {}).get("Code")
    if isinstance(error, FileNotFoundError) or status in (404, 410, "NoSuchBucket", "NoSuchKey"):
        return "no such file"
    if isinstance(error, PermissionError) or status in (401, 403, "AccessDenied"):
        return "no permission to read it"
    return " ".join(str(error).split()) or type(error).__name__
