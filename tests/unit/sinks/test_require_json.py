import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from millrace_api.errors import MillraceError
from millrace_jobs.sinks.kafka.messages import require_json

INT, TEXT = IntegerType(), StringType()


def check(kind):
    require_json(StructType().add("a", INT).add("m", kind), "spec.sink.kafka")


def test_text_and_numbers_can_be_names_of_an_object():
    check(MapType(TEXT, MapType(INT, StructType().add("x", BinaryType()))))
    check(ArrayType(MapType(DecimalType(9, 2), INT)))


@pytest.mark.parametrize(
    "kind",
    [
        MapType(TimestampType(), INT),
        MapType(BinaryType(), INT),
        ArrayType(StructType().add("x", MapType(TEXT, MapType(StructType().add("y", INT), INT)))),
    ],
)
def test_other_keys_of_maps_are_refused(kind):
    with pytest.raises(MillraceError, match=r"spec.sink.kafka: column m cannot be written as JSON: it has a map<"):
        check(kind)


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(MillraceError, match='the result has 2 columns with the name "n"'):
        require_json(StructType().add("n", INT).add("n", TEXT), "spec.sink.kafka")
