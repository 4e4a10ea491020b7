"""From a spec to a Kafka source, without any Kafka; and what travels to the tasks holds no secret."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.errors import MillraceError
from millrace_api.model.sources import SourceSpec
from millrace_api.sql.schema_ddl import parse_schema
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.kafka.connector import _subscription
from millrace_jobs.sources.kafka.message_records import METADATA
from millrace_jobs.sources.kafka.offsets import ChosenPartition, Subscription

TRIP = """{"type": "record", "name": "Trip", "fields": [
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "who", "type": ["null", "Trip"]}]}"""


def spec_of(kafka=None, **more):
    kafka = {"bootstrapServers": "127.0.0.1:1", **({"topic": "trips"} if kafka is None else kafka)}
    return SourceSpec.model_validate({"kafka": kafka, **more})


def opened(tmp_path, kafka=None, **more):
    return open_source("trips", spec_of(kafka, **more), tmp_path / "state", tmp_path / "cache")


def test_the_schema_of_a_source_follows_its_format(tmp_path):
    assert opened(tmp_path, format="raw").schema == pa.schema([("value", pa.binary())])
    expected = pa.schema([("id", pa.int64()), ("at", TIMESTAMP)])
    assert opened(tmp_path, schema="id BIGINT, at TIMESTAMP").schema == expected
    assert opened(tmp_path, schema="id BIGINT, at TIMESTAMP", format="csv").schema == expected
    avro = {"format": "avro", "avro": {"writerSchema": TRIP.replace('["null", "Trip"]', '"string"')}}
    assert opened(tmp_path, **avro).schema == expected.append(pa.field("who", pa.string()))
    declared = {"format": "avro", "avro": {"writerSchema": TRIP}, "schema": "at TIMESTAMP, id DECIMAL(20,0)"}
    assert opened(tmp_path, **declared).schema.names == ["at", "id"]
    registry = {"format": "avro", "avro": {"registry": "http://127.0.0.1:1"}, "schema": "id BIGINT, at TIMESTAMP"}
    assert opened(tmp_path, **registry).schema == expected


def test_metadata_columns_come_after_the_others(tmp_path):
    spec = spec_of({"topic": "trips", "includeMetadata": True}, schema="id BIGINT")
    source = open_source("trips", spec, tmp_path / "state", tmp_path / "cache")
    assert source.schema == pa.schema([("id", pa.int64()), *METADATA])
    spoken = [(c.name, c.type.replace(" ", "").lower()) for c in parse_schema(spec.schema_text)]
    assert spoken == [(field.name, field.dataType.simpleString()) for field in from_arrow_schema(source.schema)]


def test_opening_writes_nothing_and_asks_nobody(tmp_path):
    source = opened(tmp_path, {"topic": "trips", "endingOffsets": "Latest"}, schema="id BIGINT")
    assert not source.exhausted({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kafka", "subscription"),
    [
        ({"topic": "a"}, Subscription(("a",))),
        ({"topics": ["a", "b"], "endingOffsets": "Latest"}, Subscription(("a", "b"), ending="latest")),
        ({"topicPattern": "a.*", "startingOffsets": "Latest"}, Subscription(pattern="a.*", starting="latest")),
        (
            {"partitions": [{"topic": "a", "partition": 1, "startingOffset": 0, "endingOffset": 7}]},
            Subscription(chosen=(ChosenPartition(Partition("a", 1), 0, 7),)),
        ),
        (
            {
                "topic": "a",
                "startingTimestamp": "1970-01-01T01:00:01.0005+01:00",
                "endingTimestamp": "1970-01-01T00:00:02Z",
            },
            Subscription(("a",), starting=1001, ending=2000),
        ),
    ],
)
def test_the_subscription_follows_the_spec(kafka, subscription):
    spec = spec_of(kafka, format="raw")
    assert _subscription("trips", spec.kafka) == subscription


def test_a_time_that_does_not_exist_is_refused_with_its_field():
    spec = spec_of({"topic": "a", "startingTimestamp": "2026-02-30T00:00:00Z"}, format="raw")
    with pytest.raises(MillraceError) as raised:
        _subscription("trips", spec.kafka)
    assert str(raised.value).startswith(
        "spec.sources.trips.kafka.startingTimestamp: the time 2026-02-30T00:00:00Z does not exist: "
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"avro": {"writerSchema": TRIP}},
            "spec.sources.trips.avro: the Avro schema cannot be used: field who is of type Trip, which contains itself, "
            "which no column can hold; correct it, or declare schema: with the columns to be read",
        ),
        ({"avro": {"writerSchema": "{"}}, "the Avro schema cannot be used: it is not JSON"),
        (
            {"avro": {"writerSchema": TRIP}, "schema": "fare DOUBLE"},
            "column fare is not in the Avro schema; it has id, at, who",
        ),
        ({"avro": {"writerSchema": TRIP}, "schema": "id TIMESTAMP"}, "column id (TIMESTAMP): "),
        (
            {"avro": {"writerSchema": TRIP}, "schema": "at TIMESTAMP, id BIGINT",
             "watermark": {"column": "when", "delay": "1s"}},
            "when",
        ),
        ({"avro": {"registry": "http://ada:hunter2@registry"}, "schema": "id BIGINT"}, "spec.sources.trips.avro.registry: the registry's URL"),
    ],
)  # fmt: skip
def test_avro_that_cannot_be_read_is_refused(tmp_path, more, said):
    with pytest.raises(MillraceError) as raised:
        opened(tmp_path, format="avro", **more)
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_no_secret_travels_to_the_tasks(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_USER", "ada-lovelace")
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    sasl = {"mechanism": "PLAIN", "username": {"env": "KAFKA_USER"}, "password": {"env": "KAFKA_PASSWORD"}}
    source = opened(tmp_path, {"topic": "trips", "sasl": sasl}, format="raw")
    assert source.connection.settings()["sasl.password"] == "hunter2"
    copy = pickle.loads(pickle.dumps(source))
    for text in (repr(pickle.dumps(source)), repr(vars(source)), repr(vars(copy)), repr(source.connection)):
        assert "hunter2" not in text
        assert "ada-lovelace" not in text
    assert copy.schema == source.schema
