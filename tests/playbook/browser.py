"""A headless Chromium, spoken to by its DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0
"""Seconds that a page may take on a busy machine."""


class Page:
    """One page, and what it said."""

    def __init__(self, write: int, read: int) -> None:
        self.problems: list[str] = []
        """Errors and warnings of the console, uncaught exceptions, and whatever the page tried to load."""
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                found: dict[str, Any] = answer["result"]
                return found

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._read, 1 << 20)
            assert more, "Chromium has ended"
            self._buffer += more
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.problems.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = event["request"]["url"]
            if not url.startswith(("file:", "data:")):
                self.problems.append(f"asks for {url}")
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"dialogue: {event['message']}")

    def open(self, path: Path, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait until its charts are drawn, where it has some."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait(
            "document.readyState === 'complete' && location.protocol === 'file:' && (!document.getElementById('charts')"
            " || document.getElementById('charts').dataset.drawn === 'true')"
        )

    def value(self, expression: str) -> Any:
        """Of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until it is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.02)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """With the left button."""
        for kind, (x, y) in (
            ("mouseMoved", start),
            ("mousePressed", start),
            ("mouseMoved", ((start[0] + end[0]) / 2, end[1])),
            ("mouseMoved", end),
            ("mouseReleased", end),
        ):
            pressed = 0 if kind == "mouseMoved" and (x, y) == start else 1
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if pressed else "none", buttons=pressed,
                clickCount=pressed,
            )  # fmt: skip

    def key(self, key: str) -> None:
        """Press a key and let it go; of letters and digits, Enter, Tab and Escape."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes.get(key, 0), **more
            )

    def picture(self) -> bytes:
        """PNG of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        answer = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(answer["data"])


@contextmanager
def browser() -> Iterator[Page]:
    """A page of a browser of its own."""
    assert CHROMIUM is not None
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()

    def pipes() -> None:
        # The browser reads descriptor 3 and writes 4; neither end may be overwritten before it is moved.
        high = [os.dup(commands), os.dup(answers)]
        high = [os.dup2(one, 90 + at) for at, one in enumerate(high)]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    # The path of its socket may have 107 bytes; the folder of a test is deeper than that.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": profile},
            preexec_fn=pipes,
            pass_fds=(3, 4),
        )
        os.close(commands)
        os.close(answers)
        try:
            page = Page(to_browser, from_browser)
            yield page
            page._session = None
            page.call("Browser.close")
        finally:
            os.close(to_browser)
            os.close(from_browser)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
