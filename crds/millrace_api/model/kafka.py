"""Kafka: how to reach a cluster, and what a source reads from it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model import topic_patterns
from millrace_api.model.base import Authored, Model, Rule, at_most_one, exactly_one
from millrace_api.model.changes import FREE, RECORDS, START
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.kafka_login import Sasl
from millrace_api.model.kafka_options import ClientOptions
from millrace_api.model.secrets import Tls
from millrace_api.model.values import ByteSize, ConnectionName, Flag, Text, Timestamp, Topic, WholeNumber


class KafkaConnection(Model):
    """Connection to a Kafka cluster; common to Kafka sources, Kafka sinks, tables and the Connections they refer to."""

    bootstrap_servers: Annotated[Text, External(ExternalKind.BROKERS, port=9092), FREE] = Field(
        description="Brokers to start from, host:port, separated by commas.",
        examples=["kafka:9092"],
        json_schema_extra=Authored.OPTIONAL.keywords,
    )
    tls: Annotated[Tls | None, FREE] = Field(
        default=None, description="Use TLS.", json_schema_extra=Authored.NOTHING.keywords
    )
    sasl: Annotated[Sasl | None, FREE] = Field(
        default=None, description="Log in with SASL.", json_schema_extra=Authored.NOTHING.keywords
    )
    options: Annotated[ClientOptions, External(ExternalKind.CLIENT_OPTIONS), FREE] = Field(
        default={},
        description="Options of the Kafka client (librdkafka) by its names, such as client.rack; docs/kafka.md lists "
        "those that may be set.",
        examples=["{client.rack: eu-west-1a}"],
        json_schema_extra=Authored.NOTHING.keywords,
    )

    def is_cluster_of(self, other: KafkaConnection) -> bool:
        """Return whether both name the same cluster: they have an address in common."""
        return not self.addresses.isdisjoint(other.addresses)

    @property
    def addresses(self) -> frozenset[str]:
        """The brokers to start from, in lower case."""
        addresses = (address.strip().lower() for address in self.bootstrap_servers.split(","))
        return frozenset(filter(None, addresses))  # nothing stands after a comma at the end


REFERENCE_RULES = (
    Rule(
        "the address of the brokers is missing",
        "write connection: NAME, or bootstrapServers: kafka:9092 for brokers without a login",
        (),
        "has(self.bootstrapServers) || has(self.connection)",
        None,
    ),
    Rule(
        "a connection has its own bootstrapServers",
        "leave them out beside connection",
        (),
        "!has(self.connection) || !has(self.bootstrapServers)",
        None,
    ),
)
"""What is true of each place that names a Kafka cluster."""


class KafkaReference(KafkaConnection):
    """A Kafka cluster that a query uses: brokers without a login, or the name of a Connection.

    Once the reference is resolved, all fields of the connection are here, beside its name.
    """

    connection: Annotated[ConnectionName | None, External(ExternalKind.CONNECTIONS), FREE] = Field(
        default=None,
        description="Connection in the query's namespace that has the brokers and the login to them.",
        examples=["trips"],
    )


class KafkaOffsets(StrEnum):
    """A position in every Kafka partition."""

    EARLIEST = "Earliest"
    LATEST = "Latest"


class EndingOffsets(StrEnum):
    """A position in every Kafka partition at which a query stops: at the earliest one it would read nothing."""

    LATEST = "Latest"


class TopicPartition(Model):
    """One partition of a topic, optionally with a range of offsets."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "startingOffset <= endingOffset does not hold",
            "write values in that order",
            ("starting_offset", "ending_offset"),
            "!has(self.startingOffset) || !has(self.endingOffset) || self.startingOffset <= self.endingOffset",
            lambda p: p.ending_offset is None or (p.starting_offset or 0) <= p.ending_offset,
        ),
    )

    topic: Topic = Field(description="Topic.", examples=["trips"])
    partition: WholeNumber = Field(description="Number of the partition.", examples=[0])
    starting_offset: WholeNumber | None = Field(default=None, description="First offset to read.")
    ending_offset: WholeNumber | None = Field(default=None, description="Offset to stop before.")


class KafkaSourceSpec(KafkaReference):
    """Kafka topics."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *REFERENCE_RULES,
        exactly_one("topic", "topics", "topic_pattern", "partitions", hint="write one, such as topic: trips"),
        at_most_one("starting_offsets", "starting_timestamp", hint="keep the one to start from"),
        at_most_one("ending_offsets", "ending_timestamp", hint="keep the one to stop at"),
        Rule(
            "topicPattern is not a regular expression",
            "write one that matches whole names, such as trips-.*",
            ("topic_pattern",),
            None,
            lambda kafka: topic_patterns.is_pattern(kafka.topic_pattern or ""),
        ),
        Rule(
            "a partition is listed more than once",
            "name each partition once",
            ("partitions",),
            None,
            lambda kafka: _are_distinct([(each.topic, each.partition) for each in kafka.partitions or ()]),
        ),
    )

    topic: Annotated[Topic | None, RECORDS] = Field(default=None, description="One topic.")
    topics: Annotated[tuple[Topic, ...] | None, RECORDS] = Field(
        default=None, min_length=1, max_length=64, description="Several topics."
    )
    topic_pattern: Annotated[Text | None, RECORDS] = Field(
        default=None, description="Regular expression of topic names; topics created later are read too."
    )
    partitions: Annotated[tuple[TopicPartition, ...] | None, RECORDS] = Field(
        default=None, min_length=1, max_length=256, description="Exactly these partitions."
    )
    starting_offsets: Annotated[KafkaOffsets | None, START] = Field(
        default=None, description="Where a new query starts: Earliest (default) or Latest."
    )
    starting_timestamp: Annotated[Timestamp | None, START] = Field(
        default=None, description="Start at the first record at or after this time."
    )
    ending_offsets: Annotated[EndingOffsets | None, START] = Field(
        default=None, description="Latest: stop at the offsets that were the latest at the start."
    )
    ending_timestamp: Annotated[Timestamp | None, START] = Field(
        default=None, description="Stop before the first record at or after this time."
    )
    include_metadata: Annotated[Flag, FREE] = Field(
        default=False, description="Add columns _key, _headers, _topic, _partition, _offset and _timestamp."
    )
    max_records_per_batch: Annotated[WholeNumber | None, FREE] = Field(
        default=None,
        ge=1,
        description="Maximum number of records per batch; default: what the measured capacity allows.",
    )
    max_bytes_per_batch: Annotated[ByteSize | None, FREE] = Field(
        default=None, description="Maximum number of bytes per batch."
    )

    @property
    def named_topics(self) -> frozenset[str]:
        """The topics that it names; none with a pattern."""
        named = (self.topic, *(self.topics or ()), *(each.topic for each in self.partitions or ()))
        return frozenset(topic for topic in named if topic is not None)

    def reads(self, topic: str) -> bool:
        """Return whether the source reads a topic of this name."""
        matches = self.topic_pattern is not None and topic_patterns.matches(self.topic_pattern, topic)
        return matches or topic in self.named_topics


def _are_distinct(values: list[tuple[str, int]]) -> bool:
    return len(set(values)) == len(values)
