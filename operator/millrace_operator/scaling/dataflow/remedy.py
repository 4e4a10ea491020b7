"""Remedies for a bottleneck: more tasks, or larger batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .bottleneck import BottleneckKind, OperatorLoad
from .cost_model import Inflow, parts, work
from .flow import Configuration, Flow
from .sizing import least_input_batch, least_output_batch, tasks_for


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
    operator, load, tasks = flow.operators[name], offered[name], configuration[name].tasks
    divided, repeated = load.arriving, Inflow(0.0)
    if operator.inputs:
        divided, repeated = parts(flow, configuration, operator, {each: offered[each].sent for each in operator.inputs})
    shared, alone = (work(flow, configuration, operator, part) for part in (divided, repeated))
    more = tasks_for(shared, alone)
    if load.overloaded != (BottleneckKind.QUEUE,):
        return Remedy(more, None)
    task_rate = load.arriving.records / tasks
    fetched = max(least_input_batch(operator, task_rate), load.arriving.batch_records)
    return Remedy(more, (math.ceil(fetched), least_output_batch(operator, task_rate, fetched)))
