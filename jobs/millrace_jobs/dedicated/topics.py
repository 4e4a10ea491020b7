"""The topics of one query's replicas, on the cluster of its source: they are created, and grow, with the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from millrace_jobs.kafka.cluster import KafkaCluster, Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import error_of, patiently
from millrace_jobs.sources.kafka.offsets import Offsets

LARGEST_PACK = 64 << 20
"""Bytes of the largest message that the routed topic takes: a record that is larger than a pack goes alone."""

KEPT_MS = 3_600_000
"""Milliseconds for which packs and manifests are kept. A batch that needs older ones is read from the raw topics."""

_SEGMENT_MS = 600_000
"""Milliseconds after which a file of a topic is closed: only then may the brokers delete it."""

_REQUEST_SECONDS = 10.0
"""Timeout of one request, in seconds."""


class Topics:
    """The names of a query's topics and groups.

    Attributes:
        query: name of the query.
        routed: the topic of packs, whose partition ``w`` has the records of worker ``w``.
        manifests: the topic of manifests, which has one partition, so that manifests are in order.
        control: the compacted topic of instructions and of what replicas exchange.
        driver: the transactional id of the query's driver.
    """

    def __init__(self, namespace: str, query: str) -> None:
        """Name the topics of a query in a namespace, which is ``default`` outside of a cluster."""
        self.query = query
        self._base = base = f"millrace.{namespace}.{query}"  # no namespace has a dot, so no two queries share it
        self.routed, self.manifests, self.control = f"{base}.routed", f"{base}.manifests", f"{base}.control"
        self.driver = f"{base}.driver"

    def group(self, generation: str) -> str:
        """Return the consumer group of a generation of replicas."""
        return f"{self._base}.{generation}"

    def replica(self, index: int) -> str:
        """Return the transactional id of a replica, by which a new process of it fences the one before."""
        return f"{self._base}.{index}"


class TopicAdmin:
    """Administration of a query's topics and groups. Every method raises MillraceError if Kafka fails."""

    def __init__(self, topics: Topics, connection: Connection) -> None:
        self._topics = topics
        self._connection = connection
        self._cluster = KafkaCluster(connection)
        self._admin = AdminClient(connection.settings())

    def prepare(self, workers: int) -> bool:
        """Create what is missing of the topics, and give the routed topic a partition for each worker.

        Returns:
            Whether packs and manifests had their topics: otherwise, what was placed earlier is gone.
        """
        names = self._topics
        known = self._cluster.topics([names.routed, names.manifests, names.control], None)
        kept = {"retention.ms": str(KEPT_MS), "segment.ms": str(_SEGMENT_MS), "max.message.bytes": str(LARGEST_PACK)}
        wanted = [
            NewTopic(names.routed, workers, config=kept),
            NewTopic(names.manifests, 1, config=kept),
            NewTopic(names.control, 1, config={"cleanup.policy": "compact", "segment.ms": str(_SEGMENT_MS)}),
        ]
        for topic in wanted:
            if topic.topic not in known:
                self._require(partial(self._admin.create_topics, [topic]), f"creating topic {topic.topic}")
        if names.routed in known and len(known[names.routed].partitions) < workers:
            grown = NewPartitions(names.routed, workers)
            self._require(lambda: self._admin.create_partitions([grown]), f"adding partitions to topic {names.routed}")
        return {names.routed, names.manifests} <= known.keys()

    def has_manifests(self, begin: int) -> bool:
        """Return whether the topic of manifests still has all from an offset on."""
        manifests = Partition(self._topics.manifests, 0)
        (first,) = self._cluster.beginnings([manifests]).values()
        return first <= begin <= self.end(manifests.topic)

    def routed_id(self) -> str:
        """Return Kafka's id of the routed topic."""
        return self._cluster.topics([self._topics.routed], None)[self._topics.routed].id

    def end(self, topic: str) -> int:
        """Return the offset after the last committed record of a topic's first partition."""
        (end,) = self._cluster.ends([Partition(topic, 0)]).values()
        return end

    def committed(self, generation: str) -> Offsets:
        """Return the offsets up to which a generation of replicas has placed the raw records; empty without a group."""
        group = ConsumerGroupTopicPartitions(self._topics.group(generation))

        def ask() -> Offsets:
            (future,) = self._admin.list_consumer_group_offsets([group], request_timeout=_REQUEST_SECONDS).values()
            places = future.result().topic_partitions or ()
            return {Partition(each.topic, each.partition): each.offset for each in places if each.offset >= 0}

        return patiently(ask, f"asking for the offsets of group {group.group_id}", self._connection)

    def remove_groups(self, *, but: str) -> None:
        """Delete the groups of other generations that have no members; those that have some are left."""
        keep, prefix = self._topics.group(but), self._topics.group("")
        with suppress(KafkaException):  # they expire by themselves
            listed = self._admin.list_consumer_groups(request_timeout=_REQUEST_SECONDS).result()
            old = [group.group_id for group in listed.valid if group.group_id.startswith(prefix)]
            old = [name for name in old if name != keep and re.fullmatch("[0-9a-f]{12}", name.removeprefix(prefix))]
            deleted = self._admin.delete_consumer_groups(old, request_timeout=_REQUEST_SECONDS) if old else {}
            for future in deleted.values():
                with suppress(KafkaException):
                    future.result()

    def _require(self, request: Callable[[], Mapping[str, Future[None]]], doing: str) -> None:
        def attempt() -> None:
            (future,) = request().values()
            try:
                future.result(_REQUEST_SECONDS)
            except KafkaException as error:
                done = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS)  # by an earlier attempt
                if error_of(error).code() not in done:
                    raise

        patiently(attempt, doing, self._connection)
