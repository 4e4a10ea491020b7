"""All kinds of output buffers deliver the same records; they differ in when, and in how many batches."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bench.batching.kinds import SharedBuffers, SingleBuffer
from millrace_jobs.dedicated.batching.buffers import DistinctBuffers

SCHEMA = pa.schema([("row", pa.int64()), ("text", pa.string())])


@st.composite
def streams(draw):
    """The tasks of one to three consumers, and blocks with each record's task of every consumer."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    blocks, first = [], 0
    for length in draw(st.lists(st.integers(0, 20), max_size=6)):
        rows = list(range(first, first + length))
        block = pa.RecordBatch.from_pydict({"row": rows, "text": ["x" * (row % 7) for row in rows]}, schema=SCHEMA)
        columns = [draw(st.lists(st.integers(0, n - 1), min_size=length, max_size=length)) for n in shape]
        blocks.append((block, [np.array(column, np.int32) for column in columns]))
        first += length
    return shape, blocks


def rows_of(batch):
    rows = pa.ipc.read_record_batch(batch.data, SCHEMA).column("row").to_pylist()
    assert len(rows) == batch.records
    return rows


def delivered(buffers, blocks, consumer):
    """Return the rows that each task gets of one consumer's own buffers, the batches, and the most records held."""
    got, sizes, held = defaultdict(list), [], 0
    for block, tasks in blocks:
        for batch in buffers.append(block, tasks[consumer]):
            got[batch.worker] += rows_of(batch)
            sizes.append(batch.records)
        held = max(held, buffers.held)
    for batch in buffers.flush():
        got[batch.worker] += rows_of(batch)
        sizes.append(batch.records)
    return got, sizes, held


@given(streams(), st.integers(1, 15))
def test_a_single_buffer_delivers_what_distinct_ones_do_sooner(stream, records):
    shape, blocks = stream
    for consumer, tasks in enumerate(shape):
        distinct, _, _ = delivered(DistinctBuffers(tasks, records), blocks, consumer)
        single, sizes, held = delivered(SingleBuffer(tasks, records), blocks, consumer)
        assert single == distinct
        assert held < records
        assert all(size <= records for size in sizes)


@given(streams(), st.integers(1, 15))
def test_shared_buffers_deliver_to_every_consumer_what_distinct_ones_do(stream, records):
    """The order is kept within a buffer: records that go to the same task of every consumer arrive in order."""
    shape, blocks = stream
    buffers = SharedBuffers(shape, records)
    batches = [found for block, tasks in blocks for found in buffers.append(block, tasks)]
    assert buffers.held < np.prod(shape) * records
    assert all(batch.records == records for _, batch in batches)
    batches += buffers.flush()
    assert buffers.held == 0
    cells = defaultdict(list)
    for cell, batch in batches:
        cells[cell] += rows_of(batch)
    assert all(rows == sorted(rows) for rows in cells.values())
    for consumer, tasks in enumerate(shape):
        distinct, _, _ = delivered(DistinctBuffers(tasks, records), blocks, consumer)
        got = defaultdict(list)
        for cell, rows in cells.items():
            got[cell[consumer]] += rows
        assert {task: sorted(rows) for task, rows in got.items()} == distinct
