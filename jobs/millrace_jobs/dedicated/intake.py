"""Raw messages to projected records and the hashes of their keys: what a job's own route stage does first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Message

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.instructions import Work
from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.route import Router
from millrace_jobs.sources.kafka.bad_messages import BadMessageHandler
from millrace_jobs.sources.kafka.source import KafkaSource
from millrace_jobs.windows import TimeSpan


@dataclass
class IntakeCounts:
    """Counts of what was taken in during one interval, as in ``Manifest``; ``times`` has the latest event time."""

    read: int = 0
    routed: int = 0
    size: int = 0
    times: TimeSpan = field(default_factory=TimeSpan)


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
        self, messages: Sequence[Message], rejects: BadMessageHandler, counts: IntakeCounts
    ) -> tuple[pa.RecordBatch, Hashes]:
        """Return the projected records of messages, and the hashes of their keys; shape ``(records,)``.

        Records that the filter drops are left out. ``rejects`` gets messages that do not decode.

        Raises:
            MillraceError: a message does not decode, and the query's policy is to fail.
        """
        records, _ = self._source.decode(messages, rejects)
        projected = self._router.project(records)
        counts.read += records.num_rows
        counts.size += records.nbytes
        counts.routed += projected.num_rows
        if self._router.time_column:
            counts.times.add(records.column(self._router.time_column))
        return projected, hash_columns(projected.columns[: self._router.keys], projected.num_rows)
