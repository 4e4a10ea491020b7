"""What a task does that writes its partition of the results itself; see ``transactions``.

Producers stay in the worker process, so the next batch of a partition costs no new one if the same worker gets it. The
driver says which producer the last task of a partition has used. Only that one is used again, and it needs no other
look: it can commit nothing if another attempt has begun since. It then fails at once, and does not wait for the other
one, which may be for an earlier batch.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from types import FrameType
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import SparkContext, TaskContext

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.kafka.messages import KeyAndValue, rows_of_batch
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import DRIVER, START_OVER, OvertakenError, PartitionTransactions
from millrace_jobs.sinks.sink_clock import SinkClock

ROWS = "rows BIGINT, partition INT, producer STRING, seconds DOUBLE"
"""What a task returns: see ``Written``."""

_PROPERTY = "millrace.sink.batch"
_MOST_PRODUCERS = 32
"""Producers that a worker keeps; each has some threads, and connections that close when they are idle."""

_producers: OrderedDict[tuple[str, str], PartitionTransactions] = OrderedDict()

_WORKER, _INPUT = "invoke_udf", "input_data_stream"
"""The function of PySpark's worker that runs a task, and its variable with the connection to the JVM."""


class Written(NamedTuple):
    """What a task has done.

    ``rows``: how many results its partition has, also if another attempt has written them. ``producer``: the token of
    its producer; empty if that was fenced by another one, which wrote them. ``seconds``: how long it has written,
    without the time that the results took to come.
    """

    rows: int
    partition: int
    producer: str
    seconds: float


@dataclass(frozen=True)
class BatchForTasks:
    """The batch that tasks write: of ``ResultBatch``, with the number of state partitions.

    ``driver`` is the name of the driver, and ``longest`` the longest message that the topic accepts, in bytes.
    ``producers`` has the token of each partition's last producer; empty if it is not known.
    """

    number: int
    epoch: int
    watermark: int
    partitions: int
    driver: str
    longest: int | None
    producers: Sequence[str]

    def announce(self, context: SparkContext) -> None:
        """Let the tasks of the jobs that this thread runs from now on know their batch."""
        context.setLocalProperty(_PROPERTY, json.dumps(asdict(self)))


def not_of_the_state(found: int, partitions: int | None, topic: TargetTopic) -> MillraceError:
    """Return the error of results in other partitions than those of the state.

    ``Batch`` alone is no remedy: a batch that tasks have begun is ended by tasks.
    """
    message = (
        f"the results have {found} partitions instead of the {partitions} of the state, so tasks cannot write them"
    )
    hint = f"write transaction: Batch, and {START_OVER}"
    sink = topic.field.rpartition(".")[0]
    return MillraceError(Problem(message, hint, field=f"{sink}.transaction"))


@dataclass(frozen=True)
class PartitionWriter:
    """A function for ``mapInArrow`` that writes the rows of ``messages.encoded`` to a topic; ROWS are its own rows.

    ``group`` is the transactional id of the driver.
    """

    topic: TargetTopic
    group: str
    query: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the results of the task's partition, unless the topic has them; return how many they are.

        Raises MillraceError if another driver has taken over, or they cannot be written; a TransientError if a retry
        may help.
        """
        rows = (row for batch in batches for row in rows_of_batch(batch))
        if (first := next(rows, None)) is None:
            return
        try:
            written = self._write(first, rows)
        except OvertakenError as error:
            raise TransientError(*error.problems) from None  # a kind of error by which the driver knows what to do
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([written.rows]),
                pa.array([written.partition], pa.int32()),
                pa.array([written.producer]),
                pa.array([written.seconds], pa.float64()),
            ],
            names=Written._fields,
        )

    def _write(self, first: KeyAndValue, rows: Iterator[KeyAndValue]) -> Written:
        context = TaskContext.get()
        assert context is not None
        batch = BatchForTasks(**json.loads(context.getLocalProperty(_PROPERTY) or "null"))
        partition = context.partitionId()
        if partition >= batch.partitions:
            raise not_of_the_state(partition + 1, batch.partitions, self.topic)
        producer, is_fresh = self._producer(partition, batch)
        token, count, clock = producer.token, 0, SinkClock()

        def counted() -> Iterator[KeyAndValue]:
            nonlocal count
            for row in clock.outside(chain((first,), rows)):
                count += 1
                yield row

        results = counted()

        def messages() -> Iterator[Outgoing]:
            for key, value in results:
                yield Outgoing(key, value)
            require_whole()

        try:
            if not producer.has(batch.number):
                with clock.running():
                    producer.write(
                        ResultBatch(batch.number, batch.epoch, batch.watermark), messages(), {DRIVER: batch.driver}
                    )
        except BaseException as error:
            del _producers[producer.id, batch.driver]
            producer.close()
            if not (isinstance(error, OvertakenError) and is_fresh):
                raise
            if not producer.other_has_written(batch.number, batch.driver):
                raise
            token = ""
        for _ in results:  # the state is complete only when all of them have been computed
            pass
        return Written(count, partition, token, clock.seconds)

    def _producer(self, partition: int, batch: BatchForTasks) -> tuple[PartitionTransactions, bool]:
        """Return a producer that knows the last batch of the partition, and whether it has just fenced all others."""
        producer = PartitionTransactions(self.group, partition, self.topic, self.query)
        key = producer.id, batch.driver
        if (kept := _producers.get(key)) is not None:
            if kept.token == batch.producers[partition]:
                _producers.move_to_end(key)
                return kept, False
            del _producers[key]
            kept.close()
        producer.take_over(batch.driver, batch.longest)
        _producers[key] = producer
        if len(_producers) > _MOST_PRODUCERS:
            _, oldest = _producers.popitem(last=False)
            oldest.close()
        return producer, True


def require_whole() -> None:
    """Check that the input of the running task, which has been read to its end, is complete.

    Arrow takes the end of a connection for the end of a stream. If Spark's JVM dies between two record batches, or has
    the task killed, its Python worker would take the part that it has got for the whole. A task whose results count
    only when Spark has them may do so, but not one that commits them by itself. After the last record batch, the JVM
    writes a mark, which is what is looked for.

    Raises TransientError if the connection has ended before the input did.
    """
    try:
        is_whole = bool(_connection().peek(1))
    except OSError:
        is_whole = False
    if not is_whole:
        message = "the input of a task has ended early: its executor has died, or has killed it"
        raise TransientError(Problem(message, "its results are written by another attempt"))


def _connection() -> Any:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _WORKER and frame.f_globals.get("__name__", "").startswith("pyspark."):
            return frame.f_locals[_INPUT]
        frame = frame.f_back
    raise RuntimeError(f"{_WORKER} of PySpark's worker is not what runs this task")
