"""The plan sources of a running query: their interface, a fixed plan, and a plan file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import Spec
from millrace_api.validation.loading import load_plan
from millrace_jobs.partitioners.own_code import OWN
from millrace_jobs.partitioners.parameters import ParameterError, Value
from millrace_jobs.partitioners.registry import PROBING, exchange_parameters_of, resolve_parameters
from millrace_jobs.plan.control import Pin

_FIELD = "spec.partitioner.parameters"
_ONLY_DEDICATED = "leave it out, or write placement: Dedicated"


def job_parameters(
    algorithm: str, parameters: Mapping[str, Any], placement: Placement = Placement.INLINE
) -> dict[str, Value]:
    """Return all parameters of an algorithm in a job, defaults included.

    Inline, replicas live for one micro-batch, so that a window is one slide, and no replica has anything to exchange
    within it. Dedicated replicas live on, and their slide is an interval.

    Raises:
        ParameterError: a parameter is invalid.
    """
    if algorithm == OWN and placement is Placement.DEDICATED:
        message = f"partitioner {OWN} runs in the job's own tasks, so that it cannot have placement Dedicated"
        raise ParameterError(message, "write placement: Inline")
    resolved = resolve_parameters(algorithm, parameters)
    if placement is Placement.INLINE:
        _check_inline(algorithm, resolved)
    elif resolved.get(PROBING) and resolved["slides"]:
        raise ParameterError(
            f"parameter '{PROBING}' of partitioner {algorithm} is {resolved[PROBING]}, and its window is "
            f"{resolved['slides']} slides, but only loads of the whole stream can be probed",
            "write slides: 0 as well",
        )
    return resolved


def _check_inline(algorithm: str, resolved: Mapping[str, Value]) -> None:
    """Raise ParameterError on a value that only Dedicated replicas can follow."""
    if algorithm == OWN:
        return  # the parameters are those of a class of the user's own, whatever their names
    if resolved.get("slides", 1) != 1:
        raise ParameterError(
            f"parameter 'slides' of partitioner {algorithm} is {resolved['slides']}, but workers combine "
            "micro-batch by micro-batch, so that with placement Inline a window is one slide",
            _ONLY_DEDICATED,
        )
    for name, kind in exchange_parameters_of(algorithm).items():
        if resolved[name] != kind.default:
            raise ParameterError(
                f"parameter {name!r} of partitioner {algorithm} is {resolved[name]}, but with placement Inline "
                "replicas exchange nothing within a micro-batch",
                _ONLY_DEDICATED,
            )


def native_problem() -> Problem:
    """Return the problem with replicas in processes of their own that have nothing to place."""
    message = "algorithm native places no records, so that placement Dedicated has nothing to do"
    return Problem(message, "write another algorithm, or placement: Inline", field="spec.partitioner")


def partitioner_problem(spec: Spec) -> Problem | None:
    """Return the problem with the algorithm and its parameters, or None if the first plan can be followed."""
    wanted = spec.partitioner
    placement = wanted.placement.at_start
    if wanted.algorithm is Algorithm.NATIVE and placement is Placement.DEDICATED:
        return native_problem()
    if wanted.algorithm is Algorithm.AUTO:
        if not wanted.parameters:
            return None
        names = ", ".join(wanted.parameters)
        hint = "leave them out, or name the algorithm that they are for"
        return Problem(f"algorithm auto takes no parameters, but has {names}", hint, field=_FIELD)
    try:
        job_parameters(wanted.algorithm.value, wanted.parameters, placement)
    except ParameterError as error:
        return Problem(error.message, error.hint, field=_FIELD)
    return None


class PlanSource(Protocol):
    """A source of a plan that may change while the query runs."""

    def current(self) -> Plan | None:
        """Return the newest plan, or None if it has not changed since the last call.

        Raises:
            MillraceError: the new plan is invalid; the query continues under the last good one.
        """
        ...


class FixedPlan:
    """A plan source whose plan never changes."""

    def __init__(self, plan: Plan) -> None:
        self._plan: Plan | None = plan

    def current(self) -> Plan | None:
        """Return the plan on the first call, None later."""
        plan, self._plan = self._plan, None
        return plan


class PlanFile:
    """A YAML file as plan source; a new plan gets the next epoch unless the file gives a higher one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._epoch = 0

    def current(self) -> Plan | None:
        """Return the plan in the file if the file has changed, else None."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            if self._seen is not None:
                return None  # an editor is replacing it
            raise MillraceError(
                Problem(f"there is no plan file {self._path}", "write one, or leave --plan out")
            ) from None
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        if self._seen == version:
            return None
        self._seen = version
        plan = load_plan(self._path)
        self._epoch = max(plan.epoch, self._epoch + 1)
        return plan.model_copy(update={"epoch": self._epoch})


def pin_of(plan: Plan) -> Pin:
    """Return the pin of the next batches.

    The spec's bounds are not checked: they bind the author of plans, and may have changed since this run began.

    Raises:
        MillraceError: the plan cannot be followed, because a parameter is unknown or invalid.
    """
    try:
        parameters = job_parameters(plan.algorithm.value, plan.parameters, plan.placement)
    except ParameterError as error:
        raise MillraceError(Problem(error.message, error.hint, field="parameters")) from None
    return Pin(
        plan.epoch,
        plan.algorithm.value,
        plan.replicas,
        plan.parallelism,
        parameters,
        placement=plan.placement.value,
    )
