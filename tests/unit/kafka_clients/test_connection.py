"""Connections: settings of librdkafka from a spec, and secrets that stay where they are until a client is made."""

import pickle

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.kafka import KafkaConnection
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
