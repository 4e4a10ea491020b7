"""The parts of the benchmark, in order. Each begins when the previous one has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench.operator.fleet import Key, QueryFleet, Sightings
from bench.operator.report import Ages, Creation, Deletion, OperatorFigures, Rest, Restart
from bench.operator.running import Requests, RunningOperator, requests
from bench.processor_time import seconds_of
from lab.control_plane import ControlPlane

SAMPLE = 100
"""Number of queries whose spec is changed."""

REST = 120.0
"""Seconds for which the operator is watched at rest."""

_SETTLED = 75.0
"""Seconds without a change by the operator after which it is at rest. Drivers are healthy after 60 s of readiness."""

_SCRAPE = 0.5
"""Seconds between scrapes of the operator: one takes it 0.15 s of processor time with a thousand queries."""

_PATIENCE = 3600.0
_OWNED = "statefulsets,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,pods"


@dataclass
class OperatorBench:
    """A benchmark of one fleet on one control plane. ``report`` is called with lines about its progress."""

    plane: ControlPlane
    fleet: QueryFleet
    seen: Sightings
    folder: Path
    report: Callable[[str], None]
    _starts: int = field(default=0)

    def run(self) -> OperatorFigures:
        """Run all parts and return their figures."""
        operator = self._operator()
        try:
            creation, before = self._create(operator), len(self.fleet.keys)
            changes = self._change()
            rest, memory = self._rest(operator), operator.peak_memory
            operator.end()
            operator = self._operator()
            restart = self._restart(operator)
            deletion = self._delete()
            return OperatorFigures(
                before, creation, changes, rest, restart, deletion, max(memory, operator.peak_memory)
            )
        finally:
            operator.end()

    def _operator(self) -> RunningOperator:
        self._starts += 1
        return RunningOperator(self.plane, self.folder / f"operator-{self._starts}.log")

    def _create(self, operator: RunningOperator) -> Creation:
        """Create all queries, and measure until all are Running."""
        keys = self.fleet.keys
        self.fleet.make_namespaces()
        operator.metrics()  # waits until the operator answers
        before, used, plane_used = requests(self.plane), operator.processor_seconds, self._plane_seconds()
        began = time.monotonic()
        with ThreadPoolExecutor(1) as users:
            client = users.submit(self.fleet.apply)
            # ``list`` copies at once, since the watching thread adds keys meanwhile
            self._wait(client.done, "queries applied", lambda: len({key for key, _ in list(self.seen.observed)}))
            client.result()
        applied = time.monotonic()
        self._wait(lambda: len(self.seen.running) == len(keys), "queries Running", lambda: len(self.seen.running))
        ended = max(self.seen.running.values())
        made, spent = requests(self.plane).since(before), operator.processor_seconds - used
        ages = [max(self.seen.running[key] - self.seen.ready[key], 0.0) for key in keys]
        metrics = operator.metrics()
        return Creation(
            applied_seconds=applied - began,
            running_seconds=ended - began,
            processor_seconds=spent,
            plane_seconds=self._plane_seconds() - plane_used,
            status_age=Ages.of(ages),
            all_requests=dict(made.all),
            operator_requests=dict(made.operator),
            reconciles=metrics["millrace_operator_reconciles_total"],
            reconcile_seconds=metrics["millrace_operator_reconcile_seconds_sum"],
            request_seconds=metrics["millrace_operator_api_request_seconds_sum"],
            retries=metrics["millrace_operator_retries_total"],
        )

    def _plane_seconds(self) -> float:
        parts = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        return sum(seconds_of(self.plane.part(name).pid) for name in parts)

    def _change(self) -> Ages:
        """Measure the time from a change of a spec to the status that reflects it."""
        sent: dict[tuple[Key, int], float] = {}

        def record_change(key: Key, at: float, generation: int) -> None:
            sent[key, generation] = at

        every = max(len(self.fleet.keys) // SAMPLE, 1)
        self.fleet.change(self.fleet.keys[::every][:SAMPLE], record_change)
        self._wait(
            lambda: sent.keys() <= self.seen.observed.keys(),
            "changes in the status",
            lambda: sum(each in self.seen.observed for each in sent),
        )
        return Ages.of([self.seen.observed[each] - at for each, at in sent.items()])

    def _rest(self, operator: RunningOperator) -> Rest:
        """Measure two quiet minutes, after every driver has proven healthy."""
        self._settle()
        before, used, began = requests(self.plane), operator.processor_seconds, time.monotonic()
        time.sleep(REST)
        share = (operator.processor_seconds - used) / (time.monotonic() - began)
        made = requests(self.plane).since(before)
        return Rest(REST, share, dict(made.operator), made.canary)

    def _settle(self) -> None:
        changes, since = -1, time.monotonic()
        while time.monotonic() < since + _SETTLED:
            found = requests(self.plane).operator.total()
            if found != changes:
                changes, since = found, time.monotonic()
            time.sleep(1)

    def _restart(self, operator: RunningOperator) -> Restart:
        """Measure a restart, from the start of the new process until it has reconciled each query."""
        before, began = requests(self.plane), time.monotonic()
        metrics: dict[str, float] = {}

        def is_over() -> bool:
            metrics.update(operator.metrics())
            rounds = metrics.get("millrace_operator_reconciles_total", 0.0)
            return rounds >= len(self.fleet.keys) and metrics["millrace_operator_queue_depth"] == 0

        self._wait(
            is_over,
            "reconciled after a restart",
            lambda: int(metrics["millrace_operator_reconciles_total"]),
            every=_SCRAPE,
        )
        ended, spent = time.monotonic(), operator.processor_seconds
        made = self._quiet_since(before)
        return Restart(ended - began, spent, metrics["millrace_operator_reconciles_total"], dict(made.operator))

    def _quiet_since(self, before: Requests) -> Requests:
        """Return the requests since ``before``, including those of the next ten seconds."""
        time.sleep(10)
        return requests(self.plane).since(before)

    def _delete(self) -> Deletion:
        """Delete all queries, and measure until they and all their objects are gone."""
        before, began = requests(self.plane), time.monotonic()
        self.fleet.delete()
        self._wait(lambda: len(self.seen.gone) == len(self.fleet.keys), "queries gone", lambda: len(self.seen.gone))
        queries = max(self.seen.gone.values()) - began
        self._wait(lambda: not self._owned(), "objects gone", lambda: 0)
        return Deletion(queries, time.monotonic() - began, dict(requests(self.plane).since(before).operator))

    def _owned(self) -> Sequence[str]:
        labeled = ("--all-namespaces", "-l", "millrace.io/query", "-o", "name")
        return self.plane.kubectl("get", _OWNED, *labeled).stdout.split()

    def _wait(self, condition: Callable[[], bool], what: str, count: Callable[[], int], every: float = 0.05) -> None:
        began = printed = time.monotonic()
        while not condition():
            now = time.monotonic()
            if now > began + _PATIENCE:
                raise TimeoutError(f"not all {what} within {_PATIENCE:.0f} s: {count()}")
            if now > printed + 10:
                printed = now
                self.report(f"{now - began:4.0f} s  {count()} {what}")
            time.sleep(every)
        self.report(f"{time.monotonic() - began:4.0f} s  {what}")
