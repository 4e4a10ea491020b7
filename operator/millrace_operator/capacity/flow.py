"""Data-flow graphs: operators with their costs and connections, and the tasks and batches assigned to them.

The model follows paper 002: chapter 2.3 (graphs) and Definitions 30 (costs), 41 (configuration) and 44 (levels).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter


class StreamConnection(StrEnum):
    """The way a producer's records reach the tasks of a consumer.

    - ``RANDOM``: each record goes to any one task.
    - ``HASH``: each record goes to the task that its key belongs to; all tasks get equal shares.
    - ``BROADCAST``: each record goes to every task, so ``tasks`` copies of it are sent and processed.

    The paper leaves broadcasts out of its equations (section 2.3.2). Here a copy is a record like any other, in the
    consumer's input rate, batches and bytes, and in the producer's fan-out (equation 3.30); see docs/capacity.md.
    """

    RANDOM = "random"
    HASH = "hash"
    BROADCAST = "broadcast"

    def copies(self, tasks: int) -> int:
        """Return how many times a record is sent to a consumer with ``tasks`` tasks."""
        return tasks if self is StreamConnection.BROADCAST else 1


@dataclass(frozen=True)
class FlowOperator:
    """One operator of a flow.

    Attributes:
        name: unique in the flow.
        inputs: producers by name, and how each is connected; empty for a source.
        fetch_seconds: c_fetch, to take one batch from the input queue.
        cpu_seconds: c_cpu, to process one record.
        emit_seconds: c_emit, to put one batch into an output queue.
        selectivity: s, output records per input record; no effect at a sink, which sends nothing on.
        record_bytes: rs_out, size of an output record; no effect at a sink.
    """

    name: str
    inputs: Mapping[str, StreamConnection] = field(default_factory=dict)
    fetch_seconds: float = 0.0
    cpu_seconds: float = 0.0
    emit_seconds: float = 0.0
    selectivity: float = 1.0
    record_bytes: float = 0.0


@dataclass(frozen=True)
class Sizing:
    """The ``tasks`` of an operator (dop) and the records per output ``batch`` (b_out; no effect at a sink)."""

    tasks: int = 1
    batch: int = 1

    def __post_init__(self) -> None:
        if self.tasks < 1 or self.batch < 1:
            raise ValueError(f"an operator has at least 1 task and batches of at least 1 record, not {self}")


Configuration = Mapping[str, Sizing]
"""Tasks and batch size of each operator, by operator name (Γ of Definition 41)."""

Workload = Mapping[str, float]
"""Records per second that each source has to take in, by source name (Definition 42)."""


@dataclass(frozen=True)
class Turns:
    """Cores that all operators use in turn, one operator after the other, as the stages of a micro-batch do.

    In the paper each task has a thread and a core of its own. Here at most ``cores`` tasks of an operator run at once,
    and the shares of the time that the operators take add up. ``share`` is what is left for them: the rest is the time
    of a batch outside its stages.
    """

    cores: int
    share: float


@dataclass(frozen=True)
class Mistake:
    """One mistake in a flow: the operator, the path of its attribute, what is wrong, and what to do instead."""

    operator: str
    path: tuple[str, ...]
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{'.'.join((self.operator, *self.path))}: {self.message}; {self.hint}"


class FlowError(ValueError):
    """The flow is not a connected acyclic graph or has impossible costs; ``mistakes`` holds all that was found."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(str(mistake) for mistake in mistakes))


class Flow:
    """A validated, connected, directed acyclic graph of operators.

    Attributes:
        operators: operators by name.
        bandwidth: N, bits per second that a task may receive, and as many that it may send; None is no limit.
        turns: the cores that operators use in turn; None if each task has a core of its own.
        consumers: consumers of each operator by name, and how they are connected.
        levels: operator names by level (Definition 44): sources first, every operator after all its producers.

    Raises:
        FlowError: the flow has mistakes; the error holds every one that was found.
    """

    def __init__(
        self, operators: Iterable[FlowOperator], bandwidth: float | None = None, turns: Turns | None = None
    ) -> None:
        given = list(operators)
        found = [*_names(given), *_numbers(given, bandwidth)]
        found += _connections(given) if not found else []
        if found:
            raise FlowError(found)
        self.bandwidth = bandwidth
        self.turns = turns
        self.operators = {operator.name: operator for operator in given}
        self.consumers: dict[str, dict[str, StreamConnection]] = {name: {} for name in self.operators}
        for operator in given:
            for producer, connection in operator.inputs.items():
                self.consumers[producer][operator.name] = connection
        found = list(_queues(self))
        if found:
            raise FlowError(found)
        self.levels = _levels(self.operators)

    @property
    def order(self) -> Iterator[FlowOperator]:
        """The operators, level by level."""
        return (self.operators[name] for level in self.levels for name in level)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the operators without producers."""
        return self.levels[0]

    def at_once(self, tasks: int) -> int:
        """Return how many of an operator's tasks run at the same time."""
        return tasks if self.turns is None else min(tasks, self.turns.cores)

    def is_sink(self, name: str) -> bool:
        """Return whether an operator has no consumers."""
        return not self.consumers[name]


def _levels(operators: Mapping[str, FlowOperator]) -> tuple[tuple[str, ...], ...]:
    level: dict[str, int] = {}
    for name in TopologicalSorter({operator.name: operator.inputs for operator in operators.values()}).static_order():
        level[name] = 1 + max((level[producer] for producer in operators[name].inputs), default=-1)
    return tuple(tuple(name for name in operators if level[name] == depth) for depth in range(max(level.values()) + 1))


def _names(operators: list[FlowOperator]) -> Iterator[Mistake]:
    if not operators:
        yield Mistake("", (), "the flow has no operators", "write at least one")
    known: set[str] = set()
    for operator in operators:
        if operator.name in known:
            yield Mistake(operator.name, (), "is the name of two operators", "rename one")
        known.add(operator.name)
    for operator in operators:
        for producer in operator.inputs:
            if producer not in known:
                others = sorted(known - {operator.name})
                hint = f"write one of {', '.join(others)}" if others else "add that operator, or leave the input out"
                yield Mistake(operator.name, ("inputs", producer), f'there is no operator "{producer}"', hint)


def _numbers(operators: list[FlowOperator], bandwidth: float | None) -> Iterator[Mistake]:
    for operator in operators:
        for name in ("fetch_seconds", "cpu_seconds", "emit_seconds", "selectivity", "record_bytes"):
            value = getattr(operator, name)
            if not 0 <= value < math.inf:
                yield Mistake(operator.name, (name,), f"{value} is not a cost, share or size", "write 0 or more")
    if bandwidth is not None and not 0 < bandwidth < math.inf:
        yield Mistake("", ("bandwidth",), f"{bandwidth} bit/s is not a bandwidth", "write more than 0, or leave it out")


def _connections(operators: list[FlowOperator]) -> list[Mistake]:
    """Return a cycle, or the operators that are not connected to the first one."""
    inputs = {operator.name: operator.inputs for operator in operators}
    try:
        TopologicalSorter(inputs).prepare()
    except CycleError as error:
        cycle = error.args[1]
        arrows = " -> ".join(cycle)
        return [Mistake(cycle[1], ("inputs", cycle[0]), f"the inputs form a cycle: {arrows}", "remove one of these")]
    neighbors: dict[str, set[str]] = {name: set(producers) for name, producers in inputs.items()}
    for name, producers in inputs.items():
        for producer in producers:
            neighbors[producer].add(name)
    reached: set[str] = set()
    waiting = [operators[0].name]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting.extend(neighbors[name] - reached)
    hint = "give it inputs, or plan it in a file of its own"
    message = f"is not connected to {operators[0].name}"
    return [Mistake(name, (), message, hint) for name in inputs if name not in reached]


def _queues(flow: Flow) -> Iterator[Mistake]:
    """Yield costs of queues that do not exist (Definition 30), and unknown record sizes on a limited network."""
    no_queue = "leave it out, or add it to the cost of processing a record"
    for name, operator in flow.operators.items():
        if operator.fetch_seconds and not operator.inputs:
            yield Mistake(name, ("fetch_seconds",), "a source has no queue to fetch from", no_queue)
        if operator.emit_seconds and flow.is_sink(name):
            message = "has no consumers, so there is no queue to put records into"
            yield Mistake(name, ("emit_seconds",), message, no_queue)
        if flow.bandwidth is not None and not operator.record_bytes and not flow.is_sink(name):
            hint = "write the mean size of an output record, or leave taskMegabitsPerSecond out"
            yield Mistake(name, ("record_bytes",), "is required if taskMegabitsPerSecond is set", hint)
