"""Logins to a schema registry by reference: what is sent, what is said, and that no secret is in it."""

import pickle
import ssl
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.registries import RegistryLogin
from millrace_jobs.schemas.registry import RegistryCredentials, SchemaRegistry
from registry import Registry, running_registry

SCHEMA = '{"type": "record", "name": "Trip", "fields": []}'
BASIC = "Basic YWRhOmh1bnRlcjI="


def login(**spec):
    return RegistryCredentials.of(RegistryLogin.model_validate(spec))


@pytest.fixture
def registry():
    with running_registry(Registry()) as started:
        started.add("trips-value", SCHEMA)
        yield started


def test_a_user_and_a_token_are_sent_and_are_read_for_each_request(registry, monkeypatch, tmp_path):
    monkeypatch.setenv("USER_NAME", "ada")
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    registry.authorization = BASIC
    credentials = login(username={"env": "USER_NAME"}, password={"file": str(file)})
    asked = pickle.loads(pickle.dumps(SchemaRegistry(registry.url, credentials)))
    assert asked.schema(1)["schema"] == SCHEMA
    file.write_text("hunter3")
    with pytest.raises(MillraceError, match=r"it refuses the login \(HTTP 401 .*\); check avro\.login") as raised:
        asked.schema(1)
    assert "hunter" not in str(raised.value)
    assert "hunter" not in repr(asked)
    file.write_text("tok.en")
    registry.authorization = "Bearer tok.en"
    assert SchemaRegistry(registry.url, login(token={"file": str(file)})).schema(1)["schema"] == SCHEMA


@pytest.mark.parametrize(("value", "said"), [("a\nb", "has characters that an HTTP header cannot have"), ("", "empty")])
def test_a_secret_that_cannot_be_sent_is_refused_without_it(registry, tmp_path, value, said):
    file = tmp_path / "token"
    file.write_text(value)
    with pytest.raises(MillraceError, match=said) as raised:
        SchemaRegistry(registry.url, login(token={"file": str(file)})).schema(1)
    assert "the token for the schema registry" in str(raised.value)
    assert "a\nb" not in str(raised.value)
    assert registry.asked == []


def test_a_registry_without_a_login_of_the_query_says_which_field_to_write(registry):
    registry.authorization = BASIC
    place = "spec.sink.kafka.schemas.registry"
    with pytest.raises(MillraceError, match=r"it asks for a login .*; check spec\.sink\.kafka\.schemas\.login"):
        SchemaRegistry(registry.url, field=place).schema(1)


def test_what_a_login_may_not_do_is_said(registry, monkeypatch):
    monkeypatch.setattr(registry, "answer", lambda *_: (403, {"error_code": 40301, "message": "no"}))
    with pytest.raises(MillraceError, match=r"it does not allow this \(HTTP 403 Forbidden\); allow it to the user of"):
        SchemaRegistry(registry.url).schema(1)


def test_a_login_is_not_sent_to_another_server(registry, monkeypatch):
    """A registry that is taken over could refer to a server that collects logins."""

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"{registry.url}/schemas/ids/1")
            self.end_headers()

        def log_message(self, *_):
            pass

    monkeypatch.setenv("TOKEN", "tok.en")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        asked = SchemaRegistry(f"http://localhost:{server.server_address[1]}", login(token={"env": "TOKEN"}))
        with pytest.raises(MillraceError, match="HTTP 302 Found: it refers to another server"):
            asked.schema(1)
    finally:
        server.shutdown()
        server.server_close()
    assert registry.asked == []


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate of localhost that is its own authority, and one of a client."""
    folder = tmp_path_factory.mktemp("certificates")
    for name, subject in (("server", "/CN=localhost"), ("client", "/CN=millrace")):
        names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", subject, *names]
        subprocess.run([*command, *files], check=True, capture_output=True)
    return folder


@pytest.fixture
def secured(certificates):
    """A registry that only clients with the client's certificate reach."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.load_verify_locations(certificates / "client.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with running_registry(Registry(), context) as started:
        started.add("trips-value", SCHEMA)
        yield started


def test_a_client_certificate_opens_a_registry_that_asks_for_one(secured, certificates):
    ca = {"file": str(certificates / "server.pem")}
    pair = {
        "certificate": {"file": str(certificates / "client.pem")},
        "key": {"file": str(certificates / "client.key")},
    }
    assert SchemaRegistry(secured.url, login(tls={"ca": ca} | pair)).schema(1)["schema"] == SCHEMA


def test_a_registry_that_is_not_trusted_is_refused_at_once(secured):
    with pytest.raises(MillraceError, match=r"CERTIFICATE_VERIFY_FAILED.*; check avro\.registry and login\.tls"):
        SchemaRegistry(secured.url).schema(1)
    assert secured.asked == []


def test_what_is_no_certificate_is_refused_without_it(secured, certificates, tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("-----BEGIN PRIVATE KEY-----hunter2")
    for tls in (
        {"ca": {"file": str(wrong)}},
        {"certificate": {"file": str(certificates / "client.pem")}, "key": {"file": str(wrong)}},
    ):
        with pytest.raises(MillraceError, match="is not a certificate in PEM") as raised:
            SchemaRegistry(secured.url, login(tls=tls)).schema(1)
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"username": {"env": "A"}}, "username and password belong together"),
        ({"username": {"env": "A"}, "password": {"env": "B"}, "token": {"env": "C"}}, "username and token exclude"),
    ],
)
def test_logins_that_are_two_or_half_a_one_are_refused(spec, said):
    with pytest.raises(ValueError, match=said):
        RegistryLogin.model_validate(spec)
