"""Results as Avro and Protobuf by a registry: subjects, schemas that evolve, what fits, and what is refused."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DayTimeIntervalType, IntegerType, MapType, StructType, TimestampNTZType, TimestampType

from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.registries import ResultSchemas
from millrace_api.model.status import FailureClass
from millrace_jobs.run.failures import attributed_to, class_of
from millrace_jobs.schemas import registry as registry_module
from millrace_jobs.schemas.proto_text import read_proto
from millrace_jobs.sinks.kafka.registered.avro_results import AvroResults
from millrace_jobs.sinks.kafka.registered.protobuf_results import ProtobufResults, message_file, written_proto
from millrace_jobs.sinks.kafka.registered.sink import ResultSchema, record_name
from millrace_jobs.sources.formats.column_types import declared_schema
from protobuf import SET, message_class
from registry import Registry, running_registry


def columns_of(ddl):
    return from_arrow_schema(declared_schema(ddl))


COLUMNS = columns_of(
    "since TIMESTAMP, cell STRING, trips BIGINT, small TINYINT, fare DECIMAL(10,2), day DATE, "
    "blob BINARY, good BOOLEAN, weight DOUBLE, ratio FLOAT, tags ARRAY<STRING>, times ARRAY<TIMESTAMP>, "
    "place STRUCT<lat: DOUBLE, at: STRUCT<x: INT>>, counts MAP<STRING, BIGINT>, places MAP<STRING, STRUCT<x: INT>>, "
    "rows ARRAY<STRUCT<x: INT>>"
).add("local", TimestampNTZType())
ROW = {
    "since": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    "cell": "é",
    "trips": -(2**63),
    "small": -128,
    "fare": Decimal("-1.50"),
    "day": date(2024, 5, 1),
    "local": datetime(2024, 5, 1, 12),
    "blob": b"\xff",
    "good": False,
    "weight": 0.5,
    "ratio": 0.25,
    "tags": ["a", ""],
    "times": [datetime(2024, 5, 1, tzinfo=UTC)],
    "place": {"lat": 0.0, "at": {"x": 0}},
    "counts": {"a": 1},
    "places": {"b": {"x": 2}},
    "rows": [{"x": 1}, {"x": None}],
}
NOTHING = dict.fromkeys(ROW)


@pytest.fixture
def registry():
    with running_registry(Registry()) as started:
        yield started


def schema(registry, format=None, columns=COLUMNS, **spec):
    spec = ResultSchemas.model_validate({"registry": registry.url} | spec)
    return ResultSchema(format or ProtobufResults(), spec, "trips", spec.record or "shop.Trips", columns)


def message_of(text, name="shop.Trips"):
    files = descriptor_pb2.FileDescriptorSet.FromString(SET)
    files.file.append(read_proto(text))
    return message_class(name, files.SerializeToString())


def test_protobuf_has_every_value_and_null_is_absent(registry):
    write = schema(registry).writer()
    frame, value = write(ROW)[:6], write(ROW)[6:]
    assert frame == b"\0\0\0\0\1\0"
    kind = message_of(registry.schemas[0]["schema"])
    found = kind.FromString(value)
    assert (found.since.seconds, found.since.nanos) == (-1, 999_999_000)
    plain = ("cell", "trips", "small", "blob", "good", "weight", "ratio", "tags")
    assert {name: getattr(found, name) for name in plain} == {name: ROW[name] for name in plain}
    assert (found.fare, found.day, found.local) == ("-1.50", "2024-05-01", "2024-05-01T12:00:00.000000")
    assert found.times[0].seconds == 1_714_521_600
    assert found.place.HasField("lat")
    assert found.place.at.HasField("x")
    assert (dict(found.counts), found.places["b"].x) == ({"a": 1}, 2)
    assert [each.HasField("x") for each in found.rows] == [True, False]
    assert write(NOTHING)[6:] == b""


def test_avro_has_every_value(registry):
    write = schema(registry, AvroResults()).writer()
    parsed = fastavro.parse_schema(json.loads(registry.schemas[0]["schema"]))
    for row in (ROW, NOTHING):
        value = write(row)
        assert value[:5] == b"\0\0\0\0\1"
        assert fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None) == row


@pytest.mark.parametrize(
    ("spec", "subject"),
    [
        ({}, "trips-value"),
        ({"subjects": "RecordName"}, "shop.Trips"),
        ({"subjects": "TopicRecordName"}, "trips-shop.Trips"),
        ({"subjects": "RecordName", "record": "Own"}, "Own"),
    ],
)
def test_the_subject_has_a_name_by_strategy_and_one_schema(registry, spec, subject):
    for _ in range(2):
        schema(registry, **spec).writer()
    assert registry.subjects == {subject: [1]}
    assert record_name("trips-by-cell") == "millrace.TripsByCell"


def test_fields_keep_their_numbers_and_those_of_gone_columns_are_never_used_again(registry):
    for ddl in ("a INT, b STRUCT<x: INT, y: INT>, c INT", "d INT, c INT, b STRUCT<y: INT, z: INT>", "e INT, c INT"):
        schema(registry, columns=columns_of(ddl)).writer()
    files = [read_proto(each["schema"]).message_type[0] for each in registry.schemas]
    numbers = [{field.name: field.number for field in file.field} for file in files]
    assert numbers == [{"a": 1, "b": 2, "c": 3}, {"d": 4, "c": 3, "b": 2}, {"e": 5, "c": 3}]
    assert {field.name: field.number for field in files[1].nested_type[0].field} == {"y": 2, "z": 3}
    assert "reserved 1;" in registry.schemas[1]["schema"]


def test_the_text_is_that_of_the_same_file():
    file = message_file(COLUMNS, "shop.Trips")
    again = read_proto(written_proto(file))
    assert written_proto(again) == written_proto(file)
    assert [(field.name, field.number) for field in again.message_type[0].field] == [
        (column.name, number) for number, column in enumerate(COLUMNS, start=1)
    ]


@pytest.mark.parametrize("format", [ProtobufResults(), AvroResults()])
def test_what_the_subject_does_not_accept_is_said_and_not_registered(registry, monkeypatch, format):
    schema(registry, format).writer()
    monkeypatch.setattr(registry, "judge", lambda before, now: ["field cell has", "another type"])
    with pytest.raises(MillraceError) as raised:
        schema(registry, format, columns_of("cell INT")).writer()
    assert str(raised.value) == (
        "spec.sink.kafka.schemas: the subject trips-value does not accept the schema of the results: field cell has; "
        "another type; keep the names and types of the columns that it has, or write another topic or record, or "
        "change the compatibility of the subject"
    )
    assert not isinstance(raised.value, TransientError)
    assert registry.subjects == {"trips-value": [1]}


def test_a_registry_that_refuses_a_schema_says_why(registry, monkeypatch):
    answer = registry.answer
    refusal = (409, {"error_code": 409, "message": "incompatible:\n field 1"})
    monkeypatch.setattr(
        registry,
        "answer",
        lambda method, path, body: refusal if path.endswith("/versions") else answer(method, path, body),
    )
    with pytest.raises(MillraceError, match="does not accept the schema of the results: incompatible: field 1; keep"):
        schema(registry).writer()


def test_a_registry_that_is_down_is_waited_for_and_then_tried_again(registry, monkeypatch):
    monkeypatch.setattr(registry_module, "PATIENCE", 0.02)
    monkeypatch.setattr(registry_module, "_PAUSE", 0.01)
    monkeypatch.setattr(registry, "answer", lambda *_: (503, {}))
    with pytest.raises(TransientError, match=r"does not answer at .*HTTP 503.*; check spec\.sink\.kafka\.schemas"):
        schema(registry).writer()


OTHERS = 'syntax = "proto3"; package shop; message Other {} message Trips { string cell = 1; int64 trips = 2; string x = 3; }'


def test_only_a_registered_schema_is_written_by_if_none_is_to_be_registered(registry):
    columns = columns_of("trips INT, cell STRING")
    with pytest.raises(MillraceError, match="the subject trips-value has no schema in the registry; register"):
        schema(registry, columns=columns, register=False).writer()
    number = registry.add("trips-value", OTHERS, "PROTOBUF")
    value = schema(registry, columns=columns, register=False).writer()({"trips": 5, "cell": "a"})
    assert value[:7] == b"\0" + number.to_bytes(4, "big") + b"\x02\x02"  # the second message of the file
    trips = message_of(OTHERS)
    assert trips.FromString(value[7:]) == trips(trips=5, cell="a")
    assert registry.subjects == {"trips-value": [number]}


@pytest.mark.parametrize(
    ("format", "ddl", "said"),
    [
        (ProtobufResults(), "trip INT", "shop.Trips has no field trip"),
        (ProtobufResults(), "cell INT", "cell is int, which its field in shop.Trips is not"),
        (ProtobufResults(), "trips ARRAY<BIGINT>", "trips is array<bigint>, which its field in shop.Trips is not"),
        (AvroResults(), "trips INT", "it is PROTOBUF, not AVRO"),
    ],
)
def test_results_that_do_not_fit_the_registered_schema_end_the_query(registry, format, ddl, said):
    registry.add("trips-value", OTHERS, "PROTOBUF")
    with pytest.raises(MillraceError, match="do not fit the schema of the subject trips-value: ") as raised:
        schema(registry, format, columns_of(ddl), register=False).writer()
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("text STRING", "it has no field text"),
        ("cell STRING", "shop.Trips.trips"),
        ("cell INT, trips INT", "shop.Trips.cell"),
    ],
)
def test_results_that_do_not_fit_a_registered_avro_schema_are_refused(registry, ddl, said):
    fields = [{"name": "cell", "type": "string"}, {"name": "trips", "type": "long"}]
    registry.add("trips-value", json.dumps({"type": "record", "name": "shop.Trips", "fields": fields}))
    with pytest.raises(MillraceError, match="do not fit the schema of the subject trips-value: ") as raised:
        schema(registry, AvroResults(), columns_of(ddl), register=False).writer()
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (401, "it asks for a login (HTTP 401 Unauthorized)", MillraceError),
        (403, "it does not allow this (HTTP 403 Forbidden)", MillraceError),
        (503, "the schema registry does not answer at", TransientError),
    ],
)
def test_a_registry_that_refuses_or_is_away_is_one_sentence(registry, monkeypatch, status, said, kind):
    monkeypatch.setattr(registry_module, "PATIENCE", 0.05)
    monkeypatch.setattr(registry_module, "_PAUSE", 0.01)
    monkeypatch.setattr(registry, "answer", lambda *_: (status, {"error_code": status, "message": "no"}))
    with pytest.raises(MillraceError, match="registry") as raised, attributed_to(FailureClass.SINK):
        schema(registry, AvroResults()).writer()
    assert type(raised.value) is kind
    assert said in str(raised.value)
    assert class_of(raised.value) is FailureClass.SINK


PARTS = {"type": "record", "name": "Parts", "fields": [{"name": "part", "type": ["null", "int", "string"]}]}


def test_single_values_and_no_members_are_written_to_a_union_of_avro(registry):
    kinds = ["null", "int", "string"]
    fields = [{"name": "a", "type": kinds}, {"name": "b", "type": {"type": "array", "items": ["null", PARTS]}}]
    text = json.dumps({"type": "record", "name": "shop.Trips", "fields": fields})
    registry.add("trips-value", text)
    columns = columns_of("a STRING, b ARRAY<STRUCT<part: INT>>")
    value = schema(registry, AvroResults(), columns, register=False).writer()({"a": "x", "b": [{"part": 5}]})
    read = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(json.loads(text)), None)
    assert read == {"a": "x", "b": [{"part": 5}]}
    for ddl, part in (
        ("a STRUCT<member0: INT, member1: STRING>, b ARRAY<STRUCT<part: INT>>", "a"),
        ("a INT, b ARRAY<STRUCT<part: STRUCT<member1: STRING>>>", "b[].part"),
    ):
        with pytest.raises(MillraceError) as raised:
            schema(registry, AvroResults(), columns_of(ddl), register=False).writer()
        assert f"{part} has members of a union of 2 types, and only single values can be written to it" in str(
            raised.value
        )


@pytest.mark.parametrize("format", [ProtobufResults(), AvroResults()])
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (StructType().add("a b", IntegerType()), "column a b cannot be a field of a schema; name it with letters"),
        (StructType().add("a", DayTimeIntervalType(0, 0)), "column a is interval day, which cannot be written in"),
        (
            StructType().add("a", MapType(TimestampType(), IntegerType())),
            "column a is map<timestamp,int>, which cannot be written in",
        ),
    ],
)
def test_columns_that_no_schema_has_are_refused(registry, format, columns, said):
    with pytest.raises(MillraceError, match=r"; (convert it in the SQL|name it)") as raised:
        schema(registry, format, columns).writer()
    assert said in str(raised.value)
    assert registry.subjects == {}


def test_protobuf_has_no_null_within_an_array(registry):
    write = schema(registry, columns=columns_of("a ARRAY<INT>, b MAP<STRING, INT>")).writer()
    for row in ({"a": [1, None], "b": None}, {"a": None, "b": {"k": None}}):
        with pytest.raises(MillraceError, match="has a NULL in it, which Protobuf does not have; convert it"):
            write(row)
    with pytest.raises(MillraceError, match="column a is array<array<int>>, which cannot be written in Protobuf"):
        schema(registry, columns=columns_of("a ARRAY<ARRAY<INT>>")).writer()
