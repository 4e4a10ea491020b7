"""A schema registry over HTTP: each id is requested once, and faults are reported."""

import json
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from arrow_schemas import a_schema
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.schemas import registry as schema_registry
from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.sources.formats.avro_records import AvroDecoder, avro_schema

from .avro_messages import decoded, written

OLD = '{"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "int"}]}'
NEW = (
    '{"type": "record", "name": "Trip", "fields": [{"name": "city", "type": "string"}, {"name": "id", "type": "long"}]}'
)
COLUMNS = a_schema([("id", "BIGINT"), ("city", "STRING")])


class Registry:
    """Answers by path; a path that is not there is 404, and a list of answers is given one after the other."""

    def __init__(self, answers):
        self.answers = {f"/schemas/ids/{number}": answer for number, answer in answers.items()}
        self.asked = Counter()

    def answer(self, path):
        self.asked[path] += 1
        found = self.answers.get(path, (404, b'{"error_code": 40403}'))
        return found.pop(0) if isinstance(found, list) else found


@contextmanager
def serving(answers):
    registry = Registry(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = registry.answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}/"
        yield registry
    finally:
        server.shutdown()
        server.server_close()


def registered(text, **more):
    return 200, json.dumps({"schema": text, **more}).encode()


def framed(number, text, record):
    return b"\0" + number.to_bytes(4, "big") + written(text, record)


def test_messages_of_several_schemas_stay_in_order_and_each_schema_is_asked_for_once():
    values = [
        framed(1, OLD, {"id": 0}),
        framed(2, NEW, {"id": 1, "city": "a"}),
        None,
        framed(1, OLD, {"id": 3}),
        framed(77, NEW, {"id": 4, "city": "b"}),
        b'{"id": 5}',
        b"\0\0",
        framed(2, NEW, {"id": 7, "city": "c"}),
        framed(3, OLD, {"id": 8}),
    ]
    with serving({1: registered(OLD), 2: registered(NEW), 3: registered("{}", schemaType="JSON")}) as registry:
        for _ in range(2):
            decoder = AvroDecoder(COLUMNS, "iso", SchemaRegistry(registry.url))
            found, origins, bad = decoded(decoder, values)
            assert [(row["id"], row["city"]) for row in found] == [(0, None), (1, "a"), (3, None), (7, "c")]
            assert origins == [0, 1, 3, 7]
            assert bad == {
                4: "the registry has no schema 77",
                5: "it does not begin with the framing of a schema registry",
                6: "it does not begin with the framing of a schema registry",
                8: "schema 3 of the registry is JSON, not Avro",
            }
        assert set(registry.asked.values()) == {1}


def test_a_registry_that_comes_back_is_waited_for(monkeypatch):
    monkeypatch.setattr(schema_registry, "_PAUSE", 0.01)
    with serving({1: [(503, b""), (429, b""), registered(OLD)]}) as registry:
        assert "id" in avro_schema(SchemaRegistry(registry.url), 1).types


def test_a_registry_that_stays_away_is_a_transient_error(monkeypatch):
    monkeypatch.setattr(schema_registry, "PATIENCE", 0.05)
    monkeypatch.setattr(schema_registry, "_PAUSE", 0.01)
    with serving({}) as registry:
        url = registry.url
    with pytest.raises(TransientError, match=rf"the schema registry does not answer at {url}schemas/ids/1: "):
        SchemaRegistry(url).schema(1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, b"<html>no such page"), "cannot be used at .*: HTTP 404 Not Found; check avro.registry"),
        ((404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), "HTTP 404 Not Found; check avro.registry"),
        ((404, b"[40403]"), "HTTP 404 Not Found; check avro.registry"),
        ((401, b""), "cannot be used at .*: it asks for a login .HTTP 401 Unauthorized.; check avro.login"),
        ((200, b"<html>"), "its answer is not a JSON object"),
        ((200, b"[]"), "its answer is not a JSON object"),
        ((200, b"{}"), "cannot be used at .*: its answer for schema 1 has no schema; check avro.registry"),
        ((200, b'{"schema": {}}'), "its answer for schema 1 has no schema; check avro.registry"),
    ],
)
def test_answers_that_will_not_change_are_final_errors(answer, said):
    with serving({1: answer}) as registry, pytest.raises(MillraceError, match=said) as raised:
        SchemaRegistry(registry.url).schema(1)
    assert not isinstance(raised.value, TransientError)


def test_a_url_with_a_login_is_refused_and_not_repeated():
    with pytest.raises(MillraceError, match="contains a login") as raised:
        SchemaRegistry("http://user:hunter2@registry:8081")
    assert "hunter2" not in str(raised.value)
    assert "user" not in str(raised.value).replace("user and password", "")


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1:8081",
        "http://registry:none",
        "http://ada:hunter2@registry:99999",
        "http://schema registry:8081",
        "http://registry..svc:8081",
        "http://registry:8081/ü",
    ],
)
def test_a_malformed_url_is_refused_and_not_repeated(url):
    with pytest.raises(MillraceError) as raised:
        SchemaRegistry(url)
    assert str(raised.value) == "the registry's URL is malformed; write http://host:8081"


@pytest.mark.parametrize("url", ["registry:8081", "ftp://registry", "http://", "/a"])
def test_a_url_of_another_kind_is_refused(url):
    with pytest.raises(MillraceError, match="is not the URL of a registry; write http://host:8081"):
        SchemaRegistry(url)


POISON = [
    (
        registered('{"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "string"}]}'),
        "schema 7 of the registry: column id (BIGINT): its type is STRING: write id STRING in the schema",
    ),
    (
        registered('{"type": "record", "name": "Trip", "fields": [{"name": "city", "type": ["int", "string"]}]}'),
        "schema 7 of the registry: column city (STRING): its type is a union: write city STRUCT<member0: INT, member1: "
        "STRING> in the schema",
    ),
    (
        registered('"string"'),
        "schema 7 of the registry cannot be used: it is not the schema of a record: "
        "write the messages with the schema of a record",
    ),
    (
        registered(OLD, references=[{"name": "a"}]),
        "schema 7 of the registry cannot be used: its references have no name, subject and version: "
        "write the messages with the schema of a record",
    ),
    (
        registered(OLD, references=[{"name": "a", "subject": "b", "version": 3}]),
        "schema 7 of the registry cannot be used: it refers to version 3 of b, which the registry does not have: "
        "write the messages with the schema of a record",
    ),
]


@pytest.mark.parametrize(("answer", "reason"), POISON)
def test_a_message_with_a_schema_that_does_not_fit_is_bad_alone(answer, reason):
    """Whoever may write to a topic cannot end the queries that read it, unless their policy says so."""
    values = [framed(1, OLD, {"id": 0}), b"\0\0\0\0\7anything", framed(1, OLD, {"id": 2}), b"\0\0\0\0\7", None]
    with serving({1: registered(OLD), 7: answer}) as registry:
        found, origins, bad = decoded(AvroDecoder(COLUMNS, "iso", SchemaRegistry(registry.url)), values)
    assert ([row["id"] for row in found], origins) == ([0, 2], [0, 2])
    assert bad == {1: reason, 3: reason}
