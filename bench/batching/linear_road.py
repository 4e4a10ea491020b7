"""Figures 4.11 to 4.14: the Linear Road flow with more and fewer tasks of two operators, with batching and without.

Tasks have the costs of Table 4.2, slowed down, and use a share of them as processor time: as if each ran on a processor
of its own with that share of the speed of ours, so that the flow runs on a machine with fewer processors than tasks.
Real are also the buffers, connections and queues between them, and that an overloaded task holds its producers back.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.batching.comparison import PaperComparison
from bench.batching.running import FlowRun
from bench.batching.tasks import BufferKind, TaskFigures
from millrace_operator.capacity.flow import Configuration, Flow, Sizing
from millrace_operator.capacity.minimizer import minimize
from millrace_operator.capacity.throughput import throughput
from millrace_research.flows.flow_file import read_flow

FLOW = Path(__file__).parents[2] / "examples/flows/linear-road.yaml"

WORKLOAD = 500_000
"""Records per second of the spouts in the paper, for which Table 4.3 has the fewest tasks."""

SLOWDOWN = {False: 4000.0, True: 800.0}
"""Factor of all costs, by which the workload is divided, without batching and with it.

A batch then takes milliseconds; larger batches need a higher rate to be many.
"""

SHARE = {False: 1 / 100, True: 1 / 50}
"""Part of the costs that is processor time, without batching and with it.

The flow needs 13.5 tasks that are busy all the time without batching, and 3.9 with it, and so about a tenth of a
processor of ours. A record costs ``parse`` half a millisecond of it, several times
as much as what the task really does with records and batches, which is part of it.
"""

_KEEPS_UP = 0.93
"""Share of its input from which an operator is no bottleneck."""

_LONGER = 1.7
"""Factor of a run's length with batching, in which a task gets its records a few hundred at a time."""

_QUEUE = 16 << 10
_SPOUTS_OF_THE_PAPER = 5
"""Tasks of the spout without batching in Table 4.3; docs/capacity.md says why Algorithm 3 finds fewer."""

_PAPER = {("parse", False): ("4.11", 7), ("agg", False): ("4.12", 4), ("parse", True): ("4.13", 2),
          ("agg", True): ("4.14", 2)}  # fmt: skip
"""The figure of each operator, with batching or without, and the fewest tasks with which it is no bottleneck there."""


@dataclass(frozen=True)
class TaskSweep:
    """Runs with a growing number of an operator's tasks.

    Attributes:
        operator: the operator.
        batching: whether records travel in batches.
        least: its tasks according to Algorithm 3.
        shares: share of the workload that the operator took in, by its tasks; in the best round, because what else the
            machine does can only hold tasks up.
        predicted: the same according to Algorithm 2.
    """

    operator: str
    batching: bool
    least: int
    shares: dict[int, float]
    predicted: dict[int, float]

    @property
    def enough(self) -> int:
        """The fewest tasks with which the operator keeps up with what reaches it in the largest configuration."""
        whole = max(self.predicted.values())
        return min((tasks for tasks, share in self.shares.items() if share >= _KEEPS_UP * whole), default=0)


def measure_linear_road(rounds: int, seconds: float) -> list[TaskSweep]:
    """Run the flow with 1 to two more than enough tasks of ``parse``, then of ``agg``, without and with batching."""
    flow = read_flow(FLOW).flow
    return [_sweep(flow, operator, batching, rounds, seconds) for operator, batching in _PAPER]


def linear_road(sweeps: Sequence[TaskSweep]) -> Iterator[PaperComparison]:
    """Compare the fewest tasks without a bottleneck with the paper's, and throughputs with Algorithm 2."""
    for sweep in sweeps:
        figure, paper = _PAPER[sweep.operator, sweep.batching]
        how = "with batches" if sweep.batching else "with single records"
        yield PaperComparison(figure, f"tasks with which {sweep.operator} is no bottleneck, {how}", str(paper),
                         f"{sweep.enough or 'none'} (Algorithm 3: {sweep.least})", sweep.enough == paper)  # fmt: skip
        shares = [sweep.shares[tasks] for tasks in sorted(sweep.shares)]
        rising = [share for share in shares if share < _KEEPS_UP * max(shares)] + [max(shares)]
        ours = ", ".join(f"{share:.2f}" for share in shares)
        what = f"share of the workload that {sweep.operator} takes in, by tasks from 1"
        yield PaperComparison(figure, what, "rises, then 1", ours, rising == sorted(rising))
        errors = [abs(sweep.shares[tasks] / sweep.predicted[tasks] - 1) for tasks in sweep.shares]
        yield PaperComparison(figure, "error of Algorithm 2's throughput, mean (and most)", "-",
                         f"{statistics.mean(errors):.1%} (to {max(errors):.1%})".replace("%", " %"))  # fmt: skip


def resources() -> PaperComparison:
    """Table 4.3: tasks in all."""
    flow = read_flow(FLOW).flow
    counts = [sum(size.tasks for size in _least(flow, batching).values()) for batching in (False, True)]
    return PaperComparison("4.11-14", "tasks of the flow with single records, over batches", "2.5 (20 / 8)",
                      f"{counts[0] / counts[1]:.1f} ({counts[0]} / {counts[1]})", counts[0] > counts[1])  # fmt: skip


def _sweep(flow: Flow, operator: str, batching: bool, rounds: int, seconds: float) -> TaskSweep:
    least = _least(flow, batching)
    length = seconds * (_LONGER if batching else 1.0)
    shares, predicted = {}, {}
    for tasks in range(1, least[operator].tasks + 3):
        configuration = least | {operator: replace(least[operator], tasks=tasks)}
        runs = [_run(flow, configuration, length, batching)[operator] for _ in range(rounds)]
        taken = max(sum(task.records for task in run) / max(task.seconds for task in run) for run in runs)
        shares[tasks] = taken * SLOWDOWN[batching] / WORKLOAD
        predicted[tasks] = throughput(flow, configuration, {"spout": WORKLOAD})[operator] / WORKLOAD
    return TaskSweep(operator, batching, least[operator].tasks, shares, predicted)


def _least(flow: Flow, batching: bool) -> dict[str, Sizing]:
    """Return the configuration that Algorithm 3 finds, but without batching as many spouts as the paper has."""
    found = minimize(flow, {"spout": WORKLOAD}, batching=batching)
    return found if batching else found | {"spout": Sizing(_SPOUTS_OF_THE_PAPER)}


def _run(flow: Flow, configuration: Configuration, seconds: float, batching: bool) -> dict[str, list[TaskFigures]]:
    slowdown, share = SLOWDOWN[batching], SHARE[batching]
    return FlowRun(
        flow,
        configuration,
        {"spout": WORKLOAD / slowdown},
        seconds,
        warmup=seconds / 2,
        slowdown=slowdown,
        share=share,
        kind=BufferKind.SHARED,
        queue=_QUEUE,
    ).run()
