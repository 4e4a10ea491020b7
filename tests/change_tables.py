"""Buckets of changes for tests: a state in memory, the sum of what was emitted, and batches of disordered input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
from hypothesis import strategies as st

from millrace_jobs.tables.changes import BEGINNING, FOREVER
from millrace_jobs.tables.operator import TableOperator


class MemoryStore:
    """A bucket's state in memory; it holds tables as Spark's state does, as bytes."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def get(self, name: str, schema: pa.Schema) -> pa.Table | None:
        blob = self.blobs.get(name)
        return None if blob is None else pa.ipc.open_stream(blob).read_all().cast(schema)

    def put(self, name: str, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        self.blobs[name] = sink.getvalue().to_pybytes()

    def remove(self, name: str) -> None:
        self.blobs.pop(name, None)


class Replay:
    """An operator in one bucket, and the sum of the changes that it has emitted."""

    def __init__(self, operator: TableOperator) -> None:
        self.operator = operator
        self.store = MemoryStore()
        self.rows: Counter[tuple] = Counter()
        self.emitted: list[tuple] = []
        self.late = 0

    def batch(self, changes: Sequence[pa.Table], watermark: int) -> None:
        outcome = self.operator.process(self.store, changes, watermark)
        self.late += outcome.late
        for table in outcome.changes:
            assert table.schema == self.operator.output
            for *row, weight in zip(*(column.to_pylist() for column in table.columns), strict=True):
                self.rows[tuple(row)] += weight
                self.emitted.append((tuple(row), weight))
        self.rows = Counter({row: weight for row, weight in self.rows.items() if weight})
        assert all(weight > 0 for weight in self.rows.values()), "a row was removed that was not there"

    def end(self) -> None:
        """Close the input: the watermark passes everything."""
        self.batch([schema.empty_table() for schema in self.operator.inputs], FOREVER - 1)


def changes(schema: pa.Schema, rows: Iterable[tuple]) -> pa.Table:
    """Return changes from tuples of values, start, end and weight."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


@st.composite
def disordered(draw, events, grace):
    """Draw batches of events, each ``(time, ...)``, out of order by at most ``grace``, with the watermark after each."""
    drawn = draw(st.lists(events, max_size=14))
    delays = [draw(st.integers(0, grace)) for _ in drawn]
    order = sorted(range(len(drawn)), key=lambda i: (drawn[i][0] + delays[i], i))
    arrivals = [drawn[i] for i in order]
    cuts = sorted(draw(st.lists(st.integers(0, len(arrivals)), max_size=5)))
    batches, latest = [], None
    for start, end in zip([0, *cuts], [*cuts, len(arrivals)], strict=True):
        batches.append((arrivals[start:end], BEGINNING if latest is None else latest - grace))
        latest = max([each[0] for each in arrivals[:end]], default=None)
    return batches
