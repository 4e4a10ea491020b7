"""States of a Python aggregator by key, and their form in Arrow.

States travel and rest as *blobs*: one Arrow record batch with the key columns and the state columns of many
keys. Spark's state store holds one blob per window and bucket of keys, so that a batch costs a few state
accesses, not one per key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.aggregates.protocol import Aggregator, State

Key = tuple[Any, ...]

_NAN = float("nan")
"""The one NaN that all NaN keys become: to Python no two others are the same key."""


@dataclass(frozen=True)
class StateCodec:
    """Form of the blobs: the key columns, whose names no state field has, then the state's fields."""

    keys: pa.Schema
    states: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """Schema of a blob."""
        return pa.schema([*self.keys, *self.states])

    def encode(self, states: Iterable[tuple[Key, State]]) -> bytes:
        """Make a blob. Raises MillraceError where a state does not have the fields of its schema."""
        pairs = list(states)
        keys = [pa.array([key[i] for key, _ in pairs], field.type) for i, field in enumerate(self.keys)]
        values = [field_array([state for _, state in pairs], field, "state") for field in self.states]
        return bytes(pa.RecordBatch.from_arrays([*keys, *values], schema=self.schema).serialize())

    def decode(self, blob: bytes) -> Iterator[tuple[Key, State]]:
        """Read a blob."""
        batch = pa.ipc.read_record_batch(pa.py_buffer(blob), self.schema)
        width = len(self.keys)
        keys = key_tuples(batch.columns[:width], batch.num_rows)
        values = [column.to_pylist() for column in batch.columns[width:]]
        for index, key in enumerate(keys):
            yield key, {name: column[index] for name, column in zip(self.states.names, values, strict=True)}


def field_array(rows: Sequence[Mapping[str, Any]], field: pa.Field, what: str) -> pa.Array:
    """One field of many states or results of an aggregator (``what``) as an array.

    Raises:
        MillraceError: a row has no such field, or a value that is not of the declared type.
    """
    try:
        return pa.array([row[field.name] for row in rows], field.type)
    except (KeyError, TypeError, OverflowError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = f"it has no field {error}" if isinstance(error, KeyError) else str(error)
        raise MillraceError(
            Problem(
                f"a {what} of the aggregator does not fit its {what}_schema, field {field.name} {field.type}: {reason}",
                f"correct the schema, or what the aggregator returns as {what}",
            )
        ) from None


def key_tuples(columns: list[pa.Array], rows: int) -> list[Key]:
    """The key of each row, fit to be looked up in a dict."""
    if not columns:
        return [()] * rows
    lists = [column.to_pylist() for column in columns]
    for column, values in zip(columns, lists, strict=True):
        if pa.types.is_floating(column.type):
            values[:] = [_NAN if value != value else value for value in values]
    return list(zip(*lists, strict=True))


def merge_into(aggregator: Aggregator, states: dict[Key, State], more: Iterable[tuple[Key, State]]) -> Iterator[Key]:
    """Merge more states into these; yields the keys that changed."""
    for key, state in more:
        held = states.get(key)
        states[key] = state if held is None else aggregator.merge(held, state)
        yield key
