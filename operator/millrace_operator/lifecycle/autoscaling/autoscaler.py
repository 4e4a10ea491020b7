"""Periodic checks of running queries that decide their size; the reconciler carries out the decisions.

What a scaler gets is in ``scaling_inputs``; it decides in ``scaling.decision.scaler``, and ``scaling_status`` has what
the status says of it. Next is ``reconcile``, where ``next_plan.plan_for`` makes a plan of the change.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from millrace_api.model.deployment import ScalingMode
from millrace_api.model.plan import Plan
from millrace_api.model.status import LastScaling, Phase
from millrace_api.model.streamquery import Spec

from ...metrics_source.client import PrometheusError
from ...scaling.batch_time.cost_prior import CostPrior
from ...scaling.decision.decision import Decision, Reason, Situation
from ...scaling.observation import Answer
from ...telemetry.logs import about, in_short
from ...telemetry.metrics import OperatorMetrics
from ..objects.applying import Objects, apply
from ..observed_query import ObservedQuery, QueryKey
from ..query_memory import QueryMemory, ScalerState
from ..reconcile import Reconciler
from ..target import running_spec
from ..workqueue import WorkQueue
from .cost_traits import CostTraits, best_known, cost_traits
from .scaling_inputs import (
    begins_dedicated,
    new_scaler,
    requested_cores,
    restore,
    saved_state,
    scaling_inputs,
    situation_of,
    state_partitions,
)
from .scaling_status import (
    MetricsReason,
    ScalingResult,
    is_missing,
    last_scaling_of,
    load_of,
    placement_of,
    scaling_conditions,
    with_outcome,
)

PERIOD = 10.0
"""Seconds between two checks of a query."""

SILENCE = 60.0
"""Seconds without a usable answer after which the metrics count as missing."""

SAVE_SECONDS = 600.0
"""Seconds after which learned scaling state is saved again, so that a restarted operator can resume from it."""

WORKERS = 4
"""Number of queries checked concurrently; the workers mostly wait for Prometheus."""

log = logging.getLogger(__name__)

AskMetrics = Callable[[QueryKey, float, int], Answer | None]
"""Returns the newest metrics of a query, or None if there are none; raises PrometheusError.

The arguments are the query, the time in seconds since 1970, and the number of ready executors.
"""


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
        ask: AskMetrics | None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._reconciler = reconciler
        self._objects = objects
        self._metrics = metrics
        self._ask = ask
        self._clock = clock
        self._queue: WorkQueue[QueryKey] = WorkQueue()
        self._stopped = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="scale-clock")

    def start(self) -> None:
        """Start checking queries."""
        self._queue.start(self._work_on, WORKERS, "scale")
        self._ticker.start()

    def stop(self) -> None:
        """Stop after the checks in progress have finished."""
        self._stopped.set()
        self._queue.stop()
        self._ticker.join()

    def _tick(self) -> None:
        while not self._stopped.wait(PERIOD):
            for key in self._reconciler.observations.queries():
                self._queue.add(key)

    def _work_on(self, key: QueryKey) -> None:
        try:
            with about(key):
                self.check(key)
        except Exception as error:  # one failing query must not stop the checks of the others
            log.warning("the scaling check failed: %s", in_short(error))

    def check(self, key: QueryKey) -> None:
        """Fetch a query's metrics, decide on its size, and notify the reconciler if the result is worth reporting.

        1. Observe: plan, executors, quota and pauses (``situation_of``), and the newest metrics (``_answer``).
        2. Decide (``scaler.step``), and note what was decided and how old the metrics are (``_note``).
        3. Report (``_result``): the reconciler writes it to the status, and its next step carries the change out.
        4. Save what was learned, so that a restarted operator can resume from it.
        """
        observed = self._reconciler.observations.of(key)
        if observed is None:
            return
        memory = self._reconciler.observations.memory_of(key, observed.owner.uid)
        spec = running_spec(observed, self._reconciler.query_of(key, observed))
        if spec is None:
            memory.scaler = None
            return
        plan = observed.plan
        if observed.status.phase is not Phase.RUNNING or plan is None:
            return
        now = self._clock()
        seconds = now.timestamp()
        state = self._state_of(key, memory, observed, spec, plan, seconds)
        situation = situation_of(observed, spec, plan, now)
        answer, failure = self._answer(key, situation.now, situation.executors_ready)
        newest = self._reconciler.observations.of(key)
        if newest is None or newest.plan is None or newest.plan.epoch != plan.epoch:
            return  # the plan has changed meanwhile, as where tasks ended a rest
        decision = state.scaler.step(answer, situation)
        self._note(decision, answer, situation, state, requested_cores(spec, situation))
        result = self._result(decision, failure, situation, state, observed, spec, now)
        if memory.scaling is None or result.deserves_write(memory.scaling, seconds - state.notified):
            state.notified, memory.scaling = seconds, result
            self._reconciler.queue.add(key)
        if state.last is not None and (plan.epoch != state.epoch or seconds - state.saved >= SAVE_SECONDS):
            apply(self._objects, observed, saved_state(observed.owner, state.last, state.scaler))
            state.saved, state.epoch = seconds, plan.epoch

    def _state_of(
        self, key: QueryKey, memory: QueryMemory, observed: ObservedQuery, spec: Spec, plan: Plan, now: float
    ) -> ScalerState:
        """Return the query's state; create it, from saved state if possible, for a new query or new scaling inputs."""
        partitions = state_partitions(observed, spec)
        fingerprint = scaling_inputs(spec, plan), partitions, observed.status.revision
        if memory.scaler is None or memory.scaler.fingerprint != fingerprint:
            known = None if memory.scaler is None else memory.scaler.scaler.seasons
            traits = cost_traits(key.namespace, spec)
            scaler = new_scaler(spec, plan, partitions)
            if known is not None or not restore(scaler, observed):
                prior = self._prior_of(key.name, traits, dedicated=begins_dedicated(spec, plan))
                scaler = new_scaler(spec, plan, partitions, known, prior)
            memory.scaler = ScalerState(fingerprint, traits, scaler, answered=now, saved=now, epoch=plan.epoch)
        return memory.scaler

    def _prior_of(self, own: str, traits: CostTraits, *, dedicated: bool) -> CostPrior | None:
        """Return what the best known query with these traits makes expect of the costs of ``own``; None without one.

        It is the query itself, if it was known before its settings, its bounds or its driver changed.
        """
        states = [(name, each.scaler) for name, each in self._reconciler.observations.memories(traits.namespace)]
        alike = [(name, each.scaler.calibration.known) for name, each in states if each and each.traits == traits]
        best = best_known(alike, own, dedicated=dedicated)
        if best is None:
            return None
        name, costs = best
        log.info("its batches are expected to cost what those of %s do, by %d plans", name, costs.plans)
        return costs.for_another()

    def _answer(self, key: QueryKey, now: float, ready: int) -> tuple[Answer | None, tuple[MetricsReason, str] | None]:
        """Return the newest metrics of a query, or None and the reason."""
        if self._ask is None:
            hint = "start the operator with --prometheus-url URL"
            return None, (MetricsReason.NO_PROMETHEUS, f"no Prometheus is configured; {hint}")
        try:
            return self._ask(key, now, ready), None
        except PrometheusError as error:
            return None, (MetricsReason.UNREACHABLE, str(error))

    def _note(
        self, decision: Decision, answer: Answer | None, situation: Situation, state: ScalerState, cores: float
    ) -> None:
        """Remember a decision that rests on an answer, and the load and the time of a usable one."""
        if decision.reason is not Reason.NO_ANSWER:
            state.last = decision
            self._metrics.decided(str(decision.reason))
            if decision.changed:
                log.info("%s", decision.sentence)
        if answer is not None and not is_missing(decision):
            state.answered = situation.now
            state.load = load_of(decision, answer, situation.executors_ready, cores) or state.load

    def _result(
        self,
        decision: Decision,
        failure: tuple[MetricsReason, str] | None,
        situation: Situation,
        state: ScalerState,
        observed: ObservedQuery,
        spec: Spec,
        now: datetime,
    ) -> ScalingResult:
        """Return what the reconciler gets: the change, and the parts of the status that are about scaling."""
        missing = situation.now - state.answered >= SILENCE
        metrics: tuple[MetricsReason, str] = (MetricsReason.AVAILABLE, "")
        if missing or self._ask is None:
            metrics = failure or (MetricsReason.NO_ANSWER, decision.detail)
        return ScalingResult(
            last_scaling=self._last_scaling(observed.status.last_scaling, decision, spec),
            change=decision.plan if decision.changed else None,
            placement=placement_of(decision),
            epoch=situation.epoch,
            load=None if missing else state.load,
            conditions=scaling_conditions(
                spec,
                state.last,
                metrics,
                observed.generation,
                now,
                paused=situation.paused,
                serial=decision.serial,
            ),
        )

    def _last_scaling(self, last: LastScaling | None, decision: Decision, spec: Spec) -> LastScaling | None:
        """Return the status entry of this decision if it deserves one, otherwise the last entry with its outcome."""
        if spec.scaling.mode is ScalingMode.OFF:
            return last
        known = with_outcome(last, decision)
        if known is not last and decision.prediction_error is not None:
            self._metrics.predicted(decision.prediction_error)
        return last_scaling_of(decision, last) or known
