"""What a driver's local copy of a table is a copy of, and whether it still is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millrace_jobs.kafka.cluster import KafkaCluster
from millrace_jobs.sinks.kafka.topic import TargetTopic

_FORMAT = 1
"""Version of the copies on disk: those of another one are not continued."""


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

    Raises:
        MillraceError: the topic does not exist, or Kafka does not answer.
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
