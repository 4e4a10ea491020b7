"""Steering of the next batch: its plan, what its partitioners have learned, and how many records it may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec
from millrace_jobs.partitioners.registry import is_routed
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Control, write_control
from millrace_jobs.plan.following import PlanSource, pin_of
from millrace_jobs.plan.pin import Pin
from millrace_jobs.plan.policies import MAX_STATE, Policies
from millrace_jobs.run.admission import Admission, FinishedBatch
from millrace_jobs.run.events import Watcher

ONCE = 10
"""Batch intervals that one batch may take in a ``once`` run, in which no user waits for single batches."""

SQL_RECORDS, PYTHON_RECORDS = 100_000, 10_000
"""Records per second that an unmeasured query is expected to process on a small machine, for SQL and Python."""

FIRST_SECONDS = 3.0
"""Maximum size of the first batch, in seconds of the expected throughput.

The warm-up makes that batch take seconds at any size. With many more records, a badly wrong expectation could cost
minutes.
"""

REPLICA_RECORDS, REPLICA_BYTES = 1 << 20, 256 << 20
"""Maximum that one replica reads in a batch, in records and in bytes: some partitioners hold all of it in memory."""

RECORD_BYTES = 256
"""Expected size of a record in memory, in bytes, before one was read."""


class Steering:
    """A controller that follows a plan source, learns from finished batches, and writes the sources' control file.

    Args:
        spec: the spec of the query.
        sources: the names of its sources.
        plans: the source of plans.
        policies: folder for what partitioners have learned; policies of an earlier run are loaded from it.
        control: the file that the sources read before each batch.
        watcher: receives messages about new plans and problems.
        routable: whether the query can be routed at all.
        once: whether the run processes the available input and ends.
    """

    def __init__(
        self,
        spec: Spec,
        sources: Iterable[str],
        plans: PlanSource,
        policies: Path,
        control: Path,
        watcher: Watcher,
        *,
        routable: bool,
        once: bool,
    ) -> None:
        self.control = control
        self.plan_changes = 0
        self._plans = plans
        self._watcher = watcher
        self._routable = routable
        self._pin: Pin | None = None
        self._policies = Policies(policies)
        self._interval = spec.batch_interval.seconds
        longest = (ONCE if once else 1) * self._interval
        rate = SQL_RECORDS if spec.query.sql is not None else PYTHON_RECORDS
        self._admission = Admission(spec.scaling.target * longest, longest, first=int(rate * FIRST_SECONDS))
        self._last: BatchReport | None = None
        self._record_bytes: float = RECORD_BYTES
        self._waiting: Mapping[str, int] = dict.fromkeys(sources, 0)
        self._told: Control | None = None
        self._forgetful: int | None = None
        self._writes_policies = True

    @property
    def pin(self) -> Pin:
        """The plan that was adopted last."""
        assert self._pin is not None
        return self._pin

    def is_routed(self, pin: Pin) -> bool:
        """Whether batches under this plan are routed."""
        return self._routable and is_routed(pin.algorithm)

    def follow_plan(self) -> bool:
        """Adopt a new plan; report one that cannot be followed, and keep the last good one.

        Returns:
            Whether a new plan was adopted.

        Raises:
            MillraceError: the first plan cannot be followed.
        """
        try:
            plan = self._plans.current()
            pin = pin_of(plan) if plan is not None else None
        except MillraceError as error:
            if self._pin is None:
                raise
            self._watcher.message(f"the plan stays as it is: {error}")
            return False
        if pin is None:
            return False
        if self._pin is not None:
            self.plan_changes += 1
            self._watcher.message(
                f"plan {pin.epoch}: {pin.algorithm}, m={pin.replicas}, n={pin.workers}, from the next batch on"
            )
        self._pin = pin
        return True

    def tell_sources(self, *, draining: bool, closing_time: int | None) -> None:
        """Write what the next batch runs under to the control file; with ``draining``, no batch follows."""
        records = min(REPLICA_RECORDS, int(REPLICA_BYTES / self._record_bytes))
        most = self._admission.shares(self._waiting, max(1, records) * self.pin.replicas)
        control = Control(self._policies.attach(self.pin), draining, closing_time, most)
        if control != self._told:
            write_control(self.control, control)
            self._told = control

    def learn_from(self, report: BatchReport) -> None:
        """Learn from a finished batch: limits, sizes, and what its partitioners have learned."""
        self._waiting = {name: report.waiting_in.get(name, 0) for name in self._waiting}
        if report.pin is None:
            return
        if report.rows:
            self._record_bytes = max(report.bytes / report.rows, 1.0)
        shape = (report.pin.algorithm, report.pin.replicas, report.pin.workers)
        arrived = self._arrived_until(report)
        self._admission.finished(FinishedBatch(_admitted(report), report.seconds, report.work, shape, arrived))
        if self.is_routed(report.pin):
            self._keep_policy(report.batch, report.pin, report.states)

    def _arrived_until(self, report: BatchReport) -> int:
        """Return the records that arrive per interval, averaged since the last batch; 0 for the first batch."""
        before, self._last = self._last, report
        seconds = (report.began - before.began).total_seconds() if before is not None else 0.0
        if before is None or seconds <= 0:
            return 0
        records = _admitted(report) + report.waiting - before.waiting
        return max(0, int(records * self._interval / max(seconds, self._interval)))

    def _keep_policy(self, batch: int, pin: Pin, states: Mapping[int, str | None]) -> None:
        """Keep what the partitioners have learned for later batches; report once per plan if that is not possible."""
        try:
            self._policies.keep(batch, pin, states)
        except OSError as error:
            if self._writes_policies:
                why = error.strerror or error
                self._watcher.message(f"what the partitioners learn cannot be kept: {why}; results stay right")
            self._writes_policies = False
            return
        self._writes_policies = True
        if None in states.values() and self._forgetful != pin.epoch:
            self._forgetful = pin.epoch
            self._watcher.message(
                f"what a replica of {pin.algorithm} learns is more than {MAX_STATE // 1024} KiB, too much to be "
                "carried from batch to batch: each batch starts without it; results stay right"
            )


def _admitted(report: BatchReport) -> int:
    """Return the size of a batch as its limit counts it.

    Kafka counts offsets, and some have no record: because of transactions, compaction, or records that cannot be read.
    """
    return max(report.rows, report.taken)
