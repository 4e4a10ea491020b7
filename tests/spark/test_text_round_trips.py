"""What a sink writes as text, the source with the same schema reads back: every type, at its edges and beyond."""

from __future__ import annotations

import csv
import io
import json

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from arrow_schemas import a_schema
from millrace_api.errors import MillraceError
from millrace_jobs.run.failures import explain_failure
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, WindowColumn
from millrace_jobs.sinks.files.sink import FilesSink
from millrace_jobs.sinks.kafka.messages import encoded, fetched_rows
from millrace_jobs.sinks.kafka.table import _row
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.formats.messages import TextDecoder

pytestmark = pytest.mark.spark

YEAR_1, YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
DAY = 86_400_000_000

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(' ",\\\n\r\t\0;#a\ufeff', max_size=6)
TIMES = (
    st.sampled_from([YEAR_1, YEAR_1 - 1, YEAR_10000 - 1, YEAR_10000, YEAR_10000 + DAY, 0, -1, -719_528 * DAY])
    | st.integers(YEAR_1 - 3_000 * 366 * DAY, YEAR_10000 + 90_000 * 366 * DAY)
)  # fmt: skip
VALUES = {
    "STRING": TEXTS,
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats(),
    "DATE": TIMES.map(lambda micros: micros // DAY),
    "TIMESTAMP": TIMES,
    "BINARY": st.binary(max_size=9),
    "DECIMAL(38,18)": st.decimals(-(10**20) + 1, 10**20 - 1, places=18, allow_nan=False, allow_infinity=False),
    "DECIMAL(38,38)": st.decimals(-1, 1, places=38, allow_nan=False).filter(lambda number: abs(number) < 1),
    "DECIMAL(9,2)": st.decimals(-(10**7) + 1, 10**7 - 1, places=2, allow_nan=False),
    "DECIMAL(38,0)": st.integers(-(10**38) + 1, 10**38 - 1),
}
ROWS = st.lists(st.tuples(*(values | st.none() for values in VALUES.values())), min_size=30, max_size=120)
SCHEMA = a_schema([(f"c{place} {kind[:3]}", kind) for place, kind in enumerate(VALUES)])

few = settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def table(rows, schema=SCHEMA):
    plain = {pa.date32(): pa.int32(), pa.timestamp("us", tz="UTC"): pa.int64()}
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [
            pa.array(list(values), plain.get(field.type, field.type)).cast(field.type)
            for values, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


def exactly(rows, zero=-0.0):
    """The values of a table in a form in which NaN is NaN, times are numbers, and -0.0 is not 0.0 but for 0.0 as zero."""
    columns = []
    for column in rows.columns:
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
        values = column.to_pylist()
        columns.append([str(np.float64(v) + zero) if isinstance(v, float) else v for v in values])
    return sorted(map(repr, zip(*columns, strict=True)))


def written(spark, folder, rows, format):
    sink = FilesSink(str(folder), format, "one", updates=False)
    folder.mkdir()
    (folder / "_staging").mkdir()
    sink.write(spark.createDataFrame(rows), ResultBatch(0, 0, 0))


def read(folder, format, schema, log, replicas=1):
    source = FilesSource("again", str(folder), format, schema, str(log))
    start = source.initial()
    slices = source.slices(start, source.latest(start, everything=True), replicas)
    return pa.Table.from_batches([batch for piece in slices for batch in source.read(piece, "0")], schema)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_files_are_read_back_as_they_were_written(spark, tmp_path_factory, format):
    schema = SCHEMA if format == "json" else SCHEMA.remove(list(VALUES).index("BINARY"))

    @few
    @given(rows=ROWS)
    @example(rows=[(None,) * len(VALUES)] * 3)
    def check(rows):
        folder = tmp_path_factory.mktemp(format)
        wanted = table(rows).select(schema.names)
        written(spark, folder / "out", wanted, format)
        for replicas in (1, 3):
            again = read(folder / "out", format, schema, folder / f"log{replicas}", replicas)
            assert exactly(again) == exactly(wanted)

    check()


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind not in ("BINARY", "DECIMAL(38,38)")])
def test_a_csv_file_of_one_column_is_read_back_as_it_was_written(spark, tmp_path, kind):
    rows = [(value,) for value in ["", " ", "\t", "\n", '"', "x"]] if kind == "STRING" else [(None,), (1,), (None,)]
    schema = a_schema([("only", kind)])
    wanted = table([(True,) if kind == "BOOLEAN" and value else (value,) for (value,) in rows], schema)
    written(spark, tmp_path / "out", wanted, "csv")
    assert exactly(read(tmp_path / "out", "csv", schema, tmp_path / "log")) == exactly(wanted)


def test_a_null_that_would_be_the_empty_string_is_refused(spark, tmp_path):
    with pytest.raises(Exception, match="a NULL cannot be written") as raised:
        written(spark, tmp_path / "out", table([("x",), (None,)], a_schema([("only", "STRING")])), "csv")
    assert str(explain_failure(str(raised.value))) == (
        "spec.sink.files: a NULL cannot be written to a CSV file with one column of text, where it would be the empty "
        "string; select another column beside it, or write json or parquet"
    )


def test_csv_is_read_by_other_readers_as_it_was_written(spark, tmp_path):
    """Python's csv module has no NULL; the readers of Spark and DuckDB take an empty string for NULL."""
    texts = ["", "C:\\data,old\\", 'q"\\', '"', ' "blank" ', "a\nb", "\\n", "x\ty", " x ", "NULL"]
    schema = a_schema([("n", "INT"), ("text", "STRING")])
    written(spark, tmp_path / "out", table(list(enumerate(texts)), schema), "csv")
    found, pandas = {}, {}
    for file in (tmp_path / "out").glob("*.csv"):
        found |= {int(n): text for n, text in list(csv.reader(io.StringIO(file.read_text(), newline="")))[1:]}
        frame = pd.read_csv(file, keep_default_na=False)
        pandas |= dict(zip(frame["n"], frame["text"], strict=True))
    assert [found[place] for place in range(len(texts))] == texts
    assert pandas == dict(enumerate(texts))
    expected = dict(enumerate([None, *texts[1:]]))
    rows = spark.read.csv(str(tmp_path / "out"), header=True, escape='"', multiLine=True, schema="n INT, text STRING")
    assert {row.n: row.text for row in rows.collect()} == expected
    assert dict(duckdb.read_csv(f"{tmp_path}/out/*.csv", header=True).fetchall()) == expected


@few
@given(rows=ROWS)
def check_messages(spark, rows):
    names = SCHEMA.names
    wanted = table(rows)
    messages = list(fetched_rows(encoded(spark.createDataFrame(wanted), ResultKeys(tuple(names))).toArrow()))
    for text, zero in ((0, 0.0), (1, -0.0)):  # the key has all columns here, where equal numbers have one form
        decoder = TextDecoder("json", SCHEMA, "iso")
        values = [message[text].encode() for message in messages]
        records, _ = decoder.decode(values, lambda _, reason: pytest.fail(reason))
        assert exactly(pa.Table.from_batches([records])) == exactly(wanted, zero)


def test_kafka_messages_are_read_back_as_they_were_written(spark):
    check_messages(spark)


class _Message:
    """The key and the value of a message of a table's topic."""

    def __init__(self, key, value):
        self._key, self._value = key, value

    def key(self):
        return self._key.encode()

    def value(self):
        return self._value

    def partition(self):
        return 0

    def offset(self):
        return 0


@pytest.mark.parametrize("part", ["window", "start", "end"])
@pytest.mark.parametrize("at", [YEAR_1, YEAR_1 + 1, YEAR_10000 - 1, YEAR_10000 + 7 * DAY, 0, -1])
def test_the_window_of_a_table_row_is_known_again_from_its_key(spark, part, at):
    column = {"window": "w", "start": "w.start AS w", "end": "w.end AS w"}[part]
    inner = f"SELECT window(timestamp_micros({at}), '10 days') AS w"
    window = WindowColumn("w", part, 10 * DAY)
    rows = encoded(spark.sql(f"SELECT {column} FROM ({inner})"), ResultKeys(("w",), window)).toArrow()
    ((key, value, end),) = fetched_rows(rows)
    assert _row(_Message(key, value.encode()), window, None) == (key, end)
    assert json.loads(key)


def test_columns_that_csv_has_no_text_for_are_refused():
    from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StructType

    from millrace_jobs.sinks.files.formats import require_csv

    def problem(kind):
        with pytest.raises(MillraceError) as raised:
            require_csv(StructType().add("n", IntegerType()).add("x", kind), "spec.sink.files")
        return str(raised.value)

    said, instead = "spec.sink.files.format: column x of type ", ", or write format: parquet"
    assert problem(BinaryType()) == f"{said}binary cannot be written to csv; select base64(x) AS x{instead}"
    assert problem(ArrayType(IntegerType())) == (
        f"{said}array<int> cannot be written to csv; select to_json(x) AS x{instead}"
    )
    assert problem(StructType().add("start", IntegerType())) == (
        f"{said}struct<start:int> cannot be written to csv; select its fields one by one, such as x.start{instead}"
    )
