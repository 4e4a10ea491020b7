"""``algorithm: auto`` as a source of plans: the selector's choice, with everything else as another source has it."""

from __future__ import annotations

from collections.abc import Callable

from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_jobs.pipeline.analysis import Routed
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.following import PlanSource
from millrace_jobs.plan.pin import Pin
from millrace_jobs.selection.costs import MeasuredBatch, Resources
from millrace_jobs.selection.prior import Prior, python_prior, sql_prior
from millrace_jobs.selection.rule import starting_algorithm
from millrace_jobs.selection.selector import CANDIDATES, Selector
from millrace_jobs.selection.switch import Switch


class AutoPlans:
    """Plans whose algorithm follows the batches that ``observe`` is shown, under the epoch of whoever made the plan.

    Args:
        plans: say everything but the algorithm.
        first: the algorithm to begin with.
        routed: the query, which ``auto`` can choose for; any other has only ``native``.
        resources: tells what its tasks run on.
        tell: takes the sentence that explains a switch.
    """

    def __init__(
        self,
        plans: PlanSource,
        first: Algorithm,
        routed: Routed,
        resources: Callable[[], Resources],
        tell: Callable[[str], None],
    ) -> None:
        self._plans = plans
        self._given: Plan | None = None
        self._algorithm = first
        self._switched = False
        self._tell = tell
        self._resources = resources
        self.selector = Selector(prior_of(routed), resources(), first.value)

    def current(self) -> Plan | None:
        """The newest plan, or None where it has not changed since the last call."""
        given = self._plans.current()
        if given is not None:
            self._given = given
        if self._given is None or (given is None and not self._switched):
            return None
        self._switched = False
        return self._given.model_copy(update={"algorithm": self._algorithm, "parameters": {}})

    def observe(self, report: BatchReport) -> Switch | None:
        """Take in a finished batch; tell of a switch, which the next plan then makes."""
        if report.pin is None:
            return None
        self.selector.use(self._resources())
        switch = self.selector.observe(measured(report))
        if switch is None:
            return None
        self._algorithm, self._switched = Algorithm(switch.after.algorithm), True
        self._tell(str(switch))
        return switch


def first_algorithm(routed: Routed, last: Pin | None = None) -> Algorithm:
    """What a query starts as: the algorithm of its last batch, or by rule before anything of it is known."""
    if last is not None and last.algorithm in CANDIDATES:
        return Algorithm(last.algorithm)
    windows = routed.window.per_record if routed.window is not None else 1
    sql, grouped = routed.aggregation is not None, routed.projection.keys > 0
    return Algorithm(starting_algorithm(sql=sql, windows=windows, grouped=grouped))


def prior_of(routed: Routed) -> Prior:
    """What is assumed of a query's costs before they are measured."""
    if routed.aggregation is None:
        return python_prior()
    return sql_prior(routed.window.per_record if routed.window is not None else 1)


def measured(report: BatchReport) -> MeasuredBatch:
    """What the selector has to know of a batch, which must have a pin."""
    pin = report.pin
    assert pin is not None
    return MeasuredBatch(
        number=report.batch,
        algorithm=pin.algorithm,
        workers=pin.workers,
        replicas=pin.replicas,
        rows=report.rows,
        seconds=report.seconds,
        route_seconds=sum(report.route.tasks),
        merge_seconds=report.merge_seconds,
        state_updates=report.state_updates,
        tasks=report.combined,
        profile=report.profile,
        load=report.utilization,
        waiting=report.waiting,
    )
