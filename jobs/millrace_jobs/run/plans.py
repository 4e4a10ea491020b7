"""The plans that a run follows: those of its platform, or one plan for good; algorithm ``auto`` wraps either one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import Spec
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import FixedPlan, PlanSource, partitioner_problem
from millrace_jobs.queries.execution import AlgorithmChoice, CompiledQuery, Execution
from millrace_jobs.run.platform import OneProcess, Platform
from millrace_jobs.selection.costs import MeasuredBatch, Resources
from millrace_jobs.selection.selector import Selector
from millrace_jobs.selection.switch import Candidate, Switch

AUTO_IS_INLINE = (
    "placement Auto is Inline on one machine: replicas in processes of their own would compete with Spark for its cores"
)
"""Message of a run that makes its own plan; on a cluster, the operator weighs the placements."""


def given_plans(platform: Platform, spec: Spec) -> PlanSource | None:
    """Return the platform's plan source, or None; check before Spark starts that the first plan can be followed.

    Raises:
        MillraceError: the partitioner of the spec cannot be used without a platform that gives plans.
    """
    given = platform.plans()
    problem = None if given is not None else partitioner_problem(spec)
    if problem is not None:
        raise MillraceError(problem)
    return given


def plan_origin(given: PlanSource | None, platform: Platform, query: str) -> str:
    """Return a sentence that says where plans come from; empty if the run makes its own."""
    if given is None:
        return ""
    if isinstance(platform, OneProcess):
        return "The plan file chooses it."
    return f"The operator chose it; kubectl describe sq {query} shows why."


def first_plan(spec: Spec, compiled: CompiledQuery, cores: int, last: Pin | None = None) -> Plan:
    """Return the plan of a run without a plan source; a query without a choice has only ``native``.

    ``cores`` is the number of cores that run tasks. ``last`` is the pin of the last batch, whose algorithm ``auto``
    keeps.
    """
    placement, fills = spec.partitioner.placement.at_start, spec.partitioner.replicas.at_start >= cores
    first = first_algorithm(compiled.execution, last, placement=placement, slices_fill_cores=fills)
    return Plan.initial(spec, auto=first)


def followed_plans(
    spec: Spec,
    compiled: CompiledQuery,
    first: Plan,
    given: PlanSource | None,
    resources: Callable[[], Resources] | None,
    message: Callable[[str], None],
    chooses: Callable[[], bool] = lambda: True,
) -> PlanSource:
    """Return the given plan source, or the first plan for good; ``auto`` wraps either one.

    ``resources`` returns what tasks have; it is None where another part than the driver chooses the algorithm.
    ``chooses`` returns whether ``auto`` may choose another algorithm now.
    """
    plans = given or FixedPlan(first)
    choice = compiled.execution.choice
    if spec.partitioner.algorithm is not Algorithm.AUTO or resources is None or choice is None:
        return plans
    return AutoPlans(plans, first.algorithm, choice, resources, message, first.placement, chooses)


def advice_on(spec: Spec, compiled: CompiledQuery, resources: Callable[[], Resources]) -> AlgorithmAdvice | None:
    """Return what predicts the other algorithms beside the one that the spec names; None if there is no choice."""
    partitioner, choice = spec.partitioner, compiled.execution.choice
    fixed, placement = partitioner.algorithm, partitioner.placement.at_start
    if fixed is Algorithm.AUTO or choice is None or fixed.value not in choice.candidates(placement):
        return None
    return AlgorithmAdvice(fixed, choice.selector(resources(), fixed.value, placement), resources)


class AlgorithmAdvice:
    """The predictions that ``auto`` would make, for a query whose spec names an algorithm.

    They are made as often as by ``auto``, from what batches report anyway: after the first batches, then less often.

    Args:
        fixed: the algorithm of the spec.
        selector: learns from the batches, and is kept at this algorithm.
        resources: returns the resources that the tasks run on.
    """

    def __init__(self, fixed: Algorithm, selector: Selector, resources: Callable[[], Resources]) -> None:
        self._fixed, self._selector, self._resources = fixed, selector, resources

    def observe(self, report: BatchReport) -> Mapping[str, Candidate]:
        """Learn from a finished batch; return the latest predictions."""
        if report.pin is not None:
            self._selector.use(self._resources())
            self._selector.observe(measured(report))
            self._selector.algorithm = self._fixed.value
        return self._selector.candidates


def unused_algorithm(spec: Spec, compiled: CompiledQuery) -> str | None:
    """Return the note that the spec names an algorithm which has nothing to place; None if all is well."""
    algorithm, execution = spec.partitioner.algorithm, compiled.execution
    if algorithm in (Algorithm.AUTO, Algorithm.NATIVE) or execution.choice is not None:
        return None
    why = f"{algorithm} has nothing to place, since the query runs {execution.unplaced}"
    return f"spec.partitioner.algorithm has no effect: {why}"


class AutoPlans:
    """A plan source whose algorithm follows the observed batches; a switch keeps the epoch of the underlying plan.

    Args:
        plans: source of everything but the algorithm.
        first: the algorithm to start with.
        choice: the algorithms that the query can run under.
        resources: returns the resources that the tasks run on.
        on_switch: receives the sentence that explains a switch.
        placement: where the replicas of the first plan run. Dedicated ones always place, so ``native`` is no choice.
        chooses: returns whether another algorithm may be chosen now.
    """

    def __init__(
        self,
        plans: PlanSource,
        first: Algorithm,
        choice: AlgorithmChoice,
        resources: Callable[[], Resources],
        on_switch: Callable[[str], None],
        placement: Placement = Placement.INLINE,
        chooses: Callable[[], bool] = lambda: True,
    ) -> None:
        self._plans = plans
        self._chooses = chooses
        self._given: Plan | None = None
        self._algorithm = first
        self._switched = False
        self._on_switch = on_switch
        self._resources = resources
        self._choice = choice
        self._placement = placement
        self.selector = choice.selector(resources(), first.value, placement)

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
        if self._algorithm.value not in self._choice.candidates(placement):
            fills = self._given is not None and self._given.replicas >= self._resources().cores
            self._algorithm = self._choice.first(placement, slices_fill_cores=fills)
        self.selector = self._choice.selector(self._resources(), self._algorithm.value, placement)

    def observe(self, report: BatchReport) -> Switch | None:
        """Learn from a finished batch; report and return the switch that the next plan makes, or None."""
        if report.pin is None or not self._chooses():
            return None
        self.selector.use(self._resources())
        switch = self.selector.observe(measured(report))
        if switch is None:
            return None
        self._algorithm, self._switched = Algorithm(switch.after.algorithm), True
        self._on_switch(str(switch))
        return switch


def first_algorithm(
    query: Execution,
    last: Pin | None = None,
    *,
    placement: Placement = Placement.INLINE,
    slices_fill_cores: bool = False,
) -> Algorithm:
    """Return the algorithm that a query starts with: its last batch's, or its first one if that is no candidate."""
    choice = query.choice
    if choice is None:
        return Algorithm.NATIVE
    if last is not None and last.algorithm in choice.candidates(placement):
        return Algorithm(last.algorithm)
    return choice.first(placement, slices_fill_cores=slices_fill_cores)


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
