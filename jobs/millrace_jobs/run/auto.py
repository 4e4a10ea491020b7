"""``algorithm: auto`` as a plan source: the selector chooses the algorithm, another source everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.plan import Plan
from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.registry import NATIVE
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.compile import Routed
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.pipeline.table_relations import TableQuery
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import PlanSource
from millrace_jobs.selection.costs import MeasuredBatch, Prior, Resources, python_prior, sql_prior
from millrace_jobs.selection.forecast import Forecaster, starting_algorithm
from millrace_jobs.selection.join_forecast import JOIN_CANDIDATES, JOIN_MARGIN, JoinForecaster
from millrace_jobs.selection.selector import CANDIDATES, Selector
from millrace_jobs.selection.switch import Switch


class AutoPlans:
    """A plan source whose algorithm follows the observed batches; a switch keeps the epoch of the underlying plan.

    Args:
        plans: source of everything but the algorithm.
        first: the algorithm to start with.
        query: the routed query, or one with joins; others have no algorithm to choose.
        resources: returns the resources that the tasks run on.
        on_switch: receives the sentence that explains a switch.
        placement: where the replicas of the first plan run. Dedicated ones always place, so ``native`` is no choice.
    """

    def __init__(
        self,
        plans: PlanSource,
        first: Algorithm,
        query: Routed | TableQuery,
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
        self.selector = _selector(query, resources(), first.value, placement)

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
        if self._algorithm.value not in candidates_of(self._query, placement):
            self._algorithm = first_algorithm(self._query, placement=placement)
        self.selector = _selector(self._query, self._resources(), self._algorithm.value, placement)

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


def has_choice(query: Routed | Native | TableQuery) -> TypeGuard[Routed | TableQuery]:
    """Whether a query can run under more than one algorithm."""
    return isinstance(query, Routed) or (isinstance(query, TableQuery) and query.has_join)


def _selector(query: Routed | TableQuery, resources: Resources, first: str, placement: Placement) -> Selector:
    if isinstance(query, TableQuery):
        return Selector(JoinForecaster(), resources, first, apart=Hash.NAME, margin=JOIN_MARGIN)
    return Selector(Forecaster(prior_of(query), candidates_of(query, placement)), resources, first)


def candidates_of(query: Routed | TableQuery, placement: Placement) -> tuple[str, ...]:
    """Return the algorithms that ``auto`` chooses among."""
    if isinstance(query, TableQuery):
        return JOIN_CANDIDATES
    return tuple(name for name in CANDIDATES if placement is Placement.INLINE or name != NATIVE)


def first_algorithm(
    query: Routed | TableQuery, last: Pin | None = None, *, placement: Placement = Placement.INLINE
) -> Algorithm:
    """Return the algorithm that a query starts with: its last batch's, or a rule's choice if that is no candidate."""
    if last is not None and last.algorithm in candidates_of(query, placement):
        return Algorithm(last.algorithm)
    if isinstance(query, TableQuery):
        return Algorithm.HASH
    windows = query.window.per_record if query.window is not None else 1
    sql = query.aggregation is not None and placement is Placement.INLINE
    return Algorithm(starting_algorithm(sql=sql, windows=windows, grouped=query.projection.keys > 0))


def prior_of(routed: Routed) -> Prior:
    """Return the costs that are assumed of a query before they are measured."""
    if routed.aggregation is None:
        return python_prior()
    return sql_prior(routed.window.per_record if routed.window is not None else 1)


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
