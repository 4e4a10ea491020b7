"""Raw messages to projected records and the hashes of their keys: what a job's own route stage does first.

The projected records go to ``placing``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Message

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.batching.buffers import OutputBatch
from millrace_jobs.dedicated.instructions import Work
from millrace_jobs.dedicated.raw_reader import StoppingRecordError
from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.pipeline.arrivals import Arrivals
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.route import Router
from millrace_jobs.sources.kafka.bad_messages import BadMessageHandler
from millrace_jobs.sources.kafka.message_records import arrivals
from millrace_jobs.sources.kafka.source import KafkaSource
from millrace_jobs.windows import TimeSpan


@dataclass
class IntakeInterval:
    """The interval whose records are being read: when it ends, and what has been read so far.

    Attributes:
        batch: number of its manifest.
        due, cut_off, sends_from: when it ends, when its intake ends, and when packs are first sent; since 1970.
        packs: full packs that are not sent yet.
        messages, message_bytes: the number of messages read, and the size of their values.
        read, rejected, routed, size: as in ``Manifest``.
        times: the span of event times.
        waited: seconds of waiting for messages.
    """

    batch: int
    due: float
    cut_off: float
    sends_from: float
    arrivals: Arrivals
    packs: list[OutputBatch] = field(default_factory=list)
    messages: int = 0
    message_bytes: int = 0
    read: int = 0
    rejected: int = 0
    routed: int = 0
    size: int = 0
    times: TimeSpan = field(default_factory=TimeSpan)
    waited: float = 0.0
    began: float = field(default_factory=time.monotonic)
    used_before: float = field(default_factory=time.process_time)


class Intake:
    """Decoder, filter and projection of one query's messages.

    Raises MillraceError for a projection that Arrow cannot compute; the driver begins no such work.
    """

    def __init__(self, source: KafkaSource, work: Work) -> None:
        compiled = compile_projection(work.projection, source.schema)
        if isinstance(compiled, str):
            message = f"a replica cannot compute {compiled}"
            raise MillraceError(Problem(message, "run partitioners in the version of the driver"))
        self._source = source
        self._router = Router(compiled, work.projection.keys, None, work.time_column)

    def take(
        self, messages: Sequence[Message], rejects: BadMessageHandler, interval: IntakeInterval
    ) -> tuple[pa.RecordBatch, Hashes]:
        """Return the projected records of messages, and the hashes of their keys; shape ``(records,)``.

        Records that the filter drops are left out. ``rejects`` gets messages that do not decode.

        Raises:
            StoppingRecordError: a message does not decode, and the query's policy is to fail.
        """
        interval.messages += len(messages)
        interval.message_bytes += sum(map(len, messages))
        interval.arrivals.add(*arrivals(messages))
        try:
            records, _ = self._source.decode(messages, rejects)
            projected = self._router.project(records)
        except MillraceError as error:
            raise StoppingRecordError(*error.problems) from error
        interval.read += records.num_rows
        interval.size += records.nbytes
        interval.routed += projected.num_rows
        if self._router.time_column:
            interval.times.add(records.column(self._router.time_column))
        return projected, hash_columns(projected.columns[: self._router.keys], projected.num_rows)
