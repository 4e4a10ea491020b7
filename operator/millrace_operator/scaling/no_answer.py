"""Reasons why the metrics say nothing reliable about a job, and the flaws that one answer can have by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from .observation import Answer


class NoAnswerReason(StrEnum):
    """The reason why there is no observation; its value is what is reported."""

    ABSENT = "Absent"
    """There is no answer, or a required series has no value."""
    STALE = "Stale"
    """The answer, or the last good one before it, is older than the greatest age that is allowed."""
    FROZEN = "Frozen"
    """Records wait and no batch ends for longer than one should take, or batches ended while metrics stood still."""
    NEGATIVE = "Negative"
    """A number is negative that must not be."""
    NOT_A_NUMBER = "NotANumber"
    """A number is NaN or infinite."""
    COUNTER_RESET = "CounterReset"
    """A counter went down."""
    OTHER_PLAN = "OtherPlan"
    """Batches ran under a plan other than the one decided last, or executors came or went meanwhile."""
    NO_BATCH = "NoBatch"
    """No whole batch has been observed since the answer before; nothing is wrong."""
    INCONSISTENT = "Inconsistent"
    """Numbers contradict each other."""


@dataclass(frozen=True)
class NoAnswer:
    """The result without an observation, for ``reason``; ``message`` is one sentence that quotes the value."""

    reason: NoAnswerReason
    message: str


SERIES = tuple(field.name for field in fields(Answer) if field.name != "time")
COUNTERS = tuple(name for name in SERIES if name.endswith("_total"))

ESSENTIAL = (
    "batches_total",
    "rows_total",
    "processing_seconds_total",
    "interval_seconds",
    "lag_rows",
    "epoch",
    "parallelism",
    "replicas",
    "executors",
)
"""Series that an answer must have. If one of the others is None, an observation has None for it."""

_WHOLE = ("batches_total", "epoch", "parallelism", "replicas", "executors")
_AT_LEAST_1 = ("parallelism", "replicas", "executors")

ROUNDING = 1e-9
"""Amount, or share, by which numbers may be below what is possible, because of floating-point rounding."""


def missing(answer: Answer) -> NoAnswer | None:
    """Return which numbers an answer lacks or has in name only; None if it has all that are needed."""
    for name, value in vars(answer).items():
        if value is not None and not math.isfinite(value):
            return NoAnswer(NoAnswerReason.NOT_A_NUMBER, f"{name} is {value}, which is no number")
        if value is not None and value < -ROUNDING and name != "time":
            return NoAnswer(NoAnswerReason.NEGATIVE, f"{name} is {value:g}, and cannot be negative")
    if answer.batches_total == 0:  # gauges describe the last batch, so they have no values yet
        return NoAnswer(NoAnswerReason.NO_BATCH, "the job has finished no batch yet: batches_total is 0")
    absent = [name for name in ESSENTIAL if getattr(answer, name) is None]
    if absent:
        return NoAnswer(NoAnswerReason.ABSENT, f"the metrics have no value of {', '.join(absent)}")
    return None


def impossible(answer: Answer) -> NoAnswer | None:
    """Return a number that no job can have, whatever was reported before; None if all are possible.

    ``answer`` must have every essential series.
    """
    values = vars(answer)
    for name in _WHOLE:
        if values[name] % 1:
            return NoAnswer(NoAnswerReason.INCONSISTENT, f"{name} is {values[name]:g}, and has to be a whole number")
    for name in _AT_LEAST_1:
        if values[name] < 1:
            return NoAnswer(NoAnswerReason.INCONSISTENT, f"{name} is {values[name]:g}, and batches need 1 or more")
    if values["interval_seconds"] <= 0:
        return NoAnswer(
            NoAnswerReason.INCONSISTENT, f"interval_seconds is {values['interval_seconds']:g}, and not above 0"
        )
    return None
