"""The plans that a run follows: those of its platform, or one plan for good; algorithm ``auto`` wraps either one."""

from __future__ import annotations

from collections.abc import Callable

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import Spec
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import FixedPlan, PlanSource, partitioner_problem
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.auto import AutoPlans, first_algorithm
from millrace_jobs.run.platform import Platform
from millrace_jobs.selection.costs import Resources

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


def first_plan(spec: Spec, compiled: CompiledQuery, last: Pin | None = None) -> Plan:
    """Return the plan of a run without a plan source; a query without a choice has only ``native``.

    ``last`` is the pin of the last batch, whose algorithm ``auto`` keeps.
    """
    placement = spec.partitioner.placement.at_start
    return Plan.initial(spec, auto=first_algorithm(compiled.execution, last, placement=placement))


def followed_plans(
    spec: Spec,
    compiled: CompiledQuery,
    first: Plan,
    given: PlanSource | None,
    resources: Callable[[], Resources] | None,
    message: Callable[[str], None],
) -> PlanSource:
    """Return the given plan source, or the first plan for good; ``auto`` wraps either one.

    ``resources`` returns what tasks have; it is None where another part than the driver chooses the algorithm.
    """
    plans = given or FixedPlan(first)
    execution = compiled.execution
    has_choice = bool(execution.candidates(first.placement))
    if spec.partitioner.algorithm is not Algorithm.AUTO or resources is None or not has_choice:
        return plans
    return AutoPlans(plans, first.algorithm, execution, resources, message, first.placement)


def unused_algorithm(spec: Spec, compiled: CompiledQuery) -> str | None:
    """Return the note that the spec names an algorithm which has nothing to place; None if all is well."""
    algorithm, execution = spec.partitioner.algorithm, compiled.execution
    if algorithm in (Algorithm.AUTO, Algorithm.NATIVE) or execution.candidates(spec.partitioner.placement.at_start):
        return None
    why = f"{algorithm} has nothing to place, since the query runs {execution.unplaced}"
    return f"spec.partitioner.algorithm has no effect: {why}"
