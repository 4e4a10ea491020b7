"""``algorithm: auto`` as a plan source: the selector chooses the algorithm, another source everything else."""

from __future__ import annotations

from collections.abc import Callable

from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.plan import Plan
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import PlanSource
from millrace_jobs.queries.execution import Execution
from millrace_jobs.selection.costs import MeasuredBatch, Resources
from millrace_jobs.selection.switch import Switch


class AutoPlans:
    """A plan source whose algorithm follows the observed batches; a switch keeps the epoch of the underlying plan.

    Args:
        plans: source of everything but the algorithm.
        first: the algorithm to start with.
        query: the query, which has candidates.
        resources: returns the resources that the tasks run on.
        on_switch: receives the sentence that explains a switch.
        placement: where the replicas of the first plan run. Dedicated ones always place, so ``native`` is no choice.
    """

    def __init__(
        self,
        plans: PlanSource,
        first: Algorithm,
        query: Execution,
        resources: Callable[[], Resources],
        on_switch: Callable[[str], None],
        placement: Placement = Placement.INLINE,
    ) -> None:
        self._plans = plans
        self._given: Plan | None = None
        self._algorithm = first
        self._switched = False
        self._on_switch = on_switch
        self._resources = resources
        self._query = query
        self._placement = placement
        self.selector = query.selector(resources(), first.value, placement)

    def current(self) -> Plan | None:
        """Return the newest plan, or None if it has not changed since the last call."""
        given = self._plans.current()
        if given is not None:
            self._given = given
            self._follow_placement(given.placement)
        if self._given is None or (given is None and not self._switched):
            return None
        self._switched = False
        return self._given.model_copy(update={"algorithm": self._algorithm, "parameters": {}})

    def _follow_placement(self, placement: Placement) -> None:
        """Choose among the algorithms that are possible if the replicas now run elsewhere."""
        if placement is self._placement:
            return
        self._placement = placement
        if self._algorithm.value not in self._query.candidates(placement):
            self._algorithm = self._query.first_algorithm(placement)
        self.selector = self._query.selector(self._resources(), self._algorithm.value, placement)

    def observe(self, report: BatchReport) -> Switch | None:
        """Learn from a finished batch; report and return the switch that the next plan makes, or None."""
        if report.pin is None:
            return None
        self.selector.use(self._resources())
        switch = self.selector.observe(measured(report))
        if switch is None:
            return None
        self._algorithm, self._switched = Algorithm(switch.after.algorithm), True
        self._on_switch(str(switch))
        return switch


def first_algorithm(query: Execution, last: Pin | None = None, *, placement: Placement = Placement.INLINE) -> Algorithm:
    """Return the algorithm that a query starts with: its last batch's, or its first one if that is no candidate."""
    if last is not None and last.algorithm in query.candidates(placement):
        return Algorithm(last.algorithm)
    return query.first_algorithm(placement)


def measured(report: BatchReport) -> MeasuredBatch:
    """Return a batch report, which must have a pin, as the selector's input."""
    pin = report.pin
    assert pin is not None
    return MeasuredBatch(
        number=report.batch,
        algorithm=pin.algorithm,
        workers=pin.workers,
        replicas=pin.replicas,
        rows=report.rows,
        seconds=report.seconds,
        route_seconds=sum(report.route),
        merge_seconds=report.merge_seconds,
        state_updates=report.state_updates,
        tasks=report.combined,
        profile=report.profile,
        utilization=report.utilization,
        waiting=report.waiting,
        joins=report.joins,
    )
