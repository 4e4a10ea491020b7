"""Aggregators that come with Millrace, for ``query.aggregates`` and ``query.python``; see docs/own-code.md.

Each has a state of limited size. Results do not depend on the order of records or merges, but for the counts of
``TopK`` once a group has more values than it keeps, within the limits that it returns.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.aggregates.protocol import State
from millrace_jobs.sources.formats.column_types import declared_schema

_MOST_ENTRIES = 100_000
"""Limit on the entries of a state, each of tens of bytes."""


class TopK:
    """The ``k`` most frequent values of a group with their counts, the most frequent first.

    A result is a list of structs of ``value``, ``count`` and ``at_most``. The counts are exact in a group of up to
    ``capacity`` distinct values. In one with more, a value has come at least ``count`` and at most ``at_most`` times,
    which differ by at most 1 / (``capacity`` + 1) of the number of values. A value that has come more often than this
    difference is kept. Of equal counts, the lower value comes first. NULL is not counted.

    It is the mergeable summary of Misra and Gries (Agarwal, Cormode, Huang, Phillips, Wei, Yi: Mergeable Summaries,
    PODS 2012): what exceeds the capacity is subtracted from all counts. The state has at most ``capacity`` values with
    their counts.
    """

    def __init__(self, k: int = 10, type: str = "STRING", capacity: int = 1_000, column: str = "value") -> None:
        """Make an aggregator.

        Args:
            k: how many values to return.
            type: Spark SQL type of the values: STRING, BOOLEAN, DATE, a DECIMAL or an integer. Others are cast to it.
            capacity: how many values to keep.
            column: column of the source, where the aggregator is not called by SQL.

        Raises:
            ValueError: a number is out of range, or the type is another one.
        """
        kind = declared_schema(f"value {type}").field(0).type
        exact = (pa.types.is_string, pa.types.is_boolean, pa.types.is_date, pa.types.is_decimal, pa.types.is_integer)
        if not any(is_kind(kind) for is_kind in exact):
            raise ValueError(f"type must be STRING, BOOLEAN, DATE, a DECIMAL or an integer: {type}")
        _require_whole(k=k, capacity=capacity)
        if not 1 <= k <= capacity <= _MOST_ENTRIES:
            raise ValueError(f"1 <= k <= capacity <= {_MOST_ENTRIES} must hold: k is {k}, capacity {capacity}")
        self.columns = (column,)
        self.state_schema = pa.schema(
            [("values", pa.list_(kind)), ("counts", pa.list_(pa.int64())), ("error", pa.int64())]
        )
        entry = pa.struct([("value", kind), ("count", pa.int64()), ("at_most", pa.int64())])
        self.result_schema = pa.schema([("top", pa.list_(entry))])
        self._k, self._type, self._capacity = k, kind, capacity

    def init(self) -> State:
        """Return the state without values."""
        return {"values": [], "counts": [], "error": 0}

    def update(self, state: State, batch: pa.RecordBatch) -> State:
        """Count values."""
        counted = batch.column(0).drop_null().cast(self._type).value_counts()
        values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        return self.merge(state, {"values": values, "counts": counts, "error": 0})

    def merge(self, a: State, b: State) -> State:
        """Add up the counts, and subtract what exceeds the capacity."""
        counts = Counter(dict(zip(a["values"], a["counts"], strict=True)))
        counts.update(dict(zip(b["values"], b["counts"], strict=True)))
        error = a["error"] + b["error"]
        if len(counts) > self._capacity:
            excess = heapq.nlargest(self._capacity + 1, counts.values())[-1]
            counts = Counter({value: count - excess for value, count in counts.items() if count > excess})
            error += excess
        return {"values": list(counts), "counts": list(counts.values()), "error": error}

    def finish(self, state: State) -> State:
        """Return the most frequent values with the limits of their counts."""
        pairs = zip(state["values"], state["counts"], strict=True)
        best = heapq.nsmallest(self._k, pairs, key=lambda pair: (-pair[1], pair[0]))
        return {"top": [{"value": value, "count": n, "at_most": n + state["error"]} for value, n in best]}


class Quantiles:
    """Quantiles of a group's numbers, each within a relative ``error`` of the number that has its rank.

    It is DDSketch (Masson, Rim, Lee: DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error
    Guarantees, VLDB 2019): numbers are counted by the powers of gamma = (1 + error) / (1 - error) between which they
    lie. Counts are sums, so a batch that is run again, and records that are divided in another way, give the same
    quantiles. Sketches that draw random numbers do not.

    Numbers of each sign have at most ``buckets`` counts, for the highest absolute values; those below share the last
    one. NULL and NaN are not counted. The state has at most 2 * ``buckets`` + 2 pairs of an index and a count.
    """

    state_schema = pa.schema(
        [
            ("positive", pa.list_(pa.int32())), ("positive_counts", pa.list_(pa.int64())),
            ("negative", pa.list_(pa.int32())), ("negative_counts", pa.list_(pa.int64())),
            ("zeros", pa.int64()), ("least", pa.float64()), ("most", pa.float64()),
        ]
    )  # fmt: skip
    result_schema = pa.schema([("quantiles", pa.list_(pa.float64()))])

    def __init__(
        self, probabilities: Sequence[float], error: float = 0.01, buckets: int = 2048, column: str = "number"
    ) -> None:
        """Make an aggregator.

        Args:
            probabilities: between 0 and 1, in the order of the results: 0.5 is the median.
            error: relative error, from 0.001 to 0.5.
            buckets: limit on the counts of each sign; 2048 are 17 orders of magnitude for an error of 0.01.
            column: column of the source, where the aggregator is not called by SQL.

        Raises:
            ValueError: a number is out of range.
        """
        _require_numbers("probabilities", probabilities)
        if not _is_number(error):
            raise ValueError(f"error must be a number: {error!r}")
        if not probabilities or not all(0 <= each <= 1 for each in probabilities):
            raise ValueError(f"probabilities must be numbers from 0 to 1: {list(probabilities)}")
        if not 0.001 <= error <= 0.5:
            raise ValueError(f"error must be from 0.001 to 0.5: {error}")
        _require_whole(buckets=buckets)
        if not 1 <= buckets <= _MOST_ENTRIES:
            raise ValueError(f"buckets must be from 1 to {_MOST_ENTRIES}: {buckets}")
        self.columns = (column,)
        self._probabilities, self._buckets = tuple(probabilities), buckets
        self._gamma = (1 + error) / (1 - error)

    def init(self) -> State:
        """Return the state without numbers."""
        counts: State = {"positive": [], "positive_counts": [], "negative": [], "negative_counts": []}
        return counts | {"zeros": 0, "least": None, "most": None}

    def update(self, state: State, batch: pa.RecordBatch) -> State:
        """Count numbers."""
        numbers = _numbers(batch.column(0))
        if not len(numbers):
            return state
        more = {"zeros": int((numbers == 0).sum()), "least": float(numbers.min()), "most": float(numbers.max())}
        for sign, sizes in (("positive", numbers[numbers > 0]), ("negative", -numbers[numbers < 0])):
            indexes, counts = np.unique(self._indexes(sizes), return_counts=True)
            more |= {sign: indexes.tolist(), f"{sign}_counts": counts.tolist()}
        return self.merge(state, more)

    def merge(self, a: State, b: State) -> State:
        """Add up the counts."""
        merged: State = {"zeros": a["zeros"] + b["zeros"]}
        for sign in ("positive", "negative"):
            indexes = np.array([*a[sign], *b[sign]], np.int64)
            counts = np.array([*a[f"{sign}_counts"], *b[f"{sign}_counts"]], np.int64)
            finite = indexes[indexes < _INFINITE]
            if len(finite):
                indexes = np.maximum(indexes, finite.max() - self._buckets + 1)
            kept, places = np.unique(indexes, return_inverse=True)
            total = np.zeros(len(kept), np.int64)
            np.add.at(total, places, counts)
            merged |= {sign: kept.tolist(), f"{sign}_counts": total.tolist()}
        merged["least"] = min((each["least"] for each in (a, b) if each["least"] is not None), default=None)
        merged["most"] = max((each["most"] for each in (a, b) if each["most"] is not None), default=None)
        return merged

    def finish(self, state: State) -> State:
        """Return the quantiles; NULL for a group without numbers."""
        counts = np.array([*state["negative_counts"][::-1], state["zeros"], *state["positive_counts"]], np.int64)
        total = int(counts.sum())
        if not total:
            return {"quantiles": None}
        sizes = [-self._size(index) for index in state["negative"][::-1]]
        values = np.array([*sizes, 0.0, *map(self._size, state["positive"])])
        ranks = np.floor(np.array(self._probabilities) * (total - 1))
        places = np.searchsorted(np.cumsum(counts), ranks, side="right")
        return {"quantiles": np.clip(values[places], state["least"], state["most"]).tolist()}

    def _indexes(self, sizes: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return i for each positive number in (gamma^(i - 1), gamma^i]."""
        indexes = np.full(len(sizes), _INFINITE)
        finite = np.isfinite(sizes)
        indexes[finite] = np.ceil(np.log(sizes[finite]) / np.log(self._gamma)).astype(np.int64)
        return indexes

    def _size(self, index: int) -> float:
        """Return the number whose relative distance to both ends of a bucket is the error."""
        if index == _INFINITE:
            return float("inf")
        return float(np.exp(index * np.log(self._gamma) + np.log(2 / (1 + self._gamma))))


_INFINITE = (1 << 31) - 1
"""Index of infinity, above that of every finite number."""


class Histogram:
    """Counts of a group's numbers by range: exact, one for each range between two ``edges``, and one on either side.

    A range begins at its lower edge and ends before the upper one. NULL and NaN are not counted. The state has a count
    for each range.
    """

    state_schema = pa.schema([("counts", pa.list_(pa.int64()))])
    result_schema = state_schema

    def __init__(self, edges: Sequence[float], column: str = "number") -> None:
        """Make an aggregator.

        Args:
            edges: numbers in ascending order; the first range is below the first, the last begins with the last.
            column: column of the source, where the aggregator is not called by SQL.

        Raises:
            ValueError: there are no edges or too many, or they do not ascend.
        """
        _require_numbers("edges", edges)
        if not 1 <= len(edges) < _MOST_ENTRIES or not all(a < b for a, b in pairwise(edges)):
            raise ValueError(f"edges must be numbers in ascending order, fewer than {_MOST_ENTRIES}: {list(edges)[:5]}")
        self.columns = (column,)
        self._edges = np.asarray(edges, np.float64)

    def init(self) -> State:
        """Return the state without numbers."""
        return {"counts": [0] * (len(self._edges) + 1)}

    def update(self, state: State, batch: pa.RecordBatch) -> State:
        """Count numbers."""
        places = np.searchsorted(self._edges, _numbers(batch.column(0)), side="right")
        return self.merge(state, {"counts": np.bincount(places, minlength=len(self._edges) + 1).tolist()})

    def merge(self, a: State, b: State) -> State:
        """Add up the counts."""
        return {"counts": [one + other for one, other in zip(a["counts"], b["counts"], strict=True)]}

    def finish(self, state: State) -> State:
        """Return the counts, in the order of the ranges."""
        return state


class Latest:
    """The value of the record with the latest time, as ``max_by(value, at)``; of equal times, the greatest value.

    NaN is the greatest number, as in Spark, and 0.0 is greater than -0.0, so that the order of records does not matter.
    A record without a time is left out; one without a value counts, so that the result can be NULL. The state is one
    value and one time.
    """

    def __init__(self, type: str = "STRING", column: str = "value", time: str = "at") -> None:
        """Make an aggregator.

        Args:
            type: Spark SQL type of the values, which is not nested. Others are cast to it.
            column: column of the source with the values, where the aggregator is not called by SQL.
            time: column of the source with the times, where it is not called by SQL.

        Raises:
            ValueError: the type is nested or a TIMESTAMP.
        """
        kind = declared_schema(f"value {type}").field(0).type
        if pa.types.is_nested(kind) or pa.types.is_timestamp(kind):
            raise ValueError(f"type must be that of a single value, and no TIMESTAMP: {type}")
        self.columns = (column, time)
        self.state_schema = pa.schema([("value", kind), ("micros", pa.int64())])
        self.result_schema = pa.schema([("value", kind)])
        self._type = kind

    def init(self) -> State:
        """Return the state without a record."""
        return {"value": None, "micros": None}

    def update(self, state: State, batch: pa.RecordBatch) -> State:
        """Take records in."""
        micros = batch.column(1).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        newest = pc.max(micros)
        if not newest.is_valid:
            return state
        values = batch.column(0).filter(pc.equal(micros, newest)).cast(self._type)
        return self.merge(state, {"value": _greatest(values), "micros": newest.as_py()})

    def merge(self, a: State, b: State) -> State:
        """Return the state with the later time."""
        known = [each for each in (a, b) if each["micros"] is not None]
        return max(known, key=_by_time, default=a)

    def finish(self, state: State) -> State:
        """Return the value."""
        return {"value": state["value"]}


def _by_time(state: State) -> tuple[Any, ...]:
    value = state["value"]
    return (state["micros"], value is not None, *([] if value is None else _rank(value)))


def _rank(value: Any) -> tuple[Any, ...]:
    """Return what a value is ordered by: a number before NaN, and -0.0 before 0.0."""
    if not isinstance(value, float):
        return (value,)
    return (True,) if math.isnan(value) else (False, value, math.copysign(1, value))


def _greatest(values: pa.Array) -> Any:
    """Return the greatest value in the order of ``_rank``; None if all are NULL."""
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return math.nan
    greatest = pc.max(values).as_py()
    if isinstance(greatest, float) and greatest == 0:
        zeros = values.filter(pc.equal(values, 0)).to_numpy(zero_copy_only=False)
        return -0.0 if np.signbit(zeros).all() else 0.0
    return greatest


def _require_whole(**options: int) -> None:
    """Raise ValueError unless options, which come from YAML, are whole numbers."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} must be a whole number: {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_numbers(name: str, values: Sequence[float]) -> None:
    """Raise ValueError unless an option, which comes from YAML, has numbers only."""
    wrong = [each for each in values if not _is_number(each)]
    if wrong:
        raise ValueError(f"{name} must have numbers only: {wrong[0]!r}")


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    """Return the values of a column that are numbers."""
    numbers: NDArray[np.float64] = column.drop_null().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers[~np.isnan(numbers)]
