"""References to Connections: what they resolve to, what is refused beside them, and what a file may have."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_api.model.connections import ConnectionSpec
from millrace_api.validation.connections import (
    ConnectionNotFoundError,
    as_written,
    connection_parts,
    references,
    used_connections,
    without_references,
)
from millrace_api.validation.loading import load_queries, read_connection, read_query, validate_file
from millrace_jobs.run.query_file import check_file, warnings_about

from .connection_documents import CONNECTION

QUERY = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  sources:
    trips:
      kafka: {connection: trips, topic: trips}
      format: avro
      avro: {}
      schema: cell STRING, fare DOUBLE, at TIMESTAMP
      watermark: {column: at, delay: 1m}
  query: {sql: "SELECT window, cell, count(*) AS n FROM trips GROUP BY window(at, '1 minute'), cell"}
  sink: {table: {connection: trips, topic: table}}
  emit: OnUpdate
  additionalOutputs:
    final:
      emit: OnWindowClose
      sink: {kafka: {connection: trips, topic: final, format: avro, schemas: {}}}
"""
BOTH = f"{CONNECTION}---\n{QUERY}"
LOGIN = {"mechanism": "PLAIN", "username": {"env": "KAFKA_USER"}, "password": {"env": "KAFKA_PASSWORD"}}
RESOLVED = {"bootstrapServers": "kafka:9093", "tls": {}, "sasl": LOGIN, "options": {"client.rack": "a"}}


def trips() -> ConnectionSpec:
    return read_connection(yaml.safe_load(CONNECTION))


def said(tmp_path, text: str, *connections: str) -> list[str]:
    file = tmp_path / "queries.yaml"
    file.write_text(text)
    files = []
    for number, each in enumerate(connections):
        files.append(tmp_path / f"connections-{number}.yaml")
        files[-1].write_text(each)
    found = [str(problem) for problem in validate_file(file, files)]
    return [each.removeprefix(f"{file}:").removeprefix(f"{tmp_path}/") for each in found]


def test_a_reference_resolves_to_the_fields_of_the_connection_and_its_registry(tmp_path):
    file = tmp_path / "queries.yaml"
    file.write_text(BOTH)
    [query] = load_queries(file)
    spec: dict[str, Any] = query.spec.to_short_document()
    assert spec["sources"]["trips"]["kafka"] == {"connection": "trips", "topic": "trips", **RESOLVED}
    login = {"registry": "https://registry", "login": {"token": {"env": "REGISTRY_TOKEN"}}}
    assert spec["sources"]["trips"]["avro"] == login
    assert spec["sink"]["table"] == {"connection": "trips", "topic": "table", **RESOLVED}
    final = spec["additionalOutputs"]["final"]["sink"]["kafka"]
    assert final == {"connection": "trips", "topic": "final", "format": "avro", "schemas": login, **RESOLVED}
    assert {name: kafka.bootstrap_servers for name, kafka in used_connections(query.spec).items()} == {
        "trips": "kafka:9093"
    }


def test_a_resolved_query_has_all_that_was_written_and_drivers_do_not_see_names():
    written = yaml.safe_load(QUERY)
    before = yaml.safe_dump(written)
    spec = read_query(written, {"trips": trips()}).spec.to_short_document()
    assert yaml.safe_dump(written) == before, "the document itself is not changed"
    assert as_written(spec) == read_query(written, {"trips": trips()}).spec.to_short_document() | {
        part: written["spec"][part] for part in ("sources", "sink", "additionalOutputs")
    }
    assert "connection" in str(spec)
    seen = without_references(spec)
    assert "'connection'" not in str(seen)
    assert seen["sink"]["table"] == {"topic": "table", **RESOLVED}
    assert connection_parts(spec) == {
        "trips": RESOLVED | {"registry": "https://registry", "login": {"token": {"env": "REGISTRY_TOKEN"}}}
    }


def test_a_resolved_document_is_read_without_connections():
    written = yaml.safe_load(QUERY)
    query = read_query(written, {"trips": trips()})
    document = query.to_document()
    assert read_query(document) == query
    assert [name for _, name in references(written)] == ["trips"] * 3


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "connection: trips, topic: table",
            "connection: tripz, topic: table",
            '24: spec.sink.table.connection: there is no Connection "tripz"; did you mean "trips"?',
        ),
        (
            "connection: trips, topic: table",
            "connection: trips, tls: {}, topic: table",
            "24: spec.sink.table.tls: tls cannot be combined with connection, which has its own; leave tls or connection out",
        ),
        (
            "connection: trips, topic: table",
            "bootstrapServers: 'kafka:9092', options: {client.rack: a}, topic: table",
            "24: spec.sink.table.options: options belongs to a Connection; write it in a Connection, and "
            "connection: NAME here",
        ),
        (
            "connection: trips, topic: table",
            "bootstrapServers: 'kafka:9092', topic: table, sasl: {mechanism: OAUTHBEARER, awsMskIam: {region: eu-west-1}}",
            "24: spec.sink.table.sasl: sasl belongs to a Connection; write it in a Connection, and connection: NAME here",
        ),
        (
            "connection: trips, topic: table",
            "topic: table",
            "24: spec.sink.table.bootstrapServers: is required; write bootstrapServers: kafka:9092",
        ),
        (
            "avro: {}",
            "avro: {registry: 'https://registry'}",
            "20: spec.sources.trips.avro.registry: registry belongs to a Connection; write it in a Connection, and "
            "connection: NAME here",
        ),
        (
            "schemas: {}",
            "schemas: {login: {token: {env: A}}}",
            "29: spec.additionalOutputs.final.sink.kafka.schemas.login: login belongs to a Connection; write it in a "
            "Connection, and connection: NAME here",
        ),
        (
            "{connection: trips, topic: trips}",
            "{bootstrapServers: 'kafka:9092', topic: trips}",
            "20: spec.sources.trips.avro: schemas are in a registry unless avro has them, and there is no connection; "
            "write connection: NAME of a Connection that has kafka.registry",
        ),
        ("mechanism: PLAIN", "mechanism: PLAINE", '8: spec.kafka.sasl.mechanism: "PLAINE" is not one of PLAIN, '),
        ("client.rack: a}", "linger.ms: '5'}", '9: spec.kafka.options: "linger.ms" may not be set'),
        ("{}\n    sasl", "{key: {env: A}}\n    sasl", "7: spec.kafka.tls.key: certificate and key belong together"),
        (
            "{}\n    sasl",
            "{ca: {file: a, env: B}}\n    sasl",
            "7: spec.kafka.tls.ca.env: exactly one of secretKeyRef, file, env is needed (got file: a, env: B); "
            "say where the secret is, such as env: KAFKA_PASSWORD",
        ),
        (
            ", password: {env: KAFKA_PASSWORD}}",
            "}",
            "8: spec.kafka.sasl.mechanism: PLAIN and SCRAM need username and password "
            "(got username, mechanism: PLAIN); write both",
        ),
        (
            "{mechanism: PLAIN, username: {env: KAFKA_USER}, password: {env: KAFKA_PASSWORD}}",
            "{mechanism: OAUTHBEARER}",
            "8: spec.kafka.sasl.mechanism: OAUTHBEARER takes exactly one of oidc and awsMskIam, and no username or "
            "password (got mechanism: OAUTHBEARER); write oidc for tokens of an identity provider, or awsMskIam for "
            "Amazon MSK",
        ),
    ],
)
def test_each_mistake_is_reported_once_with_its_line(tmp_path, old, new, expected):
    assert BOTH.count(old) == 1
    found = said(tmp_path, BOTH.replace(old, new))
    assert len(found) == 1, found
    assert found[0].startswith(expected), found


def test_a_connection_without_a_registry_is_none_for_formats_that_need_one(tmp_path):
    lines = [line for line in BOTH.splitlines() if "registry" not in line]
    place = "that has kafka.registry"
    assert said(tmp_path, "\n".join(lines)) == [
        '19: spec.sources.trips.avro: schemas are in a registry unless avro has them, and Connection "trips" has no '
        f"registry; write connection: NAME of a Connection {place}",
        '28: spec.additionalOutputs.final.sink.kafka.schemas: schemas are in a registry, and Connection "trips" has no '
        f"registry; write connection: NAME of a Connection {place}",
    ]


def test_login_tls_of_a_registry_needs_https(tmp_path):
    text = BOTH.replace("https://registry", "http://registry").replace("login: {token", "login: {tls: {}, token")
    assert [each.split("(")[0] for each in said(tmp_path, text)] == [
        "10: spec.kafka.registry.url: login.tls needs a registry with TLS "
    ]


def test_files_of_connections_come_before_those_beside_the_query(tmp_path):
    assert len(said(tmp_path, QUERY)) == 3
    assert said(tmp_path, QUERY, CONNECTION) == []
    local = CONNECTION.replace("kafka:9093", "localhost:9092")
    assert said(tmp_path, BOTH, local) == []
    [query] = load_queries(tmp_path / "queries.yaml", [tmp_path / "connections-0.yaml"])
    assert query.spec.sources["trips"].kafka.bootstrap_servers == "localhost:9092"
    assert said(tmp_path, QUERY, QUERY) == [
        "connections-0.yaml:2: kind: is not a Connection; write kind: Connection, or name the file with the queries as the "
        "file to run"
    ]


def test_two_connections_of_a_file_have_different_names(tmp_path):
    assert said(tmp_path, f"{CONNECTION}---\n{BOTH}") == [
        '14: metadata.name: "trips" is the name of two connections, the first in line 3; rename one'
    ]


def test_a_file_of_connections_alone_is_valid_and_has_no_query(tmp_path):
    assert said(tmp_path, CONNECTION) == []
    file = tmp_path / "queries.yaml"
    assert check_file(file) == []
    assert warnings_about(file) == []
    with pytest.raises(MillraceError, match="has no query"):
        load_queries(file)


def test_a_missing_connection_has_an_error_of_its_own_and_a_broken_one_says_why():
    written = yaml.safe_load(QUERY)
    with pytest.raises(ConnectionNotFoundError, match='there is no Connection "trips"; did you mean "trip"'):
        read_query(written, {"trip": trips()})
    with pytest.raises(ConnectionNotFoundError, match="create it"):
        read_query(written, {})
    document = yaml.safe_load(CONNECTION)
    document["spec"]["kafka"]["options"] = {"acks": "1"}
    with pytest.raises(MillraceError) as raised:
        read_connection(document)
    assert [problem.field for problem in raised.value.problems] == ["spec.kafka.options"]
    with pytest.raises(ConnectionNotFoundError, match=r'Connection "trips" is not valid: spec.kafka.options: "acks"'):
        read_query(written, {"trips": raised.value})
    written["spec"]["sink"]["table"]["options"] = {}
    with pytest.raises(MillraceError) as raised:
        read_query(written, {})
    assert type(raised.value) is MillraceError, "another mistake is to be corrected, whatever comes"


def test_brokers_to_start_from_are_few(tmp_path):
    long = CONNECTION.replace("kafka:9093", ",".join(f"kafka-{number}.example.com:9093" for number in range(400)))
    problem = "6: spec.kafka.bootstrapServers: the text is too long; write at most 4096 characters"
    assert said(tmp_path, long) == [problem]


def test_a_query_has_no_login_and_no_registry_of_its_own(tmp_path):
    text = QUERY.replace("{connection: trips, topic: trips}", "{bootstrapServers: 'kafka:9093', topic: trips}")
    text = text.replace("avro: {}", "avro: {registry: 'http://registry'}")
    text = text.replace(
        "{connection: trips, topic: table}", f"{{bootstrapServers: 'kafka:9093', topic: t, tls: {{}}, sasl: {LOGIN}}}"
    )
    fields = {
        "20: spec.sources.trips.avro.registry": "registry",
        "24: spec.sink.table.tls": "tls",
        "24: spec.sink.table.sasl": "sasl",
    }
    elsewhere = "belongs to a Connection; write it in a Connection, and connection: NAME here"
    found = [f"{field}: {name} {elsewhere}" for field, name in fields.items()]
    assert [each for each in said(tmp_path, f"{CONNECTION}---\n{text}") if "belongs to" in each] == found


@pytest.mark.parametrize("value", [None, 7, "trips", [], {"kafka": None}, {"kafka": []}, {"table": "x"}])
def test_documents_of_any_form_are_resolved(value):
    written = {"spec": {"sources": {"trips": value, 7: value}, "sink": value, "additionalOutputs": {"a": value}}}
    with pytest.raises(MillraceError):
        read_query(written, {})
    with pytest.raises(MillraceError):
        read_query({"spec": value}, {})
