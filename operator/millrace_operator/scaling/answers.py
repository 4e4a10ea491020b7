"""Conversion of untrusted answers of the metrics to reliable observations, or to a reason for none.

The observation is what ``difference`` finds between two answers; next, ``decision.learned`` learns from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from .difference import (
    ROUNDING,
    contradiction,
    fallen,
    idle_observation,
    inconsistent,
    most_batches,
    observation,
)
from .observation import Answer, NoAnswer, NoAnswerReason, Observation
from .shape import Shape

MAX_AGE = 60.0
"""Maximum age of an answer in seconds: three scrapes at Prometheus's usual 15 s, and one to spare."""

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

_CLOCKS = 5.0
"""Seconds by which the clock of the metrics may be ahead."""

_FROZEN_AFTER = 10.0
"""Multiple of its expected time up to which a batch may simply be taking long."""


@dataclass(frozen=True)
class _Base:
    """The answer that the next one is compared with.

    Attributes:
        answer: the first answer that reported its last batch.
        seen: time of the newest answer that reported no later batch.
        since: time of an answer that did not yet report its last batch.
        seconds: processing time of its last batch, as a mean of those that ended with it; None if unknown.
        whole: whether the batch after it is known to have started under its plan, with its executors.
    """

    answer: Answer
    seen: float
    since: float
    seconds: float | None = None
    whole: bool = False


class AnswerReader:
    """A reader of the answers of one job's metrics, one after the other.

    An observation is the difference between an answer and its base, the earlier answer that reported another batch. An
    answer that cannot be used changes nothing: the next good one is compared with the same base. But no observation
    spans a gap: after ``MAX_AGE`` without any good answer, the next one is a new base. No observation covers batches
    that ended while the metrics stood still; their number gives them away. A single batch may take any time.

    A driver that lives and reports that its triggers found nothing to do is an observation too, of a rate of 0. Without
    such a sign of life, an answer without a new batch says nothing.

    Only whole batches count. The batch that is running at the first answer of a plan or of a driver, after a gap, or
    when executors come or go may have started with other executors. It is left out.
    """

    def __init__(self, executor_cores: int = 1) -> None:
        """Read the answers of a job whose executors have ``executor_cores`` cores each."""
        self._executor_cores = executor_cores
        self._base: _Base | None = None

    def step(self, answer: Answer | None, now: float, epoch: int, shape: Shape | None = None) -> Observation | NoAnswer:
        """Return what ``answer``, read at ``now``, says about batches under the plan that was decided last.

        Args:
            answer: the metrics' answer; None if they gave none.
            now: seconds, of the same clock as the answer's.
            epoch: epoch of the plan that was decided last.
            shape: shape of that plan, to check that batches have its parallelism and replicas, or fewer while executors
                are missing; without it, only the epoch is checked.
        """
        if answer is None:
            return NoAnswer(NoAnswerReason.ABSENT, "the metrics gave no answer")
        return (
            _missing(answer)
            or self._untimely(answer, now)
            or self._other_plan(answer, epoch, shape)
            or _impossible(answer)
            or self._compare(answer)
        )

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        return {} if self._base is None else asdict(self._base)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        self._base = _Base(**{**saved, "answer": Answer(**saved["answer"])}) if saved else None

    def _untimely(self, answer: Answer, now: float) -> NoAnswer | None:
        age = now - answer.time
        if age > MAX_AGE:
            return NoAnswer(NoAnswerReason.STALE, f"the answer is {age:.0f} s old, over the limit of {MAX_AGE:.0f} s")
        if age < -_CLOCKS:
            return inconsistent(f"the time of the answer is {-age:.0f} s ahead")
        if self._base is not None and self._base.seen > now + _CLOCKS:  # the clock was set back
            self._base = None
        if self._base is not None and answer.time < self._base.seen:
            return inconsistent(f"the answer is {self._base.seen - answer.time:g} s older than the one before")
        return None

    def _other_plan(self, answer: Answer, epoch: int, shape: Shape | None) -> NoAnswer | None:
        if answer.epoch != epoch:
            message = f"the last batch ran under the plan of epoch {answer.epoch:g}, and {epoch} was decided last"
            return NoAnswer(NoAnswerReason.OTHER_PLAN, message)
        tasks = int(answer.parallelism or 0), int(answer.replicas or 0)
        if shape is None or shape.runs_as(*tasks, self._executor_cores):
            return None
        differing = (name for name in ("parallelism", "replicas") if getattr(answer, name) != getattr(shape, name))
        name = next(differing, "parallelism")
        message = f"{name} is {getattr(answer, name):g}, and the plan says {getattr(shape, name)}"
        return NoAnswer(NoAnswerReason.OTHER_PLAN, message)

    def _compare(self, answer: Answer) -> Observation | NoAnswer:
        base = self._base
        if base is None or base.answer.epoch != answer.epoch:
            self._begin(answer)
            message = f"this is the first answer under the plan of epoch {answer.epoch:g}"
            return NoAnswer(NoAnswerReason.NO_BATCH, message)
        gap = answer.time - base.seen
        if gap > MAX_AGE:
            self._begin(answer)
            return NoAnswer(
                NoAnswerReason.STALE, f"there was no good answer for {gap:.0f} s, and older ones do not count"
            )
        broken = self._reset(base, answer) or self._other_executors(base, answer)
        if broken is not None:
            return broken
        if answer.time == base.seen and answer.batches_total != base.answer.batches_total:
            return inconsistent(f"two answers of the time {answer.time:.0f} differ")
        wrong = contradiction(base.answer, answer, base.since) if base.whole else None
        if wrong is not None:
            return wrong
        if answer.batches_total == base.answer.batches_total:
            return self._no_batch(base, answer)
        return self._batches(base, answer)

    def _begin(self, answer: Answer, *, whole: bool = False, seconds: float | None = None) -> None:
        """Make an answer the base."""
        before, since = self._base, answer.time
        if before is not None:
            since = before.since if answer.batches_total == before.answer.batches_total else before.seen
        self._base = _Base(answer, answer.time, since, seconds, whole)

    def _reset(self, base: _Base, answer: Answer) -> NoAnswer | None:
        """Start over if a counter went down: the driver is new. A value that was wrong once is right next time."""
        name = fallen(base.answer, answer)
        if name is None:
            return None
        self._begin(answer)
        before, after = getattr(base.answer, name), getattr(answer, name)
        return NoAnswer(NoAnswerReason.COUNTER_RESET, f"{name} went down from {before:g} to {after:g}")

    def _other_executors(self, base: _Base, answer: Answer) -> NoAnswer | None:
        """Start over if executors came or went under one epoch: batches have to start and end with the same ones.

        A batch with other tasks began after the driver had seen that; so did those that follow it.
        """
        for name in ("executors", "interval_seconds", "parallelism", "replicas"):
            before, after = getattr(base.answer, name), getattr(answer, name)
            if before != after:
                self._begin(answer, whole=name in ("parallelism", "replicas"))
                return NoAnswer(NoAnswerReason.OTHER_PLAN, f"{name} went from {before:g} to {after:g}")
        return None

    def _no_batch(self, base: _Base, answer: Answer) -> Observation | NoAnswer:
        if _was_idle(base.answer, answer):
            # the next batch starts after this sign of life, which came after the answer before
            self._base = _Base(answer, answer.time, base.seen, whole=True)
            return idle_observation(base.answer, answer)
        self._base = replace(base, seen=answer.time)
        waited = answer.time - base.answer.time
        message = f"no batch has ended for {waited:.0f} s"
        expected = _expected_seconds(base.answer)
        if answer.lag_rows and waited > _FROZEN_AFTER * expected:
            message += f", though {answer.lag_rows:g} records wait and a batch should take {expected:.0f} s"
            return NoAnswer(NoAnswerReason.FROZEN, message)
        return NoAnswer(NoAnswerReason.NO_BATCH, message)

    def _batches(self, base: _Base, answer: Answer) -> Observation | NoAnswer:
        if not base.whole:
            self._begin(answer, whole=True)
            message = f"batch {answer.batches_total:g} may have begun with other executors"
            return NoAnswer(NoAnswerReason.NO_BATCH, message)
        found = observation(base.answer, answer, base.seen, base.seconds)
        self._begin(answer, whole=True, seconds=found.seconds)
        passed = answer.time - base.seen
        if found.batches > most_batches(passed, found.interval):
            message = f"{found.batches} batches came within {passed:g} s: some ended while the metrics stood still"
            return NoAnswer(NoAnswerReason.FROZEN, message)
        return found


def _missing(answer: Answer) -> NoAnswer | None:
    """Return which numbers an answer lacks or has in name only; None if it has all that are needed."""
    for name, value in vars(answer).items():
        if value is not None and not math.isfinite(value):
            return NoAnswer(NoAnswerReason.NOT_A_NUMBER, f"{name} is {value}, which is not a number")
        if value is not None and value < -ROUNDING and name != "time":
            return NoAnswer(NoAnswerReason.NEGATIVE, f"{name} is {value:g}, and cannot be negative")
    absent = [name for name in ESSENTIAL if getattr(answer, name) is None]
    if absent and answer.batches_total == 0:  # gauges describe the last batch, or a trigger that had nothing to do
        return NoAnswer(NoAnswerReason.NO_BATCH, "the job has finished no batch yet: batches_total is 0")
    if absent:
        return NoAnswer(NoAnswerReason.ABSENT, f"the metrics have no value of {', '.join(absent)}")
    return None


def _impossible(answer: Answer) -> NoAnswer | None:
    """Return a number that no job can have, whatever was reported before; None if all are possible.

    ``answer`` must have every essential series.
    """
    values = vars(answer)
    for name in _WHOLE:
        if values[name] % 1:
            return inconsistent(f"{name} is {values[name]:g}, not a whole number")
    for name in _AT_LEAST_1:
        if values[name] < 1:
            return inconsistent(f"{name} is {values[name]:g}, and batches need 1 or more")
    if values["interval_seconds"] <= 0:
        return inconsistent(f"interval_seconds is {values['interval_seconds']:g}, and must be above 0")
    return None


def _was_idle(base: Answer, answer: Answer) -> bool:
    """Return whether a trigger found nothing to do since ``base``, which reports the same last batch."""
    before, after = base.progress_time, answer.progress_time
    alive = before is not None and after is not None and after > before
    return alive and not answer.lag_rows and not answer.dedicated_lag_rows


def _expected_seconds(answer: Answer) -> float:
    """Return what the running batch should take: the usual time, plus all that waits at the usual pace."""
    batches, rows = answer.batches_total or 1.0, answer.rows_total or 0.0
    seconds, lag = answer.processing_seconds_total or 0.0, answer.lag_rows or 0.0
    return max(seconds / batches, answer.interval_seconds or 0.0) + (lag * seconds / rows if rows else 0.0)
