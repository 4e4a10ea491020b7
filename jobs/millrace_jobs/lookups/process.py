"""The server's process, as the driver sees it: started, watched, and ended with the run."""

from __future__ import annotations

import json
import logging
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.lookups.keys import KeyColumn
from millrace_jobs.lookups.service import ServiceSettings
from millrace_jobs.process.signals import end_child

_START_SECONDS = 60.0
_PAUSE_SECONDS = 5.0
_END_SECONDS = 2.0

_log = logging.getLogger(__name__)


class LookupProcess:
    """A process that answers look-ups from a store; if it dies, it is started again on the same port.

    Args:
        folder: folder of the store, which has to exist.
        query: name of the query.
        columns: columns of the table's key.
        port: port to listen on; 0 takes a free one.
        service: the service for other pods; None for none.
        notice: why there are no look-ups at first; empty if there are.
    """

    def __init__(
        self,
        folder: Path,
        query: str,
        columns: Sequence[KeyColumn],
        port: int = 0,
        service: ServiceSettings | None = None,
        notice: str = "",
    ) -> None:
        self._folder = folder
        self._places = ["127.0.0.1:{port}", *(() if service is None else (f"{service.host}:{service.port}",))]
        self._about = {
            "query": query,
            "columns": [asdict(column) for column in columns],
            "service": None if service is None else asdict(service),
        }
        self._port = port
        self._notice = notice
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._process = self._start()

    @property
    def port(self) -> int:
        """The port that the process listens on, once ``wait`` has returned."""
        return self._port

    @property
    def url(self) -> str:
        """The URL of the table."""
        return f"http://127.0.0.1:{self._port}/table"

    def wait(self) -> None:
        """Wait until the process listens, and keep watch over it from then on.

        Raises:
            MillraceError: it cannot listen on the port.
        """
        found = self._first_line(self._process)
        if "port" not in found:
            places = " and ".join(self._places).format(port=self._port)
            problem = f"cannot serve look-ups on {places}: {str(found['error']).lower()}"
            raise MillraceError(Problem(problem, "choose another port from 1024 to 65535, or 0 for a free one"))
        self._port = int(found["port"])
        threading.Thread(target=self._watch, name="look-ups", daemon=True).start()

    def notify(self, notice: str) -> None:
        """Set why there are no look-ups; an empty text: there are."""
        with self._lock:
            self._notice = notice
            self._write(self._process, {"notice": notice})

    def close(self) -> None:
        """End the process; a second call does nothing."""
        self._closed.set()
        with self._lock:
            process = self._process
        end_child(process, _END_SECONDS)
        if process.stdout is not None:
            process.stdout.close()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "millrace_jobs.lookups.server", str(self._folder), str(self._port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the driver
        )
        self._write(process, self._about | {"notice": self._notice})
        return process

    def _write(self, process: subprocess.Popen[str], line: object) -> None:
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # the process has ended: the next one gets the same line
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()

    def _first_line(self, process: subprocess.Popen[str]) -> dict[str, int | str]:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        try:
            return dict(json.loads(process.stdout.readline())) if ready else {"error": "its process does not start"}
        except ValueError:
            return {"error": "its process ended"}

    def _watch(self) -> None:
        """Start the process again whenever it has ended before ``close``."""
        while True:
            status = self._process.wait()
            if self._closed.is_set():
                return
            _log.warning("the process for look-ups ended with status %d: starting it again", status)
            if self._closed.wait(_PAUSE_SECONDS):
                return
            with self._lock:
                if self._closed.is_set():
                    return
                self._process = self._start()
            self._first_line(self._process)
