"""Probes of Kafka sources, and of connections to Kafka wherever a spec has one; no broker is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from millrace_api.model.connections import ConnectionSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query
from millrace_jobs.kafka.cluster import Partition, Topic
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.secrets import Secret
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.formats.avro_records import AvroDecoder
from millrace_jobs.sources.formats.protobuf_records import ProtobufDecoder
from millrace_jobs.sources.kafka import bad_messages
from millrace_jobs.sources.kafka.source import KafkaSource
from millrace_operator.resources.driver_config import mounted_query
from millrace_operator.resources.names import Owner
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.resources.pods import driver_pod, executor_pod

from .documents import BROKERS, COLUMNS, KAFKA, query
from .of_registries import described, descriptor_file, registry_probes
from .probe import ABSENT, Document, Probe, probes, written

PLACE = "spec.sources.*.kafka"
OWNER = Owner("default", "fares", "u")
ENV = ({"env": "FIRST_SECRET"}, {"env": "SECOND_SECRET"})
OIDC = {"tokenEndpoint": "https://first/token", "clientId": "first", "clientSecret": ENV[0], "ca": ENV[0]}
COUNT = {"query": {"sql": "SELECT count(*) AS k FROM trips"}}

CONNECTIONS = {
    name: ConnectionSpec.model_validate({"kafka": {"bootstrapServers": f"{name}:9092"}}) for name in ("first", "second")
}

ConnectionOf = Callable[[StreamQuery], Connection]


def connection_probes(place: str, base: Document, connection: ConnectionOf) -> Iterator[Probe]:
    """Yield the probes of a connection to Kafka: those of ``spec`` at ``place``, used as ``connection`` returns it."""

    def settings(asked: StreamQuery) -> object:
        return connection(asked).settings()

    def references(asked: StreamQuery) -> Iterable[tuple[str, Secret]]:
        return connection(asked).secrets

    login = {"mechanism": "PLAIN", "username": ENV[0], "password": ENV[0]}
    pair = {"certificate": ENV[0], "key": ENV[0]}
    plain = base
    tls, sasl = written(base, f"{place}.tls", pair | {"ca": ENV[0]}), written(base, f"{place}.sasl", login)
    refers = written(base, f"{place}.bootstrapServers", ABSENT)
    yield Probe(f"{place}.connection", refers, ("first", "second", "third", ABSENT), settings, read_with_connections)
    yield from probes(
        plain,
        settings,
        place,
        bootstrapServers=("kafka:9092", "kafka:9093"),
        tls=(ABSENT, {}, {"ca": ENV[0]}),
        sasl=(ABSENT, login),
    )
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    yield Probe(f"{place}.sasl.mechanism", sasl, mechanisms, settings)
    oidc = written(base, f"{place}.sasl", {"mechanism": "OAUTHBEARER", "oidc": OIDC})
    msk = written(base, f"{place}.sasl", {"mechanism": "OAUTHBEARER", "awsMskIam": {"region": "eu-west-1"}})
    yield Probe(f"{place}.sasl.mechanism", oidc, (ABSENT, "OAUTHBEARER"), settings)
    yield Probe(f"{place}.sasl.username", sasl, (*ENV, ABSENT), settings)
    yield Probe(f"{place}.sasl.password", sasl, (*ENV, ABSENT), settings)
    yield from probes(sasl, settings, place, options=({}, {"client.rack": "a"}, {"client.id": "a", "client.rack": "b"}))
    yield from of_tokens(f"{place}.sasl", oidc, msk, connection)
    yield from probes(tls, settings, f"{place}.tls", ca=(ABSENT, *ENV), certificate=(ABSENT, *ENV), key=(ABSENT, *ENV))
    secrets = [(f"{place}.tls.{name}", tls) for name in ("ca", "certificate", "key")]
    secrets += [(f"{place}.sasl.{name}", sasl) for name in ("username", "password")]
    secrets += [(f"{place}.sasl.oidc.{name}", oidc) for name in ("clientSecret", "ca")]
    yield from secret_probes(secrets, settings, references)


def read_with_connections(document: Document) -> StreamQuery:
    """Read a document that may name two Connections."""
    return read_query(document, CONNECTIONS)


def of_tokens(place: str, oidc: Document, msk: Document, connection: ConnectionOf) -> Iterator[Probe]:
    """Yield the probes of logins by tokens, in documents that have them at ``place``."""

    def settings(asked: StreamQuery) -> object:
        return connection(asked).settings()

    def tokens(asked: StreamQuery) -> object:
        return connection(asked).tokens

    yield Probe(f"{place}.oidc", oidc, (OIDC, ABSENT), settings)
    yield Probe(f"{place}.awsMskIam", msk, ({"region": "eu-west-1"}, ABSENT), tokens)
    yield from probes(
        oidc,
        settings,
        f"{place}.oidc",
        tokenEndpoint=("https://first/token", "https://second/token"),
        clientId=("first", "second"),
        scope=(ABSENT, "read", "read write"),
        extensions=({}, {"pool": "a"}, {"pool": "b"}),
        ca=(ABSENT, *ENV),
    )
    role = "arn:aws:iam::123456789012:role/"
    yield from probes(
        msk, tokens, f"{place}.awsMskIam", region=("eu-west-1", "eu-west-2"), roleArn=(ABSENT, f"{role}a", f"{role}b")
    )


def secret_probes(
    secrets: Iterable[tuple[str, Document]],
    settings: Callable[[StreamQuery], object],
    references: Callable[[StreamQuery], Iterable[tuple[str, Secret]]],
) -> Iterator[Probe]:
    """Yield the probes of references to secrets, each a field with a document that has it.

    ``settings`` are those of a connection with the secrets, and ``references`` the references with their names.
    """

    def mounted(asked: StreamQuery) -> object:
        return _mounted(asked, references)

    for field, document in secrets:
        yield Probe(f"{field}.env", document, ("FIRST_SECRET", "SECOND_SECRET"), settings)
        yield Probe(f"{field}.file", written(document, field, {}), ("first.pem", "second.pem"), settings)
        reference = {"name": "login", "key": "one"}
        yield Probe(f"{field}.secretKeyRef", written(document, field, {}), (ABSENT, reference), mounted)
        referring = written(document, field, {"secretKeyRef": reference})
        yield from probes(referring, mounted, f"{field}.secretKeyRef", name=("login", "other"), key=("one", "two"))


def _mounted(asked: StreamQuery, references: Callable[[StreamQuery], Iterable[tuple[str, Secret]]]) -> object:
    """Return where the driver reads the secrets, and the volumes of its pod and of the executors' pods."""
    document, secrets = mounted_query(asked)
    pods = (
        driver_pod(asked, OWNER, PodDefaults("image"), secrets),
        executor_pod(asked, OWNER, PodDefaults("image"), secrets),
    )
    volumes = [[v for v in pod["spec"]["volumes"] if "secret" in v] for pod in pods]
    files = [(name, secret.file) for name, secret in references(read_query(document))]
    return files, volumes


def source(asked: StreamQuery) -> KafkaSource:
    """Return the source, opened in a folder of its own."""
    with TemporaryDirectory() as folder:
        return _opened(asked, folder)


def _opened(asked: StreamQuery, folder: str) -> KafkaSource:
    opened = open_source("trips", asked.spec.sources["trips"], Path(folder, "state"), Path(folder, "cache"))
    assert isinstance(opened, KafkaSource)
    return opened


class Log:
    """A cluster of three topics of two partitions, each with the offsets 10 to 99; the records are a second apart."""

    def topics(self, names: Iterable[str] | None, pattern: str | None) -> dict[str, Topic]:
        known = ("fares", "trips", "trips-2")
        asked = known if names is None else tuple(names)
        found = [name for name in known if name in asked and (pattern is None or re.fullmatch(pattern, name))]
        return {name: Topic(name, f"id of {name}", (Partition(name, 0), Partition(name, 1))) for name in found}

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 10)

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 100)

    def at(self, time: int, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        return dict.fromkeys(partitions, min(max(time // 1000, 10), 100))


def offsets(asked: StreamQuery) -> object:
    """Return the offsets at which the query begins, those of its first batch, and whether it ends there."""
    with TemporaryDirectory() as folder:
        opened = _opened(asked, folder)
        vars(opened)["_cluster"] = Log()
        vars(opened)["_record_size"] = SimpleNamespace(estimate=lambda *_: 100.0)
        first = opened.initial()
        end = opened.latest(first, everything=False)
        return first, end, opened.exhausted(end)


VALUES = [
    b'{"at": 1600000000, "seen": 1600000600, "city": "Oslo", "n": 1}',
    b"1600000010,1600000000,Rome,2",
    bytes([0, 0, 0, 0, 7]) + bytes([2]) + b"\x08Bern",
    bytes([2]) + b"\x08Bern",
    b"\x08\x05",
    b"nonsense",
    None,
]
"""The values of messages in every format: JSON, CSV, Avro with the framing of a registry, Avro without it, and Protobuf."""

CITY = {"type": "record", "name": "Trip", "fields": [{"name": "n", "type": "int"}, {"name": "city", "type": "string"}]}
TOWN = {"type": "record", "name": "Trip", "fields": [{"name": "k", "type": "int"}, {"name": "town", "type": "string"}]}


def messages(asked: StreamQuery) -> object:
    """Return the records of messages in every format, the reasons against the others, and their dead letters."""
    sent: list[tuple[str, object]] = []
    producer = SimpleNamespace(
        produce=lambda topic, value, *_, **__: sent.append((topic, value)), poll=lambda _: 0, flush=lambda _: 0
    )
    answers = {"http://first": CITY, "http://second": TOWN}

    def answer(registry: SchemaRegistry, path: str) -> Mapping[str, Any]:
        return {"schema": json.dumps(answers[registry.url])}

    opened = source(asked)
    given = [
        Message("trips", 0, 40 + index, b'{"city": "Oslo", "n": 5}', value, None, None, (TIMESTAMP_CREATE_TIME, 9_000))
        for index, value in enumerate(VALUES)
    ]
    with (
        patch.object(SchemaRegistry, "request", answer),
        patch.object(KafkaSource, "_preceding", lambda *_: []),  # the first messages of their partition
        patch.object(bad_messages, "Producer", lambda *_, **__: producer),
        bad_messages.BadMessageHandler("trips", opened.corrupt, "0", opened.connection) as rejects,
    ):
        found = [batch.to_pylist() for batch in opened._records(given, rejects)]
    return str(opened.schema), found, rejects.records, sent


DROPPED = KAFKA | {"corruptRecords": {"policy": "Drop"}}
LETTERS = KAFKA | {"corruptRecords": {"policy": "DeadLetter", "topic": "dead"}}
AVRO = {
    "kafka": KAFKA["kafka"],
    "format": "avro",
    "avro": {"writerSchema": json.dumps(CITY)},
    "corruptRecords": {"policy": "Drop"},
}
CHANGES = DROPPED | {
    "format": "debezium",
    "watermark": {"column": "_changed_at", "delay": "0s"},
    "table": {"keys": ["city"]},
}
FROM_REGISTRY = AVRO | {"avro": {"registry": "http://first"}, "schema": "n INT, city STRING"}
SECURED = FROM_REGISTRY | {"avro": {"registry": "https://first"}}
PROTOBUF = {
    "kafka": KAFKA["kafka"],
    "format": "protobuf",
    "protobuf": {"message": "trips.Trip", "descriptorSet": described("n")},
    "corruptRecords": {"policy": "Drop"},
}
FRAMED = PROTOBUF | {"protobuf": {"registry": "https://first"}, "schema": "n INT, city STRING"}
MINUTE = ("1970-01-01T00:00:20Z", "1970-01-01T00:00:50Z")


def of_kafka() -> Iterator[Probe]:
    """Yield the probes of Kafka sources."""
    base = query(KAFKA, checkpoint={"claimName": "checkpoints"}, **COUNT)
    yield from connection_probes(PLACE, base, lambda asked: source(asked).connection)
    yield from probes(
        base,
        offsets,
        PLACE,
        topic=("trips", "fares"),
        startingOffsets=("Earliest", "Latest"),
        startingTimestamp=(ABSENT, *MINUTE),
        endingOffsets=(ABSENT, "Latest"),
        endingTimestamp=(ABSENT, *MINUTE),
        maxRecordsPerBatch=(ABSENT, 30, 60),
        maxBytesPerBatch=(ABSENT, "1k", "5k"),
    )
    yield from of_subscriptions()
    yield Probe(f"{PLACE}.includeMetadata", query(DROPPED, **COUNT), (False, True), messages)
    yield Probe(PLACE, query({name: KAFKA[name] for name in ("schema", "timestampFormat")}, **COUNT),
                (ABSENT, KAFKA["kafka"]), topics_read)  # fmt: skip
    yield from of_formats()


def topics_read(asked: StreamQuery) -> object:
    """Return the topics that are read."""
    return source(asked).subscription.names


def of_subscriptions() -> Iterator[Probe]:
    """Yield the probes of what may stand in place of one topic."""
    unnamed = query(KAFKA | {"kafka": BROKERS}, **COUNT)
    one = {"topic": "trips", "partition": 0}
    yield from probes(
        unnamed,
        offsets,
        PLACE,
        topics=(["trips"], ["trips", "fares"], ABSENT),
        topicPattern=("trips.*", "fares", ABSENT),
        partitions=(ABSENT, [one], [one, {"topic": "fares", "partition": 1}]),
    )
    listed = query(KAFKA | {"kafka": BROKERS | {"partitions": [one]}}, **COUNT)
    yield from probes(
        listed,
        offsets,
        f"{PLACE}.partitions[]",
        topic=("trips", "fares"),
        partition=(0, 1),
        startingOffset=(ABSENT, 20),
        endingOffset=(ABSENT, 50, 60),
    )


def of_formats() -> Iterator[Probe]:
    """Yield the probes of how messages are decoded, and what becomes of the others."""
    dropped = query(DROPPED, **COUNT)
    formats = ("json", "csv")
    yield Probe("spec.sources.*.format", dropped, formats, messages)
    raw = query({"kafka": KAFKA["kafka"]}, **COUNT)
    yield Probe("spec.sources.*.format", raw, ("raw", "avro", ABSENT), messages)
    avro = query(AVRO, **COUNT)
    yield Probe("spec.sources.*.format", avro, ("avro", "json"), messages)
    yield Probe("spec.sources.*.avro", avro, (ABSENT, AVRO["avro"]), messages)
    yield Probe("spec.sources.*.format", query(CHANGES, **COUNT), ("debezium", "json"), messages)
    schemas = (json.dumps(CITY), json.dumps(TOWN))
    yield Probe("spec.sources.*.avro.writerSchema", avro, schemas, messages)
    registries = ("http://first", "http://second")
    yield Probe("spec.sources.*.avro.registry", query(FROM_REGISTRY, **COUNT), registries, messages)
    yield from of_protobuf()
    yield from registry_probes("spec.sources.*.avro", query(SECURED, **COUNT), registry_of, secret_probes)
    yield Probe("spec.sources.*.schema", dropped, (COLUMNS, COLUMNS.replace("n INT", "n STRING")), messages)
    units = ("iso", "seconds", "milliseconds", "microseconds")
    yield Probe("spec.sources.*.timestampFormat", query(DROPPED, **COUNT), units, messages)
    letters = query(LETTERS, **COUNT)
    yield Probe("spec.sources.*.corruptRecords.topic", letters, ("dead", "graves", "trips"), messages)
    keys = (["city"], ["city", "n"])
    table = query(DROPPED | {"table": {"keys": ["city"]}}, **COUNT)
    yield Probe("spec.sources.*.table.keys", table, keys, messages)
    yield Probe("spec.sources.*.table.static", table, (False, True), messages, one_fits=True)
    yield Probe("spec.sources.*.table", dropped, (ABSENT, {"keys": ["city"]}), messages)


def of_protobuf() -> Iterator[Probe]:
    """Yield the probes of descriptors of messages, and of a registry that has them."""
    place = "spec.sources.*.protobuf"
    written_here = query(PROTOBUF, **COUNT)
    yield Probe("spec.sources.*.format", written_here, ("protobuf", "json"), messages)
    yield Probe(place, written_here, (ABSENT, PROTOBUF["protobuf"]), messages)
    yield Probe(f"{place}.message", written_here, ("trips.Trip", "trips.Ride", "trips.Walk"), messages)
    yield Probe(f"{place}.descriptorSet", written_here, (described("n"), described("n", "k")), messages)
    in_file = query(PROTOBUF | {"protobuf": {"message": "trips.Trip"}}, **COUNT)
    files = (descriptor_file("n"), descriptor_file("n", "k"))
    yield Probe(f"{place}.descriptorFile", in_file, files, messages)
    yield from registry_probes(place, query(FRAMED, **COUNT), registry_of, secret_probes)


def registry_of(asked: StreamQuery) -> SchemaRegistry:
    """Return the registry of a source."""
    decoder = source(asked)._decoder
    assert isinstance(decoder, AvroDecoder | ProtobufDecoder)
    assert isinstance(decoder._writer, SchemaRegistry)
    return decoder._writer
