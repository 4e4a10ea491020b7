"""The selector behind ``algorithm: auto``: it compares predicted batch times, and switches when it is worth it."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from millrace_jobs.partitioners.registry import ALGORITHMS, NATIVE

from .costs import MeasuredBatch, Resources
from .forecast import ALIKE, Residuals
from .switch import Candidate, Switch

CANDIDATES = tuple(name for name in ALGORITHMS if name not in ("cm", "lm", "dagreedy"))
"""Algorithms to choose among. For each of the others, some candidate is always as good.

They also weigh numbers of keys against numbers of records, so a sample says too little about a whole batch.
"""

MARGIN = 0.02
"""Predicted gain, as a share of the batch time, below which the algorithm of a query without joins stays."""

AGREEMENTS = 2
"""Number of evaluations in a row that must find a gain."""

CLEAR_GAIN = 0.25
"""Predicted gain for which one evaluation is enough.

A batch is slow if it takes longer than predicted by more than this share.
"""

PRIOR_ERROR = 0.2
"""Share by which the prior may be wrong.

Until workers have been measured, a job with time to spare leaves ``native`` only for an algorithm that is predicted to
save at least this share.
"""

SOONEST, LATEST = 2, 16
"""Smallest and largest number of batches between evaluations.

Evaluations are frequent after a change and when batches become slow. The number of batches between them then doubles
each time there is nothing to gain. The first evaluation of a plan needs one measured batch only.
"""

RESTART_SECONDS, HORIZON = 2.0, 1000
"""Seconds that starting or ending the ``apart`` algorithm costs, and number of batches in which that has to pay off.

The cost arises because Spark's query is replaced. Each replacement within the last ``HORIZON`` batches halves the
number of batches.
"""

TRIAL = 40
"""Number of batches before which leaving a chosen algorithm counts as abandoning it early."""

_TIE = 0.01
"""Share of its predicted time by which the choice of paper 000's rule is favored over other candidates."""


@dataclass(frozen=True)
class SwitchOutcome:
    """Predicted and observed time of the batches up to ``batch``, in median seconds."""

    batch: int
    algorithm: str
    predicted: float
    observed: float

    @property
    def error(self) -> float:
        """Prediction minus observation, as a share of the observation."""
        return self.predicted / self.observed - 1


class BatchForecaster(Protocol):
    """A forecaster of a query's batch time under every algorithm that it can run under."""

    residuals: Residuals

    @property
    def workers_measured(self) -> bool:
        """Whether a prediction for workers rests on a measurement."""
        ...

    def add(self, batch: MeasuredBatch) -> None:
        """Add the measurements of a batch."""
        ...

    def forecast(self, window: Sequence[MeasuredBatch], resources: Resources) -> dict[str, Candidate]:
        """Return a prediction for each algorithm for a batch like those of ``window``."""
        ...


class Selector:
    """Selector of a query's algorithm, which observes its batches and decides when to switch.

    ``algorithm`` is its current choice. ``candidates`` has its latest prediction for each algorithm, and ``outcomes``
    its latest predictions with the observed times.

    Args:
        forecaster: predicts the time of batches.
        resources: what the tasks run on.
        algorithm: the algorithm to start with.
        apart: the algorithm for which Spark's query is another one; to start or end it replaces that query.
        margin: predicted gain, as a share of the batch time, below which nothing changes. It is doubled for each time
            that the algorithm with the gain was abandoned early.
    """

    def __init__(
        self,
        forecaster: BatchForecaster,
        resources: Resources,
        algorithm: str,
        apart: str = NATIVE,
        margin: float = MARGIN,
    ) -> None:
        self.algorithm = algorithm
        self.candidates: Mapping[str, Candidate] = MappingProxyType({})
        self.outcomes: deque[SwitchOutcome] = deque(maxlen=64)
        self._forecaster = forecaster
        self._apart, self._margin = apart, margin
        self._resources = resources
        self._workers_replicas: tuple[int, int] | None = None
        self._chosen_at: int | None = None
        self._has_slack = False
        self._restarts: deque[int] = deque(maxlen=8)
        self._start_plan()

    def use(self, resources: Resources) -> None:
        """Use these resources from now on; times measured on others say little about them."""
        if resources != self._resources:
            self._resources, self._workers_replicas = resources, None

    def _start_plan(self) -> None:
        """Reset what is known of the batches under the current plan."""
        self._window: list[MeasuredBatch] = []
        self._warm = False
        self._every, self._agreed = 1, 0
        self._prediction: tuple[float, float] | None = None  # seconds, and of a batch of how many records

    def observe(self, batch: MeasuredBatch) -> Switch | None:
        """Take in a finished batch; return a switch if the next ones should run under another algorithm.

        The first batch under a plan does not count, because processes start and kernels are compiled in it. Batches
        without records are ignored, and so are batches of zero time, which occur after the clock was set back.
        """
        if batch.algorithm != self.algorithm or not batch.rows or batch.seconds <= 0:
            return None
        if self._workers_replicas != (batch.workers, batch.replicas):
            self._workers_replicas = batch.workers, batch.replicas
            self._forecaster.residuals.clear()
            self._start_plan()
        if not self._warm:
            self._warm = True
            return None
        self._forecaster.add(batch)
        if self._every > SOONEST and self._is_slow(batch):
            self._window, self._every = [], SOONEST  # earlier batches had another load
        self._window.append(batch)
        if len(self._window) < self._every:
            return None
        window, self._window = self._window, []
        self.candidates = MappingProxyType(self._forecaster.forecast(window, self._resources))
        self._compare(window)
        self._has_slack = 2 * sum(batch.has_slack for batch in window) > len(window)
        return self._decide(batch.number, statistics.median(batch.rows for batch in window))

    def _is_slow(self, batch: MeasuredBatch) -> bool:
        """Whether a batch took so much longer than predicted that the records must have changed."""
        predicted = self._predicted(batch.rows)
        return predicted is not None and batch.seconds > (1 + CLEAR_GAIN) * predicted

    def _compare(self, window: Sequence[MeasuredBatch]) -> None:
        """Record the predicted and observed time of these batches."""
        rows = statistics.median(batch.rows for batch in window)
        predicted = self._predicted(rows)
        if predicted is not None:
            observed = statistics.median(batch.seconds / batch.rows for batch in window) * rows
            self.outcomes.append(SwitchOutcome(window[-1].number, self.algorithm, predicted, observed))
        self._prediction = self.candidates[self.algorithm].time.total, rows

    def _predicted(self, rows: float) -> float | None:
        """Return the seconds predicted for a batch; None without a prediction for one of about that size.

        A part of the time does not grow with records, so what was predicted for batches of another size says little.
        """
        if self._prediction is None:
            return None
        seconds, predicted_rows = self._prediction
        return seconds * rows / predicted_rows if predicted_rows / ALIKE <= rows <= predicted_rows * ALIKE else None

    def _decide(self, number: int, rows: float) -> Switch | None:
        """Return a switch once enough evaluations in a row have found a worthwhile gain (hysteresis)."""
        current = self.candidates[self.algorithm]
        better = [one for one in self.candidates.values() if self._worth_it(current, one, number)]
        if not better:
            self._agreed, self._every = 0, min(self._every * 2, LATEST)
            return None
        best = min(better, key=lambda one: one.time.total * (1 - _TIE * one.by_rule))
        self._agreed, self._every = self._agreed + 1, SOONEST
        switch = Switch(number, current, best)
        if self._agreed < AGREEMENTS and (switch.gain < CLEAR_GAIN or self._is_trial(current)):
            return None
        if self._chosen_at is not None and number - self._chosen_at < TRIAL:
            self._forecaster.residuals.abandon(number, self.algorithm)
        if self._apart in (current.algorithm, best.algorithm):
            self._restarts.append(number)
        self.algorithm, self._chosen_at = best.algorithm, number
        self._start_plan()
        self._prediction = best.time.total, rows
        return switch

    def _is_trial(self, current: Candidate) -> bool:
        """Whether a switch would leave the ``apart`` algorithm while nothing of routed batches has been measured.

        Or while it is not known how much its own times scatter, as after a change of workers.
        """
        unknown = not self._forecaster.workers_measured or current.scatter is None
        return current.algorithm == self._apart and unknown

    def _worth_it(self, current: Candidate, other: Candidate, number: int) -> bool:
        """Whether the predicted gain is above the margin, and pays for replacing Spark's query if necessary.

        The ``apart`` algorithm is left only for a gain that the scatter of the measurements does not explain, and taken
        back unless that gain was seen. Batch times show no processor time, of which it uses the least.
        """
        if other is current:
            return False
        saved = current.time.total - other.time.total
        scatter = (current.scatter or 0.0) + (other.scatter or 0.0)
        if other.algorithm == self._apart and other.scatter is not None:
            return saved + scatter > -self._margin * current.time.total
        margin = self._margin * (1 << self._forecaster.residuals.times_abandoned(other.algorithm, number))
        if self._apart in (current.algorithm, other.algorithm):
            recent = sum(number - restart <= HORIZON for restart in self._restarts)
            saved -= RESTART_SECONDS / HORIZON * (1 << recent)
        if current.algorithm == self._apart:
            saved -= scatter
        if self._is_trial(current) and self._has_slack:
            margin = PRIOR_ERROR
        return saved > margin * current.time.total
