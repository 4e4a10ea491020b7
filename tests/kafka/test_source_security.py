"""Logins that are right and wrong, over a listener that asks for them, and brokers that nobody can reach."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from lab import topics
from lab.authority import make_authority
from lab.kafka import Broker, running_broker
from lab.ports import free_port
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.kafka import cluster

from .sources import everything, opened

pytestmark = pytest.mark.kafka

SASL = {
    "mechanism": "SCRAM-SHA-256",
    "username": {"env": "KAFKA_USER"},
    "password": {"env": "KAFKA_PASSWORD"},
}


LOGIN = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.login.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A folder with ``ca.pem``, ``other.pem`` and ``server.pem``: key and certificate for 127.0.0.1, signed by ca."""
    return make_authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, authority):
    """A broker with a listener that wants a login and one with TLS; user ``ada`` has the password ``right``."""
    keys = dict(LOGIN)
    keys["listener.name.both.scram-sha-256.sasl.jaas.config"] = keys[
        "listener.name.login.scram-sha-256.sasl.jaas.config"
    ]
    for listener in ("tls", "both"):
        keys[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        keys[f"listener.name.{listener}.ssl.keystore.location"] = str(authority / "server.pem")
    listeners = {"LOGIN": "SASL_PLAINTEXT", "TLS": "SSL", "BOTH": "SASL_SSL"}
    with running_broker(tmp_path_factory.mktemp("guarded"), keys, listeners) as broker:
        set_password(broker, "right")
        yield broker


def set_password(broker: Broker, password: str) -> None:
    """Give it to user ``ada``."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("ada", info, password.encode())
    client.alter_user_scram_credentials([change])["ada"].result(topics.PATIENCE)


def logged_in(guarded: Broker, tmp_path, topic):
    return opened(guarded.address("LOGIN"), tmp_path, {"topic": topic, "sasl": SASL})


def test_the_right_password_opens_and_a_wrong_one_is_told_but_never_shown(guarded, tmp_path, monkeypatch, capfd):
    topic = topics.make(guarded, "secret-topic")
    topics.fill(guarded, topic, ["a", "b"])
    capfd.readouterr()  # what the test's own clients say
    monkeypatch.setenv("KAFKA_USER", "ada")
    monkeypatch.setenv("KAFKA_PASSWORD", "right")
    assert everything(logged_in(guarded, tmp_path / "right", topic)) == [b"a", b"b"]
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    with pytest.raises(MillraceError) as raised:
        everything(logged_in(guarded, tmp_path / "wrong", topic))
    assert not isinstance(raised.value, TransientError)
    said = str(raised.value)
    assert said.startswith(f"Kafka at {guarded.address('LOGIN')} refused the login (")
    assert said.endswith(f"while looking for topic {topic}; check sasl: its mechanism, username and password")
    assert "hunter2" not in said
    assert "ada" not in said
    assert capfd.readouterr().err == ""


def test_a_wrong_password_in_a_task_is_told_too(guarded, tmp_path, monkeypatch):
    topic = topics.make(guarded, "read-by-a-task")
    topics.fill(guarded, topic, ["a", "b"])
    monkeypatch.setenv("KAFKA_USER", "ada")
    monkeypatch.setenv("KAFKA_PASSWORD", "right")
    source = logged_in(guarded, tmp_path, topic)
    start = source.initial()
    (piece,) = source.slices(start, source.latest(start, everything=True), 1)
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    with pytest.raises(MillraceError, match=r"refused the login .* while reading topic read-by-a-task, partition 0"):
        list(source.read(piece, "0-0"))


def test_a_password_that_was_changed_is_taken_over_by_a_restart(guarded, tmp_path, monkeypatch):
    topic = topics.make(guarded, "rotated")
    topics.fill(guarded, topic, ["a", "b"])
    monkeypatch.setenv("KAFKA_USER", "ada")
    monkeypatch.setenv("KAFKA_PASSWORD", "right")
    source = logged_in(guarded, tmp_path, topic)
    start = source.initial()
    assert source.latest(start, everything=False) == {topic: {"0": 2}}
    set_password(guarded, "changed")
    try:
        monkeypatch.setenv("KAFKA_PASSWORD", "changed")
        guarded.restart()  # which lets the client log in again, with the password that it has
        with pytest.raises(TransientError, match="refused the login"):
            source.latest(start, everything=False)
        assert logged_in(guarded, tmp_path, topic).latest(start, everything=False) == {topic: {"0": 2}}
    finally:
        set_password(guarded, "right")


def test_a_mounted_secret_that_is_rotated_is_read_by_the_next_task_over_tls(guarded, authority, tmp_path):
    """Files as the kubelet mounts them: all change at once, by a link that it replaces."""

    def mount(version: str, password: str, ca: str) -> None:
        folder = tmp_path / "secret" / version
        folder.mkdir(parents=True)
        for name, content in (("user", "ada"), ("password", password), ("ca.pem", ca)):
            (folder / name).write_text(content)
        (tmp_path / "secret" / "new").symlink_to(version)
        (tmp_path / "secret" / "new").replace(tmp_path / "secret" / "..data")

    def file(name: str) -> dict[str, str]:
        return {"file": str(tmp_path / "secret" / "..data" / name)}

    topic = topics.make(guarded, "rotated-over-tls")
    topics.fill(guarded, topic, ["a", "b"])
    ca, other = ((authority / name).read_text() for name in ("ca.pem", "other.pem"))
    mount("first", "right", ca)
    sasl = {"mechanism": "SCRAM-SHA-256", "username": file("user"), "password": file("password")}
    kafka = {"topic": topic, "tls": {"ca": file("ca.pem")}, "sasl": sasl}
    source = opened(guarded.address("BOTH"), tmp_path / "state", kafka)
    assert everything(source) == [b"a", b"b"]
    set_password(guarded, "changed")
    mount("second", "changed", other + ca)  # as authorities are replaced: first both, then the new one alone
    try:
        assert everything(source) == [b"a", b"b"]
        mount("third", "hunter2", ca)
        with pytest.raises(MillraceError, match=r"refused the login .* while reading topic rotated-over-tls"):
            everything(source)
    finally:
        set_password(guarded, "right")


def test_tls_trusts_the_authority_that_is_given_and_no_other(guarded, authority, tmp_path, monkeypatch):
    topic = topics.make(guarded, "over-tls")
    topics.fill(guarded, topic, ["a", "b"])
    by_file = {"topic": topic, "tls": {"ca": {"file": str(authority / "ca.pem")}}}
    assert everything(opened(guarded.address("TLS"), tmp_path / "file", by_file)) == [b"a", b"b"]
    monkeypatch.setenv("CA", (authority / "ca.pem").read_text())
    by_environment = {"topic": topic, "tls": {"ca": {"env": "CA"}}}
    assert everything(opened(guarded.address("TLS"), tmp_path / "env", by_environment)) == [b"a", b"b"]
    for tls in ({"ca": {"file": str(authority / "other.pem")}}, {}):
        with pytest.raises(MillraceError) as raised:
            opened(guarded.address("TLS"), tmp_path / "other", {"topic": topic, "tls": tls}).initial()
        assert f"Kafka at {guarded.address('TLS')} cannot be reached over TLS (" in str(raised.value)
        assert "; check tls: the certificate authority, certificate and key" in str(raised.value)
    (tmp_path / "broken.pem").write_text("not a certificate")
    with pytest.raises(MillraceError, match=r"Kafka at .* while creating a client"):
        opened(
            guarded.address("TLS"), tmp_path, {"topic": topic, "tls": {"ca": {"file": str(tmp_path / "broken.pem")}}}
        ).initial()


def test_a_broker_that_nobody_can_reach_is_told_in_a_sentence(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(cluster, "FIRST_PATIENCE", 1.0)
    capfd.readouterr()
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(TransientError) as raised:
        opened(address, tmp_path, {"topic": "trips"}).initial()
    assert str(raised.value) == (
        f"Kafka at {address} cannot be reached (Connection refused) while looking for topic trips; "
        "check bootstrapServers, and whether the brokers run"
    )
    assert capfd.readouterr().err == ""
