"""Checks of a partitioner's parameters, which the API's models cannot make."""

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
    """Return all parameters of an algorithm in a job, defaults included.

    Raises:
        ValueError: a parameter is invalid; the message says what to write.
    """
    resolved = resolve_parameters(algorithm, parameters)
    if resolved.get("slides", 1) != 1:
        raise ValueError(
            f"parameter 'slides' of partitioner {algorithm} is {resolved['slides']}, but workers combine "
            "micro-batch by micro-batch, so that in a job a window is one slide; leave it out"
        )
    return resolved


def partitioner_problem(spec: Spec) -> Problem | None:
    """Return the problem with the algorithm's parameters, or None if the first plan can be followed."""
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
