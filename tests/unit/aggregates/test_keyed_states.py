from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.aggregates.keyed_states import StateCodec, field_array, key_tuples, merge_into

MONEY = pa.decimal128(10, 2)
KEYS = pa.schema(
    [("key s", pa.string()), ("key i", pa.int64()), ("key d", pa.float64()), ("key p", pa.bool_()),
     ("key b", pa.binary()), ("key y", pa.date32()), ("key at", pa.timestamp("us", tz="UTC")), ("key c", MONEY)]
)  # fmt: skip
STATES = pa.schema(
    [("n", pa.int64()), ("xs", pa.list_(pa.float64())),
     ("top", pa.list_(pa.struct([("value", pa.string()), ("count", pa.int64())]))),
     ("by", pa.map_(pa.string(), pa.int32())), ("sketch", pa.binary())]
)  # fmt: skip
CODEC = StateCodec(KEYS, STATES)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
PRINTED = st.tuples(
    st.text(max_size=4) | st.none(),
    st.integers(-(2**63), 2**63 - 1) | st.none(),
    st.floats(allow_nan=False) | st.none(),
    st.booleans() | st.none(),
    st.binary(max_size=4) | st.none(),
    st.dates(date(1, 1, 1)) | st.none(),
    MOMENTS | st.none(),
    st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents) / 100) | st.none(),
)
STATE = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "xs": st.lists(st.floats(allow_nan=False) | st.none(), max_size=3) | st.none(),
        "top": st.lists(st.fixed_dictionaries({"value": st.text(max_size=2), "count": st.integers(0, 9)}), max_size=3),
        "by": st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=3).map(lambda d: list(d.items())),
        "sketch": st.binary(max_size=8),
    }
)


@given(st.lists(st.tuples(PRINTED, STATE), max_size=6))
def test_what_is_decoded_is_what_was_encoded(pairs):
    assert list(CODEC.decode(CODEC.encode(pairs))) == pairs


@given(st.lists(st.tuples(PRINTED, STATE), min_size=1, max_size=6))
def test_encoding_again_gives_the_same_bytes(pairs):
    blob = CODEC.encode(pairs)
    assert CODEC.encode(CODEC.decode(blob)) == blob


def test_every_nan_is_one_key():
    column = pa.array([float("nan"), None, -float("nan"), 0.0, -0.0], pa.float64(), from_pandas=False)
    keys = key_tuples([column, pa.array(["x"] * 5)], 5)
    assert len(set(keys)) == 3
    codec = StateCodec(pa.schema([("key", pa.float64())]), pa.schema([("n", pa.int64())]))
    blob = codec.encode([((float("nan"),), {"n": 1})])
    (one, _), (other, _) = next(codec.decode(blob)), next(codec.decode(blob))
    assert {one: "found"}[other] == "found"


def test_nan_is_found_in_narrow_columns_too():
    nan = pa.array([float("nan")] * 2, pa.float32(), from_pandas=False)
    assert len(set(key_tuples([nan], 2))) == 1


def test_without_key_columns_all_rows_have_the_empty_key():
    assert key_tuples([], 3) == [(), (), ()]
    codec = StateCodec(pa.schema([]), STATES)
    state = {"n": 1, "xs": [], "top": [], "by": [], "sketch": b""}
    assert list(codec.decode(codec.encode([((), state)]))) == [((), state)]


class Summing:
    def merge(self, a, b):
        return {"n": a["n"] + b["n"]}


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=12), st.integers(0, 12))
def test_merging_is_by_key_and_tells_what_has_changed(pairs, cut):
    states = {}
    assert [key for (key,) in merge_into(Summing(), states, (((k,), {"n": n}) for k, n in pairs[:cut]))] == [
        key for key, _ in pairs[:cut]
    ]
    changed = list(merge_into(Summing(), states, (((k,), {"n": n}) for k, n in pairs[cut:])))
    assert [key for (key,) in changed] == [key for key, _ in pairs[cut:]]
    keys = {key for key, _ in pairs}
    assert states == {(key,): {"n": sum(n for k, n in pairs if k == key)} for key in keys}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "it has no field 'n'"),
        (None, "'NoneType' object is not subscriptable"),
        ({"n": "five"}, "Could not convert 'five' with type str"),
        ({"n": 2**63}, "too large"),
    ],
)
def test_a_state_that_does_not_fit_is_told(row, reason):
    with pytest.raises(MillraceError, match=reason) as told:
        field_array([{"n": 1}, row], pa.field("n", pa.int64()), "state")
    (problem,) = told.value.problems
    assert problem.message.startswith("a state of the aggregator does not fit its state_schema, field n int64: ")
    assert problem.hint == "correct the schema, or what the aggregator returns as state"
