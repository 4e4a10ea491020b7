"""What a user must be allowed so that results can be written, one right after the other; each refusal says so."""

from __future__ import annotations

import time

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
from lab.kafka import running_broker
from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.kafka import KafkaConnection
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.table import TableSink
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import BatchTransactions

pytestmark = pytest.mark.kafka

NEW = LastBatch(None, None)
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # those who come by the other listeners
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_clerk="open sesame";'
    ),
}


@pytest.fixture
def guarded(broker, tmp_path):
    """A broker that asks for logins and rights; the shared one shows that there can be one."""
    assert broker.bootstrap
    with running_broker(tmp_path, PROPERTIES, {"LOGIN": "SASL_PLAINTEXT"}) as started:
        yield started


def test_each_missing_right_is_told(guarded, monkeypatch):
    monkeypatch.setenv("CLERKS_PASSWORD", "open sesame")
    monkeypatch.setenv("CLERK", "clerk")
    login = {"mechanism": "PLAIN", "username": {"env": "CLERK"}, "password": {"env": "CLERKS_PASSWORD"}}
    spec = KafkaConnection.model_validate({"bootstrapServers": guarded.address("LOGIN"), "sasl": login})
    name = topics.make(guarded, "results")
    target = TargetTopic(name, Connection.of(spec), "spec.sink.table.topic")
    writer = BatchTransactions(target, "trips", "c1")

    def refused(action):
        with pytest.raises(MillraceError) as error:
            action()
        assert not isinstance(error.value, TransientError)
        assert "sesame" not in str(error.value)
        assert "does not let this user do that" in str(error.value)
        return str(error.value)

    assert f"looking for topic {name}" in refused(target.settings)
    allow(guarded, ResourceType.TOPIC, name, AclOperation.DESCRIBE)
    assert target.settings() is None  # to append, it need not see them
    with pytest.raises(MillraceError, match="allow it to describe the topic's configs"):
        TableSink(target, ResultKeys(()), "trips", "c1").prepare(NEW)

    assert f"looking for the last batch of group {writer.id}" in refused(lambda: writer.open(NEW, None))
    allow(guarded, ResourceType.GROUP, writer.id, AclOperation.READ)
    assert f"taking over transactional id {writer.id}" in refused(lambda: writer.open(NEW, None))
    allow(guarded, ResourceType.TRANSACTIONAL_ID, writer.id, AclOperation.WRITE)
    assert f"writing the first transaction to topic {name}" in refused(lambda: writer.open(NEW, None))
    allow(guarded, ResourceType.TOPIC, name, AclOperation.READ)  # Kafka wants it for the group's offset
    writer.open(NEW, None)
    assert f"writing batch 0 to topic {name}" in refused(
        lambda: writer.write(ResultBatch(0, 1, 0), [Outgoing(None, "a")])
    )
    allow(guarded, ResourceType.TOPIC, name, AclOperation.WRITE)
    writer.open(NEW, None)
    writer.write(ResultBatch(0, 1, 0), [Outgoing(None, "b")])
    writer.close()
    assert [message.value for message in topics.committed(guarded, name)] == [b"b"]


def allow(broker, resource, named, operation):
    """Give the clerk a right, and wait until the broker knows."""
    made = topics.admin(broker)
    of = (resource, named, ResourcePatternType.LITERAL, "User:clerk", "*", operation, AclPermissionType.ALLOW)
    made.create_acls([AclBinding(*of)])[AclBinding(*of)].result(30)
    while not made.describe_acls(AclBindingFilter(*of)).result(30):
        time.sleep(0.05)
