"""What the API's models cannot check about a query: the parameters of its partitioner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace_api.errors import Problem
from millrace_api.model.deployment import Algorithm
from millrace_api.model.streamquery import Spec
from millrace_jobs.partitioners.parameters import Value
from millrace_jobs.partitioners.registry import resolve_parameters

_FIELD = "spec.partitioner.parameters"


def job_parameters(algorithm: str, parameters: Mapping[str, Any]) -> dict[str, Value]:
    """All parameters of an algorithm in a job. Raises ValueError, which says what to write, where they cannot be."""
    resolved = resolve_parameters(algorithm, parameters)
    if resolved.get("slides", 1) != 1:
        raise ValueError(
            f"parameter 'slides' of partitioner {algorithm} is {resolved['slides']}, but workers combine "
            "micro-batch by micro-batch, so that in a job a window is one slide; leave it out"
        )
    return resolved


def partitioner_problem(spec: Spec) -> Problem | None:
    """What is wrong with the algorithm's parameters; None where the first plan can be followed."""
    wanted = spec.partitioner
    if wanted.algorithm is Algorithm.AUTO:
        if not wanted.parameters:
            return None
        names = ", ".join(wanted.parameters)
        hint = "leave them out, or name the algorithm that they are for"
        return Problem(f"algorithm auto takes no parameters, but has {names}", hint, field=_FIELD)
    try:
        job_parameters(wanted.algorithm.value, wanted.parameters)
    except ValueError as error:
        message, _, hint = str(error).rpartition("; ")
        return Problem(message, hint, field=_FIELD)
    return None
