"""Forecast of a query's batch time under every algorithm, from the measurements of its batches.

Before anything is measured, the stream partitioner selection rule of paper 000, section 7, makes the choice.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.registry import NATIVE
from millrace_jobs.sketches.key_profile import KeyProfile, add_counts, profile
from millrace_support.batch_cost import FIXED_SECONDS, MEDIAN_ERROR

from .costs import MeasuredBatch, Measurements, Prior, Resources, TaskLoads, fit_costs
from .shadow import Clock, Shadow
from .switch import Candidate

SIGNIFICANTLY_LESS = 10
"""Factor by which groups are "significantly less" than a worker's records; the paper leaves it open."""

MANY_WINDOWS = 4
"""Number of windows per record from which SQL starts routed, because Spark's own plan expands records into windows.

The number is a choice between the measured cases, 1 and 60 windows (docs/benchmarks.md, Pipeline).
"""

EVEN = "shuffle"
"""The rule's choice for few groups."""

COLLOCATING = "cam"
"""The rule's choice for all other batches: of AM and cAM, the one that splits a key where that helps."""


def by_rule(groups: float, rows: float, workers: int) -> str:
    """Return the rule's choice for a batch of ``rows`` records with ``groups`` distinct keys.

    Shuffle if groups are far fewer than the records of a worker; otherwise AM or cAM, which have the best trade-off
    between imbalance and aggregation cost.
    """
    return EVEN if groups * SIGNIFICANTLY_LESS <= rows / workers else COLLOCATING


def starting_algorithm(*, sql: bool, windows: int, grouped: bool, slices_fill_cores: bool = False) -> str:
    """Return the algorithm that a query starts with: Spark's own plan where it is strong, otherwise by rule.

    Args:
        sql: the query is SQL, so that Spark's own plan with its map-side aggregation is available; otherwise its
            aggregator is Python code, which replicas run on their slices without routing.
        windows: number of windows that a record is in.
        grouped: the query has keys, although their number is not known. Without keys there is one group.
        slices_fill_cores: the slices of a batch are enough to keep all cores busy. Slices are even, so workers could
            only add the tasks and the shuffle of another stage.
    """
    if (sql and windows < MANY_WINDOWS) or (not sql and slices_fill_cores):
        return NATIVE
    return COLLOCATING if grouped else EVEN


_MAX_OBSERVED = 64  # observations, of all algorithms
_RECENT = 6  # observations that a median is taken of
_FITTED = 16  # observations from which the rest's seconds per record are fitted
ALIKE = 2  # factor between the records of batches up to which their times are compared rather than converted ones
_FEWEST_OWN = 2  # observations of an algorithm from which it is known how much they scatter

REST_RECORD_SECONDS = 2e-6
"""Seconds per record outside the stages, before any is measured: reading, decoding, and the shuffle."""

REMEMBERED = 200
"""Number of batches for which an algorithm's own times count; doubled each time it is abandoned early."""


@dataclass(frozen=True)
class ObservedTime:
    """Median time of the batches up to ``batch``: ``seconds`` for ``rows`` records each.

    ``loads`` is None unless their keys were known.
    """

    batch: int
    algorithm: str
    seconds: float
    rows: float
    loads: TaskLoads | None


StageSeconds = Callable[[ObservedTime], float]
"""Function that predicts the seconds of the stages of past batches."""


class Residuals:
    """Observed batch times less the predicted stages, from which the rest of a batch's time is predicted.

    An algorithm that has run is predicted from its own times. One that has not run, or whose times are too old, is
    predicted from what the others took recently. The stages are always computed from the newest costs, whose errors
    then cancel where an algorithm's own times are used.

    A backlog makes batches of very different sizes, and the algorithms do not run in the same ones. So the rest has a
    part that grows with records, and what was observed is converted to the size in question. Otherwise the algorithm
    that ran in the large batches would look slow as soon as batches become small.
    """

    def __init__(self) -> None:
        self._observed: deque[ObservedTime] = deque(maxlen=_MAX_OBSERVED)
        self._abandoned: dict[str, tuple[int, int]] = {}

    def add(self, observed: ObservedTime) -> None:
        """Add an observation."""
        self._observed.append(observed)

    @property
    def batches(self) -> set[int]:
        """The batches of the observations that are remembered."""
        return {one.batch for one in self._observed}

    def abandon(self, batch: int, algorithm: str) -> None:
        """Note that the algorithm was abandoned soon after it was chosen, and remember its times for longer."""
        self._abandoned[algorithm] = batch, self.times_abandoned(algorithm, batch) + 1

    def times_abandoned(self, algorithm: str, batch: int) -> int:
        """Return how often the algorithm was abandoned early; 0 once that is forgotten."""
        last, times = self._abandoned.get(algorithm, (batch, 0))
        return times if batch - last <= REMEMBERED << times else 0

    def rest(self, algorithm: str, batch: int, rows: float, stages: StageSeconds) -> float:
        """Return the seconds to expect beyond the stages in ``batch`` of ``rows`` records.

        ``stages`` predicts the stages of past batches.
        """
        native = algorithm == NATIVE  # what surprises of one routed plan is expected of another, and not of this one
        alike = [one for one in self._observed if (one.algorithm == NATIVE) == native]
        known = (self._own(algorithm, batch, rows) or alike or list(self._observed))[-_RECENT:]
        return statistics.median(self._rests(known, rows, stages)) if known else FIXED_SECONDS

    def scatter(self, algorithm: str, batch: int, rows: float, stages: StageSeconds) -> float | None:
        """Return the standard deviation of the rest under the algorithm, in seconds; None without two own observations.

        It is estimated from the median deviation, so that one odd observation among several hardly counts.
        """
        own = self._own(algorithm, batch, rows)[-_RECENT:]
        if len(own) < _FEWEST_OWN:
            return None
        rests = self._rests(own, rows, stages)
        middle = statistics.median(rests)
        return statistics.median(abs(rest - middle) for rest in rests) / MEDIAN_ERROR

    def _own(self, algorithm: str, batch: int, rows: float) -> list[ObservedTime]:
        """Return the algorithm's own observations that are not too old: of batches of about this size, if possible."""
        oldest = batch - (REMEMBERED << self.times_abandoned(algorithm, batch))
        own = [one for one in self._observed if one.algorithm == algorithm and one.batch >= oldest]
        alike = [one for one in own if rows / ALIKE <= one.rows <= rows * ALIKE]
        return alike if len(alike) >= _FEWEST_OWN else own

    def _rests(self, observed: Sequence[ObservedTime], rows: float, stages: StageSeconds) -> list[float]:
        """Return the observed seconds beyond the stages, converted to a batch of ``rows`` records."""
        fitted = list(self._observed)[-_FITTED:]
        work = np.array([[1.0, one.rows] for one in fitted])
        seconds = np.array([one.seconds - stages(one) for one in fitted])
        each = float(fit_costs(work, seconds, np.array([FIXED_SECONDS, REST_RECORD_SECONDS]))[1])
        return [one.seconds - stages(one) + each * (rows - one.rows) for one in observed]

    def clear(self) -> None:
        """Forget everything, because the plan now has other numbers of tasks."""
        self._observed.clear()
        self._abandoned.clear()


class Forecaster:
    """Forecaster of a query's batch time, from the costs of its stages and its keys; memory is bounded."""

    def __init__(self, prior: Prior, among: Sequence[str], clock: Clock = time.thread_time) -> None:
        self.residuals = Residuals()
        self._prior, self._among, self._clock = prior, tuple(among), clock
        self._measured = Measurements(prior)
        self._profiled: MeasuredBatch | None = None
        self._panes = 1.0
        self._rule: str | None = None

    def add(self, batch: MeasuredBatch) -> None:
        """Add the measurements of a batch."""
        self._measured.add(batch)
        if batch.profile is not None:
            self._profiled = batch

    @property
    def workers_measured(self) -> bool:
        """Whether a routed batch has shown what combining costs."""
        return self._measured.routed

    def forecast(self, window: Sequence[MeasuredBatch], resources: Resources) -> dict[str, Candidate]:
        """Learn from the batches of ``window``, and return a prediction for each candidate for a batch like them.

        The batches ran under one plan; call this once for each window. A prediction is the work that the algorithm's
        tasks would have, plus what batches really took beyond that.
        """
        now, rows = window[-1], statistics.median(batch.rows for batch in window)
        loads = {name: load.scaled(rows) for name, load in self._loads(now).items()}
        for batch in window:
            expected = loads[now.algorithm].groups.sum() * batch.rows / rows
            self._measured.add_merge(batch.groups or float(expected), batch.merge_seconds)
        seconds = statistics.median(batch.seconds for batch in window)
        known = loads[now.algorithm] if self._profiled is not None else None
        self.residuals.add(ObservedTime(now.number, now.algorithm, seconds, rows, known))
        costs = self._measured.costs(resources)

        def stages(past: ObservedTime) -> float:
            load = past.loads or loads[past.algorithm].scaled(past.rows)
            return costs.predict(past.algorithm, load, now.replicas, 0.0).stages

        return {
            name: Candidate(
                name,
                costs.predict(name, load, now.replicas, self.residuals.rest(name, now.number, rows, stages)),
                load.imbalance,
                float(load.groups.sum()),
                name == self._rule,
                self.residuals.scatter(name, now.number, rows, stages),
            )
            for name, load in loads.items()
        }

    def _loads(self, now: MeasuredBatch) -> dict[str, TaskLoads]:
        """Return what each candidate's tasks would get of the last batch whose keys are known.

        Spark's own plan reports nothing about keys except their number. Until more is known, they are assumed to be
        equally frequent; if even that promises no gain, nothing is tried.
        """
        basis = self._profiled or now
        keys = basis.profile or _equal_keys(basis.rows, round(basis.state_updates / self._prior.windows))
        self._rule = by_rule(keys.distinct, keys.rows, now.workers)
        shadow = Shadow(keys, workers=now.workers, replicas=now.replicas, clock=self._clock)
        placements = {name: shadow.place(name) for name in self._among}
        self._measured.add_partitioners(placements.values())
        if basis.algorithm == now.algorithm and basis.groups:
            self._panes = placements[basis.algorithm].panes(basis.groups)
        return {
            name: TaskLoads(placed.rows, placed.groups(self._panes), basis.rows) for name, placed in placements.items()
        }


def _equal_keys(rows: int, keys: int) -> KeyProfile:
    """Return the profile of a batch of ``rows`` records that are spread evenly over ``keys`` keys."""
    keys = min(max(keys, 1), rows)
    counts = np.full(keys, rows // keys)
    counts[: rows % keys] += 1
    return profile(add_counts([(seeded_hashes(np.arange(keys, dtype=np.uint64), 1), counts)]))
