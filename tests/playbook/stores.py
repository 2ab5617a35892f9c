"""Servers on this machine of the files of a folder: of HTTP, and of as much of S3 as reading and putting takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import md5
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import fsspec
import pytest

BUCKET = "captures"


class Files(SimpleHTTPRequestHandler):
    """Over HTTP: without parts of files, and without tags."""

    requests: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.requests.append(("GET", self.path))
        if "secret" in self.path:
            self.send_error(HTTPStatus.FORBIDDEN)
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


class Bucket(Files):
    """A bucket: its objects with ETags and in parts, and lists of them."""

    def do_GET(self) -> None:
        self.requests.append((self.command, self.path))
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        path = Path(self.directory, key)
        if bucket != BUCKET:
            self._error(HTTPStatus.NOT_FOUND, "NoSuchBucket")
        elif "secret" in self.path:
            self._error(HTTPStatus.FORBIDDEN, "AccessDenied")
        elif not key:
            self._list(parse_qs(urlsplit(self.path).query).get("prefix", [""])[0])
        elif not path.is_file():
            self._error(HTTPStatus.NOT_FOUND, "NoSuchKey")
        else:
            data = path.read_bytes()
            first, last = 0, len(data) - 1
            if asked := self.headers.get("Range"):
                first, last = (int(one) if one else last for one in asked.removeprefix("bytes=").split("-"))
            last = min(last, len(data) - 1)
            self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
            self.send_header("ETag", _tag(path))
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self._body(data[first : last + 1])

    do_HEAD = do_GET

    def _list(self, prefix: str) -> None:
        root = Path(self.directory)
        found = [path for path in sorted(root.rglob("*")) if path.is_file()]
        objects = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{path.stat().st_size}</Size><ETag>{_tag(path)}</ETag>"
            "<LastModified>2026-11-21T10:00:00.000Z</LastModified></Contents>"
            for path in found
            if (name := str(path.relative_to(root))).startswith(prefix)
        )
        self.send_response(HTTPStatus.OK)
        self._body(f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>".encode())

    def _error(self, status: HTTPStatus, code: str) -> None:
        self.send_response(status)
        self._body(f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _body(self, data: bytes) -> None:
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class WritableBucket(Bucket):
    """A bucket into which objects are put."""

    putting = Lock()
    protocol_version = "HTTP/1.1"  # A client that puts something waits to be told to continue.

    def do_PUT(self) -> None:
        path = self._object()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with self.putting:
            if self.headers.get("If-None-Match") == "*" and path.exists():
                self._error(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.send_response(HTTPStatus.OK)
        self.send_header("ETag", _tag(path))
        self._body(b"")

    def do_DELETE(self) -> None:
        self._object().unlink(missing_ok=True)
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def _object(self) -> Path:
        self.requests.append((self.command, self.path))
        return Path(self.directory, unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2])


def _tag(path: Path) -> str:
    return f'"{md5(path.read_bytes()).hexdigest()}"'


@contextmanager
def s3_bucket(folder: Path, handler: type[Bucket]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The URL of a bucket, in an environment that leads there, and what its server is asked for."""
    with served(folder, handler) as (url, requests), pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1", "NO_PROXY": "127.0.0.1",
        }.items():  # fmt: skip
            environment.setenv(name, value)
        yield f"s3://{BUCKET}", requests
        fsspec.get_filesystem_class("s3").clear_instance_cache()


@contextmanager
def served(folder: Path, handler: type[Files]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The URL of a server of a folder, and what it is asked for."""
    requests: list[tuple[str, str]] = []
    mine = type(handler.__name__, (handler,), {"requests": requests})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(mine, directory=str(folder)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
