"""One task of a data flow, in a process of its own: it fetches batches, processes their records, and emits batches.

What it processes is real or has the costs of a flow, slowed down, so that a flow may have more tasks than the machine
has processors. A task then takes as long as they say. It spends a share of that time on the processor, its own work
with batches included, as if it had a processor with that share of the speed, and waits for the rest.
"""

from __future__ import annotations

import math
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench.batching.kinds import SharedBuffers
from bench.batching.wire import Frame, Inbox, send
from millrace_jobs.dedicated.batching.buffers import DistinctBuffers
from millrace_jobs.dedicated.batching.pack_size import PackSize
from millrace_operator.capacity.flow import FlowOperator, StreamConnection

RECORD = pa.schema([("emitted", pa.float64()), ("key", pa.int64()), ("payload", pa.binary(84))])
"""The records, of 100 bytes: when their source emitted them, on the machine's monotonic clock, and random data."""

_TICK = 0.02
_SHORTEST_SLEEP = 0.002
_NUMBERS = 200
"""Steps of the computation between two looks at the clock: some ten microseconds."""
_MOST_AT_ONCE = 1000
"""Records that a source makes at once at most."""

_NO_LIMIT = 1 << 30
"""Bytes of an output batch at most, so that only its records count, as in the paper."""

_DECODED_AT_ONCE = 500
"""Records of a batch that are Python objects at the same time: few enough for the processor's cache."""


class BufferKind(StrEnum):
    """Output buffers of a task with several consumers by key: one pool for each consumer, or shared ones."""

    DISTINCT = "distinct"
    SHARED = "shared"


@dataclass(frozen=True)
class TaskPlan:
    """The work of one task.

    Attributes:
        operator: its operator, whose costs the task has, times ``slowdown``.
        batch: records of an output batch, b_out.
        consumers: for each consumer how it is connected, and the connections to its tasks.
        begin, end: the time in which the task works, on the monotonic clock.
        warmup: seconds at the beginning that are not measured.
        rate: records per second of a source's task.
        slowdown: factor of the operator's costs.
        share: part of these costs that is processor time; the rest is waited for.
        kind: kind of output buffers.
        flush_every: seconds after which output buffers are flushed; None never.
        timed: whether a sink notes when batches come.
        live: whether the task sets b_out itself when it flushes its buffers, as a partitioner's replica does.
    """

    operator: FlowOperator
    batch: int
    consumers: Sequence[tuple[StreamConnection, Sequence[socket.socket]]]
    begin: float
    end: float
    warmup: float
    rate: float = 0.0
    slowdown: float = 0.0
    share: float = 0.0
    kind: BufferKind = BufferKind.DISTINCT
    flush_every: float | None = None
    timed: bool = False
    live: bool = False


@dataclass
class TaskFigures:
    """What a task did in the time that is measured.

    Attributes:
        records, batches: what it took in; at a source, the records it made.
        sent: batches that it sent.
        seconds: the time.
        processor: processor seconds in this time.
        sizes: at a live task, b_out of each interval.
        arrivals: at a timed sink, for each batch the time when it came, and the seconds since each record was emitted.
    """

    records: int = 0
    batches: int = 0
    sent: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    sizes: list[int] = field(default_factory=list)
    arrivals: list[tuple[float, NDArray[np.float64]]] = field(default_factory=list)


class Outbox:
    """Output buffers of a task and the connections that full batches leave through."""

    def __init__(self, plan: TaskPlan, emitted: Callable[[], None]) -> None:
        self._plan, self._emitted = plan, emitted
        self._turn = 0
        sizes = [len(tasks) if how is StreamConnection.HASH else 1 for how, tasks in plan.consumers]
        self._sizes = sizes
        self._shared = SharedBuffers(sizes, plan.batch) if plan.kind is BufferKind.SHARED else None
        self._pools = [DistinctBuffers(size, plan.batch, _NO_LIMIT) for size in sizes]

    def put(self, block: pa.RecordBatch) -> None:
        """Take in records and send the batches that they fill."""
        if not self._plan.consumers or not block.num_rows:
            return
        keys = block.column("key").to_numpy()
        tasks = [(keys % size).astype(np.int32) for size in self._sizes]
        if self._shared is not None:
            for cell, batch in self._shared.append(block, tasks):
                self._emitted()
                for consumer, task in enumerate(cell):
                    self._send(consumer, task, batch.records, batch.data)
            return
        for consumer, (pool, chosen) in enumerate(zip(self._pools, tasks, strict=True)):
            for batch in pool.append(block, chosen):
                self._emitted()
                self._send(consumer, batch.worker, batch.records, batch.data)

    def flush(self) -> None:
        """Send what the distinct buffers hold."""
        for consumer, pool in enumerate(self._pools):
            for batch in pool.flush():
                self._emitted()
                self._send(consumer, batch.worker, batch.records, batch.data)

    def resize(self, records: int) -> None:
        """Change b_out of distinct buffers."""
        for pool in self._pools:
            pool.resize(records)

    def _send(self, consumer: int, task: int, records: int, data: pa.Buffer) -> None:
        how, connections = self._plan.consumers[consumer]
        if how is StreamConnection.RANDOM:
            self._turn += 1
            task = self._turn % len(connections)
        send(connections[task], records, data)


class Task:
    """A task that works until its plan ends."""

    def __init__(self, plan: TaskPlan, inbox: Inbox | None) -> None:
        self._plan, self._inbox = plan, inbox
        self._outbox = Outbox(plan, self._emit)
        self._figures = TaskFigures()
        self._until = 0.0
        self._owed = 0.0
        self._random = random.Random(os.getpid())
        self._passed = 0
        self._size = PackSize(plan.flush_every or math.inf)
        self._observed = (0, 0, 0.0)

    def run(self) -> TaskFigures:
        """Work, and return what was done after the warm-up."""
        plan, figures = self._plan, self._figures
        measured: tuple[float, float, int, int, int] | None = None
        flushed = plan.begin
        step = self._produce if self._inbox is None else self._consume
        try:
            while (now := time.monotonic()) < plan.end:
                if measured is None and now >= plan.begin + plan.warmup:
                    measured = (now, time.thread_time(), figures.records, figures.batches, figures.sent)
                    figures.arrivals.clear()
                if plan.flush_every is not None and now >= flushed + plan.flush_every:
                    flushed += plan.flush_every
                    self._outbox.flush()
                    if plan.live:
                        self._resize()
                self._owed, began = 0.0, time.thread_time()
                step(now)
                self._use_processor(began)
                self._wait()
        except ConnectionError:  # a consumer ended a moment earlier
            pass
        if measured is None:  # it waited to send through all of the time
            return TaskFigures()
        began, processor, records, batches, sent = measured
        return TaskFigures(
            records=figures.records - records,
            batches=figures.batches - batches,
            sent=figures.sent - sent,
            seconds=time.monotonic() - began,
            processor=time.thread_time() - processor,
            sizes=figures.sizes,
            arrivals=figures.arrivals,
        )

    def _produce(self, now: float) -> None:
        """Emit the records that are due; a source that was held back does not catch up."""
        plan = self._plan
        due = int((now - plan.begin) * plan.rate) - self._passed
        if due <= 0:
            time.sleep(_TICK)
            return
        count = min(due, _MOST_AT_ONCE)
        self._spend(count * plan.operator.cpu_seconds, idle=due < 2 * _MOST_AT_ONCE)
        self._passed += count
        self._figures.records += count
        self._outbox.put(self._make(count, now))

    def _make(self, count: int, now: float) -> pa.RecordBatch:
        """Return new records with random keys and payloads, made one by one."""
        records = [(self._random.getrandbits(40), self._random.randbytes(84)) for _ in range(count)]
        keys, payloads = zip(*records, strict=True)
        columns = [pa.array(np.full(count, now)), pa.array(keys, pa.int64()), pa.array(payloads, pa.binary(84))]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD)

    def _consume(self, now: float) -> None:
        assert self._inbox is not None
        idle = not self._inbox.waiting
        frame = self._inbox.next()
        if frame is None:
            return
        operator = self._plan.operator
        self._spend(operator.fetch_seconds + frame.records * operator.cpu_seconds, idle=idle)
        self._figures.records += frame.records
        self._figures.batches += 1
        self._process(frame)

    def _process(self, frame: Frame) -> None:
        """Take the records of a batch one by one, as an operator that is unaware of batches does, and pass some on."""
        block = pa.ipc.read_record_batch(pa.py_buffer(frame.data), RECORD)
        for begin in range(0, frame.records, _DECODED_AT_ONCE):
            part = block.slice(begin, _DECODED_AT_ONCE)
            for key, payload in zip(part.column("key").to_pylist(), part.column("payload").to_pylist(), strict=True):
                _touch(key, payload)
        if self._plan.timed and not self._plan.consumers:
            came = time.monotonic()
            self._figures.arrivals.append((came, came - block.column("emitted").to_numpy()))
        if not self._plan.consumers:
            return
        numbers = np.arange(self._passed, self._passed + frame.records + 1) * self._plan.operator.selectivity
        self._passed += frame.records
        chosen = np.flatnonzero(np.diff(np.floor(numbers)) > 0)
        self._outbox.put(block if len(chosen) == frame.records else block.take(pa.array(chosen)))

    def _emit(self) -> None:
        self._figures.sent += 1
        self._spend(self._plan.operator.emit_seconds, idle=False)

    def _resize(self) -> None:
        """Let Algorithm 3 set b_out from what the last interval cost."""
        now = (self._figures.records, self._figures.sent, time.thread_time())
        records, packs, seconds = (new - old for new, old in zip(now, self._observed, strict=True))
        self._observed = now
        self._size.observe(int(records), int(packs), seconds)
        self._figures.sizes.append(self._size.records)
        self._outbox.resize(self._size.records)

    def _spend(self, seconds: float, *, idle: bool) -> None:
        """Note that the task is busy for some time; an idle one begins now, else when it is done with what it has."""
        if self._plan.slowdown:
            self._owed += seconds * self._plan.slowdown * self._plan.share
            self._until = (max(self._until, time.monotonic()) if idle else self._until) + seconds * self._plan.slowdown

    def _use_processor(self, began: float) -> None:
        """Compute until the step that began at this processor time has used the share of its costs."""
        while time.thread_time() < began + self._owed:
            for number in range(_NUMBERS):
                _touch(number, b"")

    def _wait(self) -> None:
        left = self._until - time.monotonic()
        if self._plan.slowdown and left > _SHORTEST_SLEEP:
            time.sleep(left)


def _touch(key: int, payload: bytes) -> bool:
    """Look at a record."""
    return key < 0 or math.isnan(len(payload))
