import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.formats.column_types import arrow_schema, spark_type

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
    schema = arrow_schema([("a", text)])
    assert schema.field("a").type == arrow
    assert schema.field("a").nullable
    assert arrow_schema([("a", spark_type(arrow))]) == schema


def test_every_column_that_cannot_be_is_named_at_once():
    with pytest.raises(MillraceError) as error:
        arrow_schema(
            [
                ("a", "ARRAY<INT>"),
                ("b", "INT"),
                ("b", "STRING"),
                ("c", "DECIMAL(39,2)"),
                ("d", "DECIMAL(3,4)"),
            ]
        )
    messages = [str(problem) for problem in error.value.problems]
    assert [message.split()[1] for message in messages] == ["a", "b", "c", "d"]
    assert "'ARRAY<INT>'" in messages[0]
    assert "twice" in messages[1]
