"""States of a Python aggregator by key, and their encoding in Arrow.

States are shipped and stored as *blobs*: one Arrow record batch with the key columns and state columns of many keys.
Spark's state store holds one blob per window and bucket of keys, so a batch costs a few state accesses, not one per
key.
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
"""The NaN that replaces every NaN key: Python treats two different NaN objects as different keys."""


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


def field_array(rows: Sequence[Mapping[str, Any]], field: pa.Field, what: str) -> pa.Array:
    """Return one field of many states or results of an aggregator as an array.

    Args:
        rows: the states or results.
        field: the field and its declared type.
        what: ``state`` or ``result``, for the error message.

    Raises:
        MillraceError: a row lacks the field, or has a value that is not of the declared type.
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
    """Return the key of each row as a tuple that works as a dict key, even with NaN."""
    if not columns:
        return [()] * rows
    lists = [column.to_pylist() for column in columns]
    for column, values in zip(columns, lists, strict=True):
        if pa.types.is_floating(column.type):
            values[:] = [_NAN if value != value else value for value in values]
    return list(zip(*lists, strict=True))


def merge_into(aggregator: Aggregator, states: dict[Key, State], more: Iterable[tuple[Key, State]]) -> Iterator[Key]:
    """Merge more states into ``states``; yield each key that changed."""
    for key, state in more:
        held = states.get(key)
        states[key] = state if held is None else aggregator.merge(held, state)
        yield key
