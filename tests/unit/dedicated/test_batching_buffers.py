from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.dedicated.batching.buffers import DistinctBuffers

SCHEMA = pa.schema([("row", pa.int64()), ("s", pa.string()), ("xs", pa.list_(pa.int32())), ("p", pa.bool_())])
EMPTY_BYTES = pa.ipc.get_record_batch_size(pa.RecordBatch.from_pylist([], SCHEMA))


def block_of(first, sizes):
    """Records numbered from ``first``, each with a text of the given size."""
    rows = [
        {"row": row, "s": None if size == 0 else "é" * size, "xs": [row] * (row % 3), "p": None if row % 5 else True}
        for row, size in enumerate(sizes, first)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def decoded(batch):
    return pa.ipc.read_record_batch(batch.data, SCHEMA)


def rows_of(batches):
    """The numbers of the records that each worker got, in order."""
    got = {}
    for batch in batches:
        got.setdefault(batch.worker, []).extend(decoded(batch).column("row").to_pylist())
    return got


@st.composite
def streams(draw, most_text=40):
    """Blocks with the workers of their records, and the number of workers."""
    n = draw(st.integers(1, 6))
    blocks, first = [], 0
    for length in draw(st.lists(st.integers(0, 30), max_size=8)):
        sizes = draw(st.lists(st.integers(0, most_text), min_size=length, max_size=length))
        workers = draw(st.lists(st.integers(0, n - 1), min_size=length, max_size=length))
        blocks.append((block_of(first, sizes), np.array(workers, np.int32)))
        first += length
    return n, blocks


def wanted_of(blocks):
    wanted = {}
    for block, workers in blocks:
        for row, worker in zip(block.column("row").to_pylist(), workers.tolist(), strict=True):
            wanted.setdefault(worker, []).append(row)
    return wanted


@given(streams(), st.integers(1, 40))
def test_every_record_comes_once_to_its_worker_in_order_and_batches_are_full(stream, records):
    n, blocks = stream
    buffers = DistinctBuffers(n, records)
    batches = [batch for block, workers in blocks for batch in buffers.append(block, workers)]
    assert all(batch.records == records for batch in batches)
    assert buffers.held < n * records  # what is over is under way
    rest = list(buffers.flush())
    assert all(batch.records < records for batch in rest)
    assert len({batch.worker for batch in rest}) == len(rest)
    assert buffers.held == 0
    assert all(decoded(batch).num_rows == batch.records for batch in batches + rest)
    assert rows_of(batches + rest) == wanted_of(blocks)


@given(streams(most_text=4000), st.integers(1, 40), st.integers(-EMPTY_BYTES, 10_000))
def test_no_batch_is_larger_than_the_limit_unless_it_is_a_single_record(stream, records, room):
    n, blocks = stream
    limit = EMPTY_BYTES + room
    buffers = DistinctBuffers(n, records, limit)
    batches = [batch for block, workers in blocks for batch in buffers.append(block, workers)]
    batches += buffers.flush()
    assert all(batch.records <= records for batch in batches)
    assert all(batch.records == 1 or batch.data.size <= limit for batch in batches)
    assert rows_of(batches) == wanted_of(blocks)


@given(streams(), st.data())
def test_batches_follow_a_size_that_changes(stream, data):
    n, blocks = stream
    buffers = DistinctBuffers(n, data.draw(st.integers(1, 40)))
    batches = []
    for block, workers in blocks:
        records = data.draw(st.integers(1, 40))
        buffers.resize(records)
        came = list(buffers.append(block, workers))
        assert all(batch.records == records for batch in came)
        batches += came
    assert rows_of([*batches, *buffers.flush()]) == wanted_of(blocks)


def test_a_batch_ends_before_the_record_that_would_make_it_too_large():
    buffers = DistinctBuffers(1, 100, limit=EMPTY_BYTES + 4000)
    sizes = [200, 1700, 300]  # two bytes a letter
    batches = [batch for size in sizes for batch in buffers.append(block_of(size, [size]), np.zeros(1, np.int32))]
    batches += buffers.flush()
    assert [batch.records for batch in batches] == [2, 1]


def test_workers_come_and_go():
    buffers = DistinctBuffers(1, 10)
    assert list(buffers.append(block_of(0, [1, 1]), np.array([0, 0], np.int32))) == []
    buffers.workers(3)
    assert list(buffers.append(block_of(2, [1]), np.array([2], np.int32))) == []
    with pytest.raises(ValueError, match="flush before there are fewer workers"):
        buffers.workers(2)
    assert rows_of(buffers.flush()) == {0: [0, 1], 2: [2]}
    buffers.workers(1)
    with pytest.raises(IndexError):
        buffers.append(block_of(3, [1]), np.array([1], np.int32))


def test_a_few_records_do_not_keep_the_blocks_they_came_in():
    """Worker 1 gets one record of each block, and its buffer never fills; the rest leaves at once."""
    buffers = DistinctBuffers(2, 1 << 20, limit=1 << 20)
    before = pa.total_allocated_bytes()
    workers = np.zeros(4096, np.int32)
    workers[7] = 1
    for number in range(200):
        block = pa.RecordBatch.from_pydict({"number": np.arange(4096) + number, "text": ["x" * 60] * 4096})
        for batch in buffers.append(block, workers):
            assert batch.worker == 0
    del block, batch
    held = pa.total_allocated_bytes() - before
    assert held < 32 << 20  # of 58 MB that came
    assert sum(batch.records for batch in buffers.flush() if batch.worker == 1) == 200
