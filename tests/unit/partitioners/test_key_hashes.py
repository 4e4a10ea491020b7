import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.key_hashes import hash_columns

from . import oracles

TEXT = st.text(max_size=40)
BYTES = st.binary(max_size=40)
COLUMNS = [
    (pa.bool_(), st.booleans()),
    *[(pa.from_numpy_dtype(f"i{size}"), st.integers(-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1))
      for size in (1, 2, 4, 8)],
    *[(pa.from_numpy_dtype(f"u{size}"), st.integers(0, 2 ** (8 * size) - 1)) for size in (1, 2, 4, 8)],
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), TEXT), (pa.large_string(), TEXT), (pa.string_view(), TEXT),
    (pa.binary(), BYTES), (pa.large_binary(), BYTES), (pa.binary_view(), BYTES),
    (pa.binary(5), st.binary(min_size=5, max_size=5)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2)),
    (pa.null(), st.none()),
]  # fmt: skip


def by_type(columns):
    return pytest.mark.parametrize(("kind", "values"), columns, ids=[str(kind) for kind, _ in columns])


def digest(*columns):
    return hash_columns(columns, len(columns[0])).tolist()


@by_type(COLUMNS)
@given(data=st.data())
def test_agrees_with_the_oracle_however_the_column_is_laid_out(kind, values, data):
    rows = data.draw(st.lists(values | st.none(), max_size=30))
    start = data.draw(st.integers(0, len(rows)))
    column = pa.array(rows, kind)
    expected = [oracles.hash_value(value) for value in rows]

    assert digest(column) == expected
    assert digest(column.slice(start)) == expected[start:]
    assert digest(column.slice(0, start)) == expected[:start]
    assert digest(pa.chunked_array([column.slice(0, start), column.slice(start)], kind)) == expected


@by_type([(kind, values) for kind, values in COLUMNS if kind in (pa.string(), pa.int64(), pa.float64())])
@given(data=st.data())
def test_a_dictionary_hashes_as_its_values(kind, values, data):
    rows = data.draw(st.lists(values | st.none(), max_size=30))
    start = data.draw(st.integers(0, len(rows)))
    column = pa.array(rows, kind)
    for encoded in (column.dictionary_encode(), column.dictionary_encode(null_encoding="encode")):
        assert digest(encoded) == digest(column)
        assert digest(encoded.slice(start)) == digest(column)[start:]
    assert digest(column.dictionary_encode().cast(pa.dictionary(pa.int8(), kind))) == digest(column)


@given(st.lists(st.tuples(st.integers(-9, 9) | st.none(), st.text(max_size=3) | st.none(), st.booleans())))
def test_composite_keys_agree_with_the_oracle(rows):
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate((pa.int32(), pa.string(), pa.bool_()))]
    assert hash_columns(columns, len(rows)).tolist() == [oracles.hash_row(row) for row in rows]


def test_the_order_of_a_composite_key_matters():
    a, b = pa.array([1]), pa.array([2])
    assert digest(a, b) != digest(b, a)
    assert digest(a, a) != digest(b, b)
    assert digest(pa.array([None, "x"]), pa.array(["x", None])) != digest(pa.array(["x", None]), pa.array([None, "x"]))


def test_hashes_never_change():
    """A replayed batch must route as before, so these figures are part of the format of checkpoints."""
    assert digest(pa.array(["JFK", "LGA"]), pa.array([1, None], pa.int32())) == [
        0x072E2F3BB85FB5CF,
        0x8D72E348C4DA7022,
    ]


def test_integers_are_equal_by_value():
    kinds = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
    assert len({digest(pa.array([5], pa.from_numpy_dtype(kind)))[0] for kind in kinds}) == 1
    assert digest(pa.array([-5], pa.int8())) == digest(pa.array([-5], pa.int64()))


def test_floats_are_equal_by_value():
    assert digest(pa.array([-0.0, 0.5])) == digest(pa.array([0.0, 0.5], pa.float32()))
    assert digest(pa.array([0.5], pa.float16())) == digest(pa.array([0.5]))
    # Every bit pattern of a NaN: quiet and signalling, of both signs, with a payload.
    patterns = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FF800000000BEEF], "u8")
    hashes = digest(pa.array(patterns.view("f8"), from_pandas=False))
    assert set(hashes) == set(digest(pa.array([float("nan")], pa.float32(), from_pandas=False)))
    assert hashes[0] != digest(pa.array([None], pa.float64()))[0]


def test_equal_bytes_are_equal_keys():
    layouts = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(3)]
    assert len({digest(pa.array([b"JFK"]).cast(kind))[0] for kind in layouts}) == 1


def test_an_empty_text_is_not_a_null():
    null, empty = digest(pa.array([None, ""]))
    assert null != empty


def test_times_hash_by_ticks():
    noon = datetime.time(12)
    assert digest(pa.array([noon], pa.time64("us"))) == [oracles.hash_value(12 * 3600 * 10**6)]
    assert digest(pa.array([datetime.timedelta(seconds=1)], pa.duration("ms"))) == [oracles.hash_value(1000)]
    zoned = pa.array([datetime.datetime(2013, 1, 1)], pa.timestamp("us", "UTC"))
    assert digest(zoned) == digest(zoned.cast(pa.timestamp("us")))


def test_rows_without_columns_have_one_key():
    assert len(set(hash_columns([], 3).tolist())) == 1
    assert hash_columns([], 0).shape == (0,)


def test_columns_without_rows_have_no_hashes():
    for kind in [kind for kind, _ in COLUMNS] + [pa.dictionary(pa.int32(), pa.string())]:
        assert digest(pa.array([], kind)) == []
        assert digest(pa.chunked_array([], kind)) == []
    assert hash_columns([pa.array([], pa.string()), pa.array([], pa.int64())], 0).dtype == np.uint64


def test_the_result_is_writable_and_the_input_is_left_alone():
    column = pa.array([-0.0, 1.0])
    hash_columns([column, column], 2)[0] = 0
    assert str(column.to_pylist()) == "[-0.0, 1.0]"


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.struct({"a": pa.int64()}),
        pa.map_(pa.string(), pa.int64()),
        pa.month_day_nano_interval(),
        pa.dictionary(pa.int32(), pa.list_(pa.int64())),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [0, 2])
def test_a_type_that_cannot_be_a_key_is_named(kind, rows):
    named = kind.value_type if pa.types.is_dictionary(kind) else kind
    column = (
        pa.DictionaryArray.from_arrays(pa.array([None] * rows, pa.int32()), pa.array([], named))
        if pa.types.is_dictionary(kind)
        else pa.array([None] * rows, kind)
    )
    with pytest.raises(TypeError) as error:
        hash_columns([column], rows)
    assert str(named) in str(error.value)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="key column 1 has 3 rows, but the block has 2"):
        hash_columns([pa.array([1, 2]), pa.array([1, 2, 3])], 2)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.arange(200_000)),
        pa.array(np.arange(200_000) * 1024),
        pa.array(np.arange(200_000) / 8),
        pa.array([f"user-{i}" for i in range(200_000)]),
        pa.array([Decimal(i) for i in range(200_000)], pa.decimal128(38, 2)),
    ],
    ids=["sequence", "multiples", "floats", "texts", "decimals"],
)
def test_hashes_spread_evenly(column):
    """Chi-square over 256 buckets of the lowest and of the highest byte; and no two keys collide."""
    hashes = hash_columns([column], len(column))
    assert len(np.unique(hashes)) == len(column)
    for shift in (0, 56):
        observed = np.bincount((hashes >> np.uint64(shift)).astype(np.uint8), minlength=256)
        expected = len(column) / 256
        assert 159 < ((observed - expected) ** 2 / expected).sum() < 379  # 255 degrees of freedom, 5.5 sigma
