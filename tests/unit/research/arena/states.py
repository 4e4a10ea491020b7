"""Answers and situations for tests of policies, made by hand."""

from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Range, Shape

BOUNDS = Bounds(Range(1, 10), Range(2, 64), Range(1, 64), executor_cores=2)
INTERVAL = 2.0


def plan(executors):
    return Shape(executors, 16, 8)


def batches(time, count, seconds, rows=1000.0, **more):
    """Return the counters after ``count`` batches that took ``seconds`` and had ``rows`` each."""
    return Answer(
        time, batches_total=count, processing_seconds_total=count * seconds, rows_total=count * rows, keys=100.0, **more
    )


def executors_of(answer):
    return None if answer is None else answer.executors
