"""The fewest tasks that carry a workload without a bottleneck: paper 002, Algorithm 3 (section 4.2)."""

from __future__ import annotations

from dataclasses import replace

from millrace_support.batch_sizes import TOLERANCE

from .cost_model import Inflow, inflow, least_input_batch, least_output_batch, parts, tasks_for, work
from .flow import Configuration, Flow, FlowOperator, Sizing, Workload


class UnattainableError(ValueError):
    """Raised when no configuration carries the workload: broadcasts alone overload every task of ``operator``."""

    def __init__(self, operator: str) -> None:
        self.operator = operator
        super().__init__(f"{operator} cannot keep up with what is broadcast to it, however many tasks it has")


def minimize(flow: Flow, workload: Workload, *, batching: bool = True) -> dict[str, Sizing]:
    """Return the configuration with the fewest tasks in which no operator is overloaded, and the batches it needs.

    Without ``batching``, every batch holds one record. With it, batches are as small as Algorithm 3 makes them, which
    is not always the smallest possible. Batches delay records, but only tasks are minimized.

    Two cases go beyond the printed algorithm (docs/capacity.md): an operator without queue costs may fill its tasks,
    and with broadcasts tasks are counted again until they agree. They only grow, so the first agreement has the fewest.

    Raises:
        UnattainableError: a broadcast alone overloads some operator.
    """
    sizes = dict.fromkeys(flow.operators, Sizing())
    while True:
        needed = _tasks(flow, workload, sizes, batching=batching)
        if needed == sizes:
            break
        sizes = needed
    return _with_batches(flow, workload, sizes) if batching else sizes


def _tasks(flow: Flow, workload: Workload, assumed: Configuration, *, batching: bool) -> dict[str, Sizing]:
    """Return every operator's tasks (lines 8 to 15 and 29) when broadcasts go to as many tasks as ``assumed``."""
    sizes: dict[str, Sizing] = {}
    sent: dict[str, float] = {}
    for operator in flow.order:
        divided, repeated = parts(flow, assumed, operator, sent, workload)
        tasks = _fewest_tasks(flow, assumed, operator, divided, repeated, batching=batching)
        sizes[operator.name] = Sizing(tasks)
        sent[operator.name] = operator.selectivity * (divided.records + tasks * repeated.records)
    return sizes


def _fewest_tasks(
    flow: Flow, assumed: Configuration, operator: FlowOperator, divided: Inflow, repeated: Inflow, *, batching: bool
) -> int:
    """Return an operator's fewest tasks: equation 4.23, or 4.22 without batching."""
    shared, alone = work(flow, assumed, operator, divided), work(flow, assumed, operator, repeated)
    queues = operator.fetch_seconds + operator.selectivity * operator.emit_seconds > 0
    if batching:
        shared = replace(shared, processing=divided.records * operator.cpu_seconds)
        alone = replace(alone, processing=repeated.records * operator.cpu_seconds)
    tasks = tasks_for(shared, alone, exclusive=batching and queues)
    if tasks is None:
        raise UnattainableError(operator.name)
    return tasks


def _with_batches(flow: Flow, workload: Workload, sizes: dict[str, Sizing]) -> dict[str, Sizing]:
    """Add output batches level by level; a consumer raises its producers' batches if it must (lines 17 to 28)."""
    sizes, sent = dict(sizes), dict[str, float]()
    for operator in flow.order:
        arriving = inflow(flow, sizes, operator, sent, workload)
        task_rate = arriving.records / sizes[operator.name].tasks
        least = least_input_batch(operator, task_rate)
        for producer in sorted(operator.inputs, key=lambda name: sizes[name].batch):
            if arriving.batch_records * (1 + TOLERANCE) >= least or not arriving.records:
                break
            if sent[producer] and sizes[producer].batch < least:
                sizes[producer] = replace(sizes[producer], batch=least)
                arriving = inflow(flow, sizes, operator, sent, workload)
        if not flow.is_sink(operator.name):
            batch = least_output_batch(operator, task_rate, arriving.batch_records)
            sizes[operator.name] = replace(sizes[operator.name], batch=batch)
        sent[operator.name] = operator.selectivity * arriving.records
    return sizes
