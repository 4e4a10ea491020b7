"""Values of every type for the tables of tests, and attempts of tasks that fail."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
"""Times of the years 1 to 9999, in microseconds since 1970."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=100) | st.sampled_from(
    ["", "NULL", "\0", "a\\", "💧"]
)

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "a_boolean": (pa.bool_(), st.booleans()),
    "a_tinyint": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "a_smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "a_int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "a_bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "a_float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "a_double": (pa.float64(), st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 5e-324])),
    "a_decimal": (pa.decimal128(38, 18), st.decimals(-(10**20) + 1, 10**20 - 1, places=18, allow_nan=False)),
    "a_small_decimal": (pa.decimal128(4, 4), st.decimals(Decimal("-0.9999"), Decimal("0.9999"), places=4)),
    "a_text": (pa.string(), TEXTS),
    "a_binary": (pa.binary(), st.binary(max_size=20)),
    "a_date": (pa.date32(), st.integers(-719_162, 2_932_896)),
    "a_timestamp": (pa.timestamp("us", "UTC"), TIMES),
    "a_timestamp_ntz": (pa.timestamp("us"), TIMES),
    "a_array": (pa.list_(pa.string()), st.lists(TEXTS | st.none(), max_size=4)),
    "a_map": (pa.map_(pa.string(), pa.int64()), st.dictionaries(TEXTS, st.integers(0, 9) | st.none(), max_size=3)),
    "a_struct": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))]),
        st.fixed_dictionaries({"a": TEXTS | st.none(), "b": st.lists(st.integers(0, 9), max_size=3)}),
    ),
}
ROWS = st.lists(st.tuples(*(st.none() | values for _, values in TYPES.values())), min_size=1, max_size=20)


def array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Return values as Arrow has them: times are numbers, so that they can be of any year."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    if pa.types.is_map(kind):
        return pa.array([None if each is None else list(each.items()) for each in values], kind)
    return pa.array(values, kind)


def plain(values: pa.ChunkedArray) -> list[Any]:
    """Return values for a comparison, with times as numbers."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    return [sorted(each) if pa.types.is_map(values.type) and each else each for each in values.to_pylist()]


class FailsAt:
    """A function for ``mapInArrow`` that lets the first attempt of each task write its rows, and then fails."""

    def __call__(self, batches):
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first attempt is lost")
