"""The agent in a driver's pod: it scales the executors to the plan, and reports plans, snapshots, waits and memory.

The reports are in the plan's ConfigMap, where the operator reads them as ``ObservedQuery.applied``, ``snapshots``,
``driver_waits`` and ``driver_memory``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes.client import ApiException, CoreV1Api
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession
from urllib3.exceptions import HTTPError

from millrace_api.model.deployment import Algorithm
from millrace_api.model.driver_waits import MAX_WAIT_CHARACTERS, MOST_WAITS, WAITS_KEY, DriverWait, DriverWaits
from millrace_api.model.memory_use import MEMORY_KEY, MUCH, ExecutorSeries, MemoryPart, MemoryReport, MemorySeries
from millrace_api.model.plan import APPLIED_KEY, Applied
from millrace_api.model.snapshots import SNAPSHOTS_KEY, SnapshotRequest, SnapshotsReport
from millrace_api.model.takeover import RUNNING_VERSION_KEY
from millrace_jobs.pending import PendingCall
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.pod.plan_watch import TIMEOUT, PlanWatch, error_line
from millrace_jobs.pod.versions import PodVersions
from millrace_support.backoff import Backoff

PERIOD = 1.0
"""Seconds between two checks of the executors."""

_LONGEST_SECONDS = 365 * 86_400.0
"""The most that is reported of how long a call has lasted: user code can write notes of calls, too, with any number."""

_MEMORY_PERIOD = 300.0
"""Seconds from one report of the memory to the next: each one wakes the operator."""

MANAGER = "millrace-driver"
"""Field manager under which the API server records the driver's writes."""

log = logging.getLogger(__name__)


class ExecutorScaler:
    """A scaler of the executors of a Spark application on Kubernetes; safe in any thread.

    Spark itself replaces executors that die, up to the number that was requested last.
    """

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._context, self._jvm = context._jsc.sc(), context._jvm
        self._no_localities: Any = getattr(getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        self._tracker = spark.sparkContext.statusTracker()
        self._wanted: int | None = None
        self.finished_tasks = 0
        """Number of tasks that the executors have finished, as of the last check."""

    def reconcile(self, number: int) -> int:
        """Reconcile the executors with the wanted number, and return how many take tasks now.

        Missing executors arrive and surplus ones leave within seconds. A leaving executor finishes its tasks, and
        migrates its shuffle files and cached blocks to others before it ends.
        """
        if number != self._wanted:
            # request before decommissioning: Spark replaces leaving executors while its target is above their number
            self._context.requestTotalExecutors(number, 0, self._no_localities)
            self._wanted = number
        staying = self._staying()
        surplus = max(0, len(staying) - number)
        for executor in staying[:surplus]:
            self._decommission(executor)
        return len(staying) - surplus

    def tasks_wait(self) -> bool:
        """Return whether a stage runs, whose tasks wait if there is no executor."""
        return bool(self._tracker.getActiveStageIds())

    def _staying(self) -> list[str]:
        """Return the ids of the executors that take tasks: the least busy first, then the newest."""
        listed = self._context.statusStore().executorList(True)
        leaving = self._context.schedulerBackend().executorsPendingDecommission()
        found = [listed.apply(index) for index in range(listed.size())]
        self.finished_tasks = sum(each.completedTasks() for each in found)
        staying = [
            (each.activeTasks(), each.totalDuration(), -int(each.id()), each.id())
            for each in found
            if each.id() != "driver" and each.isActive() and not leaving.contains(each.id())
        ]
        return [id for *_, id in sorted(staying)]

    def _decommission(self, id: str) -> None:
        scheduler = self._jvm.org.apache.spark.scheduler
        info = scheduler.ExecutorDecommissionInfo("the plan has fewer executors", self._jvm.scala.Option.empty())
        self._context.schedulerBackend().decommissionExecutor(id, info, False, False)


class Agent:
    """A thread that reconciles executors and acknowledgement with the plan, from ``start`` to ``stop``.

    Args:
        api: client of the cluster.
        namespace, name: ConfigMap that holds the plan and receives the acknowledgement.
        plans: source of the plan, which sets the number of executors.
        versions: know which version of the query runs.
    """

    def __init__(
        self, api: CoreV1Api, namespace: str, name: str, plans: PlanWatch, versions: PodVersions | None = None
    ) -> None:
        self._versions = versions
        self._api, self._namespace, self._name = api, namespace, name
        self._plans = plans
        self._applied: Applied | None = None  # its executors_ready is set on writing
        self._partitions = 1
        self._snapshots: SnapshotsReport | None = None
        self._waits: dict[tuple[str, str], DriverWait] = {}
        self._memory: MemoryReport | None = None  # its pod is set on writing
        self._memory_due = 0.0
        self._woken: int | None = None  # epoch of the plan without executors under which tasks have waited last
        self._reported: dict[str, str | None] = {}  # the entries of the ConfigMap as last written
        self._restores = 0  # of the ConfigMap until then
        self.ready = 0
        """Number of executors that take tasks."""
        self.signs = 0
        """A number that grows while tasks finish, or while no executor is there that could finish one."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, executors: ExecutorScaler, partitions: int) -> None:
        """Start the thread, unless it runs; ``partitions`` is the number of state partitions."""
        self._partitions = partitions
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, args=(executors,), name="agent", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step; a step that still waits for the API server after a timeout is abandoned."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(PERIOD + sum(TIMEOUT))

    def forget(self) -> None:
        """Remove the acknowledgement of an earlier run, which does not hold for this one, and report the version.

        Raises:
            ApiException: the API server refuses the request; urllib3's errors if it cannot be reached.
        """
        self._write({APPLIED_KEY: None, WAITS_KEY: None, MEMORY_KEY: None, **self._version()})

    def batch(self, report: BatchReport) -> None:
        """Handle a finished batch: acknowledge the plan that it ran under."""
        if report.pin is not None:
            self._applied = self._applied_by(report.pin)

    def idle(self, pin: Pin) -> None:
        """Handle an idle query: acknowledge a plan that was adopted since the last batch, which needs no batch."""
        if self._applied is None or self._applied.epoch < pin.epoch:
            self._applied = self._applied_by(pin)

    def snapshot_request(self) -> SnapshotRequest | None:
        """Return the snapshot that the operator asks for; None if it does not."""
        return self._plans.snapshot_request

    def report_snapshots(self, report: SnapshotsReport) -> None:
        """Report the snapshots of the checkpoint to the operator."""
        self._snapshots = report

    def waits(self, calls: Sequence[PendingCall]) -> None:
        """Report the calls that last to the operator; none takes the report back.

        A call is reported when it is new, and again once it is known why it lasts, or lasts for another reason.
        """
        before, now, found = self._waits, datetime.now(UTC), dict[tuple[str, str], DriverWait]()
        for call in calls[:MOST_WAITS]:
            key = call.what, call.why
            since = f"{now - timedelta(seconds=min(call.all_seconds, _LONGEST_SECONDS)):%Y-%m-%dT%H:%M:%SZ}"
            found[key] = before.get(key) or DriverWait(time=since, text=call.reason[:MAX_WAIT_CHARACTERS])
        self._waits = found

    def memory(self, driver: Sequence[MemorySeries], executor: ExecutorSeries | None = None) -> None:
        """Report the memory in use to the operator every five minutes, while much of some part is."""
        if time.monotonic() >= self._memory_due:
            telling = _telling(driver) + _telling(() if executor is None else executor.series)
            much = any(each.used >= MUCH * part.limit for part in telling for each in part.samples[-1:])
            self._memory = MemoryReport(pod="", series=tuple(driver), executor=executor) if much else None
            self._memory_due = time.monotonic() + (_MEMORY_PERIOD if much else 0.0)

    def _applied_by(self, pin: Pin) -> Applied:
        return Applied(
            epoch=pin.epoch,
            algorithm=Algorithm(pin.algorithm),
            state_partitions=self._partitions,
            executors_ready=0,
            can_rest=True,
        )

    def _wanted(self, executors: ExecutorScaler) -> int:
        """Return the executors of the plan; of one without any, one as soon as tasks wait, until another plan comes.

        The operator learns it from the report of waits, and plans more. The driver does not wait for that plan: the
        operator may be down, or kept from changing plans by a pause.
        """
        plan = self._plans.newest
        if not plan.executors and self._woken != plan.epoch and executors.tasks_wait():
            self._woken = plan.epoch
        return plan.executors or int(self._woken == plan.epoch)

    def _run(self, executors: ExecutorScaler) -> None:
        backoff, pause, last_error = Backoff(), 0.0, ""
        while not self._stopped.wait(PERIOD):
            try:
                before = executors.finished_tasks
                self.ready, last_error = executors.reconcile(self._wanted(executors)), ""
                self.signs += self.ready == 0 or executors.finished_tasks != before
            except (Py4JNetworkError, ConnectionError):
                continue  # Spark has ended; the run detects that itself
            except Py4JError as error:
                reason = str(error).split("\n", 1)[0]
                if reason != last_error:
                    log.warning("executors do not follow the plan for now: %s", reason)
                last_error = reason
            pause = max(0.0, pause - PERIOD)
            if pause:
                continue
            if self._report():
                backoff.reset()
            else:
                pause = backoff.next()

    def _report(self) -> bool:
        """Write the entries that have changed or are lost; return False if the API server cannot be reached."""
        if not (entries := self._entries()):
            return True
        restores = self._plans.restores
        written = {} if restores != self._restores else self._reported
        changed = {key: text for key, text in entries.items() if written.get(key) != text}
        if changed:
            try:
                self._write(changed)
            except (ApiException, HTTPError, OSError) as error:
                log.warning("the plan's progress cannot be reported to the operator for now: %s", error_line(error))
                return False
        self._reported, self._restores = entries, restores
        return True

    def _entries(self) -> dict[str, str | None]:
        """Return the driver's entries in the ConfigMap, as far as there is something to report; None removes one."""
        entries: dict[str, str | None] = {}
        pod, waits = "" if self._versions is None else self._versions.pod, tuple(self._waits.values())
        woken = self._woken is not None and self._woken == self._plans.newest.epoch
        if pod and (waits or woken or WAITS_KEY in self._reported):
            found = DriverWaits(pod=pod, waits=waits, executors=woken)
            entries[WAITS_KEY] = found.to_json() if waits or woken else None
        if pod and (self._memory or MEMORY_KEY in self._reported):
            report = None if self._memory is None else self._memory.model_copy(update={"pod": pod})
            entries[MEMORY_KEY] = None if report is None else report.to_json()
        if self._applied is not None:
            entries[APPLIED_KEY] = self._applied.model_copy(update={"executors_ready": self.ready}).to_json()
        if self._snapshots is not None:
            entries[SNAPSHOTS_KEY] = self._snapshots.to_json()
        return entries | self._version()

    def _version(self) -> dict[str, str]:
        report = None if self._versions is None else self._versions.report
        return {} if report is None else {RUNNING_VERSION_KEY: report.to_json()}

    def _write(self, entries: Mapping[str, str | None]) -> None:
        """Write entries of the ConfigMap; None removes one."""
        self._api.patch_namespaced_config_map(
            self._name,
            self._namespace,
            {"data": entries},
            field_manager=MANAGER,
            _request_timeout=TIMEOUT,
        )


def _telling(series: Sequence[MemorySeries]) -> list[MemorySeries]:
    """Return the series that say whether much is used: a container is full in good health, once its heap is."""
    parts = {each.part for each in series}
    return [each for each in series if each.part is not MemoryPart.CONTAINER or MemoryPart.BESIDE_HEAP not in parts]
