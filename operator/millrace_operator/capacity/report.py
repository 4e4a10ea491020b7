"""Reports on the capacity of a flow, each a JSON document; infinite figures are null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from millrace_api.errors import MillraceError, Problem

from .batching import Buffering, added_seconds, buffers
from .bottleneck import BottleneckKind, OperatorLoad, Remedy, loads, remedy
from .cost_model import exceeds
from .flow import Configuration, Flow, Workload
from .minimizer import minimize
from .throughput import time_shares

Report = dict[str, Any]


class PlannedFlow(Protocol):
    """A flow with its configuration, such as that of a running query."""

    @property
    def path(self) -> str:
        """Name for the reports."""

    @property
    def flow(self) -> Flow:
        """The flow."""

    @property
    def configuration(self) -> Configuration:
        """Its present tasks and batches."""

    def throughput(self, rates: Workload) -> dict[str, float]:
        """Return the records per second that each operator processes of ``rates``."""


def prediction(file: PlannedFlow, rates: Workload) -> Report:
    """Return the rates, capacity and throughput of every operator, and the contents of its buffers."""
    flow, configuration = file.flow, file.configuration
    offered, processed = loads(flow, configuration, rates), file.throughput(rates)
    operators = []
    for name, load in ((operator.name, offered[operator.name]) for operator in flow.order):
        fetches = bool(flow.operators[name].inputs)
        operators.append(
            {
                **_sizing(flow, configuration, name),
                "input_records_per_second": load.arriving.records,
                "input_batch_records": load.arriving.batch_records if fetches else None,
                "input_record_bytes": load.arriving.record_bytes if fetches else None,
                "capacity_records_per_second": _finite(load.capacity.total),
                "input_network_capacity_records_per_second": _finite(load.capacity.input),
                "processing_capacity_records_per_second": _finite(load.capacity.processing),
                "output_network_capacity_records_per_second": _finite(load.capacity.output),
                "utilization": load.utilization,
                "overloaded": list(load.overloaded),
                "throughput_records_per_second": processed[name],
            }
        )
    return {
        **_head(file, rates),
        **_turns(flow, configuration, rates),
        "throughput_records_per_second": {name: processed[name] for name in flow.sources},
        "operators": operators,
        "buffers": _buffers(flow, configuration, processed),
    }


def bottlenecks(file: PlannedFlow, rates: Workload) -> Report:
    """Return the overloaded operators, the resources they lack, and a remedy for each with all else unchanged."""
    offered = loads(file.flow, file.configuration, rates)
    found = []
    for name in (operator.name for operator in file.flow.order if offered[operator.name].overloaded):
        load, relief = offered[name], remedy(file.flow, file.configuration, name, offered)
        found.append(
            {
                **_sizing(file.flow, file.configuration, name),
                "overloaded": list(load.overloaded),
                "input_records_per_second": load.arriving.records,
                "capacity_records_per_second": load.capacity.total,
                "tasks_needed": relief.tasks,
                "input_batch_records_needed": relief.batches[0] if relief.batches else None,
                "output_batch_records_needed": relief.batches[1] if relief.batches else None,
                "advice": _advice(file, name, load, relief),
            }
        )
    return {**_head(file, rates), **_turns(file.flow, file.configuration, rates), "bottlenecks": found}


def fewest_tasks(file: PlannedFlow, rates: Workload, *, batching: bool) -> Report:
    """Return the configuration with the fewest tasks.

    Raises:
        UnattainableError: an operator cannot keep up with a broadcast, however many tasks it has.
    """
    found = minimize(file.flow, rates, batching=batching)
    offered = loads(file.flow, found, rates)
    processed = {name: load.arriving.records for name, load in offered.items()}
    operators = [
        {**_sizing(file.flow, found, operator.name), "utilization": offered[operator.name].utilization}
        for operator in file.flow.order
    ]
    return {
        **_head(file, rates),
        "batching": batching,
        **_micro_batches(file.flow, found, offered),
        "tasks": sum(sizing.tasks for sizing in found.values()),
        "operators": operators,
        "buffers": _buffers(file.flow, found, processed),
    }


def rate_of(text: str) -> float:
    """Return the rate of an option, in records per second. Raises MillraceError."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < math.inf:
        hint = "write records per second, such as 500000"
        raise MillraceError(Problem(f'"{text}" is not a rate', hint, field="--rate"))
    return rate


def _turns(flow: Flow, configuration: Configuration, rates: Workload) -> Report:
    """Return the share of the time that each operator takes, and that is left to them, if they take turns on cores."""
    if flow.turns is None:
        return {}
    return {
        "cores": flow.turns.cores,
        "time_share_left_to_operators": flow.turns.share,
        "time_share_of_operators": time_shares(flow, configuration, rates),
    }


def _micro_batches(flow: Flow, configuration: Configuration, offered: Mapping[str, OperatorLoad]) -> Report:
    """Return the cores that operators in turns keep busy, and the interval in which their batches fill."""
    if flow.turns is None:
        return {}
    busy = sum(
        load.arriving.records / load.capacity.processing * flow.at_once(configuration[name].tasks)
        for name, load in offered.items()
    )
    shares = [
        configuration[name].batch * configuration[consumer].tasks / offered[name].sent
        for name in flow.operators
        for consumer in flow.consumers[name]
        if offered[name].sent
    ]
    return {"busy_cores": busy, "fill_seconds": max(shares, default=0.0)}


def _head(file: PlannedFlow, rates: Workload) -> Report:
    return {
        "file": file.path,
        "workload_records_per_second": dict(rates),
        "task_bandwidth_bits_per_second": file.flow.bandwidth,
    }


def _sizing(flow: Flow, configuration: Configuration, name: str) -> Report:
    given = configuration[name]
    return {
        "name": name,
        "tasks": given.tasks,
        "output_batch_records": None if flow.is_sink(name) else given.batch,
    }


def _buffers(flow: Flow, configuration: Configuration, processed: Mapping[str, float]) -> Report:
    """Return the output buffers, distinct and shared, for ``processed`` records per second of each operator."""
    sent = {name: flow.operators[name].selectivity * rate for name, rate in processed.items()}
    report: Report = {}
    for buffering in Buffering:
        operators = []
        for name in (operator.name for operator in flow.order if not flow.is_sink(operator.name)):
            of = buffers(flow, configuration, name, sent[name], buffering)
            operators.append(
                {
                    "name": name,
                    "buffers_per_task": of.count,
                    "buffered_records_per_task": of.records,
                    "buffered_bytes_per_task": of.bytes,
                    "records_per_filled_buffer": of.fill_records,
                    "mean_wait_seconds": _finite(of.wait_seconds),
                }
            )
        added = added_seconds(flow, configuration, sent, buffering)
        report[buffering] = {"operators": operators, "added_latency_seconds": _finite(added)}
    return report


def _advice(file: PlannedFlow, name: str, load: OperatorLoad, relief: Remedy) -> str:
    if BottleneckKind.CORES in load.overloaded:
        return "more cores, or lower costs of any operator"
    ways = []
    if relief.batches:
        fetched, emitted = relief.batches
        larger = [f"input batches of {fetched} records (from {', '.join(file.flow.operators[name].inputs)})"]
        larger = larger if exceeds(fetched, load.arriving.batch_records) else []
        larger += [f"output batches of {emitted} records"] if emitted > file.configuration[name].batch else []
        ways.append(" and ".join(larger))
    if relief.tasks:
        ways.append(f"{relief.tasks} tasks")
    return ", or ".join(ways) or "no number of tasks: what is broadcast to it fills each of them"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
