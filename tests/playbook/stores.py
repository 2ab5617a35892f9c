"""Servers on this machine of the files of a folder: of HTTP, and moto's of S3, where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from http import HTTPStatus
from http.server import HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.request import Request, urlopen

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


@contextmanager
def s3_bucket(folder: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The URL of a bucket of moto's server with the files of a folder, in an environment that leads there, and what the
    server is asked for."""
    moto = pytest.importorskip("moto.moto_server.werkzeug_app", reason="moto's server is not installed")
    serving = pytest.importorskip("werkzeug.serving")
    application = moto.DomainDispatcherApplication(moto.create_backend_app)
    requests: list[tuple[str, str]] = []
    creating = Lock()

    def answer(environ: dict[str, Any], start: Any) -> Any:
        requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        if "secret" in environ["PATH_INFO"] and environ["REQUEST_METHOD"] != "PUT":
            start("403 Forbidden", [])
            return []
        with creating if environ.get("HTTP_IF_NONE_MATCH") else nullcontext():  # As S3 does, moto does not.
            return application(environ, start)

    class Quiet(serving.WSGIRequestHandler):  # type: ignore[name-defined, misc]
        def log(self, *_: object) -> None:
            pass

    server = serving.make_server("127.0.0.1", 0, answer, threaded=True, request_handler=Quiet)
    with running(server) as url, pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1", "NO_PROXY": "127.0.0.1",
        }.items():  # fmt: skip
            environment.setenv(name, value)
        urlopen(Request(f"{url}/moto-api/reset", method="POST")).close()
        system = fsspec.filesystem("s3", skip_instance_cache=True)
        system.mkdir(BUCKET)
        for path in folder.rglob("*"):
            if path.is_file():
                system.put_file(str(path), f"{BUCKET}/{path.relative_to(folder)}")
        requests.clear()
        yield f"s3://{BUCKET}", requests
        fsspec.get_filesystem_class("s3").clear_instance_cache()


@contextmanager
def served(folder: Path, handler: type[Files]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The URL of a server of a folder, and what it is asked for."""
    requests: list[tuple[str, str]] = []
    mine = type(handler.__name__, (handler,), {"requests": requests})
    with running(ThreadingHTTPServer(("127.0.0.1", 0), partial(mine, directory=str(folder)))) as url:
        yield url, requests


@contextmanager
def running(server: HTTPServer) -> Iterator[str]:
    """The URL of a server."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
