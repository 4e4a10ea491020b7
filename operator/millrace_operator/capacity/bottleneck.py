"""The overloaded operators of a configuration, what they lack, and what would help.

Loads and bottlenecks follow paper 002, Algorithm 1 (section 4.1.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from millrace_support.batch_sizes import TOLERANCE

from .cost_model import (
    Capacity,
    Inflow,
    capacity,
    exceeds,
    inflow,
    least_input_batch,
    least_output_batch,
    parts,
    tasks_for,
    work,
)
from .flow import Configuration, Flow, FlowOperator, Workload


class BottleneckKind(StrEnum):
    """The resource that an overloaded operator lacks (Definition 43).

    An overloaded processor is ``QUEUE`` or ``CPU``, by what would help.

    - ``QUEUE``: fetching and emitting take the time. The processing itself (c_cpu) would fit on the present tasks, and
      larger batches would be enough.
    - ``CPU``: the processing would not fit with any batches; only more tasks help.
    - ``INPUT_NETWORK`` and ``OUTPUT_NETWORK``: more tasks help, each with its own connection.
    - ``CORES``: of operators that take turns, the one that takes longest, where each would fit alone and all together
      take more time than there is.
    """

    CPU = "CPU"
    QUEUE = "queue"
    INPUT_NETWORK = "input network"
    OUTPUT_NETWORK = "output network"
    CORES = "cores"


@dataclass(frozen=True, slots=True)
class OperatorLoad:
    """The load of an operator under a workload; rates are records per second of all its tasks together.

    Attributes:
        arriving: R_in, with its batches and bytes, when only the producers' own capacity limits them.
        capacity: C and its parts.
        sent: R_out (equation 4.6).
        overloaded: what the operator lacks; empty unless it is a bottleneck.
    """

    arriving: Inflow
    capacity: Capacity
    sent: float
    overloaded: tuple[BottleneckKind, ...]

    @property
    def utilization(self) -> float:
        """The arriving rate R_in over the capacity C; above 1 at a bottleneck."""
        return self.arriving.records / self.capacity.total


def loads(flow: Flow, configuration: Configuration, workload: Workload) -> dict[str, OperatorLoad]:
    """Return every operator's rates, capacity and bottlenecks, from the sources on (Algorithm 1).

    An operator behind a bottleneck gets only what the bottleneck lets through. It may be a bottleneck too once that one
    is removed.
    """
    result: dict[str, OperatorLoad] = {}
    sent: dict[str, float] = {}
    for operator in flow.order:
        arriving = inflow(flow, configuration, operator, sent, workload)
        limits = capacity(flow, configuration, operator, arriving)
        sent[operator.name] = operator.selectivity * min(arriving.records, limits.total)
        at_once = flow.at_once(configuration[operator.name].tasks)
        lacking = _lacking(operator, at_once, arriving.records, limits)
        result[operator.name] = OperatorLoad(arriving, limits, sent[operator.name], lacking)
    return _with_turns(flow, result)


def _with_turns(flow: Flow, loads: dict[str, OperatorLoad]) -> dict[str, OperatorLoad]:
    """Mark the operator that takes longest, if operators take turns and only all together are too much."""
    if flow.turns is None or any(load.overloaded for load in loads.values()):
        return loads
    shares = {name: load.arriving.records / load.capacity.processing for name, load in loads.items()}
    if not exceeds(sum(shares.values()), flow.turns.share):
        return loads
    longest = max(shares, key=lambda name: shares[name])
    return loads | {longest: replace(loads[longest], overloaded=(BottleneckKind.CORES,))}


@dataclass(frozen=True)
class Remedy:
    """The least that an overloaded operator needs for the rate that arrives; either of the two is enough.

    Attributes:
        tasks: with the present batches; None if broadcasts alone are too much for any number of tasks.
        batches: records of an input and of an output batch, with the present tasks; None unless batches help.
    """

    tasks: int | None
    batches: tuple[int, int] | None


def remedy(flow: Flow, configuration: Configuration, name: str, offered: Mapping[str, OperatorLoad]) -> Remedy:
    """Return what would relieve an operator that ``offered`` (Algorithm 1) shows as overloaded, all else unchanged."""
    operator, load = flow.operators[name], offered[name]
    sent = {producer: offered[producer].sent for producer in operator.inputs}
    arriving = parts(flow, configuration, operator, sent, {name: load.arriving.records})
    more = tasks_for(*(work(flow, configuration, operator, part) for part in arriving))
    if load.overloaded != (BottleneckKind.QUEUE,):
        return Remedy(more, None)
    task_rate = load.arriving.records / configuration[name].tasks
    fetched = max(least_input_batch(operator, task_rate), load.arriving.batch_records)
    return Remedy(more, (_whole(fetched), least_output_batch(operator, task_rate, fetched)))


def _whole(records: float) -> int:
    """Round a batch size up; a mean of equal batches is rounded to their size, from which a division may deviate."""
    nearest = round(records)
    return nearest if math.isclose(records, nearest, rel_tol=TOLERANCE) else math.ceil(records)


def _lacking(operator: FlowOperator, at_once: int, rate: float, limits: Capacity) -> tuple[BottleneckKind, ...]:
    found = []
    if exceeds(rate, limits.processing):
        fits = rate * operator.cpu_seconds * (1 + TOLERANCE) < at_once
        found.append(BottleneckKind.QUEUE if fits else BottleneckKind.CPU)
    if exceeds(rate, limits.input):
        found.append(BottleneckKind.INPUT_NETWORK)
    if exceeds(rate, limits.output):
        found.append(BottleneckKind.OUTPUT_NETWORK)
    return tuple(found)
