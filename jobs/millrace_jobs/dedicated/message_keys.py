"""The keys of Kafka messages, by which a replica places them: decoded and projected as in a job's own route stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.pipeline.expressions.programs import evaluate
from millrace_jobs.pipeline.projection import ArrowProjection
from millrace_jobs.sources.formats.messages import MessageDecoder
from millrace_jobs.sources.kafka.metadata import METADATA, metadata_columns

_UNREADABLE = np.uint64(0)
"""Hash of messages that do not decode. The job reads them too, and does with them what its policy says."""


@dataclass(frozen=True)
class MessageKeys:
    """Decoder and projection of messages; ``keys`` is how many columns of the projection, from the first, are keys."""

    decoder: MessageDecoder
    projection: ArrowProjection
    keys: int
    include_metadata: bool = False

    def of(self, messages: Sequence[Message]) -> tuple[NDArray[np.int64], Hashes]:
        """Return the indexes of the messages to place, ascending, and the hash of each one's key.

        Messages whose records the query's filter drops are left out. Both arrays have shape ``(messages to place,)``.
        """
        unreadable: list[int] = []
        values = [message.value() for message in messages]
        records, origins = self.decoder.decode(values, lambda index, _: unreadable.append(index))
        if self.include_metadata:
            described = pa.RecordBatch.from_arrays(metadata_columns(messages), schema=METADATA).take(pa.array(origins))
            schema = pa.schema([*records.schema, *METADATA])
            records = pa.RecordBatch.from_arrays([*records.columns, *described.columns], schema=schema)
        if self.projection.where is not None:
            passing = self._passing(records)
            records, origins = records.filter(passing), origins[passing.to_numpy(zero_copy_only=False)]
        fields = list(self.projection.schema)[: self.keys]
        keyed = ArrowProjection(None, self.projection.columns[: self.keys], pa.schema(fields))(records)
        hashes = hash_columns(keyed.columns, keyed.num_rows)
        if not unreadable:
            return origins, hashes
        places = np.concatenate([origins, np.array(unreadable, np.int64)])
        order = np.argsort(places, kind="stable")
        return places[order], np.concatenate([hashes, np.full(len(unreadable), _UNREADABLE)])[order]

    def _passing(self, records: pa.RecordBatch) -> pa.BooleanArray:
        """Return which records pass the filter; a condition that is NULL does not."""
        assert self.projection.where is not None
        mask = evaluate(self.projection.where, records)
        if isinstance(mask, pa.Scalar):
            return pa.array(np.full(records.num_rows, bool(mask.as_py())))
        return mask.fill_null(False)
