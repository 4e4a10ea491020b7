"""A batch of a table as its sink enters it into the copy of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from millrace_jobs.sinks.kafka.live_rows import LiveRows
from millrace_jobs.sinks.kafka.messages import Row
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.topic import LastWritten


def messages_of(live: LiveRows, rows: Iterable[Row], written: LastWritten, watermark: int) -> Iterator[Outgoing]:
    """Yield the messages of a batch in parts of three rows; with the last one, the copy has it."""
    live.begin()
    left = iter(rows)
    while part := list(islice(left, 3)):
        yield from live.change(part)
    yield from live.finish(written, watermark)
