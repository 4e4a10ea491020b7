import pyarrow as pa
import pytest

from arrow_schemas import a_schema
from millrace_api.errors import MillraceError
from millrace_jobs.sources.formats.column_types import TIMESTAMP, spark_type
from millrace_jobs.sources.formats.text_values import to_declared

TYPES = {
    "STRING": pa.string(),
    "boolean": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "BINARY": pa.binary(),
    "DECIMAL": pa.decimal128(10, 0),
    "DECIMAL(6)": pa.decimal128(6, 0),
    "decimal( 38 , 18 )": pa.decimal128(38, 18),
}


@pytest.mark.parametrize(("text", "arrow"), TYPES.items())
def test_a_spark_type_becomes_the_arrow_type_that_spark_takes(text, arrow):
    schema = a_schema([("a", text)])
    assert schema.field("a").type == arrow
    assert schema.field("a").nullable
    assert a_schema([("a", spark_type(arrow))]) == schema


def test_every_column_that_cannot_be_is_named_at_once():
    with pytest.raises(MillraceError) as error:
        a_schema([("a", "ARRAY<CHAR(3)>"), ("b", "INT"), ("c", "TIMESTAMP_NTZ")])
    messages = [str(problem) for problem in error.value.problems]
    assert [message.split()[1] for message in messages] == ["a[]", "c"]
    assert "CHAR(3)" in messages[0]


@pytest.mark.parametrize(("kind", "hint"), [(pa.int64(), "int64.*set timestampFormat"), (pa.date32(), "8601 text$")])
def test_a_column_that_is_no_iso_text_is_named_with_a_hint_that_can_be_followed(kind, hint):
    with pytest.raises(ValueError, match=hint):
        to_declared(pa.array([1], kind), pa.field("a", TIMESTAMP), "iso")


@pytest.mark.parametrize("unit", ["seconds", "milliseconds"])
@pytest.mark.parametrize("column", [pa.array([1_700_000_000 * 10**9]), pa.array([1.7e18]), pa.array([float("inf")])])
def test_a_time_in_a_much_smaller_unit_is_outside_the_years_of_a_timestamp(column, unit):
    with pytest.raises(ValueError, match=f"outside the years 1 to 9999 when read as {unit}"):
        to_declared(column, pa.field("a", TIMESTAMP), unit)
