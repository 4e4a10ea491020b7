"""Connections: settings of librdkafka from a spec, and secrets that stay where they are until a client is made."""

import pickle
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from millrace_api.errors import MillraceError
from millrace_api.model.kafka import KafkaConnection
from millrace_jobs.kafka import connection as connections
from millrace_jobs.kafka.connection import Connection

SASL = {"mechanism": "SCRAM-SHA-512", "username": {"env": "KAFKA_USER"}, "password": {"env": "KAFKA_PASSWORD"}}


def connection(**spec):
    return Connection.of(KafkaConnection.model_validate({"bootstrapServers": "kafka:9092", **spec}))


@pytest.mark.parametrize(
    ("spec", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"tls": {}}, "SSL"),
        ({"sasl": SASL}, "SASL_PLAINTEXT"),
        ({"tls": {}, "sasl": SASL}, "SASL_SSL"),
    ],
)
def test_the_protocol_is_what_tls_and_sasl_say(spec, protocol, monkeypatch):
    monkeypatch.setenv("KAFKA_USER", "ada")
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    settings = connection(**spec).settings()
    assert settings["bootstrap.servers"] == "kafka:9092"
    assert settings["security.protocol"] == protocol
    assert settings["log_level"] == 0
    assert [settings.get(key) for key in ("sasl.mechanism", "sasl.username", "sasl.password")] == (
        ["SCRAM-SHA-512", "ada", "hunter2"] if "sasl" in spec else [None, None, None]
    )


def test_secrets_come_from_files_and_the_environment(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nabc\n")
    monkeypatch.setenv("CERTIFICATE", "cert")
    (tmp_path / "key").write_text("key\r\n")
    tls = {
        "ca": {"file": str(tmp_path / "ca.pem")},
        "certificate": {"env": "CERTIFICATE"},
        "key": {"file": str(tmp_path / "key")},
    }
    settings = connection(tls=tls).settings()
    assert settings["ssl.ca.pem"] == "-----BEGIN CERTIFICATE-----\nabc"
    assert settings["ssl.certificate.pem"] == "cert"
    assert settings["ssl.key.pem"] == "key"


def test_a_secret_is_nowhere_but_in_the_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_USER", "ada-lovelace")
    (tmp_path / "password").write_text("hunter2\n")
    made = connection(sasl={**SASL, "password": {"file": str(tmp_path / "password")}})
    settings = made.settings()
    assert settings["sasl.password"] == "hunter2"
    for text in (repr(made), str(made), repr(pickle.dumps(made))):
        assert "hunter2" not in text
        assert "ada-lovelace" not in text
    assert pickle.loads(pickle.dumps(made)).settings() == settings


@pytest.mark.parametrize(
    ("password", "said"),
    [
        (
            {"env": "KAFKA_PASSWORD"},
            "the password for Kafka at kafka:9092 is read from the environment variable KAFKA_PASSWORD, "
            "which is not set; set KAFKA_PASSWORD where the query is started, and for its executors",
        ),
        ({"env": "EMPTY"}, "the environment variable EMPTY, which is empty"),
        ({"file": "no/such/file"}, "no/such/file: the password for Kafka at kafka:9092 cannot be read: No such file"),
        ({"file": "empty"}, "empty: the password for Kafka at kafka:9092 cannot be read: the file is empty"),
        ({"file": "binary"}, "binary: the password for Kafka at kafka:9092 cannot be read: it is not text in UTF-8"),
        ({"file": "."}, "Is a directory"),
        (
            {"secretKeyRef": {"name": "login", "key": "pw"}},
            "the password for Kafka at kafka:9092 is in the Kubernetes Secret login/pw, which millrace run cannot read; "
            "write file: or env: to say where it is",
        ),
    ],
)
def test_a_secret_that_is_not_there_is_an_error_that_says_where_it_should_be(password, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_USER", "ada")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    made = connection(sasl={**SASL, "password": password})
    with pytest.raises(MillraceError) as raised:
        made.settings()
    assert said in str(raised.value)


OIDC = {"tokenEndpoint": "https://login/token", "clientId": "trips", "clientSecret": {"env": "CLIENT_SECRET"}}


def tokens(**oidc):
    return connection(sasl={"mechanism": "OAUTHBEARER", "oidc": OIDC | oidc})


def test_a_login_by_tokens_is_librdkafka_s_own(monkeypatch):
    monkeypatch.setenv("CLIENT_SECRET", "hunter2")
    monkeypatch.setenv("CA", "pem")
    made = tokens(scope="read write", extensions={"pool": "a", "cluster": "b=c"}, ca={"env": "CA"})
    assert "hunter2" not in repr(made)
    found = {name: value for name, value in made.settings().items() if name.startswith(("sasl", "https", "oauth"))}
    assert found == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.oauthbearer.client.id": "trips",
        "sasl.oauthbearer.client.secret": "hunter2",
        "sasl.oauthbearer.scope": "read write",
        "sasl.oauthbearer.extensions": "cluster=b=c,pool=a",
        "https.ca.pem": "pem",
    }


def test_authorities_of_a_token_endpoint_are_the_system_s_unless_they_are_given(monkeypatch, tmp_path):
    monkeypatch.setenv("CLIENT_SECRET", "hunter2")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    monkeypatch.setattr(connections, "_AUTHORITIES", (str(tmp_path / "ca.pem"),))
    monkeypatch.setattr(connections.ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=None))
    assert "https.ca.location" not in tokens().settings()
    (tmp_path / "ca.pem").write_text("pem")
    assert tokens().settings()["https.ca.location"] == str(tmp_path / "ca.pem")
    assert "https.ca.location" not in tokens(tokenEndpoint="http://login/token").settings()


@pytest.mark.parametrize(
    ("sasl", "said"),
    [
        (
            {"mechanism": "GSSAPI"},
            "is not supported: the Kafka client that Millrace runs with is built without Kerberos",
        ),
        ({"mechanism": "PLAIN"}, "PLAIN and SCRAM need username and password"),
        ({"mechanism": "OAUTHBEARER"}, "OAUTHBEARER takes exactly one of oidc and awsMskIam"),
        (SASL | {"mechanism": "OAUTHBEARER", "oidc": OIDC}, "and no username or password"),
        (SASL | {"oidc": OIDC}, "oidc is for mechanism OAUTHBEARER"),
        (
            {"mechanism": "OAUTHBEARER", "oidc": OIDC, "awsMskIam": {"region": "eu-west-1"}},
            "OAUTHBEARER takes exactly one of oidc and awsMskIam",
        ),
        (
            {"mechanism": "OAUTHBEARER", "oidc": OIDC | {"tokenEndpoint": "file:///etc/passwd"}},
            "is not the URL of a tok",
        ),
        (
            {"mechanism": "OAUTHBEARER", "oidc": OIDC | {"tokenEndpoint": "https://a:b@login/"}},
            "is not the URL of a tok",
        ),
        ({"mechanism": "OAUTHBEARER", "oidc": OIDC | {"scope": "a&grant_type=password"}}, "is not a scope of tokens"),
        ({"mechanism": "OAUTHBEARER", "oidc": OIDC | {"extensions": {"a": "b,auth=c"}}}, "is not the value of a SASL"),
        ({"mechanism": "OAUTHBEARER", "oidc": OIDC | {"extensions": {"a b": "c"}}}, "is not the name of a SASL"),
        ({"mechanism": "OAUTHBEARER", "awsMskIam": {"region": "evil.org/"}}, "is not a region of AWS"),
    ],
)
def test_a_login_that_cannot_be_is_refused(sasl, said):
    with pytest.raises(ValidationError) as raised:
        connection(sasl=sasl)
    assert said in str(raised.value)
