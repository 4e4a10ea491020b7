"""The topic that results are written to, and what a local copy of it is a copy of.

It must exist, because sinks create no topics, and suit the results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.kafka.cluster import KafkaCluster, topic_command
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import error_of, patiently

COMPACTED = " --config cleanup.policy=compact"
"""Option of ``kafka-topics --create`` that makes a topic suitable for a table."""

_ANSWER_SECONDS = 10.0

_FORMAT = 1
"""Version of the copies on disk: those of another one are not continued."""


@dataclass(frozen=True)
class TopicSettings:
    """Settings of a topic on the brokers.

    They are the longest message that it accepts, in bytes; whether it is compacted; for how long it keeps messages, in
    milliseconds, None without limit; and whether their size is limited, too.
    """

    max_message_bytes: int
    compacted: bool
    retention: int | None = None
    limited: bool = False


@dataclass(frozen=True)
class TargetTopic:
    """The topic of a sink; ``field`` is the field of the query in which the user named it."""

    name: str
    connection: Connection
    field: str

    def settings(self, *, create_with: str = "") -> TopicSettings | None:
        """Return the topic's settings, or None if this user may write to the topic but not describe its configs.

        ``create_with`` are further options of ``kafka-topics --create`` that make the topic suitable, for the hint.

        Raises MillraceError if the topic does not exist, this user may not see it, or the brokers do not answer.
        """
        KafkaCluster(self.connection).require_topic_to_write(self.name, self.field, create_with=create_with)
        admin = AdminClient(self.connection.settings())
        return patiently(lambda: self._described(admin), f"describing topic {self.name}", self.connection)

    def problem(self, message: str, hint: str) -> MillraceError:
        """Return a MillraceError about this topic."""
        return MillraceError(Problem(message, hint, field=self.field))

    def alter_command(self, setting: str) -> str:
        """Return the command that changes one of the topic's settings."""
        return topic_command(self.connection, "configs", self.name, f"--alter --add-config {setting}")

    def _described(self, admin: AdminClient) -> TopicSettings | None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        try:
            entries = admin.describe_configs([resource], request_timeout=_ANSWER_SECONDS)[resource].result()
        except KafkaException as error:
            if error_of(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return None
            raise
        policies = entries["cleanup.policy"].value.split(",")
        deletes = "delete" in policies
        retention = int(entries["retention.ms"].value) if deletes else -1
        limited = deletes and int(entries["retention.bytes"].value) >= 0
        longest = int(entries["max.message.bytes"].value)
        return TopicSettings(longest, "compact" in policies, None if retention < 0 else retention, limited)


class LastWritten(NamedTuple):
    """The last batch in a topic, and the token that its transaction has noted with it; None before the first batch.

    Each attempt to write a batch has a token of its own, drawn at random, so that a copy of an attempt that was aborted
    is not taken for one of the attempt that was committed.
    """

    batch: int | None = None
    token: int | None = None


@dataclass(frozen=True)
class TableOrigin:
    """The topic of a table as it is at the start of a run, while this driver has no transaction open.

    Attributes:
        identity: JSON text that is equal only for the same topic (by the id that Kafka gave it), with the same
            partitions, which begin where they did; the same writer; and rows that are read in the same way.
        ends: the end of each partition for readers of committed records.
    """

    identity: str
    ends: Mapping[str, int]

    def follows(self, identity: str, ends: Mapping[str, int]) -> bool:
        """Return whether this may be an earlier origin at a later time: the same topic, which lost nothing."""
        return identity == self.identity and all(self.ends.get(name, -1) >= end for name, end in ends.items())


def origin_of(topic: TargetTopic, group: str, reading: object = None) -> TableOrigin:
    """Return the origin of copies that are made now.

    Args:
        topic: the topic of the table.
        group: the group that counts the writer's batches, which names the query and its checkpoint.
        reading: what else decides how a copy is made from messages, as a JSON value.

    Raises MillraceError if the topic does not exist, or Kafka does not answer.
    """
    cluster = KafkaCluster(topic.connection)
    found = cluster.topics([topic.name], None).get(topic.name)
    if found is None:
        raise cluster.no_topic(topic.name)
    beginnings = cluster.beginnings(found.partitions)
    ends = cluster.ends(found.partitions)
    begin = {str(place): beginnings[place] for place in sorted(beginnings)}
    about = {"format": _FORMAT, "topic": found.id, "begin": begin, "group": group, "reading": reading}
    return TableOrigin(json.dumps(about, sort_keys=True), {str(place): end for place, end in ends.items()})
