"""Chromium without a window, driven through its DevTools protocol over a pair of pipes, for tests of pages.

    with Browser.start(folder) as browser:
        browser.size(390, 844)
        browser.open("http://127.0.0.1:8080/")
        assert browser.evaluate("document.title")

Messages are JSON, each ended by a zero byte (``--remote-debugging-pipe``), so no client of WebSockets is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .parts.debian_packages import BROWSER_PACKAGES

_PATIENCE = 60.0
_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking",
              "--no-first-run", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe")  # fmt: skip


@dataclass
class Browser:
    """One page in a Chromium; ``requests`` has the URLs that it has asked for, and ``complaints`` what it has logged."""

    process: subprocess.Popen[bytes]
    sending: int
    receiving: int
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _buffer: bytes = b""
    _number: int = 0
    _session: str = ""
    _loaded: bool = False

    @classmethod
    @contextmanager
    def start(cls, folder: Path) -> Iterator[Browser]:
        """Start a browser with a profile below ``folder``, and end it afterwards.

        Raises:
            MissingError: there is no Chromium.
        """
        BROWSER_PACKAGES.find()
        theirs_in, sending = os.pipe()
        receiving, theirs_out = os.pipe()
        program = shutil.which("chromium") or "chromium"
        # Chromium reads from descriptor 3 and writes to 4
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(
            ["bash", "-c", command, program, *_ARGUMENTS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        browser = cls(process, sending, receiving)
        try:
            browser._attach()
            yield browser
        finally:
            os.close(sending)
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(receiving)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result. Raises RuntimeError if it fails."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self.sending, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        self._loaded = False
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page, of a promise once it is settled."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait_until(self, expression: str) -> None:
        """Wait until an expression in the page is true. Raises TimeoutError."""
        until = time.monotonic() + _PATIENCE
        while not self.evaluate(expression):
            if time.monotonic() > until:
                raise TimeoutError(f"{expression} is still false")
            time.sleep(0.05)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Show pages in a window of this size, in CSS pixels, to a reader who prefers a dark page or a light one."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=False)
        preferred = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[preferred])

    def press(self, key: str) -> None:
        """Press a key, such as ``Tab``."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, file: Path) -> None:
        """Write a picture of the whole page as PNG."""
        shown = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        file.write_bytes(base64.b64decode(shown["data"]))

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Ask the page's only frame instead of the page; it is a sandbox, and so has a process of its own."""
        page = self._session
        targets = self.call("Target.getTargets")["targetInfos"]
        (frame,) = (each["targetId"] for each in targets if each["type"] == "iframe")
        self._session = self.call("Target.attachToTarget", targetId=frame, flatten=True)["sessionId"]
        try:
            yield
        finally:
            self._session = page

    def _attach(self) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _receive(self) -> dict[str, Any]:
        """Return the next message, and note what it says of the page."""
        while b"\0" not in self._buffer:
            if not select.select([self.receiving], [], [], _PATIENCE)[0]:
                raise TimeoutError(f"Chromium has not answered for {_PATIENCE:.0f} s")
            more = os.read(self.receiving, 1 << 16)
            if not more:
                raise RuntimeError("Chromium has ended")
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
        return message
