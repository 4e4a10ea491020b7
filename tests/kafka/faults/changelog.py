"""A table in a topic as every batch left it, and the records that the batch and those before it had read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from lab.topics import Message
from millrace_jobs.sources.base import Position
from millrace_jobs.sources.kafka.offsets import of_position

Table = Mapping[bytes | None, bytes]
Positions = Mapping[str, Mapping[int, int]]
"""For each source, the offset in each partition up to which it was read."""


def batch_of(message: Message) -> int:
    """Return the batch that wrote a record."""
    return int(message.headers["millrace-batch"] or b"")


def tables_by_batch(output: Sequence[Message]) -> Iterator[tuple[int, Table]]:
    """Yield the table after each batch that has messages.

    Every message has to change the table: an upsert the row of its key, and a tombstone removes a row. No key is written
    twice by a batch, and in each partition the batches follow one another.
    """
    by_batch: defaultdict[int, list[Message]] = defaultdict(list)
    newest: dict[int, int] = {}
    for message in sorted(output, key=lambda each: (each.partition, each.offset)):
        batch = batch_of(message)
        assert newest.get(message.partition, 0) <= batch, f"batch {batch} is in the topic after a later one"
        newest[message.partition] = batch
        by_batch[batch].append(message)
    table: dict[bytes | None, bytes] = {}
    for batch, messages in sorted(by_batch.items()):
        assert len({message.key for message in messages}) == len(messages), f"batch {batch} wrote a key twice"
        for message in messages:
            assert table.get(message.key) != message.value, f"batch {batch} changes nothing by {message}"
            if message.value is None:
                del table[message.key]
            else:
                table[message.key] = message.value
        yield batch, dict(table)


def read_by(checkpoint: Path, batch: int) -> Positions | None:
    """Return how far a batch has read; None if Spark's log no longer has the batch."""
    try:
        _, _, *lines = (checkpoint / "spark" / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    offsets = [json.loads(line) for line in lines]
    return {offset["source"]: _positions(offset["position"]) for offset in offsets}


def up_to(records: pa.Table, position: Mapping[int, int]) -> pa.Table:
    """Return the records, with their ``partition`` and ``offset``, up to a position."""
    partitions, offsets = (records.column(name).to_pylist() for name in ("partition", "offset"))
    read = [offset < position.get(number, 0) for number, offset in zip(partitions, offsets, strict=True)]
    return records.filter(pa.array(read, pa.bool_()))


def _positions(stored: Position) -> Mapping[int, int]:
    return {partition.number: offset for partition, offset in of_position(stored).items()}
