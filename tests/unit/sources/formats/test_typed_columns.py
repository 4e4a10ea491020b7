"""Columns of files with types of their own, in every layout of Arrow, and the calendar of old files."""

import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace_jobs.sources.formats.column_types import TIMESTAMP, declared_schema
from millrace_jobs.sources.formats.parquet_format import LegacyCalendar, ParquetFormat, legacy_calendar
from millrace_jobs.sources.formats.typed_columns import TypedColumn, suitable_type, type_name

from .typed_values import VALUES, bits


def column(kind, found, timestamp_format="iso"):
    return TypedColumn(found, declared_schema(f"a {kind}").field("a"), timestamp_format)


def converted(kind, values, timestamp_format="iso"):
    return column(kind, values.type, timestamp_format).convert(values).to_pylist()


@given(st.data())
def test_every_value_of_every_type_is_read_back(tmp_path_factory, data):
    names = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=5))
    rows = data.draw(st.integers(0, 5))
    schema = declared_schema(", ".join(f"c{i} {kind}" for i, kind in enumerate(names)))
    columns = [data.draw(st.lists(VALUES[kind] | st.none(), min_size=rows, max_size=rows)) for kind in names]
    table = pa.table([pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema)
    path = str(tmp_path_factory.getbasetemp() / "every.parquet")
    options = data.draw(
        st.fixed_dictionaries(
            {
                "data_page_version": st.sampled_from(["1.0", "2.0"]),
                "compression": st.sampled_from(["none", "snappy", "zstd"]),
                "use_dictionary": st.booleans(),
                "row_group_size": st.integers(1, 4),
                "store_schema": st.booleans(),
            }
        )
    )
    pq.write_table(table, path, **options)
    format = ParquetFormat(schema, "iso")
    found = pa.Table.from_batches(format.read(path, 0, format.extent(path, 0), lambda *_: None), schema)
    assert [[bits(value) for value in part.to_pylist()] for part in found.columns] == [
        [bits(value) for value in values] for values in columns
    ]


LAYOUTS = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.binary(), pa.large_binary()]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_text_is_read_in_any_layout(layout):
    texts = pa.array(["QUJD", None, "é"])
    values = texts.dictionary_encode() if pa.types.is_dictionary(layout) else texts.cast(layout)
    assert converted("STRING", values) == ["QUJD", None, "é"]
    if not pa.types.is_binary(layout) and not pa.types.is_large_binary(layout):
        assert converted("TIMESTAMP", values.slice(1, 1)) == [None]
        assert converted("BINARY", pc_text(values)) == [b"QUJD", None, "é".encode()]


def pc_text(values):
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


@given(st.lists(st.decimals(-(10**15) + 1, 10**15 - 1, places=0) | st.none()), st.integers(0, 15))
def test_decimals_are_the_floats_that_are_written_alike(numbers, scale):
    decimals = [None if number is None else number.scaleb(-scale) for number in numbers]
    found = converted("DOUBLE", pa.array(decimals, pa.decimal128(15, scale)))
    assert found == [None if number is None else float(str(number)) for number in decimals]


@given(st.floats(-1e15, 1e15))
@example(5e-324)
def test_a_float_becomes_the_decimal_that_is_written_alike_or_none(number):
    typed = column("DECIMAL(38,18)", pa.float64())
    exact = Decimal(repr(number))
    if exact.normalize().as_tuple().exponent >= -18:
        assert typed.convert(pa.array([number])).to_pylist() == [exact]
    else:
        with pytest.raises(ValueError, match="does not fit"):
            typed.convert(pa.array([number]))


@given(st.integers(-(2**63), 2**63 - 1))
def test_nanoseconds_are_rounded_to_earlier_microseconds(nanos):
    (found,) = (
        column("TIMESTAMP", pa.timestamp("ns")).convert(pa.array([nanos]).cast(pa.timestamp("ns"))).cast(pa.int64())
    )
    assert found.as_py() == nanos // 1000


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_window_of_a_time_at_the_edge_may_end_beyond_it(unit):
    end = pa.array([253_402_300_800, -62_135_683_200]).cast(pa.timestamp("s"))  # 10000-01-01 and 0000-12-31
    found = column("TIMESTAMP", pa.timestamp(unit)).convert(end.cast(pa.timestamp(unit)))
    assert found.cast(pa.int64()).to_pylist() == [253_402_300_800_000_000, -62_135_683_200_000_000]
    dates = column("DATE", pa.date32()).convert(pa.array([2_932_897], pa.int32()).cast(pa.date32()))
    assert dates.cast(pa.int32()).to_pylist() == [2_932_897]


@pytest.mark.parametrize("seconds", [-1, 86_400])
def test_a_time_of_day_is_within_a_day(seconds):
    times = pa.array([0, seconds], pa.int32()).cast(pa.time32("s"))
    with pytest.raises(ValueError, match=r"column a \(STRING\): row 2: .* is not a time of day"):
        column("STRING", times.type).convert(times, 1)
    assert converted("STRING", times.slice(0, 1)) == ["00:00:00"]


def test_a_value_that_does_not_fit_is_found_among_many():
    values = pa.array([*range(100_000), 2**31, *range(5)])
    with pytest.raises(ValueError, match=r"^column a \(INT\): row 100011: 2147483648 does not fit$"):
        column("INT", values.type).convert(values, 11)


@pytest.mark.parametrize(
    ("found", "name", "suitable"),
    [
        (pa.uint8(), "UINT8", pa.int16()),
        (pa.uint64(), "UINT64", pa.decimal128(20, 0)),
        (pa.float16(), "FLOAT16", pa.float32()),
        (pa.decimal256(50, 2), "decimal256(50, 2)", None),
        (pa.decimal32(5, 2), "DECIMAL(5,2)", pa.decimal128(5, 2)),
        (pa.timestamp("s"), "TIMESTAMP", TIMESTAMP),
        (pa.time64("us"), "TIME", pa.string()),
        (pa.uuid(), "UUID", pa.string()),
        (pa.dictionary(pa.int8(), pa.large_string()), "STRING", pa.string()),
        (pa.list_view(pa.int8()), "ARRAY", None),
        (pa.map_(pa.string(), pa.int8()), "MAP", None),
        (pa.duration("s"), "BIGINT", pa.int64()),
    ],
    ids=str,
)
def test_a_type_has_a_name_and_a_column_that_holds_it(found, name, suitable):
    assert type_name(found) == name
    assert suitable_type(found) == suitable


def julian_days():
    """Every day from 0001-01-01 to 1582-10-04 of the Julian calendar, counted one by one, as (year, month, day)."""
    for year in range(1, 1583):
        lengths = [31, 28 + (year % 4 == 0), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        for month, length in enumerate(lengths, 1):
            for day in range(1, length + 1):
                if (year, month, day) < (1582, 10, 5):
                    yield year, month, day


def test_a_day_of_the_old_calendar_keeps_its_name():
    days = list(julian_days())
    last = -141_428  # Spark writes 1582-10-04 as this number in its mode LEGACY
    stored = np.arange(last - len(days) + 1, last + 1, dtype=np.int32)
    found = LegacyCalendar(True, True).corrected(pa.array(stored).cast(pa.date32())).cast(pa.int32()).to_numpy()
    expected = [
        date(*day).toordinal() if day[1:] != (2, 29) or day[0] % 400 == 0 or day[0] % 100 else date(day[0], 3, 1).toordinal()
        for day in days
    ]  # fmt: skip
    assert (found + date(1970, 1, 1).toordinal() == expected).all()


@given(st.dates(date(1582, 10, 15)))
def test_days_after_the_old_calendar_stay_as_they_are(day):
    assert LegacyCalendar(True, True).corrected(pa.array([day, None])).to_pylist() == [day, None]


@pytest.mark.parametrize(
    ("metadata", "dates", "int96"),
    [
        (None, False, False),
        ({}, False, False),
        ({"org.apache.spark.version": "2.4.8"}, True, True),
        ({"org.apache.spark.version": "3.0.1"}, False, True),
        ({"org.apache.spark.version": "3.1.0"}, False, False),
        ({"org.apache.spark.version": "10.0"}, False, False),
        ({"org.apache.spark.version": "4.3.0", "org.apache.spark.legacyINT96": ""}, False, True),
        ({"org.apache.spark.version": "4.3.0", "org.apache.spark.legacyDateTime": ""}, True, False),
        ({"writer.date.proleptic": "true"}, False, False),
    ],
)
def test_the_writer_in_the_metadata_decides_about_the_old_calendar(metadata, dates, int96):
    known = None if metadata is None else {name.encode(): value.encode() for name, value in metadata.items()}
    assert legacy_calendar(known) == LegacyCalendar(dates, int96)


def test_times_of_the_old_calendar_are_corrected_in_utc():
    noon = datetime(1582, 10, 4, 12, tzinfo=UTC)
    stored = pa.array([-141_428 * 86_400_000_000 + 43_200_000_000, None]).cast(TIMESTAMP)
    assert LegacyCalendar(True, True, "Etc/UTC").corrected(stored).to_pylist() == [noon, None]
    assert math.isnan(converted("DOUBLE", pa.array([float("nan")]))[0])


DECIMALS = st.decimals(-(10**19), 10**19, allow_nan=False, places=3) | st.integers(-(10**37), 10**37).map(Decimal)


@given(st.lists(DECIMALS | st.none(), max_size=4), st.integers(0, 38), st.sampled_from([pa.decimal128, pa.decimal256]))
@example([Decimal(10**30)], 18, pa.decimal128)
@example([Decimal(123456)], 34, pa.decimal256)
def test_a_decimal_of_another_scale_is_the_same_number_or_refused(numbers, scale, kind):
    found, typed = kind(38 if kind is pa.decimal128 else 76, 0), declared_schema(f"a DECIMAL(38,{scale})").field("a")
    whole = [None if number is None else number.to_integral_value() for number in numbers]
    values, column = pa.array(whole, found), TypedColumn(found, typed, "iso")
    if all(number is None or abs(number) < 10 ** (38 - scale) for number in whole):
        assert column.convert(values).to_pylist() == whole
    else:
        with pytest.raises(ValueError, match="does not fit"):
            column.convert(values)


TIMES = {
    "seconds": [("253402300799.999999", 253402300799999999), ("-62135337578.443766", -62135337578443766)],
    "milliseconds": [("253402041621553.656", 253402041621553656), ("-62135337578443.766", -62135337578443766)],
    "microseconds": [("253402041621553656.000", 253402041621553656)],
}


@pytest.mark.parametrize(("unit", "text", "micros"), [(unit, *time) for unit, times in TIMES.items() for time in times])
def test_a_decimal_is_a_time_to_the_microsecond(unit, text, micros):
    found = column("TIMESTAMP", pa.decimal128(30, 6), unit).convert(
        pa.array([Decimal(text), None], pa.decimal128(30, 6))
    )
    assert found.cast(pa.int64()).to_pylist() == [micros, None]


def test_a_double_is_the_time_that_is_written_alike():
    found = column("TIMESTAMP", pa.float64(), "seconds").convert(pa.array([253402300799.999, 0.000001]))
    assert found.cast(pa.int64()).to_pylist() == [253402300799999000, 1]


@given(st.lists(st.decimals(-(10**13), 10**13, places=2) | st.none(), max_size=4), st.integers(0, 3))
def test_a_part_of_a_column_of_decimals_is_read_as_doubles(numbers, begin):
    values = pa.array(numbers, pa.decimal128(18, 2)).slice(begin)
    assert converted("DOUBLE", values) == [None if number is None else float(str(number)) for number in numbers[begin:]]


@pytest.mark.parametrize("begin", [0, 1, 3])
def test_a_part_of_a_column_of_uuids_is_read(begin):
    ids = [uuid.UUID(int=1), None, uuid.UUID(int=2**127)]
    values = pa.array([each and each.bytes for each in ids], pa.uuid()).slice(begin)
    assert converted("STRING", values) == [each and str(each) for each in ids[begin:]]


def test_bytes_that_are_no_text_are_told_where_a_time_is_expected():
    values = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    with pytest.raises(ValueError, match=r"^column a \(TIMESTAMP\): row 1: b'\\xff' is not UTF-8$"):
        column("TIMESTAMP", values.type).convert(values, 1)


def test_a_time_with_a_zone_is_told_in_utc():
    values = pa.array([datetime(2024, 1, 1, 23, tzinfo=UTC)], pa.timestamp("us", "Europe/Oslo"))
    with pytest.raises(ValueError, match=r"2024-01-01 23:00:00\+00:00 has a time of day"):
        column("DATE", values.type).convert(values)
