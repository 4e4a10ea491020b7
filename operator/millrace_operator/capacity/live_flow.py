"""A running query as a flow: the stages of its micro-batches with the costs that were calibrated from its own metrics.

The stages are operators that take turns on the executors' cores. What a task takes from its input at once is its share
of a micro-batch: the batch of equation 3.8. So ``c_fetch`` is what a task costs besides its records, and ``c_emit``
what it costs to send every task of the stage before its block of such a share. ``c_cpu`` is the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from millrace_support.batch_sizes import TOLERANCE

from ..scaling.batch_time.batch_model import BatchLoad, BatchModel
from ..scaling.batch_time.stage_work import BLOCK, COMBINE, GROUP, RECORD, ROUTE, TASK
from ..scaling.shape import Network, Shape, Vector
from .flow import Configuration, Flow, FlowOperator, Sizing, StreamConnection, Turns, Workload
from .throughput import throughput

SOURCE = "source"
"""Name of the operator before the stages: it costs nothing, and hands each task of the first stage its slice."""

_BISECTIONS = 30
"""Steps in which a throughput is found: to a billionth of the rate that is offered."""

_MOST_EXECUTORS = 256


@dataclass(frozen=True)
class LiveFlow:
    """A query at a ``rate`` of records per second, under a shape and a batch interval in seconds.

    The costs hold for that rate and shape. They include what contention and the slowest task of each stage cost, so
    that the shares of time of all stages and the fixed time add up to the model's batch time exactly.
    """

    name: str
    model: BatchModel
    shape: Shape
    interval: float
    rate: float
    network: Network | None = None

    @property
    def path(self) -> str:
        """What the reports call the flow: the query's name."""
        return self.name

    @property
    def flow(self) -> Flow:
        """The stages of the query as a flow."""
        return self._built[0]

    @property
    def configuration(self) -> Configuration:
        """Tasks of the stages, and the records of a batch between them."""
        return self._built[1]

    @property
    def utilization(self) -> float:
        """Predicted W: processing time over batch interval."""
        return float(self.model.predict([self.shape], self._load).seconds[0]) / self.interval

    def throughput(self, rates: Workload) -> dict[str, float]:
        """Return the records per second that each operator processes of ``rates`` (Algorithm 2).

        Batches have fewer records if fewer get through, and a record then costs more. So the rate is searched, by
        bisection, at which the flow has just the costs with which it carries that rate.
        """
        found = self._carried(rates[SOURCE], rates)
        low, high = 0.0, rates[SOURCE]
        if found[SOURCE] >= high * (1 - TOLERANCE):
            return found
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            found = self._carried(middle, rates)
            low, high = (middle, high) if found[SOURCE] >= middle else (low, middle)
        return found

    def _carried(self, rate: float, rates: Workload) -> dict[str, float]:
        """Return what gets through of ``rates`` with the costs that the flow has at ``rate``."""
        at = replace(self, rate=rate)
        return throughput(at.flow, at.configuration, rates)

    def facts(self) -> dict[str, Any]:
        """Return what the query runs under, its predicted W with the 90 % interval, and how many executors would do."""
        found = self.model.predict([self.shape], self._load)
        enough = self.enough_executors()
        return {
            "executors": self.shape.executors,
            "parallelism": self.shape.parallelism,
            "replicas": self.shape.replicas,
            "batch_interval_seconds": self.interval,
            "utilization": self.utilization,
            "utilization_low": float(found.low[0]) / self.interval,
            "utilization_high": float(found.high[0]) / self.interval,
            "executors_needed": enough.executors if enough is not None else None,
        }

    def enough_executors(self) -> Shape | None:
        """Return the shape with the fewest executors that carries the rate; None if none does.

        It has enough tasks for all cores. Parallelism and replicas do not fall below the present ones.
        """
        cores = self.model.executor_cores
        shapes = [
            Shape(count, max(count * cores, self.shape.parallelism), max(count * cores, self.shape.replicas))
            for count in range(1, _MOST_EXECUTORS + 1)
        ]
        fits = self.model.predict(shapes, self._load).seconds <= self.interval
        return next((shape for shape, fit in zip(shapes, fits, strict=True) if fit), None)

    @property
    def _load(self) -> BatchLoad:
        return BatchLoad(self.rate * self.interval, self.interval)

    @cached_property
    def _built(self) -> tuple[Flow, dict[str, Sizing]]:
        work, _ = self.model.work([self.shape], self._load)
        prediction = self.model.predict([self.shape], self._load)
        tasks, cores = work.tasks[0], self.shape.executors * self.model.executor_cores
        alone = tasks * np.einsum("sk,sk->s", work.amounts[0], self.model.costs)
        slower = prediction.stages[0] * np.minimum(tasks, cores) / np.maximum(alone, 1e-12)
        costs = self.model.costs * slower[:, None]
        passing = self._records(float(work.groups[0]))
        batches = [max(round(records / count), 1) for records, count in zip(passing, tasks, strict=True)]
        operators = [FlowOperator(SOURCE, selectivity=_each(passing[0], self._load.rows))]
        sizes = {SOURCE: Sizing(int(tasks[0]), batches[0])}
        for index, stage in enumerate(self.model.stages):
            entering = passing[index], batches[index]
            leaving = (passing[index + 1], batches[index + 1]) if index + 1 < len(passing) else None
            amounts = work.amounts[0, index] * tasks[index]
            operators.append(_stage(stage.name, operators[-1].name, costs[index] * amounts, entering, leaving))
            sizes[stage.name] = Sizing(int(tasks[index]), leaving[1] if leaving is not None else 1)
        charged = sum(time for time, records in zip(prediction.stages[0], passing, strict=True) if records)
        share = 1 - (float(prediction.seconds[0]) - float(charged)) / self.interval
        sized = [replace(each, record_bytes=self._bytes(each.name)) for each in operators]
        return Flow(sized, self._bandwidth(), Turns(cores, share)), sizes

    def _records(self, groups: float) -> list[float]:
        """Return the records of a micro-batch that enter each stage."""
        rows, sizes = self._load.rows, self.model.sizes
        routed = rows * sizes.passing if sizes is not None and sizes.passing else rows
        first = [rows, routed] if ROUTE in self.model.stages else [routed]
        return [*first, groups]

    def _bytes(self, operator: str) -> float:
        """Return the size of the records that an operator sends on; 0 if it is unknown, and for the merge."""
        sizes, routes = self.model.sizes, ROUTE in self.model.stages
        if sizes is None:
            return 0.0
        known = {SOURCE: sizes.read if routes else sizes.routed, ROUTE.name: sizes.routed, COMBINE.name: sizes.partial}
        return known.get(operator, 0.0)

    def _bandwidth(self) -> float | None:
        """Return N, the bits per second of one task: its core's part of an executor's network; None if unknown."""
        sizes = self.model.sizes
        if self.network is None or sizes is None or not (sizes.read and sizes.routed and sizes.partial):
            return None
        bits = 8 * min(self.network.receives, self.network.sends) / self.model.executor_cores
        return bits if np.isfinite(bits) else None


def _stage(
    name: str, producer: str, seconds: Vector, entering: tuple[float, int], leaving: tuple[float, int] | None
) -> FlowOperator:
    """Return a stage as an operator.

    Args:
        name, producer: its name, and that of the operator before it.
        seconds: what it takes in a micro-batch, of one core, by kind of cost.
        entering, leaving: records of a micro-batch, and of a batch; ``leaving`` is None at the last stage.
    """
    (records, input_batch), (sent, output_batch) = entering, leaving or (0.0, 1)
    return FlowOperator(
        name=name,
        inputs={producer: StreamConnection.RANDOM if producer == SOURCE else StreamConnection.HASH},
        fetch_seconds=_each(seconds[TASK], records) * input_batch,
        cpu_seconds=_each(seconds[RECORD] + seconds[GROUP], records),
        emit_seconds=_each(seconds[BLOCK], sent) * output_batch,
        selectivity=_each(sent, records),
    )


def _each(total: float, records: float) -> float:
    return float(total / records) if records else 0.0
