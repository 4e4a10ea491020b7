"""Progress messages of ``make lab``, as lines on the terminal."""

from __future__ import annotations

import threading
import time

_PROGRESS_SECONDS = 15.0
_began = time.monotonic()
_printing = threading.Lock()


class PrintedReport:
    """A report that prints messages about a part, each with the seconds since the program began."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        self._last = time.monotonic()
        with _printing:
            print(f"lab {self._last - _began:5.0f} s  {self._name}: {text}", flush=True)

    def progress(self, text: str) -> None:
        if time.monotonic() - self._last >= _PROGRESS_SECONDS:
            self.say(text)
