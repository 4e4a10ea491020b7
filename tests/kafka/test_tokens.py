"""Logins by tokens: a broker that verifies them by the key of who signed them, and lets their subject do what it may."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from lab import topics
from lab.authority import make_authority
from lab.kafka import Broker, running_broker
from lab.ports import free_port
from lab.tokens import ISSUER, TokenServer, running_tokens
from lab.waiting import wait_until
from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.kafka import KafkaConnection
from millrace_jobs.kafka import cluster
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import BatchTransactions

from .sources import everything, opened

pytestmark = pytest.mark.kafka

HANDLERS = "org.apache.kafka.common.security.oauthbearer"
NEW = LastBatch(None, None)


class Guarded(NamedTuple):
    """A broker that asks for tokens of one server, another server with the same key, by TLS, and the key's folder."""

    broker: Broker
    tokens: TokenServer
    over_tls: TokenServer
    ca: Path
    keys: Path

    @property
    def address(self) -> str:
        """The address of the listener that asks for tokens."""
        return self.broker.address("LOGIN")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tokens")
    authority = make_authority(tmp_path_factory.mktemp("tls"))
    with running_tokens(folder) as tokens, running_tokens(folder, certificate=authority / "server.pem") as over_tls:
        properties = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",  # those who come by the other listeners
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.login.oauthbearer.sasl.jaas.config": f"{HANDLERS}.OAuthBearerLoginModule required;",
            "listener.name.login.oauthbearer.sasl.server.callback.handler.class": (
                f"{HANDLERS}.OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.login.oauthbearer.connections.max.reauth.ms": "3600000",
            "sasl.oauthbearer.jwks.endpoint.url": tokens.keys,
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.clock.skew.seconds": "0",
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.keys}"
        with running_broker(
            tmp_path_factory.mktemp("guarded"), properties, {"LOGIN": "SASL_PLAINTEXT"}, java=[allowed]
        ) as broker:
            yield Guarded(broker, tokens, over_tls, authority / "ca.pem", folder)


@pytest.fixture(autouse=True)
def as_it_was(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that give tokens out to one client, whose secret is in the environment."""
    monkeypatch.setenv("CLIENT_SECRET", "right")
    for tokens in (guarded.tokens, guarded.over_tls):
        tokens.clients, tokens.audience, tokens.lifetime, tokens.failure = {"trips": "right"}, "kafka", 3600.0, None
        tokens.asked.clear()


def login(endpoint: str, **oidc: Any) -> dict[str, Any]:
    asked = {"tokenEndpoint": endpoint, "clientId": "trips", "clientSecret": {"env": "CLIENT_SECRET"}}
    return {"mechanism": "OAUTHBEARER", "oidc": asked | oidc}


@pytest.fixture
def topic(guarded: Guarded) -> str:
    """A topic with two records, which the client may read."""
    name = topics.make(guarded.broker, f"topic-{uuid.uuid4().hex[:12]}")
    topics.fill(guarded.broker, name, ["a", "b"])
    allow(guarded.broker, ResourceType.TOPIC, name, AclOperation.READ)
    return name


def refused(action: Callable[[], object], kind: type[MillraceError] = MillraceError) -> str:
    """Return what an error says, which has no secret."""
    with pytest.raises(MillraceError) as raised:
        action()
    assert type(raised.value) is kind, raised.value
    assert "hunter2" not in str(raised.value)
    return str(raised.value)


def test_records_are_read_and_written_by_whom_the_token_names(guarded, topic, tmp_path):
    sasl = login(guarded.tokens.endpoint, scope="read write", extensions={"pool": "a", "tenant": "cabs"})
    assert everything(opened(guarded.address, tmp_path, {"topic": topic, "sasl": sasl})) == [b"a", b"b"]
    assert guarded.tokens.asked[0] == {"grant_type": ["client_credentials"], "scope": ["read write"]}

    results = topics.make(guarded.broker, "results-by-token")
    spec = KafkaConnection.model_validate({"bootstrapServers": guarded.address, "sasl": sasl})
    target = TargetTopic(results, Connection.of(spec), "spec.sink.kafka.topic")
    assert "does not let this user do that" in refused(target.settings)
    for operation in (AclOperation.WRITE, AclOperation.READ):
        allow(guarded.broker, ResourceType.TOPIC, results, operation)
    writer = BatchTransactions(target, "trips", "c1")
    allow(guarded.broker, ResourceType.GROUP, writer.id, AclOperation.READ)
    allow(guarded.broker, ResourceType.TRANSACTIONAL_ID, writer.id, AclOperation.WRITE)
    writer.open(NEW, None)
    writer.write(ResultBatch(0, 1, 0), [Outgoing(None, "c")])
    writer.close()
    assert [message.value for message in topics.committed(guarded.broker, results)] == [b"c"]


def test_a_token_endpoint_with_tls_is_trusted_by_the_authority_that_is_given(guarded, topic, tmp_path, monkeypatch):
    trusted = login(guarded.over_tls.endpoint, ca={"file": str(guarded.ca)})
    assert everything(opened(guarded.address, tmp_path, {"topic": topic, "sasl": trusted})) == [b"a", b"b"]
    other = login(guarded.over_tls.endpoint, ca={"file": str(guarded.ca.with_name("other.pem"))})
    said = refused(opened(guarded.address, tmp_path / "other", {"topic": topic, "sasl": other}).initial)
    assert f"no token for the login to Kafka at {guarded.address} from {guarded.over_tls.endpoint} (SSL cert" in said
    assert said.endswith("check sasl.oidc: its tokenEndpoint, clientId, clientSecret, scope and ca")
    monkeypatch.setenv("SSL_CERT_FILE", str(guarded.ca))  # the system's
    by_system = login(guarded.over_tls.endpoint)
    assert everything(opened(guarded.address, tmp_path / "system", {"topic": topic, "sasl": by_system})) == [b"a", b"b"]


def test_a_wrong_client_secret_is_told_in_the_words_of_the_server(guarded, topic, tmp_path, monkeypatch, capfd):
    capfd.readouterr()
    monkeypatch.setenv("CLIENT_SECRET", "hunter2")
    said = refused(opened(guarded.address, tmp_path, {"topic": topic, "sasl": login(guarded.tokens.endpoint)}).initial)
    assert said == (
        f"no token for the login to Kafka at {guarded.address} from {guarded.tokens.endpoint} "
        f"(invalid_client: unknown client or secret) while looking for topic {topic}; "
        "check sasl.oidc: its tokenEndpoint, clientId, clientSecret, scope and ca"
    )
    assert capfd.readouterr().err == ""


def test_a_token_that_the_broker_does_not_accept_is_a_refused_login(guarded, topic, tmp_path):
    guarded.tokens.audience = "others"
    said = refused(opened(guarded.address, tmp_path, {"topic": topic, "sasl": login(guarded.tokens.endpoint)}).initial)
    assert said == (
        f'Kafka at {guarded.address} refused the login ({{"status":"invalid_token"}}) while looking for topic {topic}; '
        "check which issuer, audience and scope the brokers accept, and what the token's user may do"
    )


@pytest.mark.in_turn
def test_a_token_server_that_is_away_may_come_back(guarded, topic, tmp_path, monkeypatch):
    for patience in ("FIRST_PATIENCE", "PATIENCE"):
        monkeypatch.setattr(cluster, patience, 1.0)
    port = free_port()
    spec = {"topic": topic, "sasl": login(f"http://127.0.0.1:{port}/oauth2/token")}
    said = refused(opened(guarded.address, tmp_path, spec).initial, TransientError)
    assert f"from http://127.0.0.1:{port}/oauth2/token (Failed to connect to 127.0.0.1" in said
    assert said.endswith("check sasl.oidc.tokenEndpoint, and whether it answers")
    with running_tokens(guarded.keys, port) as back:
        back.clients["trips"] = "right"
        assert everything(opened(guarded.address, tmp_path, spec)) == [b"a", b"b"]


@pytest.mark.in_turn
def test_tokens_are_renewed_and_a_new_secret_is_taken_over_by_a_restart(guarded, topic, tmp_path, monkeypatch):
    guarded.tokens.lifetime = 4.0
    spec = {"topic": topic, "sasl": login(guarded.tokens.endpoint)}
    source = opened(guarded.address, tmp_path, spec)
    start = source.initial()

    def renewed() -> bool:
        assert source.latest(start, everything=False) == {topic: {"0": 2}}
        return len(guarded.tokens.asked) >= 3

    wait_until(renewed, "a third token")
    guarded.tokens.clients["trips"] = "changed"
    monkeypatch.setenv("CLIENT_SECRET", "changed")
    monkeypatch.setattr(cluster, "PATIENCE", 1.0)

    def has_ended() -> bool:
        try:
            source.latest(start, everything=False)
        except TransientError:
            return True  # with the refusal, or with silence: librdkafka reports a refusal once, also before it matters
        return False

    wait_until(has_ended, "the last token by the old secret expires")
    assert opened(guarded.address, tmp_path, spec).latest(start, everything=False) == {topic: {"0": 2}}


def allow(broker: Broker, resource: ResourceType, named: str, operation: AclOperation) -> None:
    """Give the client a right, and wait until the broker knows."""
    made = topics.admin(broker)
    of = (resource, named, ResourcePatternType.LITERAL, "User:trips", "*", operation, AclPermissionType.ALLOW)
    made.create_acls([AclBinding(*of)])[AclBinding(*of)].result(30)
    while not made.describe_acls(AclBindingFilter(*of)).result(30):
        time.sleep(0.05)


@pytest.mark.in_turn
def test_an_identity_in_aws_is_no_user_of_a_broker_that_knows_other_tokens(guarded, topic, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    sasl: Mapping[str, Any] = {"mechanism": "OAUTHBEARER", "awsMskIam": {"region": "eu-west-1"}}
    said = refused(opened(guarded.address, tmp_path, {"topic": topic, "sasl": sasl}).initial)
    assert f"Kafka at {guarded.address} refused the login (" in said
