"""Why nothing can be said of a job: reasons, and the flaws that an answer of the metrics has by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from .observation import Answer


class NoAnswerReason(StrEnum):
    """Why there is no observation. Its value is the reason that is told."""

    ABSENT = "Absent"
    """There is no answer, or a series without which nothing can be said has no value."""
    STALE = "Stale"
    """What could be told is older than the greatest age that is allowed."""
    FROZEN = "Frozen"
    """Time moves on and records wait, but no batch ends, for longer than a batch can be expected to take."""
    NEGATIVE = "Negative"
    """A number that cannot be negative is."""
    NOT_A_NUMBER = "NotANumber"
    """A number is NaN or infinite."""
    COUNTER_RESET = "CounterReset"
    """A counter went down."""
    OTHER_PLAN = "OtherPlan"
    """Batches ran under another plan than the one decided last, or executors came or went meanwhile."""
    NO_BATCH = "NoBatch"
    """No whole batch has been seen since the answer before; nothing is wrong."""
    INCONSISTENT = "Inconsistent"
    """Numbers contradict each other."""


@dataclass(frozen=True)
class NoAnswer:
    """Nothing can be said, for ``reason``; ``message`` is one sentence that quotes the value."""

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
"""Series that an answer has to have. Where one of the others is None, an observation has None for it."""

_WHOLE = ("batches_total", "epoch", "parallelism", "replicas", "executors")
_AT_LEAST_1 = ("parallelism", "replicas", "executors")

ROUNDING = 1e-9
"""Numbers may be below what is possible by so much, or by this share: floating point is no fault."""


def missing(answer: Answer) -> NoAnswer | None:
    """Numbers that an answer lacks, or has in name only; None if it has all that are needed."""
    for name, value in vars(answer).items():
        if value is not None and not math.isfinite(value):
            return NoAnswer(NoAnswerReason.NOT_A_NUMBER, f"{name} is {value}, which is no number")
        if value is not None and value < -ROUNDING and name != "time":
            return NoAnswer(NoAnswerReason.NEGATIVE, f"{name} is {value:g}, and cannot be negative")
    if answer.batches_total == 0:  # gauges tell about the last batch: there are none yet
        return NoAnswer(NoAnswerReason.NO_BATCH, "the job has finished no batch yet: batches_total is 0")
    absent = [name for name in ESSENTIAL if getattr(answer, name) is None]
    if absent:
        return NoAnswer(NoAnswerReason.ABSENT, f"the metrics have no value of {', '.join(absent)}")
    return None


def impossible(answer: Answer) -> NoAnswer | None:
    """A number that no job can have, whatever was said before; ``answer`` lacks none that is essential."""
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
