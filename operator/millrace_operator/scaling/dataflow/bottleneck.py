"""Which operators of a configuration are overloaded, and by what: paper 002, Algorithm 1 (section 4.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .cost_model import TOLERANCE, Capacity, Inflow, capacity, exceeds, inflow
from .flow import Configuration, Flow, FlowOperator, Workload


class BottleneckKind(StrEnum):
    """What an overloaded operator lacks (Definition 43).

    A processor that cannot keep up is further told apart by what would help. ``QUEUE``: fetching and emitting take
    the time; the processing itself (c_cpu) would fit on the tasks there are, and larger batches would do. ``CPU``:
    it would not fit with any batches; only further tasks help. ``INPUT_NETWORK`` and ``OUTPUT_NETWORK``: further
    tasks help, each with a connection of its own.
    """

    CPU = "CPU"
    QUEUE = "queue"
    INPUT_NETWORK = "input network"
    OUTPUT_NETWORK = "output network"


@dataclass(frozen=True, slots=True)
class OperatorLoad:
    """An operator under a workload; rates are records per second of all its tasks together.

    Attributes:
        arriving: R_in, with its batches and bytes, where nothing holds the producers back but their own capacity.
        capacity: C and its parts.
        sent: R_out (equation 4.6).
        overloaded: what it lacks; empty unless it is a bottleneck.
    """

    arriving: Inflow
    capacity: Capacity
    sent: float
    overloaded: tuple[BottleneckKind, ...]

    @property
    def utilization(self) -> float:
        """R_in over C; more than 1 at a bottleneck."""
        return self.arriving.records / self.capacity.total


def loads(flow: Flow, configuration: Configuration, workload: Workload) -> dict[str, OperatorLoad]:
    """Algorithm 1: every operator's rates and capacity, from the sources on; overloaded ones say what they lack.

    An operator behind a bottleneck gets only what that lets through, and may be a bottleneck too once that is gone.
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
    """What arrives at an operator: the workload at a source, else what its producers have ``sent``."""
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
