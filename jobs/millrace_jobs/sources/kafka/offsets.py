"""Offsets of many partitions: as a position, as ranges cut into slices, and where a source starts and ends now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from millrace_api.errors import MillraceError, MissingInputError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.kafka.cluster import KafkaCluster, Partition, Topic
from millrace_jobs.kafka.errors import LONGEST_PAUSE
from millrace_jobs.places import Place
from millrace_jobs.sources.base import Position, cut
from millrace_jobs.sources.stored_files import StateFile

Offsets = dict[Partition, int]
"""The next offset to read, by partition."""

PLACED = "/placed"
"""Entry of a position beside its topics: where the placed records of its last batch are (``millrace_jobs.dedicated``).

No topic can have this name. Whoever reads the topics themselves ignores it.
"""

RESTART_HINT = (
    f"start with {ANOTHER_CHECKPOINT}, and set startingOffsets or startingTimestamp to where it is to continue; "
    "set the topic's retention to longer than a query may be down"
)
"""The hint for the user if records that a query still has to read are gone."""

Moment = Literal["earliest", "latest"] | int
"""A place in every partition: its beginning, its end, or its first record at or after a time in ms since 1970."""

RECHECK_SECONDS = 20.0
"""Seconds for which an implausible answer of a cluster, whose brokers may be restarting, is checked again."""


def to_position(offsets: Mapping[Partition, int]) -> Position:
    """Return ``{topic: {partition: offset}}`` in sorted order; partitions are text, as JSON keys must be."""
    position: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        position.setdefault(partition.topic, {})[str(partition.number)] = offsets[partition]
    return position


def of_position(position: Position) -> Offsets:
    """Return the offsets in a position."""
    return {
        Partition(topic, int(number)): int(offset)
        for topic, partitions in position.items()
        if topic != PLACED
        for number, offset in partitions.items()
    }


@dataclass(frozen=True)
class OffsetRange:
    """The offsets ``[begin, end)`` of a partition; some may hold no record (transaction markers, compaction)."""

    partition: Partition
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class KafkaSlice:
    """Offset ranges that one replica reads one after another."""

    ranges: tuple[OffsetRange, ...]


def cut_ranges(ranges: Sequence[OffsetRange], slices: int) -> list[KafkaSlice]:
    """Cut ranges laid end to end into at most ``slices`` non-empty parts that differ by at most one offset."""
    return [
        KafkaSlice(
            tuple(
                OffsetRange(ranges[i].partition, ranges[i].begin + low, ranges[i].begin + high) for i, low, high in part
            )
        )
        for part in cut(list(map(len, ranges)), slices)
    ]


@dataclass(frozen=True)
class ChosenPartition:
    """A partition that the query names, with its own first offset and end offset if the query sets them."""

    partition: Partition
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Subscription:
    """What a source reads: topics by name or by pattern, or single partitions; and where it starts and ends."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    chosen: tuple[ChosenPartition, ...] = ()
    starting: Moment = "earliest"
    ending: Moment | None = None

    @property
    def names(self) -> list[str] | None:
        """The names of the topics; None for a pattern."""
        if self.pattern is not None:
            return None
        return list(dict.fromkeys(self.topics or (each.partition.topic for each in self.chosen)))

    @property
    def bounded(self) -> bool:
        """Whether the subscription ever ends."""
        return self.ending is not None or self.ends_by_choice

    @property
    def ends_by_choice(self) -> bool:
        """Whether every partition has its own end offset."""
        return bool(self.chosen) and all(each.end is not None for each in self.chosen)

    @property
    def own_ends(self) -> Offsets:
        """The end offsets of the partitions that have their own."""
        return {each.partition: each.end for each in self.chosen if each.end is not None}


@dataclass(frozen=True)
class KafkaState:
    """The decisions made when a query began, or when a partition was first found.

    ``topics`` maps topic names to Kafka's topic ids. ``first`` is the offset at which each partition begins for this
    query. ``ending`` is the offset at which it stops, or None if that is not known yet or the query is unbounded.
    """

    topics: Mapping[str, str]
    first: Offsets
    ending: Offsets | None = None


class KafkaStateFile:
    """What a Kafka source stores in the checkpoint besides its position, as ``kafka.json``."""

    def __init__(self, place: Place) -> None:
        self._file = StateFile(place / "kafka.json", "the state of the Kafka source", "the state of the Kafka source")

    def read(self) -> KafkaState | None:
        """Return what was written last; None in a new checkpoint. Raises MillraceError if the file is damaged."""

        def state(content: Any) -> KafkaState:
            ending = None if content["ending"] is None else of_position(content["ending"])
            return KafkaState(content["topics"], of_position(content["first"]), ending)

        return self._file.read(state)

    def write(self, state: KafkaState) -> None:
        """Replace what was written. Raises MillraceError if that fails; the old content remains then."""
        ending = None if state.ending is None else to_position(state.ending)
        self._file.write({"topics": dict(state.topics), "first": to_position(state.first), "ending": ending})


class _ImplausibleError(MillraceError):
    """An error that counts only if it persists."""


class AvailableOffsets:
    """The start and end offsets of one source's partitions, on the driver. Every method raises MillraceError."""

    def __init__(
        self,
        source: str,
        subscription: Subscription,
        cluster: KafkaCluster,
        state_file: KafkaStateFile,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._subscription = subscription
        self._cluster = cluster
        self._state_file = state_file
        self._clock = clock
        self._state = state_file.read()

    @property
    def first(self) -> Offsets:
        """The offset at which each partition begins for this query; once set, it never changes."""
        return self._known_state.first

    @property
    def ending(self) -> Offsets | None:
        """The offset at which each partition stops; None if there is no end, or if it is not known yet."""
        return self._known_state.ending

    def check(self) -> None:
        """Check that topics and partitions exist, if no run has read them yet; of one that has, ``ends`` knows more."""
        if self._state is None:
            self._partitions(self._found())

    def settle(self) -> None:
        """Determine where to start, and where to stop if that can be known now; do nothing if this was done before."""
        if self._state is not None:
            return
        found = self._found()
        partitions = self._partitions(found)
        beginnings, ends = self._cluster.beginnings(partitions), self._cluster.ends(partitions)
        first = self._starts(partitions, beginnings, ends)
        ending = None
        if self._subscription.ending == "latest" or self._subscription.ends_by_choice:
            ending = ends | self._subscription.own_ends
        self._store(KafkaState({name: topic.id for name, topic in found.items()}, first, ending))

    def ends(self, start: Offsets) -> Offsets:
        """Return the offset up to which each partition can be read now, given that it was read up to ``start``."""
        deadline = time.monotonic() + RECHECK_SECONDS
        while True:
            try:
                return self._ends(start)
            except _ImplausibleError as error:
                if time.monotonic() > deadline:
                    raise MillraceError(*error.problems) from None
            time.sleep(LONGEST_PAUSE)

    def _ends(self, start: Offsets) -> Offsets:
        found = self._found()
        self._check_topics(found)
        ending = self._known_state.ending
        partitions = self._partitions(found) if ending is None else sorted(ending)
        beginnings, ends = self._cluster.beginnings(partitions), self._cluster.ends(partitions)
        if new := {partition: beginnings[partition] for partition in partitions if partition not in self.first}:
            # New partitions start at their beginning; this is stored before any of their records are read.
            topics = {**self._known_state.topics, **{name: topic.id for name, topic in found.items()}}
            self._store(replace(self._known_state, topics=topics, first=self.first | new))
        for partition in partitions:
            at = start.get(partition, self.first[partition])
            self._check(partition, at, beginnings[partition], ends[partition])
        return self._stopping(ends)

    def _check_topics(self, found: Mapping[str, Topic]) -> None:
        """Raise unless the topics that the query began with still exist and were not recreated."""
        for name, id in self._known_state.topics.items():
            if name not in found:
                said = f"source {self._source}: topic {name}, which this query has been reading, is gone"
                raise _ImplausibleError(Problem(said, RESTART_HINT))
            if found[name].id != id:
                said = f"source {self._source}: topic {name} was deleted and created again since this query began"
                raise MillraceError(Problem(f"{said}, so that its offsets mean other records", RESTART_HINT))

    def _found(self) -> dict[str, Topic]:
        found = self._cluster.topics(self._subscription.names, self._subscription.pattern)
        known = self._state.topics if self._state is not None else {}
        for name in self._subscription.names or ():
            if name not in found and name not in known:
                raise MissingInputError(*self._cluster.no_topic(name).problems)
        return found

    def _partitions(self, found: Mapping[str, Topic]) -> list[Partition]:
        existing = sorted(partition for topic in found.values() for partition in topic.partitions)
        if not self._subscription.chosen:
            return existing
        wanted = sorted(each.partition for each in self._subscription.chosen)
        for topic, number in (partition for partition in wanted if partition not in existing):
            last = len(found[topic].partitions) - 1
            hint = f"write one of 0 to {last}"
            raise MillraceError(Problem(f"source {self._source}: topic {topic} has no partition {number}", hint))
        return wanted

    def _starts(self, partitions: Sequence[Partition], beginnings: Offsets, ends: Offsets) -> Offsets:
        starting = self._subscription.starting
        starts = beginnings if starting == "earliest" else ends
        if isinstance(starting, int):
            found = self._cluster.at(starting, partitions)
            starts = {partition: ends[partition] if at is None else at for partition, at in found.items()}
        own = {each.partition: each.begin for each in self._subscription.chosen if each.begin is not None}
        for partition, begin in own.items():
            if not beginnings[partition] <= begin <= ends[partition]:
                there = f"which has offsets {beginnings[partition]} to {ends[partition]}"
                said = f"startingOffset {begin} is outside of topic {partition.topic}, partition {partition.number}"
                hint = "write one of these, or leave it out"
                raise MillraceError(Problem(f"source {self._source}: {said}, {there}", hint))
        return starts | own

    def _check(self, partition: Partition, at: int, beginning: int, end: int) -> None:
        where = f"source {self._source}: topic {partition.topic}, partition {partition.number}"
        if at < beginning and at < end:
            said = f"{where}: the records from offset {at} on are gone, the first one left is at {beginning}"
            raise MillraceError(Problem(said, RESTART_HINT))
        if at > end:
            said = f"{where} ends at offset {end} now, though it was read up to {at}: records were lost or replaced"
            raise _ImplausibleError(Problem(said, RESTART_HINT))

    def _stopping(self, ends: Offsets) -> Offsets:
        """Return ``ends``, capped where the query stops; an end time is fixed to offsets once it has passed."""
        ending = self._known_state.ending
        if ending is None:
            stops = dict(self._subscription.own_ends)
            if isinstance(self._subscription.ending, int):
                found = self._cluster.at(self._subscription.ending, ends)
                for partition, offset in found.items():
                    if offset is not None:
                        stops[partition] = min(offset, stops.get(partition, offset))
            stopped = {partition: min(end, stops.get(partition, end)) for partition, end in ends.items()}
            if isinstance(self._subscription.ending, int) and self._clock() * 1000 >= self._subscription.ending:
                self._store(replace(self._known_state, ending=stopped))
            return stopped
        return {partition: min(ends[partition], end) for partition, end in ending.items()}

    @property
    def _known_state(self) -> KafkaState:
        if self._state is None:
            hint = "restore the checkpoint, or start with a new one"
            message = f"source {self._source}: the checkpoint lacks the state of the Kafka source"
            raise MillraceError(Problem(message, hint))
        return self._state

    def _store(self, state: KafkaState) -> None:
        self._state_file.write(state)
        self._state = state
