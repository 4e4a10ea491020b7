"""What a job shows of its run: each event goes to the display, the metrics, the probes, the page and the platform.

It is the last room of a batch. The next one begins with what ``steering`` has learned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Literal

from millrace_api.errors import MillraceError
from millrace_jobs.display.display import RunTally
from millrace_jobs.page.history import RunHistory
from millrace_jobs.pending import PendingCall
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.run.gc_times import GarbageCollection
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_jobs.run.memory_use import MemoryUse
from millrace_jobs.run.plans import AlgorithmAdvice, AutoPlans
from millrace_jobs.run.platform import Platform
from millrace_jobs.run.store_traffic import ObjectStoreTraffic
from millrace_jobs.session import ExecutorState
from millrace_support.http_server import ProbeResult

if TYPE_CHECKING:
    from millrace_jobs.display.display import Display
    from millrace_jobs.run.reports import RunReports


class Health:
    """Liveness and readiness of a query, as the run loop sees them and the probes read them; thread-safe.

    A query goes from starting to running to closing, and from any of them to failed, which is final. A running query is
    ready once it computes: a batch has finished, or found nothing to do, and as many executors take tasks as the query
    needs. From then on it stays ready, also if it loses executors, which others replace.

    Args:
        allowed_silence: seconds without a sign of life after which a running query counts as hung: no batch and no task
            has finished. While there is no executor, nothing can finish, and a restart would not help.
        executors: returns the executors; None where tasks run in this process.
        clock: monotonic clock, in seconds.
        pending: returns the calls that last now, which the probe of liveness names.
    """

    def __init__(
        self,
        allowed_silence: float,
        executors: Callable[[], ExecutorState | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        pending: Callable[[], Sequence[PendingCall]] = tuple,
    ) -> None:
        self._pending = pending
        self._allowed_silence = allowed_silence
        self._executors = executors
        self._clock = clock
        self._lock = Lock()
        self._state: Literal["starting", "running", "closing", "failed"] = "starting"
        self._reason = ""
        self._has_finished_batch = self._is_ready = False
        self._last_sign = clock()
        self._seen_signs = 0

    def running(self) -> None:
        """Mark a starting query as running: batches follow."""
        with self._lock:
            if self._state == "starting":
                self._state = "running"
                self._last_sign = self._clock()

    def computed(self) -> None:
        """Record that a batch has finished, or that there was nothing to do."""
        executors = self._executors()
        with self._lock:
            self._last_sign = self._clock()
            self._has_finished_batch = True
            self._look_at(executors)

    def closing(self) -> None:
        """Mark the query as closing, unless it has failed."""
        with self._lock:
            if self._state != "failed":
                self._state = "closing"

    def failed(self, reason: str) -> None:
        """Mark the query as failed; the first reason is kept."""
        with self._lock:
            if self._state != "failed":
                self._state, self._reason = "failed", reason

    def liveness(self) -> ProbeResult:
        """Report whether the query is alive: not ok if the query has failed or hangs, so that only a restart helps."""
        executors = self._executors()
        waits = "".join(f"; {call}" for call in self._pending())
        with self._lock:
            if executors is not None and executors.signs != self._seen_signs:
                self._seen_signs, self._last_sign = executors.signs, self._clock()
            if self._state == "failed":
                return ProbeResult(False, f"failed: {self._reason}")
            silence = self._clock() - self._last_sign
            if self._state == "running" and silence > self._allowed_silence:
                allowed = f"allowed {self._allowed_silence:.0f} s"
                return ProbeResult(False, f"hung: no batch or task finished for {silence:.0f} s, {allowed}{waits}")
            return ProbeResult(True, self._state + (waits if self._state == "running" else ""))

    def readiness(self) -> ProbeResult:
        """Report whether the query is ready: ok while it runs and computes, or has computed."""
        executors = self._executors()
        with self._lock:
            self._look_at(executors)
            if self._state == "running" and not self._is_ready:
                have = "" if executors is None else f", {executors.ready} of at least {executors.wanted} executors run"
                return ProbeResult(False, f"waiting for the first batch{have}")
            reason = f": {self._reason}" if self._reason else ""
            return ProbeResult(self._state == "running", self._state + reason)

    def _look_at(self, executors: ExecutorState | None) -> None:
        """Note whether there are enough executors: a batch may end before they are counted or the last one comes."""
        enough = executors is None or executors.ready >= executors.wanted
        self._is_ready |= self._has_finished_batch and enough


@dataclass
class Observer:
    """A watcher that passes the events of a run on to display, metrics, probes, page, platform and ``auto``."""

    display: Display
    metrics: JobMetrics
    health: Health
    platform: Platform
    auto: AutoPlans | None = None
    advice: AlgorithmAdvice | None = field(default=None, kw_only=True)
    """Predicts the other algorithms where the spec names one."""

    waiting: str = ""
    """The message to show when the query has nothing to do for the first time; empty for none."""
    tally: RunTally = field(default_factory=RunTally)
    garbage: GarbageCollection | None = None
    traffic: ObjectStoreTraffic | None = None
    memory: MemoryUse | None = None
    reports: RunReports | None = None
    history: RunHistory = field(default_factory=RunHistory)
    failing: Callable[[], MillraceError | None] = lambda: None
    """Returns why the query was started again, until it computes."""

    seen_failure: MillraceError | None = None

    def batch(self, report: BatchReport) -> None:
        """Report a finished batch to health, metrics, tally, page, display and platform; let ``auto`` react to it."""
        self.health.computed()
        self.metrics.record(report)
        self._record_counts()
        self.tally.add(report)
        self.history.batch(report)
        self.display.batch(report)
        self.platform.batch(report)
        if self.reports is not None:
            self.reports.batch(report.rows)
        if self.auto is not None:
            switch = self.auto.observe(report)
            self.metrics.record_choice(self.auto.selector.outcomes, switch)
            self.history.predicted(self.auto.selector.candidates)
            if switch is not None:
                self.history.switched(switch)
        elif self.advice is not None:
            self.history.predicted(self.advice.observe(report))

    def message(self, text: str) -> None:
        """Show the user a message."""
        failure = self.failing()
        if failure is not None and failure is not self.seen_failure:
            self.history.failing(failure)
        self.seen_failure = failure
        self.note(text)

    def note(self, text: str) -> None:
        """Show the user a message, from any thread."""
        self.history.message(text)
        self.display.message(text)

    def idle(self, pin: Pin) -> None:
        """Report an idle query: a sign of life, under this pin."""
        self.health.computed()
        self.history.idle()
        self.metrics.record_idle(pin)
        self._record_counts()
        self.platform.idle(pin)
        if self.waiting:
            self.message(self.waiting)
            self.waiting = ""

    def _record_counts(self) -> None:
        if self.garbage is not None:
            self.metrics.record_gc(self.garbage.since())
        if self.traffic is not None:
            self.metrics.record_store_traffic(self.traffic.since())
        if self.memory is not None and (used := self.memory.read()):
            self.metrics.record_memory(used)
            self.platform.memory(self.memory.series(), self.memory.executor())
