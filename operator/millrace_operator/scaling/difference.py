"""Observations of the batches that ended between two answers of the metrics; pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from .observation import COUNTERS, Answer, NoAnswer, NoAnswerReason, Observation, Stage
from .shape import Shape

ROUNDING = 1e-9
"""Amount, or share, by which numbers may be below what is possible, because of floating-point rounding."""

_MOST_ROWS = 1e9
"""Records per second that no job can exceed."""

_LATE = 0.1
"""Share of the elapsed time, besides one interval, by which the end of a batch may be reported late."""


_QUEUE = 2.0
"""Intervals whose records wait in front of partitioner pods that do not keep up; they cut a batch in each interval."""

_HELD_BACK = 0.05
"""Share of time that partitioner pods wait for the job, from which their queue is the job's."""


def fallen(base: Answer, answer: Answer) -> str | None:
    """Return the name of a counter that is lower in ``answer`` than in ``base``; None if no counter is."""
    for name in COUNTERS:
        before, after = getattr(base, name), getattr(answer, name)
        if before is not None and after is not None and after < before * (1 - ROUNDING):
            return name
    return None


def contradiction(base: Answer, answer: Answer, since: float) -> NoAnswer | None:
    """Return what cannot be true of the batches between two answers; None if nothing contradicts them.

    Batches run one after the other, and the one before them had not ended at ``since``. So they cannot have taken more
    time than there was from ``since`` to ``answer``. Ends may be reported a little late.
    """
    batches = _grown(base, answer, "batches_total")
    seconds, rows = _grown(base, answer, "processing_seconds_total"), _grown(base, answer, "rows_total")
    if not batches:
        if not rows and not seconds:
            return None
        return inconsistent(f"{rows:g} records and {seconds:g} s of processing were counted, but no batch ended")
    passed = answer.time - since
    if seconds > (1 + _LATE) * passed + _value(answer, "interval_seconds"):
        return inconsistent(f"{batches:g} batches took {seconds:g} s, but only {passed:g} s passed")
    if seconds <= 0:
        return inconsistent(f"{batches:g} batches took {seconds:g} s")
    if rows / seconds > _MOST_ROWS:
        return inconsistent(f"{rows:g} records were processed in {seconds:g} s")
    vanished = -(rows + _value(answer, "lag_rows") - _value(base, "lag_rows"))
    if vanished > rows / batches:
        return inconsistent(f"{vanished:g} records that waited are gone, but no batch read them")
    return None


def most_batches(seconds: float, interval: float) -> float:
    """Return how many batches can end within ``seconds``.

    One starts with each trigger, and one in between if the batch before took longer than the interval. Besides those
    that started, one was already running, and the end of one was reported late.
    """
    return 2 * seconds / interval + 2


def observation(base: Answer, answer: Answer, seen: float, seconds_before: float | None = None) -> Observation:
    """Return the means over the batches that ended between two answers that do not contradict each other.

    Args:
        base: the answer before them.
        answer: the answer after them.
        seen: time of an answer, ``base`` or a later one, after which all of them ended.
        seconds_before: processing time of the last batch that ``base`` reports, None if unknown.
    """
    batches = _grown(base, answer, "batches_total")
    seconds, rows = _grown(base, answer, "processing_seconds_total") / batches, _grown(base, answer, "rows_total")
    interval, lag = _value(answer, "interval_seconds"), _value(answer, "lag_rows")
    came = rows + lag - _value(base, "lag_rows")
    cycle = max(seconds, interval)
    first = cycle if seconds_before is None else max(seconds_before, interval)
    last = cycle if batches == 1 else min(cycle, max(answer.time - seen, interval))  # it began after ``seen``
    return Observation(
        since=base.time,
        until=answer.time,
        epoch=int(_value(answer, "epoch")),
        plan=_shape(answer),
        batches=int(batches),
        interval=interval,
        seconds=seconds,
        rows=rows / batches,
        arrival=max(came, 0.0) / _planning_time(batches * cycle, answer.time - base.time, cycle, first - last),
        lag=lag,
        keys=answer.keys,
        partials=_mean(base, answer, "partials_total", batches),
        updates=_mean(base, answer, "updates_total", batches),
        imbalance=None if answer.imbalance is None else max(answer.imbalance, 0.0),
        route=_stage(base, answer, "route", batches),
        combine=_stage(base, answer, "combine", batches),
        merge_seconds=_mean(base, answer, "merge_seconds_total", batches),
        dedicated_busy=_busy(base, answer, rows / batches * interval / cycle),
        routed=_mean(base, answer, "routed_total", batches),
        input_bytes=_mean(base, answer, "input_bytes_total", batches),
        route_bytes=_mean(base, answer, "route_bytes_total", batches),
        combine_bytes=_mean(base, answer, "combine_bytes_total", batches),
        source_seconds=_steps(base, answer, ("latest_offset", "get_batch"), batches),
        log_seconds=_steps(base, answer, ("wal_commit", "commit"), batches),
        planning_seconds=_steps(base, answer, ("planning",), batches),
        sink_seconds=_steps(base, answer, ("sink",), batches),
        longest_slice=_steps(base, answer, ("longest_slice",), batches),
        hottest_key=answer.hottest_key,
        largest_slice=answer.largest_slice,
    )


def idle_observation(base: Answer, answer: Answer) -> Observation:
    """Return what is observed of triggers that found nothing to do: nothing arrived, and nothing waits."""
    interval = _value(answer, "interval_seconds")
    passed = _value(answer, "progress_time") - (base.progress_time or 0.0)
    return Observation(
        since=base.time,
        until=answer.time,
        epoch=int(_value(answer, "epoch")),
        plan=_shape(answer),
        batches=max(round(min(passed, answer.time - base.time) / interval), 1),
        interval=interval,
        seconds=0.0,
        rows=0.0,
        arrival=0.0,
        lag=0.0,
    )


def _shape(answer: Answer) -> Shape:
    return Shape(*(int(_value(answer, name)) for name in ("executors", "parallelism", "replicas")))


def _planning_time(cycles: float, passed: float, cycle: float, shift: float) -> float:
    """Return the seconds from planning the last batch of one answer to planning the last one of the next.

    Records and lag are those of the moments in which batches were planned: once in a ``cycle``, which is the interval
    or the batch time if that is longer. Answers come somewhere in between. If ``cycles`` and the time that ``passed``
    differ by no more than one cycle, the cycles are exact. They run from end to end of batches. To run from planning to
    planning, they start with the cycle of the batch before and leave out the last one; ``shift`` is the difference. If
    ``cycles`` and ``passed`` differ by more, there were pauses, and what arrived is spread over all the time that
    passed.
    """
    return cycles + shift if abs(cycles - passed) <= cycle else passed


def _value(answer: Answer, name: str) -> float:
    """Return the value of a series that is present."""
    return float(getattr(answer, name))


def _grown(base: Answer, answer: Answer, name: str) -> float:
    return max(_value(answer, name) - _value(base, name), 0.0)


def _mean(base: Answer, answer: Answer, name: str, batches: float) -> float | None:
    """Return the growth of a counter per batch; None if either answer has no value."""
    if getattr(base, name) is None or getattr(answer, name) is None:
        return None
    return _grown(base, answer, name) / batches


def _steps(base: Answer, answer: Answer, names: Sequence[str], batches: float) -> float | None:
    """Return the seconds of some steps in a mean batch; None if one of them is unknown."""
    seconds = [_mean(base, answer, f"{name}_seconds_total", batches) for name in names]
    return None if None in seconds else sum(each or 0.0 for each in seconds)


def _stage(base: Answer, answer: Answer, name: str, batches: float) -> Stage | None:
    tasks = _mean(base, answer, f"{name}_tasks_total", batches)
    seconds = _mean(base, answer, f"{name}_seconds_total", batches)
    return Stage(tasks, seconds) if tasks and seconds is not None else None


def _busy(base: Answer, answer: Answer, usual: float) -> float | None:
    """Return the share of time that partitioner pods were busy, at most 1: threads may take more than one core.

    Pods with a standing queue are busy all the time (by the utilization law, at the rate that they pass on), even if
    they spend it on waiting for Kafka and not on a processor. Not so if the job holds them back: what waits then waits
    for the job. ``usual`` is the number of records that came through in an interval.
    """
    seconds = _mean(base, answer, "dedicated_busy_seconds_total", 1)
    if seconds is None:
        return None
    elapsed = (answer.time - base.time) * _value(answer, "replicas")
    held_back = (_mean(base, answer, "dedicated_paused_seconds_total", 1) or 0.0) > _HELD_BACK * elapsed
    waits = min(base.dedicated_lag_rows or 0.0, answer.dedicated_lag_rows or 0.0)
    return 1.0 if waits > _QUEUE * usual and not held_back else min(seconds / elapsed, 1.0)


def inconsistent(message: str) -> NoAnswer:
    """Return that numbers contradict each other, with one sentence that quotes them."""
    return NoAnswer(NoAnswerReason.INCONSISTENT, message)
