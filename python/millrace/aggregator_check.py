"""The check of an aggregator: whether its results are the same however its records are divided."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from millrace_api.errors import MillraceError, Problem, quote
from millrace_support.extras import dependencies_reported

if TYPE_CHECKING:
    import pyarrow as pa

    from millrace_jobs.aggregates.protocol import Aggregator

_ROUNDS = 30
_MOST_RECORDS = 500
"""Maximum number of records of a round; the first rounds have a few, so that a counterexample is short."""


def check_aggregator(
    aggregator: type[Any] | Aggregator,
    data: Any,
    *,
    options: Mapping[str, Any] | None = None,
    tolerance: float = 1e-9,
    seed: int = 0,
) -> dict[str, Any]:
    """Check an aggregator on records of one key, divided in many ways, and return its result for all of them.

    A query divides the records of a key among batches and workers, so these laws have to hold: ``merge`` is commutative
    and associative, and ``init()`` is its neutral element; updating in steps is updating at once; merging the states of
    two parts is the state of both; and a state is the same after it was stored by its Arrow schema. Results also have
    to fit the result's schema.

    Args:
        aggregator: the class, or an instance.
        data: records with the aggregator's columns: an Arrow table, a DataFrame of pandas or Polars, a dict of columns,
            or a list of dicts. Records as different as those of the stream find more.
        options: keyword arguments of the class.
        tolerance: relative difference up to which two floats count as equal, as sums of floats in another order differ.
        seed: seed of the divisions.

    Raises:
        MillraceError: a law does not hold, with the records that show it; or the class is not an aggregator.

    >>> import pyarrow as pa
    >>> class Largest:
    ...     columns = ("fare",)
    ...     state_schema = result_schema = pa.schema([("largest", pa.float64())])
    ...     def init(self): return {"largest": None}
    ...     def update(self, state, batch):
    ...         return self.merge(state, {"largest": pa.compute.max(batch.column("fare")).as_py()})
    ...     def merge(self, a, b):
    ...         known = [each["largest"] for each in (a, b) if each["largest"] is not None]
    ...         return {"largest": max(known, default=None)}
    ...     def finish(self, state): return state
    >>> check_aggregator(Largest, {"fare": [3.5, 9.0, 4.2]})
    {'largest': 9.0}
    >>> class Last(Largest):
    ...     def merge(self, a, b): return b if b["largest"] is not None else a
    >>> check_aggregator(Last, {"fare": [3.5, 9.0, 4.2]})
    Traceback (most recent call last):
    ...
    millrace_api.errors.MillraceError: Last breaks the law "merge is commutative": {'largest': 4.2} is not ...
    """
    with dependencies_reported("check_aggregator"):
        from millrace_jobs.aggregates.protocol import create_aggregator
        from millrace_jobs.aggregates.testing import broken_law

    if isinstance(aggregator, type):
        name = aggregator.__name__
        try:
            made = create_aggregator(aggregator, name, options or {})
        except MillraceError as error:  # there is no query here whose field it could name
            raise MillraceError(*(replace(each, field="") for each in error.problems)) from error.__cause__
    else:
        name, made = type(aggregator).__name__, aggregator
    batch = _batch(data, made.columns, name)
    chance = random.Random(seed)

    def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return _is_close(one, other, tolerance)

    for number in range(_ROUNDS):
        parts = _divided(batch, min(2 + number * number, _MOST_RECORDS), chance)
        with _explained(name, parts):
            broken = broken_law(made, parts, same)
            _result(made, parts)
        if broken is not None:
            hint = "correct the class, or results will depend on how records are divided"
            law, _, difference = broken.partition(": ")
            message = f'{name} breaks the law "{law}": {difference}, on the records {_records(parts)}'
            raise MillraceError(Problem(message, hint))
    with _explained(name, [batch]):
        return _result(made, [batch])


@contextmanager
def _explained(name: str, parts: Sequence[pa.RecordBatch]) -> Iterator[None]:
    """Raise what an aggregator raises in this block as a problem, with the records that it had."""
    try:
        yield
    except MillraceError as error:
        shown = f"on the records {_records(parts)}"
        raise MillraceError(
            *(replace(each, message=f"{name}: {each.message}, {shown}") for each in error.problems)
        ) from None
    except Exception as error:
        message = f"{name} raises {type(error).__name__}: {error}, on the records {_records(parts)}"
        raise MillraceError(Problem(message, "correct the class")) from error


def _result(aggregator: Aggregator, parts: Sequence[pa.RecordBatch]) -> dict[str, Any]:
    """Return the result of all parts, which has to fit its schema."""
    from millrace_jobs.aggregates.protocol import field_array

    result = aggregator.finish(reduce(aggregator.update, parts, aggregator.init()))
    for field in aggregator.result_schema:
        field_array([result], field, "result")
    return result


def _divided(batch: pa.RecordBatch, records: int, chance: random.Random) -> list[pa.RecordBatch]:
    """Return some of the records, one after the other, in three parts, of which some may be empty."""
    records = min(records, batch.num_rows)
    first = chance.randint(0, batch.num_rows - records)
    cuts = sorted(chance.randint(0, records) for _ in range(2))
    edges = [0, *cuts, records]
    return [batch.slice(first + low, high - low) for low, high in pairwise(edges)]


def _records(parts: Sequence[pa.RecordBatch]) -> str:
    """Return the records as a message shows them, each part in brackets."""
    columns = parts[0].schema.names
    rows = [part.column(columns[0]).to_pylist() if len(columns) == 1 else part.to_pylist() for part in parts]
    return quote(" and ".join(map(str, rows)), 300).strip('"')


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance) or (one != one and other != other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_close(one[name], other[name], tolerance) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_is_close(*pair, tolerance) for pair in pairs)
    return bool(one == other)


def _batch(data: Any, columns: Sequence[str], name: str) -> pa.RecordBatch:
    """Return the records as one batch of the aggregator's columns."""
    table = _table(data)
    if missing := [column for column in columns if column not in table.column_names]:
        hint = f"pass data with {', '.join(columns)}; it has {', '.join(table.column_names) or 'no columns'}"
        raise MillraceError(Problem(f"{name} reads {', '.join(missing)}, which the data lacks", hint, field="data"))
    if not table.num_rows:
        raise MillraceError(Problem("there are no records", "pass at least one, better a hundred", field="data"))
    chosen = table.select(list(columns)).combine_chunks()
    return chosen.to_batches()[0]


def _table(data: Any) -> pa.Table:
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if isinstance(data, Mapping):
            return pa.table(dict(data))
        if isinstance(data, list):
            return pa.Table.from_pylist(data)
    except (pa.ArrowException, AttributeError, TypeError) as error:
        hint = "pass columns of one length, or a dict for each record"
        raise MillraceError(Problem(f"the data is not a table: {error}", hint, field="data")) from None
    if type(data).__module__.startswith("pandas"):
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    hint = "pass an Arrow table, a DataFrame, a dict of columns or a list of dicts"
    raise MillraceError(Problem(f"data is a {type(data).__name__}", hint, field="data"))
