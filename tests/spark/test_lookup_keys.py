"""Keys that a user writes, as plain text or JSON, become exactly the text that Spark writes for them."""

from __future__ import annotations

import base64
import json
import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from millrace_jobs.lookups.keys import KeyColumn, key_text, prefix_text
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.kafka.messages import encoded, fetched_rows

from .typed_rows import KINDS

pytestmark = pytest.mark.spark


def key_columns(schema: StructType) -> list[KeyColumn]:
    return [KeyColumn(field.name, field.dataType.simpleString()) for field in schema]


def written(value: Any) -> Any:
    """A value as a user writes it in text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("name", KINDS)
def test_a_key_of_each_type_has_the_text_of_spark(spark, name):
    kind, values = KINDS[name]
    chance = random.Random(7)
    more = {
        pa.float64(): [chance.uniform(-1, 1) * 10.0 ** chance.randrange(-12, 20) for _ in range(300)],
        pa.string(): [chr(code) for code in (*range(0x21), 0x7F, 0x85, 0x2028)],
    }.get(kind, [])
    column = pa.array([*values, *more], type=kind)
    frame = spark.createDataFrame(pa.table({"k": column}))
    keys = [key for key, *_ in fetched_rows(encoded(frame, ResultKeys(("k",))).toArrow())]
    columns = key_columns(frame.schema)
    for value, key in zip(column.to_pylist(), keys, strict=True):
        text = written(value)
        assert key_text(columns, key).decode() == key
        if kind == pa.float64() and value not in values:
            text = key.removeprefix('{"k":').removesuffix("}").strip('"')
        as_json = json.dumps([text])
        assert key_text(columns, as_json).decode() == key, as_json
        assert prefix_text(columns, as_json).decode() == key
        if text[:1] not in ("[", "{"):
            assert key_text(columns, text).decode() == key, text


def test_a_key_of_several_columns_may_have_null(spark):
    sql = "SELECT 'a,b' AS `o\"n`, CAST(NULL AS BIGINT) AS n, TIMESTAMP_NTZ '2024-03-01 12:00:00' AS t, DATE '2024-03-01' AS d"
    frame = spark.sql(sql)
    ((key, *_),) = fetched_rows(encoded(frame, ResultKeys(tuple(frame.columns))).toArrow())
    columns = key_columns(frame.schema)
    assert key_text(columns, '["a,b", null, "2024-03-01 12:00", "2024-03-01"]').decode() == key
    assert key.startswith(prefix_text(columns, '"a,b"').decode())
    assert key.startswith(prefix_text(columns, '["a,b", null]').decode())


@pytest.mark.parametrize(("part", "column"), [("window", "w"), ("start", "w.start AS w"), ("end", "w.end AS w")])
def test_a_window_is_written_by_its_start(spark, part, column):
    frame = spark.sql(f"SELECT {column} FROM (SELECT window(TIMESTAMP '2024-01-01 00:07:00Z', '10 minutes') AS w)")
    ((key, *_),) = fetched_rows(encoded(frame, ResultKeys(("w",))).toArrow())
    columns = [KeyColumn("w", frame.schema["w"].dataType.simpleString(), part, 600_000_000)]
    assert key_text(columns, "", "2024-01-01").decode() == key


@pytest.mark.parametrize("micros", [-62_135_596_800_000_001, 253_402_300_800_000_000])
def test_times_beyond_the_years_of_python_have_the_text_of_spark(spark, micros):
    sql = f"SELECT timestamp_micros({micros}) AS t, DATE(timestamp_micros({micros})) AS d"
    frame = spark.sql(f"SELECT t, d, window(t, '1 hour') AS w FROM ({sql})")
    ((key, *_),) = fetched_rows(encoded(frame, ResultKeys(("t", "d", "w"))).toArrow())
    columns = [*key_columns(frame.schema)[:2], KeyColumn("w", frame.schema["w"].dataType.simpleString(), "window")]
    assert key_text(columns, key).decode() == key
    assert (
        key_text(columns[:2], json.dumps(list(json.loads(key).values())[:2])).decode() == key.partition(',"w"')[0] + "}"
    )
