"""Reduction of records on a worker by a Python aggregator: one state per key and pane.

States are shipped and stored as *blobs*: one Arrow record batch with the key columns and state columns of many keys.
Spark's state store holds one blob per window and bucket of keys, so a batch costs a few state accesses, not one per
key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.aggregates.protocol import Aggregator, State, field_array, running
from millrace_jobs.aggregates.reducing import RECORDS
from millrace_jobs.changes import normalized
from millrace_jobs.kernels.mixing import Hashes
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.sketches.key_profile import KeyCounts, add_counts
from millrace_jobs.windows import AT, Window, pane_starts

Key = tuple[Any, ...]

_NAN = float("nan")
"""The NaN that replaces every NaN key: Python treats two different NaN objects as different keys."""


def key_column(name: str) -> str:
    """Return the name that a key has in blocks, which no input column, state field, or column of Millrace's has."""
    return f"key {name}"


def input_column(name: str) -> str:
    """Return the name that a column of the aggregator has in blocks; the query's own may be that of the event time."""
    return f"input {name}"


@dataclass(frozen=True)
class StateCodec:
    """The encoding of blobs: the key columns, then the state's fields; no state field has the name of a key column."""

    keys: pa.Schema
    states: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """Schema of a blob."""
        return pa.schema([*self.keys, *self.states])

    def encode(self, states: Iterable[tuple[Key, State]]) -> bytes:
        """Encode states as a blob. Raises MillraceError if a state does not have the fields of its schema."""
        pairs = list(states)
        keys = [pa.array([key[i] for key, _ in pairs], field.type) for i, field in enumerate(self.keys)]
        values = [field_array([state for _, state in pairs], field, "state") for field in self.states]
        return bytes(pa.RecordBatch.from_arrays([*keys, *values], schema=self.schema).serialize())

    def decode(self, blob: bytes) -> Iterator[tuple[Key, State]]:
        """Decode a blob; yield its keys and states."""
        batch = pa.ipc.read_record_batch(pa.py_buffer(blob), self.schema)
        width = len(self.keys)
        keys = key_tuples(batch.columns[:width], batch.num_rows)
        values = [column.to_pylist() for column in batch.columns[width:]]
        for index, key in enumerate(keys):
            yield key, {name: column[index] for name, column in zip(self.states.names, values, strict=True)}


def key_tuples(columns: list[pa.Array], rows: int) -> list[Key]:
    """Return the key of each row as a tuple that works as a dict key, and is the same for equal keys.

    Times and dates are numbers.
    """
    if not columns:
        return [()] * rows
    lists = [_numbers(normalized(column)).to_pylist() for column in columns]
    for column, values in zip(columns, lists, strict=True):
        if pa.types.is_floating(column.type):
            values[:] = [_NAN if value != value else value for value in values]
    return list(zip(*lists, strict=True))


def _numbers(column: pa.Array) -> pa.Array:
    """Return times as microseconds and dates as days, since Python's types end with the year 9999."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def merge_into(aggregator: Aggregator, states: dict[Key, State], more: Iterable[tuple[Key, State]]) -> Iterator[Key]:
    """Merge more states into ``states``; yield each key that changed."""
    with running(aggregator, "merge", "merging states") as call:
        for key, state in more:
            held = states.get(key)
            call.calls += 1
            states[key] = state if held is None else aggregator.merge(held, state)
            yield key


BUCKET = "bucket"
BLOB = "blob"

_PANE = "pane"
_PENDING_RECORDS = 1 << 17


@dataclass(frozen=True)
class PythonReduction:
    """The factory of reducers for a query with a Python aggregator.

    A partial result holds the states of all keys of one pane and one bucket. ``buckets``, the number of buckets, is
    fixed for the life of the checkpoint. ``names`` are the names of the key columns in the results. In blocks and
    blobs, the key columns have the names in ``keys``, each a ``key_column``.
    """

    names: tuple[str, ...]
    keys: pa.Schema
    window: Window | None
    aggregator: Aggregator
    buckets: int

    @property
    def codec(self) -> StateCodec:
        """Encoding of the blobs."""
        return StateCodec(self.keys, self.aggregator.state_schema)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the partial results: start of the pane if there is a window, bucket, and a blob of states."""
        at = [pa.field(AT, pa.timestamp("us", tz="UTC"))] if self.window else []
        return pa.schema([*at, pa.field(BUCKET, pa.int32()), pa.field(BLOB, pa.binary())])

    @property
    def result_schema(self) -> pa.Schema:
        """Schema of the results: window start and end if there is a window, keys, and the aggregator's fields."""
        moment = pa.timestamp("us", tz="UTC")
        window = [pa.field("window_start", moment), pa.field("window_end", moment)] if self.window else []
        keys = [pa.field(name, field.type) for name, field in zip(self.names, self.keys, strict=True)]
        return pa.schema([*window, *keys, *self.aggregator.result_schema])

    def __call__(self) -> PythonReducer:
        """Return an empty reducer."""
        return PythonReducer(self)


@dataclass
class _Group:
    """The states of one pane and bucket."""

    states: dict[Key, State] = field(default_factory=dict)
    records: int = 0


class PythonReducer:
    """A reducer that groups records by key and pane, and updates the state of each group."""

    def __init__(self, reduction: PythonReduction) -> None:
        self._reduction = reduction
        self._pending: list[pa.RecordBatch] = []
        self._pending_records = 0
        self._groups: dict[tuple[int, int], _Group] = defaultdict(_Group)
        self._counts: list[tuple[Hashes, NDArray[np.int64]]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records."""
        self._pending.append(batch)
        self._pending_records += batch.num_rows
        if self._pending_records >= _PENDING_RECORDS:
            self._update_pending()

    def partials(self) -> Iterator[pa.Table]:
        """Yield one table with a row per pane and bucket."""
        self._update_pending()
        groups = list(self._groups.items())
        columns = {
            AT: [pane for (pane, _), _ in groups],
            BUCKET: [bucket for (_, bucket), _ in groups],
            BLOB: [self._reduction.codec.encode(group.states.items()) for _, group in groups],
            RECORDS: [group.records for _, group in groups],
        }
        schema = self._reduction.schema.append(pa.field(RECORDS, pa.int64()))
        yield pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in schema], schema=schema)

    def records(self) -> int:
        """Return the number of records added."""
        self._update_pending()
        return sum(group.records for group in self._groups.values())

    def groups(self) -> int:
        """Return the number of states by key and pane, all of which the merge must process."""
        self._update_pending()
        return sum(len(group.states) for group in self._groups.values())

    def key_counts(self) -> KeyCounts:
        """Return the distinct keys among the records, by ascending hash, each with its number of records."""
        self._update_pending()
        keys = add_counts(self._counts)
        self._counts = [(keys.hashes, keys.counts)]
        return keys

    def _update_pending(self) -> None:
        if not self._pending:
            return
        records = pa.Table.from_batches(self._pending).combine_chunks()
        self._pending, self._pending_records = [], 0
        groups, rows = self._group(records)
        names = list(self._reduction.aggregator.columns)
        inputs = records.select(list(map(input_column, names))).rename_columns(names).take(rows.values).combine_chunks()
        (batch,) = inputs.to_batches() or [pa.RecordBatch.from_pylist([], schema=inputs.schema)]
        key_columns = groups.columns[: len(self._reduction.keys)]
        keys = key_tuples(key_columns, groups.num_rows)
        hashes = hash_columns(key_columns, groups.num_rows)
        buckets = hashes % np.uint64(self._reduction.buckets)
        panes = groups.column(_PANE).to_pylist()
        offsets = rows.offsets.to_pylist()
        self._counts.append((hashes, np.diff(rows.offsets.to_numpy()).astype(np.int64)))
        with running(self._reduction.aggregator, "update", "reducing records by key") as call:
            for index, key in enumerate(keys):
                group = self._groups[panes[index], int(buckets[index])]
                call.calls += 1
                self._update(group, key, batch.slice(offsets[index], offsets[index + 1] - offsets[index]))

    def _group(self, records: pa.Table) -> tuple[pa.Table, pa.ListArray]:
        """Return the distinct groups by key and pane, and the row numbers of each."""
        panes = np.zeros(records.num_rows, np.int64)  # without a window all time is one pane
        if self._reduction.window is not None:
            panes = pane_starts(records.column(AT), self._reduction.window)
        keys = [normalized(records.column(name).combine_chunks()) for name in self._reduction.keys.names]
        table = pa.table([*keys, panes], names=[*self._reduction.keys.names, _PANE])
        by = table.column_names
        table = table.append_column("row", pa.array(np.arange(records.num_rows)))
        grouped = table.group_by(by, use_threads=False).aggregate([("row", "list")]).combine_chunks()
        return grouped, grouped.column("row_list").combine_chunks()

    def _update(self, group: _Group, key: Key, batch: pa.RecordBatch) -> None:
        aggregator = self._reduction.aggregator
        held = group.states.get(key)
        group.states[key] = aggregator.update(aggregator.init() if held is None else held, batch)
        group.records += batch.num_rows
