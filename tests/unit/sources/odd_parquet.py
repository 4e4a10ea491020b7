"""Parquet files of other programs: odd but right ones with the rows that they hold, and broken ones with the sentence.

The rows were written down by hand beside the data that the writer gets. ``by_duckdb``, ``by_polars`` and the like are
programs that write a file; ``by_arrow`` has the options that stand for older and other writers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

Write = Callable[[Path], object]
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class OddFile:
    """A file, the schema that it is read with, and its rows, or a part of the sentence that refuses it."""

    name: str
    write: Write
    schema: str
    expected: Rows | str
    timestamp_format: str = "iso"

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def by_arrow(columns: Any, **options: Any) -> Write:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    return lambda path: pq.write_table(table, path, **options)


def by_duckdb(select: str, options: str = "") -> Write:
    return lambda path: duckdb.sql(f"COPY ({select}) TO '{path}' (FORMAT parquet{options})")


def by_polars(columns: Any, **options: Any) -> Write:
    return lambda path: pl.DataFrame(columns).write_parquet(path, **options)


def by_pandas(columns: Any, **options: Any) -> Write:
    return lambda path: pd.DataFrame(columns).to_parquet(path, **options)


def bytes_of(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


def damaged(write: Write, damage: Callable[[bytes], bytes]) -> Write:
    def spoil(path: Path) -> None:
        write(path)
        path.write_bytes(damage(path.read_bytes()))

    return spoil


def with_metadata(columns: Any, metadata: dict[str, str], **options: Any) -> Write:
    table = pa.table(columns)
    return by_arrow(table.replace_schema_metadata(metadata), **options)


def one(kind: pa.DataType, *values: Any) -> dict[str, pa.Array]:
    return {"a": pa.array(values, kind)}


def ints(kind: pa.DataType, *values: int | None) -> dict[str, pa.Array]:
    """A column of a type that Python has no values of, by the numbers that are stored."""
    return {"a": pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)}


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


N = (None,)
NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xe9t")]
)
MICROS = pa.timestamp("us")
EXTREMES = [datetime(1, 1, 1), datetime(1601, 1, 1), datetime(2300, 6, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]
EXTREME_ROWS = [(moment.replace(tzinfo=UTC),) for moment in EXTREMES]
ID = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
SPARK = "org.apache.spark."
LEGACY = {f"{SPARK}version": "3.5.1", f"{SPARK}legacyDateTime": "", f"{SPARK}legacyINT96": ""}
OLD_DAYS = (-719164, -141428, -141427, None)  # 0001-01-01 and 1582-10-04 in the Julian calendar, then 1582-10-15
OLD_ROWS = [(date(1, 1, 1),), (date(1582, 10, 4),), (date(1582, 10, 15),), N]
DAY = 86_400_000_000


WITHOUT_VALUES = [
    OddFile("duckdb NULL for text", by_duckdb("SELECT NULL AS a FROM range(2)"), "a STRING", [N, N]),
    OddFile("duckdb NULL for times", by_duckdb("SELECT NULL AS a FROM range(2)"), "a TIMESTAMP", [N, N]),
    OddFile("duckdb NULL of another type", by_duckdb("SELECT NULL::BOOLEAN AS a"), "a DECIMAL(9,2)", [N]),
    OddFile("duckdb NULL list", by_duckdb("SELECT NULL::INT[] AS a"), "a STRING", [N]),
    OddFile("duckdb NULL struct", by_duckdb("SELECT NULL::STRUCT(x INT, y INT) AS a, 1 AS b"), "a DATE, b INT", [(None, 1)]),
    OddFile("duckdb no rows", by_duckdb("SELECT 'x' AS a WHERE false"), "a STRING", []),
    OddFile("duckdb no rows of another type", by_duckdb("SELECT 'x' AS a WHERE false"), "a INT", []),
    OddFile("pandas None", by_pandas({"a": [None, None]}), "a STRING", [N, N]),
    OddFile("pandas NaN for missing text", by_pandas({"a": [np.nan, np.nan]}), "a STRING", [N, N]),
    OddFile("pandas NaN for missing times", by_pandas({"a": [np.nan, np.nan]}), "a TIMESTAMP", [N, N]),
    OddFile("pandas NaT for missing text", by_pandas({"a": pd.to_datetime([None])}), "a STRING", [N]),
    OddFile("pandas index only", by_pandas({"a": []}), "a STRING", []),
    OddFile("polars Null", by_polars({"a": [None, None], "b": [1, 2]}), "b INT, a TIMESTAMP", [(1, None), (2, None)]),
    OddFile("polars no rows", by_polars({"a": pl.Series([], dtype=pl.String)}), "a BINARY", []),
    OddFile("arrow null", by_arrow({"a": pa.nulls(3)}), "a TIMESTAMP", [N, N, N], "seconds"),
    OddFile("arrow null for binary", by_arrow({"a": pa.nulls(1)}), "a BINARY", [N]),
    OddFile("arrow dictionary of nulls", by_arrow({"a": pa.array([None, None], pa.string()).dictionary_encode()}), "a DOUBLE", [N, N]),
    OddFile("arrow no row group", lambda path: pq.ParquetWriter(path, pa.schema([("a", pa.int32())])).close(), "a INT", []),
    OddFile("arrow value after a row group of nulls", by_arrow(one(pa.bool_(), None, None, True), row_group_size=2), "a DATE", "column a (DATE): its type is BOOLEAN; write a BOOLEAN in the schema"),
    OddFile("arrow no column", by_arrow(pa.table({})), "a INT", "has no column a; it has no columns; correct the schema"),
]  # fmt: skip

TEXT_AND_BYTES = [
    OddFile("arrow bytes that are text", by_arrow(one(pa.binary(), "é".encode(), b"", None)), "a STRING", [("é",), ("",), N]),
    OddFile("arrow bytes that look like base64", by_arrow(one(pa.binary(), b"QUJD")), "a STRING", [("QUJD",)]),
    OddFile("arrow text for bytes", by_arrow(one(pa.string(), "QUJD", "no base64!", "")), "a BINARY", [(b"QUJD",), (b"no base64!",), (b"",)]),
    OddFile("arrow bytes that are no text", by_arrow(one(pa.binary(), b"ok", b"\xff")), "a STRING", r"column a (STRING): row 2: b'\xff' is not UTF-8; write a BINARY in the schema"),
    OddFile("arrow text in Latin-1", by_arrow({"a": NOT_UTF8}), "a STRING", r"column a (STRING): row 1: b'\xe9t' is not UTF-8; "),
    OddFile("arrow dictionary", by_arrow({"a": pa.array(["x", None, "x"]).dictionary_encode()}), "a STRING", [("x",), N, ("x",)]),
    OddFile("arrow large_string", by_arrow(one(pa.large_string(), "x", None)), "a STRING", [("x",), N]),
    OddFile("arrow string_view", by_arrow(one(pa.string_view(), "x", "much longer than twelve")), "a STRING", [("x",), ("much longer than twelve",)]),
    OddFile("arrow large_binary", by_arrow(one(pa.large_binary(), b"\x00\xff")), "a BINARY", [(b"\x00\xff",)]),
    OddFile("arrow binary_view", by_arrow(one(pa.binary_view(), b"\x00\xff")), "a BINARY", [(b"\x00\xff",)]),
    OddFile("arrow fixed bytes", by_arrow(one(pa.binary(2), b"ab", None)), "a BINARY", [(b"ab",), N]),
    OddFile("arrow fixed bytes for text", by_arrow(one(pa.binary(2), b"ab")), "a STRING", "column a (STRING): its type is BINARY; write a BINARY in the schema"),
    OddFile("arrow NUL in text", by_arrow(one(pa.string(), "a\0b", "\0")), "a STRING", [("a\0b",), ("\0",)]),
    OddFile("arrow JSON", by_arrow({"a": pa.array(['{"x":1}'], pa.json_())}), "a STRING", [('{"x":1}',)]),
    OddFile("duckdb UUID", by_duckdb(f"SELECT '{ID}'::UUID AS a UNION ALL SELECT NULL ORDER BY a"), "a STRING", [(str(ID),), N]),
    OddFile("duckdb UUID as bytes", by_duckdb(f"SELECT '{ID}'::UUID AS a"), "a BINARY", [(ID.bytes,)]),
    OddFile("duckdb ENUM", by_duckdb("SELECT 'x'::ENUM('x', 'y') AS a"), "a STRING", [("x",)]),
    OddFile("duckdb BLOB", by_duckdb(r"SELECT '\xFF\x00'::BLOB AS a"), "a BINARY", [(b"\xff\x00",)]),
    OddFile("polars Categorical", by_polars({"a": pl.Series(["x", None], dtype=pl.Categorical)}), "a STRING", [("x",), N]),
    OddFile("polars Enum", by_polars({"a": pl.Series(["y", "x"], dtype=pl.Enum(["x", "y"]))}), "a STRING", [("y",), ("x",)]),
    OddFile("pandas objects of bytes", by_pandas({"a": [b"x", None]}), "a STRING", [("x",), N]),
    OddFile("pandas text for numbers", by_pandas({"a": ["1", "0x10"]}), "a INT", "column a (INT): its type is STRING; write a STRING in the schema"),
    OddFile("pandas numbers for text", by_pandas({"a": [1, -2]}), "a STRING", [("1",), ("-2",)]),
]  # fmt: skip

NUMBERS = [
    OddFile("arrow uint8", by_arrow(one(pa.uint8(), 255, None)), "a SMALLINT", [(255,), N]),
    OddFile("arrow uint32", by_arrow(one(pa.uint32(), 2**32 - 1)), "a BIGINT", [(2**32 - 1,)]),
    OddFile("arrow uint64", by_arrow(one(pa.uint64(), 2**64 - 1)), "a DECIMAL(20,0)", [(Decimal(2**64 - 1),)]),
    OddFile("arrow uint64 that is too large", by_arrow(one(pa.uint64(), 1, 2**63)), "a BIGINT", "column a (BIGINT): row 2: 9223372036854775808 does not fit; write a DECIMAL(20,0) in the schema"),
    OddFile("arrow float16", by_arrow({"a": pa.array(np.array([1.5], np.float16))}), "a FLOAT", [(1.5,)]),
    OddFile("arrow decimal as INT32", by_arrow(one(pa.decimal128(9, 2), Decimal("-1.50")), store_decimal_as_integer=True), "a DECIMAL(12,4)", [(Decimal("-1.5000"),)]),
    OddFile("arrow decimal as INT64", by_arrow(one(pa.decimal128(18, 2), Decimal("1.50")), store_decimal_as_integer=True), "a DECIMAL(2,1)", [(Decimal("1.5"),)]),
    OddFile("arrow decimal of 38 digits", by_arrow(one(pa.decimal128(38, 0), Decimal(10**38 - 1))), "a DECIMAL(38,0)", [(Decimal(10**38 - 1),)]),
    OddFile("arrow decimal256", by_arrow(one(pa.decimal256(50, 2), Decimal("1.50"))), "a DECIMAL(10,2)", [(Decimal("1.50"),)]),
    OddFile("arrow decimal with more digits", by_arrow(one(pa.decimal128(9, 3), Decimal("1.005"))), "a DECIMAL(9,2)", "column a (DECIMAL(9,2)): row 1: 1.005 does not fit; write a DECIMAL(9,3) in the schema"),
    OddFile("arrow bool for numbers", by_arrow(one(pa.bool_(), True, False)), "a INT", [(1,), (0,)]),
    OddFile("arrow bool for days", by_arrow(one(pa.bool_(), True)), "a DATE", "column a (DATE): its type is BOOLEAN; write a BOOLEAN in the schema"),
    OddFile("arrow numbers for bool", by_arrow(one(pa.int8(), 1, 0)), "a BOOLEAN", [(True,), (False,)]),
    OddFile("arrow other numbers for bool", by_arrow(one(pa.int8(), 1, 2)), "a BOOLEAN", "column a (BOOLEAN): row 2: 2 is neither 0 nor 1; write a TINYINT in the schema"),
    OddFile("arrow double with too many digits", by_arrow(one(pa.float64(), 0.5, 0.123456789012)), "a FLOAT", "column a (FLOAT): row 2: 0.123456789012 does not fit; write a DOUBLE in the schema"),
    OddFile("duckdb DECIMAL for DOUBLE", by_duckdb("SELECT 0.1::DECIMAL(38, 18) AS a"), "a DOUBLE", [(0.1,)]),
    OddFile("duckdb DOUBLE for DECIMAL", by_duckdb("SELECT 0.1::DOUBLE AS a"), "a DECIMAL(38,18)", [(Decimal("0.1").quantize(Decimal(10) ** -18),)]),
    OddFile("duckdb HUGEINT", by_duckdb("SELECT 5::HUGEINT AS a"), "a BIGINT", [(5,)]),
    OddFile("duckdb too small for INT", by_duckdb("SELECT (-2147483649)::BIGINT AS a"), "a INT", "column a (INT): row 1: -2147483649 does not fit; write a BIGINT in the schema"),
    OddFile("pandas whole numbers with NULL", by_pandas({"a": [1, None]}), "a BIGINT", [(1,), N]),
    OddFile("pandas fractions for INT", by_pandas({"a": [1.0, 1.5]}), "a INT", "column a (INT): row 2: 1.5 does not fit; write a DOUBLE in the schema"),
    OddFile("pandas Int64", by_pandas({"a": pd.array([1, None], "Int64")}), "a DOUBLE", [(1.0,), N]),
    OddFile("polars NaN and infinity", by_polars({"a": [float("inf"), None, -0.0]}), "a DOUBLE", [(float("inf"),), N, (-0.0,)]),
    OddFile("polars NaN for INT", by_polars({"a": [1.0, float("nan")]}), "a INT", "row 2: nan does not fit; write a DOUBLE in the schema"),
    OddFile("polars beyond 2^53 for DOUBLE", by_polars({"a": [2**53 + 1]}), "a DOUBLE", "row 1: 9007199254740993 does not fit; write a BIGINT in the schema"),
    OddFile("polars Int128", by_polars({"a": pl.Series([1], dtype=pl.Int128), "b": [1]}), "b INT", "cannot be read as parquet: Integers with more than 64 bits not implemented; write it without that"),
]  # fmt: skip

TIMES = [
    OddFile("arrow INT96", by_arrow({"a": pa.array(EXTREMES, MICROS)}, use_deprecated_int96_timestamps=True), "a TIMESTAMP", EXTREME_ROWS),
    OddFile("arrow microseconds", by_arrow({"a": pa.array(EXTREMES, MICROS)}), "a TIMESTAMP", EXTREME_ROWS),
    OddFile("arrow milliseconds", by_arrow(one(pa.timestamp("ms"), *EXTREMES[:3])), "a TIMESTAMP", EXTREME_ROWS[:3]),
    OddFile("arrow nanoseconds before 1970", by_arrow(ints(pa.timestamp("ns"), -1, 1, None)), "a TIMESTAMP", [(at(1969, 12, 31, 23, 59, 59, 999999),), (at(1970, 1, 1),), N]),
    OddFile("arrow with a zone", by_arrow(one(pa.timestamp("us", "Europe/Oslo"), at(2024, 7, 1, 12))), "a TIMESTAMP", [(at(2024, 7, 1, 12),)]),
    OddFile("arrow after 9999", by_arrow(ints(pa.timestamp("ms"), 0, 253465545600000)), "a TIMESTAMP", "column a (TIMESTAMP): row 2: 253465545600000 ms since 1970 is outside the years 1 to 9999; "),
    OddFile("arrow wrong unit", by_arrow(ints(pa.timestamp("ms"), 2**62)), "a TIMESTAMP", "column a (TIMESTAMP): row 1: "),
    OddFile("arrow numbers without a unit", by_arrow(one(pa.int64(), 1)), "a TIMESTAMP", "column a (TIMESTAMP): its type is BIGINT; set timestampFormat to the unit of the numbers"),
    OddFile("arrow seconds", by_arrow(one(pa.int32(), 86400)), "a TIMESTAMP", [(at(1970, 1, 2),)], "seconds"),
    OddFile("arrow milliseconds as seconds", by_arrow(one(pa.int64(), 1_700_000_000_000)), "a TIMESTAMP", "row 1: 1700000000000 is outside the years 1 to 9999 when read as seconds; set timestampFormat to the unit of the numbers", "seconds"),
    OddFile("arrow ISO text", by_arrow(one(pa.string(), "2024-05-01T10:00:00+02:00")), "a TIMESTAMP", [(at(2024, 5, 1, 8),)]),
    OddFile("arrow other text", by_arrow(one(pa.string(), "2024-05-01", "01.05.2024")), "a TIMESTAMP", "column a (TIMESTAMP): row 2: '01.05.2024' is not an ISO 8601 timestamp: write it like 2024-05-01T12:30:00Z"),
    OddFile("arrow date64", by_arrow(one(pa.date64(), date(9999, 12, 31))), "a DATE", [(date(9999, 12, 31),)]),
    OddFile("arrow day after 9999", by_arrow(ints(pa.date32(), 2933629)), "a DATE", "column a (DATE): row 1: 2933629 days since 1970 is outside the years 1 to 9999; "),
    OddFile("duckdb DATE for times", by_duckdb("SELECT DATE '0001-01-01' AS a"), "a TIMESTAMP", [(at(1, 1, 1),)]),
    OddFile("duckdb midnight for DATE", by_duckdb("SELECT TIMESTAMP '1969-12-31' AS a"), "a DATE", [(date(1969, 12, 31),)]),
    OddFile("duckdb noon for DATE", by_duckdb("SELECT TIMESTAMP '1969-12-31 12:00:00' AS a"), "a DATE", "column a (DATE): row 1: 1969-12-31 12:00:00 has a time of day; write a TIMESTAMP in the schema"),
    OddFile("arrow midnight of another zone for DATE", by_arrow(one(pa.timestamp("us", "America/New_York"), at(2024, 7, 1))), "a DATE", [(date(2024, 7, 1),)]),
    OddFile("duckdb infinity", by_duckdb("SELECT TIMESTAMP 'infinity' AS a"), "a TIMESTAMP", "is outside the years 1 to 9999"),
    OddFile("duckdb TIME", by_duckdb("SELECT TIME '10:00:00.5' AS a"), "a STRING", [("10:00:00.500000",)]),
    OddFile("duckdb TIME for times", by_duckdb("SELECT TIME '10:00:00.5' AS a"), "a TIMESTAMP", "column a (TIMESTAMP): its type is TIME; write a STRING in the schema"),
    OddFile("duckdb INTERVAL", by_duckdb("SELECT INTERVAL 1 DAY AS a"), "a BINARY", "column a (BINARY): its type is INTERVAL; leave a out of the schema, because no column can hold it"),
    OddFile("pandas nanoseconds", by_pandas({"a": pd.to_datetime(["2024-01-01 00:00:00.123456789", None])}), "a TIMESTAMP", [(at(2024, 1, 1, 0, 0, 0, 123456),), N]),
    OddFile("polars Duration", by_polars({"a": [timedelta(seconds=1)]}), "a BIGINT", [(1_000_000,)]),
    OddFile("polars Time", by_polars({"a": [time(1, 2, 3)]}), "a STRING", [("01:02:03.000000000",)]),
    OddFile("old calendar dates", with_metadata(ints(pa.date32(), *OLD_DAYS), LEGACY), "a DATE", OLD_ROWS),
    OddFile("Spark 2 dates", with_metadata(ints(pa.date32(), *OLD_DAYS), {f"{SPARK}sql.parquet.row.metadata": "{}"}), "a DATE", OLD_ROWS),
    OddFile("Hive 3 dates", with_metadata(ints(pa.date32(), *OLD_DAYS), {"writer.date.proleptic": "false"}), "a DATE", OLD_ROWS),
    OddFile("new Spark dates", with_metadata(ints(pa.date32(), -719162), {f"{SPARK}version": "4.0.0"}), "a DATE", OLD_ROWS[:1]),
    OddFile("old calendar times in UTC", with_metadata(ints(pa.timestamp("us", "UTC"), -719164 * DAY + 1, None), LEGACY | {f"{SPARK}timeZone": "UTC"}), "a TIMESTAMP", [(at(1, 1, 1, 0, 0, 0, 1),), N]),
    OddFile("old calendar INT96", with_metadata(ints(MICROS, -719164 * DAY), LEGACY | {f"{SPARK}timeZone": "UTC"}, use_deprecated_int96_timestamps=True), "a TIMESTAMP", [(at(1, 1, 1),)]),
    OddFile("old calendar without a zone in the type", with_metadata(ints(MICROS, -719162 * DAY), LEGACY), "a TIMESTAMP", [(at(1, 1, 1),)]),
    OddFile("old calendar in another zone", with_metadata(ints(pa.timestamp("us", "UTC"), -719164 * DAY), LEGACY | {f"{SPARK}timeZone": "Europe/Oslo"}), "a TIMESTAMP", "column a (TIMESTAMP): a time before 1900 is in the old calendar of its writer, which was in Europe/Oslo; "),
    OddFile("old calendar in an unknown zone", with_metadata(ints(pa.timestamp("us", "UTC"), -719164 * DAY), LEGACY), "a TIMESTAMP", "which was in a time zone that it did not note; "),
    OddFile("old calendar, recent times", with_metadata(ints(pa.timestamp("us", "UTC"), 0), LEGACY | {f"{SPARK}timeZone": "Europe/Oslo"}), "a TIMESTAMP", [(at(1970, 1, 1),)]),
]  # fmt: skip

TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array(["x"])], ["a", "a", "b"])
CASES = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["A", "a"])
DOTTED = pa.table({"a.b": [7], "a": pa.array([{"b": 8}])})
NESTED = "SELECT 1 AS a, [1, 2] AS l, {'x': 1, 'a': 5} AS s, MAP {1: 2} AS m"
MANY = [(number,) for number in range(1000)]
SMALL = by_arrow({"a": list(range(100))})
KEYS = {"footer_key": "0123456789012345", "column_key": "1234567890123450"}


def encrypted(path: Path, *, plain_footer: bool) -> None:
    """Write a file under Parquet's modular encryption."""
    import pyarrow.parquet.encryption as pe

    class Client(pe.KmsClient):
        def __init__(self, connection: Any) -> None:
            super().__init__()

        def wrap_key(self, key: bytes, name: str) -> bytes:
            return key.hex().encode()

        def unwrap_key(self, key: bytes, name: str) -> bytes:
            return bytes.fromhex(key.decode())

    settings = pe.EncryptionConfiguration(
        footer_key="footer_key", column_keys={"column_key": ["a"]}, plaintext_footer=plain_footer
    )
    properties = pe.CryptoFactory(Client).file_encryption_properties(pe.KmsConnectionConfig(), settings)
    with pq.ParquetWriter(path, pa.schema([("a", pa.int64())]), encryption_properties=properties) as writer:
        writer.write_table(pa.table({"a": [1]}))


FILES = [
    OddFile("empty file", bytes_of(b""), "a INT", "cannot be read as parquet: it is empty; write it elsewhere"),
    OddFile("csv", bytes_of(b"a\n1\n2\n3\n4\n5\n"), "a INT", r"cannot be read as parquet: it begins with b'a\n1\n', not with b'PAR1'; name the format that the file has"),
    OddFile("without its end", damaged(SMALL, lambda content: content[:-50]), "a INT", "cannot be read as parquet: its end is missing; "),
    OddFile("without its beginning", damaged(SMALL, lambda content: content[50:]), "a INT", "cannot be read as parquet: it begins with "),
    OddFile("with a broken page", damaged(SMALL, lambda content: content[:4] + bytes(60) + content[64:]), "a INT", "cannot be read as parquet: "),
    OddFile("with a broken footer", damaged(SMALL, lambda content: content[:-300] + bytes(292) + content[-8:]), "a INT", "cannot be read as parquet: "),
    OddFile("encrypted", lambda path: encrypted(path, plain_footer=False), "a INT", "cannot be read as parquet: it is encrypted; write it without encryption"),
    OddFile("encrypted columns", lambda path: encrypted(path, plain_footer=True), "a INT", "cannot be read as parquet: it is encrypted; write it without encryption"),
    OddFile("two columns of one name", by_arrow(TWICE), "a INT", "has the column a 2 times: a, a; name every column of the file once"),
    OddFile("two columns of one name, not wanted", by_arrow(TWICE), "b STRING", [("x",)]),
    OddFile("names in another case", by_pandas({"Id": [1], "NAME": ["x"]}), "name STRING, id INT", [("x", 1)]),
    OddFile("names that differ in case", by_arrow(CASES), "a INT", [(2,)]),
    OddFile("names that differ in case, both", by_arrow(pa.Table.from_arrays(CASES.columns, ["aB", "AB"])), "ab INT", "has the column ab 2 times: aB, AB; name every column of the file once"),
    OddFile("a dot in a name", by_arrow(DOTTED), "`a.b` INT", [(7,)]),
    OddFile("missing columns", by_arrow({"x": [1], "y": [2]}), "a INT, x INT, c INT", "has no column a, c; it has x, y; correct the schema"),
    OddFile("nested columns, not wanted", by_duckdb(NESTED), "a INT", [(1,)]),
    OddFile("nested column", by_duckdb(NESTED), "l INT", "column l (INT): its type is ARRAY; write l ARRAY<...> in the schema"),
    OddFile("nested column as text", by_duckdb(NESTED), "s STRING", "column s (STRING): its type is STRUCT; write s STRUCT<...> in the schema"),
    OddFile("map column", by_duckdb(NESTED), "m BINARY", "column m (BINARY): its type is MAP; write m MAP<...> in the schema"),
    OddFile("large lists", by_polars({"a": [[1], []]}), "a BIGINT", "column a (BIGINT): its type is ARRAY; write a ARRAY<...> in the schema"),
    *(OddFile(f"arrow {codec}", by_arrow({"a": list(range(1000))}, compression=codec), "a INT", MANY) for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")),
    *(OddFile(f"polars {codec}", by_polars({"a": list(range(1000))}, compression=codec), "a INT", MANY) for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4")),
    OddFile("duckdb lz4_raw", by_duckdb("SELECT range AS a FROM range(1000)", ", COMPRESSION lz4_raw"), "a INT", MANY),
    OddFile("duckdb Parquet 2", by_duckdb("SELECT range AS a FROM range(1000)", ", PARQUET_VERSION v2"), "a INT", MANY),
    OddFile("pages of version 2", by_arrow({"a": list(range(1000))}, data_page_version="2.0", data_page_size=100), "a INT", MANY),
    OddFile("format 1.0", by_arrow({"a": list(range(1000))}, version="1.0"), "a INT", MANY),
    OddFile("many row groups", by_arrow({"a": list(range(1000))}, row_group_size=7), "a INT", MANY),
    OddFile("page indexes and checksums", by_arrow({"a": list(range(1000))}, write_page_index=True, write_page_checksum=True), "a INT", MANY),
    OddFile("delta encoding", by_arrow({"a": list(range(1000))}, use_dictionary=False, column_encoding={"a": "DELTA_BINARY_PACKED"}), "a INT", MANY),
    OddFile("stream split", by_arrow({"a": [float(n) for n in range(1000)]}, use_dictionary=False, use_byte_stream_split=True), "a INT", MANY),
    OddFile("without Arrow's schema", by_arrow({"a": pa.array(["x"], pa.large_string())}, store_schema=False), "a STRING", [("x",)]),
]  # fmt: skip

KINDS = {
    "columns without values": WITHOUT_VALUES,
    "text and bytes": TEXT_AND_BYTES,
    "numbers": NUMBERS,
    "times": TIMES,
    "files": FILES,
}
