"""What a query needs so that replicas in processes of their own can place its records, for a run and ``validate``.

It imports the API alone, since ``validate`` asks it without Spark, and since each worker loads what asks it.
"""

from __future__ import annotations

from millrace_api.errors import Problem
from millrace_api.model.sources import SourceSpec

_FIELD = "spec.partitioner.placement"
_INLINE = "write placement: Inline"


def unrouted_problem(why: str) -> Problem:
    """Return that replicas cannot place the records of a query, which is not routed."""
    return Problem(f"placement Dedicated needs a query that is routed: {why}", _INLINE, field=_FIELD)


def source_problem(source: SourceSpec) -> Problem | None:
    """Return why replicas cannot read a source; None if they can."""
    kafka = source.kafka
    if kafka is None or not (kafka.topic or kafka.topics):
        message = "placement Dedicated reads whole topics of Kafka, by name"
        return Problem(message, f"{_INLINE}, or name them in topic: or topics:", field=_FIELD)
    if kafka.ending_timestamp is not None:
        message = "placement Dedicated does not know which records are before endingTimestamp"
        return Problem(message, f"{_INLINE}, or write endingOffsets: Latest", field=_FIELD)
    return None


def expression_problem(only_spark: str) -> Problem:
    """Return that replicas cannot evaluate an expression, or under a setting, as only Spark can."""
    message = f"placement Dedicated needs expressions that Arrow computes, which {only_spark} is not"
    return Problem(message, f"{_INLINE}, or write another expression (docs/pipeline.md lists them)", field=_FIELD)


def own_function_problem(expression: str) -> Problem:
    """Return that replicas in processes of their own do not import the functions of a query."""
    message = f"placement Dedicated runs no functions in Python, and {expression} calls one"
    return Problem(message, _INLINE, field=_FIELD)
