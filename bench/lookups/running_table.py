"""A run of ``millrace run`` whose result is a table, seen by what it prints and by its metrics."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bench.processor_time import seconds_of, tree

_POLLS = 4
"""Looks at the metrics in each batch interval, so that hardly any of them finds two new batches."""

_POLL_SECONDS = 0.5
_FEWEST = 2
_SERVER = b"millrace_jobs.lookups.server"


@dataclass(frozen=True)
class _Totals:
    """What the run has done so far: its batches, their seconds, the records read, and those that wait."""

    batches: float
    seconds: float
    rows: float
    waiting: float


@dataclass(frozen=True)
class RunningTable:
    """A run in a process of its own; ``interval`` is its batch interval in seconds."""

    process: subprocess.Popen[bytes]
    log: Path
    interval: float

    @property
    def lookups(self) -> str:
        """The URL of the look-ups."""
        return self._printed("lookups")

    def wait_for(self, rows: int, seconds: float) -> None:
        """Wait until a batch has read the last of these records, and look-ups are answered.

        Raises:
            TimeoutError: that takes longer than ``seconds`` seconds, or the run has ended.
        """
        end = time.monotonic() + seconds
        while not self._has_read(rows):
            if self.process.poll() is not None or time.monotonic() > end:
                printed = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise TimeoutError(f"the query has not read {rows} records within {seconds:.0f} s:\n{printed}")
            time.sleep(_POLL_SECONDS)

    def batch_times(self, seconds: float) -> list[float]:
        """Return the milliseconds of each batch that ends in the next ``seconds`` seconds, without the first one.

        Raises:
            TimeoutError: fewer than two of them are left.
        """
        end, before, times = time.monotonic() + seconds, self._totals(), list[float]()
        while time.monotonic() < end:
            time.sleep(self.interval / _POLLS)
            now = self._totals()
            if now.batches > before.batches:
                times.append((now.seconds - before.seconds) / (now.batches - before.batches) * 1000)
                before = now
        if len(times) < _FEWEST + 1:
            raise TimeoutError(f"only {len(times)} batches ended in {seconds:.0f} s: measure for longer with --seconds")
        return times[1:]

    def server_seconds(self) -> float:
        """Return the processor time of the process that answers look-ups so far, in seconds."""
        return sum(
            seconds_of(process)
            for process in tree(self.process.pid)
            if _SERVER in Path(f"/proc/{process}/cmdline").read_bytes()
        )

    def _has_read(self, rows: int) -> bool:
        if " metrics=" not in self.log.read_text(encoding="utf-8"):
            return False
        totals = self._totals()
        return totals.rows >= rows and not totals.waiting

    def _printed(self, name: str) -> str:
        found = re.search(rf" {name}=(\S+)", self.log.read_text(encoding="utf-8"))
        assert found is not None, f"the run has not printed {name}"
        return found[1]

    def _totals(self) -> _Totals:
        with urllib.request.urlopen(self._printed("metrics"), timeout=10) as answer:
            text = answer.read().decode()

        def value(name: str) -> float:
            found = re.search(rf"^millrace_{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
            return 0.0 if found is None else float(found[1])

        seconds, batches = value("batch_processing_seconds_sum"), value("batch_processing_seconds_count")
        return _Totals(batches, seconds, value("input_rows_total"), value("source_lag_rows"))
