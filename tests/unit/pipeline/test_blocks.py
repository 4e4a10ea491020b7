from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.pipeline.blocks import ARROW_SCHEMA, decode, note, shuffle_keys, split

SCHEMA = pa.schema(
    [("row", pa.int64()), ("s", pa.string()), ("d", pa.float64()), ("p", pa.bool_()), ("at", pa.timestamp("us", "UTC")),
     ("c", pa.decimal128(10, 2)), ("xs", pa.list_(pa.int32()))]
)  # fmt: skip


def batch_of(rows):
    return pa.RecordBatch.from_pylist(
        [{"row": i, "s": None if i % 3 == 0 else "é" * (i % 5), "d": float("nan") if i % 4 == 0 else -0.0,
          "p": None if i % 5 == 0 else i % 2 == 0, "at": i, "c": i, "xs": [i] * (i % 3)} for i in range(rows)],
        schema=SCHEMA,
    )  # fmt: skip


@st.composite
def routed(draw):
    n = draw(st.integers(1, 40))
    workers = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=60))
    return n, np.array(workers, np.int32)


def rows_of(batch):
    return batch.column("row").to_pylist()


@given(routed())
def test_every_record_comes_once_to_its_worker_in_order(case):
    n, workers = case
    batch = batch_of(len(workers))
    cut = split(batch, workers, n)
    assert cut.schema == ARROW_SCHEMA
    got = dict(decode(cut, SCHEMA))
    assert len(got) == cut.num_rows
    assert got.keys() == set(workers.tolist())
    for worker, block in got.items():
        assert rows_of(block) == np.flatnonzero(workers == worker).tolist()
        expected = batch.take(pa.array(rows_of(block)))
        assert repr(block.to_pylist()) == repr(expected.to_pylist())  # tells -0.0 and NaN, unlike ==


@given(routed(), st.integers(0, 70), st.integers(0, 70))
def test_a_slice_is_sent_without_its_surroundings(case, start, length):
    n, workers = case
    workers = workers[start : start + length]
    batch = batch_of(70).slice(start, len(workers))
    got = [row for _, block in decode(split(batch, workers, n), SCHEMA) for row in rows_of(block)]
    assert sorted(got) == list(range(start, start + len(workers)))


def test_a_block_is_as_large_as_its_records():
    whole = batch_of(10_000)
    (block,) = split(whole.slice(5000, 10), np.zeros(10, np.int32), 1).column("block").to_pylist()
    assert len(block) < 4096


@given(routed())
def test_each_row_goes_to_the_place_of_its_worker(case):
    n, workers = case
    cut = split(batch_of(len(workers)), workers, n)
    assert cut.column("shuffle_key").to_pylist() == shuffle_keys(n)[cut.column("worker").to_numpy()].tolist()
    assert cut.column("note").null_count == cut.num_rows


def test_no_records_are_no_blocks():
    cut = split(batch_of(0), np.empty(0, np.int32), 4)
    assert cut.num_rows == 0
    assert list(decode(cut, SCHEMA)) == []


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 1000])
def test_records_are_split_for_any_number_of_workers(n):
    workers = np.arange(2 * n, dtype=np.int32)[::-1] % n
    got = dict(decode(split(batch_of(2 * n), workers, n), SCHEMA))
    assert {worker: rows_of(block) for worker, block in got.items()} == {
        worker: np.flatnonzero(workers == worker).tolist() for worker in range(n)
    }


def test_a_note_is_no_block():
    content = {"replica": 3, "late": 0, "text": "é \"'"}
    assert note(content).schema == ARROW_SCHEMA
    assert list(decode(note(content), SCHEMA)) == [(0, content)]


def test_notes_and_blocks_come_in_one_stream():
    rows = pa.Table.from_batches([split(batch_of(3), np.array([1, 0, 1], np.int32), 2), note({"a": 1})])
    (together,) = rows.combine_chunks().to_batches()
    (first, zero), (second, one), (third, said) = decode(together, SCHEMA)
    assert (first, second, third) == (0, 1, 0)
    assert (rows_of(zero), rows_of(one), said) == ([1], [0, 2], {"a": 1})


MASK = 0xFFFFFFFF


def rotate(value, bits):
    return ((value << bits) | (value >> (32 - bits))) & MASK


def murmur3(value, seed=42):
    """MurmurHash3 x86 32 of four bytes, one step at a time; signed, as Spark's ``hash``."""
    k = rotate((value & MASK) * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    h = (rotate(seed ^ k, 13) * 5 + 0xE6546B64) & MASK
    h ^= 4
    for multiplier, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        h = (h ^ (h >> shift)) * multiplier & MASK
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h


def test_the_oracle_is_spark_s_hash():
    """``SELECT hash(0), hash(1), hash(-1), hash(42)`` in Spark."""
    assert [murmur3(value) for value in (0, 1, -1, 42)] == [933211791, -559580957, -1604776387, 29417773]


@pytest.mark.parametrize("n", [*range(1, 66), 100, 127, 128, 255, 256, 257, 999, 1000])
def test_worker_w_is_shuffled_to_partition_w(n):
    assert [murmur3(key) % n for key in shuffle_keys(n).tolist()] == list(range(n))
