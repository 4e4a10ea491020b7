"""Checks running queries every few seconds and decides their size; the reconciler carries out the decision."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from millrace_api.model.deployment import ScalingMode
from millrace_api.model.plan import Plan
from millrace_api.model.status import LastScaling, ObservedLoad, Phase
from millrace_api.model.streamquery import Spec, StreamQuery

from ..scaling.decision.decision import Decision, Reason
from ..scaling.decision.scaler import Scaler
from ..scaling.observation import Answer
from ..telemetry.logs import about
from ..telemetry.metrics import OperatorMetrics
from .observe import ObservedQuery, QueryKey
from .reconcile import Objects, Reconciler
from .scaling_inputs import bounds_of, memory, recall, settings_of, situation_of, state_partitions
from .scaling_status import (
    MetricsReason,
    Scaled,
    account_of,
    conditions,
    is_missing,
    is_news,
    load_of,
    shape_for,
    with_outcome,
)
from .target import followed
from .workqueue import WorkQueue

PERIOD = 10.0
"""Seconds between two checks of a query."""

SILENCE = 60.0
"""Seconds without a usable answer after which the metrics count as missing."""

SAVE_SECONDS = 600.0
"""Seconds after which learned scaling state is saved again, so that a restarted operator can resume from it."""

WORKERS = 4
"""Number of queries checked concurrently; the workers mostly wait for Prometheus."""

log = logging.getLogger(__name__)


class MetricsError(Exception):
    """A metrics query failed; the message says why."""


class Ask(Protocol):
    """Source of the newest metrics of a query."""

    def __call__(self, key: QueryKey, now: float, executors: int) -> Answer | None:
        """Return the newest metrics, or None if there are none. Raises MetricsError."""
        ...


@dataclass
class _ScalerState:
    """State kept for one query between two checks.

    Attributes:
        fingerprint: every input whose change requires a new state.
        answered: time of the last usable answer; at first, the time of the first check.
        last: the last decision based on an answer.
        notified: when the reconciler was last notified.
        saved, epoch: when the learned state was last saved, and the epoch of the plan at that time.
    """

    fingerprint: object
    scaler: Scaler
    answered: float
    last: Decision | None = None
    load: ObservedLoad | None = None
    notified: float = 0.0
    saved: float = 0.0
    epoch: int = 0


class Autoscaler:
    """Periodic scaling of all running queries, in its own threads from ``start`` to ``stop``.

    Args:
        reconciler: holds the queries and carries out the decisions.
        objects: API used to store decisions.
        metrics: the operator's own metrics.
        ask: returns the newest metrics of a query; None without Prometheus.
        clock: the time of day.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        objects: Objects,
        metrics: OperatorMetrics,
        ask: Ask | None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._reconciler = reconciler
        self._objects = objects
        self._metrics = metrics
        self._ask = ask
        self._clock = clock
        self._minds: dict[QueryKey, _ScalerState] = {}
        self._queue: WorkQueue[QueryKey] = WorkQueue()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._work, name=f"scale-{i}") for i in range(WORKERS)]
        self._threads.append(threading.Thread(target=self._tick, name="scale-clock"))

    def start(self) -> None:
        """Start checking queries."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop after the checks in progress have finished."""
        self._stopped.set()
        self._queue.close()
        for thread in self._threads:
            thread.join()

    def look(self, key: QueryKey) -> None:
        """Fetch a query's metrics, decide on its size, and notify the reconciler if the result is worth reporting."""
        seen = self._reconciler.observations.of(key)
        query = None if seen is None else self._reconciler.query_of(key, seen)
        if seen is None or not isinstance(query, StreamQuery):
            self._minds.pop(key, None)
            return
        plan = seen.plan
        if seen.status.phase is not Phase.RUNNING or plan is None:
            return
        now, spec = self._clock(), followed(seen, query.spec)
        mind = self._mind_of(key, seen, spec, now.timestamp())
        scaled = self._decide(key, seen, spec, plan, mind, now)
        held = self._reconciler.scaled.get(key)
        if held is None or is_news(held, scaled, now.timestamp() - mind.notified):
            mind.notified = now.timestamp()
            self._reconciler.scaled[key] = scaled
            self._reconciler.queue.add(key)
        if mind.last is not None and (plan.epoch != mind.epoch or now.timestamp() - mind.saved >= SAVE_SECONDS):
            self._objects.apply(memory(seen.owner, mind.last, mind.scaler))
            mind.saved, mind.epoch = now.timestamp(), plan.epoch

    def _decide(
        self, key: QueryKey, seen: ObservedQuery, spec: Spec, plan: Plan, mind: _ScalerState, now: datetime
    ) -> Scaled:
        situation = situation_of(seen, plan, now)
        answer, trouble = self._answer(key, situation.now, situation.executors_ready)
        decision = mind.scaler.step(answer, situation)
        if decision.reason is not Reason.NO_ANSWER:
            mind.last = decision
            self._metrics.decided(str(decision.reason))
            if decision.changed:
                log.info("%s", decision.sentence)
        if answer is not None and not is_missing(decision):
            mind.answered = situation.now
            mind.load = load_of(decision, answer, situation.executors_ready) or mind.load
        account = self._account(seen.status.last_scaling, decision, spec)
        missing = situation.now - mind.answered >= SILENCE
        silent = trouble or (MetricsReason.NO_ANSWER, decision.detail) if missing or self._ask is None else None
        available = silent or (MetricsReason.AVAILABLE, "")
        return Scaled(
            uid=seen.owner.uid,
            account=account,
            change=shape_for(decision),
            epoch=plan.epoch,
            load=None if missing else mind.load,
            conditions=conditions(spec, mind.last, available, seen.generation, now),
        )

    def _account(self, last: LastScaling | None, decision: Decision, spec: Spec) -> LastScaling | None:
        """Return an account of this decision if it deserves one, otherwise the last account with its outcome."""
        if spec.scaling.mode is ScalingMode.OFF:
            return last
        if error := decision.prediction_error if last is not None and last.observed is None else None:
            self._metrics.predicted(error)
        return account_of(decision, last) or with_outcome(last, decision)

    def _answer(self, key: QueryKey, now: float, ready: int) -> tuple[Answer | None, tuple[MetricsReason, str] | None]:
        if self._ask is None:
            hint = "start the operator with --prometheus-url to have queries scaled"
            return None, (MetricsReason.NO_PROMETHEUS, f"there is no Prometheus to ask; {hint}")
        try:
            return self._ask(key, now, ready), None
        except MetricsError as error:
            return None, (MetricsReason.UNREACHABLE, str(error))

    def _mind_of(self, key: QueryKey, seen: ObservedQuery, spec: Spec, now: float) -> _ScalerState:
        """Return the query's state; create it, from saved state if possible, for a new query or new scaling inputs."""
        settings, bounds, partitions = settings_of(spec), bounds_of(spec), state_partitions(seen, spec)
        fingerprint = (seen.owner.uid, settings, bounds, partitions, seen.status.revision, spec.replan_nonce)
        mind = self._minds.get(key)
        if mind is None or mind.fingerprint != fingerprint:
            scaler = Scaler(settings, bounds, partitions)
            if mind is None and not recall(scaler, seen):
                scaler = Scaler(settings, bounds, partitions)
            epoch = seen.plan.epoch if seen.plan is not None else 0
            mind = self._minds[key] = _ScalerState(fingerprint, scaler, answered=now, saved=now, epoch=epoch)
        return mind

    def _tick(self) -> None:
        while not self._stopped.wait(PERIOD):
            for key in {*self._reconciler.observations.queries(), *list(self._minds)}:  # drops deleted ones
                self._queue.add(key)

    def _work(self) -> None:
        while (key := self._queue.get()) is not None:
            try:
                with about(key):
                    self.look(key)
            except Exception as error:  # one failing query must not stop the checks of the others
                log.warning("scaling did not look at the query: %s", error)
            finally:
                self._queue.done(key)
