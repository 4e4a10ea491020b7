"""The serial time of a batch: what of it no number of executors shortens, by cause (Amdahl's law, AFIPS 1967).

Each part is a lower bound that follows from measurements, so that a sum above the target is certain: steps of the
driver and the sink as they were timed; of a stage what its hottest key or its largest slice takes, or an even share of
the most tasks that it may have. What was not measured has no part, and nothing is concluded from it.

The one exception is the untimed part, which follows from what batches cost: a plan that has not run may disprove it.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from .batch_time.batch_model import BatchModel
from .batch_time.skew import chance, hot_share
from .observation import Observation, Stage
from .shape import Bounds

_UNEVEN = 1.5
"""Multiple of the mean from which the largest slice shows that a part of the source cannot be divided."""

_OTHER_CAUSE = 1.25
"""Factor by which another part has to be larger than that of the present cause to take its place."""


class SerialCause(StrEnum):
    """What makes a part of a batch serial; its value is the reason that is reported."""

    HOT_KEY = "HotKey"
    """One key has so many records that the worker which combines them takes most of the interval."""
    UNDIVIDED_SOURCE = "UndividedSource"
    """One replica reads most records, since a part of the source, such as a compressed file, cannot be divided."""
    FEW_WORKERS = "TooFewWorkers"
    """As many workers as the spec allows need too long to combine the records."""
    FEW_REPLICAS = "TooFewReplicas"
    """As many replicas as the spec allows need too long to place the records."""
    FEW_STATE_PARTITIONS = "TooFewStatePartitions"
    """As many tasks as the state has partitions need too long to merge; the checkpoint fixes their number."""
    SLOW_SINK = "SlowSink"
    """The sink takes most of the interval to write or to commit results, once they are computed."""
    SLOW_SOURCE = "SlowSource"
    """The source takes most of the interval to say how far a batch may go."""
    SLOW_CHECKPOINT = "SlowCheckpoint"
    """The checkpoint's store takes most of the interval to write Spark's logs."""
    SHORT_INTERVAL = "ShortInterval"
    """What the driver does for every batch, such as planning it, takes most of the interval."""


@dataclass(frozen=True)
class SerialTime:
    """The serial part of the last batches, as a median.

    Attributes:
        interval: the batch interval, seconds.
        share: the serial part over the interval; W is at least as much.
        exceeds: whether that is too much, so that more executors cannot bring W to the target.
        certain: whether what was timed is too much by itself, so that no other plan could disprove it.
        cause: what takes most of it.
        seconds: seconds that this takes of a batch.
        concentration: share of the records that the hottest key has, or the largest slice; None for other causes.
        until: time of the newest measurement, seconds of the metrics' clock.
    """

    interval: float
    share: float
    exceeds: bool
    certain: bool
    cause: SerialCause
    seconds: float
    concentration: float | None
    until: float

    def __str__(self) -> str:
        """Return the figures as a clause."""
        return (
            f"{self.share * self.interval:.2f} s of a batch do not become shorter with more executors, W "
            f"{self.share:.2f}; {self.seconds:.2f} s of them are due to {self.cause}"
        )


Parts = Mapping[SerialCause, float]
"""Seconds of a batch by cause."""


def serial_parts(seen: Observation, bounds: Bounds, state_partitions: int, arrival: float) -> Parts:
    """Return the timed serial seconds of a batch by cause, if it had the records that arrive in an interval.

    Args:
        seen: the mean of some batches; they may have more records, after a hiccup.
        bounds: the most tasks that stages may have.
        state_partitions: tasks of the merge.
        arrival: records per second that arrive.
    """
    if seen.idle:
        return {}
    usual = min(arrival * seen.interval / seen.rows, 1.0) if seen.rows else 1.0
    parts = dict[SerialCause, float]()
    for cause, seconds in (
        _of_route(seen, bounds),
        _of_combine(seen, bounds),
        (SerialCause.FEW_STATE_PARTITIONS, _each(seen.merge_seconds, state_partitions)),
        (SerialCause.SLOW_SINK, seen.sink_seconds or 0.0),
    ):
        parts[cause] = seconds * usual
    steps = {
        SerialCause.SLOW_SOURCE: seen.source_seconds or 0.0,
        SerialCause.SLOW_CHECKPOINT: seen.log_seconds or 0.0,
        SerialCause.SHORT_INTERVAL: seen.planning_seconds or 0.0,
    }
    return {cause: seconds for cause, seconds in (parts | steps).items() if seconds > 0}


_OUTSIDE = (
    SerialCause.SLOW_SINK,
    SerialCause.UNDIVIDED_SOURCE,
    SerialCause.SLOW_SOURCE,
    SerialCause.SLOW_CHECKPOINT,
    SerialCause.SHORT_INTERVAL,
)
"""Causes whose parts no stage's own clock sees all of, so that the fixed time includes them."""


def untimed_seconds(seen: Observation, parts: Parts, fixed: float) -> float:
    """Return the rest of the ``fixed`` seconds of a batch, after what was timed of them.

    It is 0 if a step was not timed, as by drivers of older images: the rest would be due to that step, for all we know.
    """
    if None in (seen.source_seconds, seen.log_seconds, seen.planning_seconds, seen.sink_seconds):
        return 0.0
    return max(fixed - sum(parts.get(cause, 0.0) for cause in _OUTSIDE), 0.0)


def least_fixed(model: BatchModel) -> float:
    """Return the least seconds of a batch outside its stages: the lower end of the 90 % interval of the estimate.

    The interval is as much wider after few plans as that of predictions, which holds 88 % or more of batch times; of
    the fixed time alone, this has not been measured. After plans with one number of executors it means nothing: what
    executors divide and no clock sees, such as reading, looks fixed then.
    """
    _, low, _ = model.cost_interval(np.eye(len(model.spread))[0])
    return low


def _of_route(seen: Observation, bounds: Bounds) -> tuple[SerialCause, float]:
    even = _each(seen.route.seconds if seen.route else None, bounds.replicas.high)
    slices = seen.plan.replicas
    if seen.longest_slice and seen.largest_slice and slices > 1 and seen.largest_slice * slices >= _UNEVEN:
        return SerialCause.UNDIVIDED_SOURCE, max(seen.longest_slice, even)
    return SerialCause.FEW_REPLICAS, even


def _of_combine(seen: Observation, bounds: Bounds) -> tuple[SerialCause, float]:
    if seen.combine is None:
        return SerialCause.FEW_WORKERS, 0.0
    even = _each(seen.combine.seconds, bounds.parallelism.high)
    hot = whole_key_share(seen, seen.combine) * seen.combine.seconds
    return (SerialCause.HOT_KEY, hot) if hot > even else (SerialCause.FEW_WORKERS, even)


def whole_key_share(seen: Observation, combine: Stage) -> float:
    """Return the share of the records that one key keeps on one worker; 0 if it is spread, or not known.

    Both have to say so: the counts of keys, and the load of the busiest worker beyond what chance explains. An
    algorithm that splits the key evens the loads out; several warm keys on one worker are no hot key.
    """
    workers = seen.plan.parallelism
    if seen.hottest_key is None or seen.imbalance is None or combine.tasks < 2:
        return 0.0
    by_chance = float(chance(np.array(seen.keys or 0.0), np.array(float(workers))))
    return min(hot_share(seen.imbalance - by_chance, workers), seen.hottest_key)


def _each(seconds: float | None, tasks: int) -> float:
    return seconds / tasks if seconds and tasks else 0.0


class SerialMemory:
    """The serial parts of the last observations, and whether they are too much.

    They are once their median, of ``window`` observations, is above ``target``, until it is below ``target - step``.
    They certainly are only while that of the timed parts alone is above ``target``. Where the first batches were slow,
    as on a busy machine, more executors may still help the present ones.
    """

    def __init__(self, target: float, step: float, window: int) -> None:
        self._target, self._step = target, step
        self._recent: deque[tuple[dict[str, float], float | None, float | None, float]] = deque(maxlen=window)
        self._exceeds = self._certain = False
        self._cause: SerialCause | None = None
        self._interval = self._until = 0.0

    def add(self, seen: Observation, parts: Parts, untimed: float = 0.0) -> None:
        """Record the timed parts of an observation, and the ``untimed`` seconds, which count as those of the driver."""
        if seen.interval != self._interval:
            self._recent.clear()
        self._interval, self._until = seen.interval, seen.until
        shares = {str(cause): seconds / seen.interval for cause, seconds in parts.items()}
        whole = sum(shares.values())
        most = seen.utilization / whole if whole > seen.utilization else 1.0  # parts of a batch are within it
        shares = {cause: share * most for cause, share in shares.items()}
        rest = max(min(untimed / seen.interval, seen.utilization - sum(shares.values())), 0.0)
        if rest:
            shares[SerialCause.SHORT_INTERVAL] = shares.get(SerialCause.SHORT_INTERVAL, 0.0) + rest
        self._recent.append((shares, seen.hottest_key, seen.largest_slice, rest))
        if len(self._recent) < (self._recent.maxlen or 0):
            return
        self._exceeds = self._is_above(self._share(), self._exceeds)
        timed = statistics.median(sum(shares.values()) - rest for shares, _, _, rest in self._recent)
        self._certain = timed > self._target
        self._cause = self._largest()

    @property
    def found(self) -> SerialTime | None:
        """The serial part of the last batches; None before there are enough observations."""
        if len(self._recent) < (self._recent.maxlen or 0) or self._cause is None:
            return None
        return SerialTime(
            self._interval,
            self._share(),
            self._exceeds,
            self._certain,
            self._cause,
            self._of(self._cause) * self._interval,
            self._concentration(),
            self._until,
        )

    def _is_above(self, share: float, already: bool) -> bool:
        return share > (self._target - self._step if already else self._target)

    def _share(self) -> float:
        return statistics.median(sum(shares.values()) for shares, *_ in self._recent)

    def _of(self, cause: str) -> float:
        return statistics.median(shares.get(cause, 0.0) for shares, *_ in self._recent)

    def _largest(self) -> SerialCause:
        largest = max(SerialCause, key=self._of)
        stays = self._cause is not None and self._of(largest) <= self._of(self._cause) * _OTHER_CAUSE
        return self._cause if stays and self._cause is not None else largest

    def _concentration(self) -> float | None:
        index = {SerialCause.HOT_KEY: 1, SerialCause.UNDIVIDED_SOURCE: 2}.get(self._cause or SerialCause.SLOW_SINK)
        known: Iterable[Any] = () if index is None else (one[index] for one in self._recent)
        return statistics.median(found) if (found := [each for each in known if each is not None]) else None

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        return {
            "recent": [list(one) for one in self._recent],
            "exceeds": self._exceeds,
            "certain": self._certain,
            "cause": self._cause and str(self._cause),
            "times": [self._interval, self._until],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        self._recent.extend((dict(shares), *others) for shares, *others in saved["recent"])
        self._exceeds, self._certain = saved["exceeds"], saved["certain"]
        self._cause = SerialCause(saved["cause"]) if saved["cause"] else None
        self._interval, self._until = saved["times"]
