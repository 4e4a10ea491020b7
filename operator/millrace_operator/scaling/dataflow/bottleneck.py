"""The overloaded operators of a configuration, and what they lack: paper 002, Algorithm 1 (section 4.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .cost_model import TOLERANCE, Capacity, Inflow, capacity, exceeds, inflow
from .flow import Configuration, Flow, FlowOperator, Workload


class BottleneckKind(StrEnum):
    """The resource that an overloaded operator lacks (Definition 43).

    An overloaded processor is ``QUEUE`` or ``CPU``, by what would help.

    - ``QUEUE``: fetching and emitting take the time. The processing itself (c_cpu) would fit on the present tasks, and
      larger batches would be enough.
    - ``CPU``: the processing would not fit with any batches; only more tasks help.
    - ``INPUT_NETWORK`` and ``OUTPUT_NETWORK``: more tasks help, each with its own connection.
    """

    CPU = "CPU"
    QUEUE = "queue"
    INPUT_NETWORK = "input network"
    OUTPUT_NETWORK = "output network"


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
        arriving = arrivals(flow, configuration, operator, workload, sent)
        able = capacity(flow, configuration, operator, arriving)
        sent[operator.name] = operator.selectivity * min(arriving.records, able.total)
        lacking = _lacking(operator, configuration[operator.name].tasks, arriving.records, able)
        result[operator.name] = OperatorLoad(arriving, able, sent[operator.name], lacking)
    return result


def arrivals(
    flow: Flow, configuration: Configuration, operator: FlowOperator, workload: Workload, sent: Mapping[str, float]
) -> Inflow:
    """Return what arrives at an operator: the workload at a source, otherwise what its producers have ``sent``."""
    if operator.inputs:
        return inflow(flow, configuration, operator, sent)
    return Inflow(workload[operator.name])


def _lacking(operator: FlowOperator, tasks: int, rate: float, able: Capacity) -> tuple[BottleneckKind, ...]:
    found = []
    if exceeds(rate, able.processing):
        fits = rate * operator.cpu_seconds * (1 + TOLERANCE) < tasks
        found.append(BottleneckKind.QUEUE if fits else BottleneckKind.CPU)
    if exceeds(rate, able.input):
        found.append(BottleneckKind.INPUT_NETWORK)
    if exceeds(rate, able.output):
        found.append(BottleneckKind.OUTPUT_NETWORK)
    return tuple(found)
