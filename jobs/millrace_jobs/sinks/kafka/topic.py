"""The topic that results are written to; it must exist, because sinks create no topics, and suit the results."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.kafka.cluster import KafkaCluster
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import error_of, patiently

_ANSWER_SECONDS = 10.0


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

        Args:
            create_with: further options of ``kafka-topics --create`` that make the topic suitable, for the hint.

        Raises:
            MillraceError: the topic does not exist, this user may not see it, or the brokers do not answer.
        """
        if self.name not in KafkaCluster(self.connection).topics([self.name], None):
            command = self._command("topics", f"--create --partitions 8{create_with}")
            raise self.problem(f"Kafka at {self.connection.servers} has no topic {self.name}", f"create it: {command}")
        admin = AdminClient(self.connection.settings())
        return patiently(lambda: self._described(admin), f"describing topic {self.name}", self.connection)

    def problem(self, message: str, hint: str) -> MillraceError:
        """Return a MillraceError about this topic."""
        return MillraceError(Problem(message, hint, field=self.field))

    def alter_command(self, setting: str) -> str:
        """Return the command that changes one of the topic's settings."""
        return self._command("configs", f"--alter --add-config {setting}")

    def _command(self, tool: str, arguments: str) -> str:
        return f"kafka-{tool} --bootstrap-server {self.connection.servers} --topic {self.name} {arguments}"

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
