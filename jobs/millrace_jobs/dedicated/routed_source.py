"""The source of a job whose records were placed before the batch: whole manifests of one plan, worker by worker.

Its position is that of the raw topics, up to which all records are in a batch, with an entry ``PLACED`` that names the
manifests of the last batch: generation, version, id of the routed topic, and ``begin`` and ``end``, its offsets in the
topic of manifests. A query can therefore go on with the raw topics, and a batch that was begun can be read from them.

``pipeline.reader`` asks for its batches, and combines the packs in its tasks.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.dedicated.instructions import Work
from millrace_jobs.dedicated.manifest import Manifest, PackRange
from millrace_jobs.dedicated.topic_reader import TopicReader
from millrace_jobs.dedicated.topics import KEPT_MS, Topics
from millrace_jobs.kafka.cluster import KafkaCluster, Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import PATIENCE
from millrace_jobs.partitioners.prompt.partitioner import MOST_SLACK
from millrace_jobs.sources.base import OnArrival, PlacedSlice, Position, Rejected, Slice, Source, ignore_arrivals
from millrace_jobs.sources.kafka.offsets import PLACED, OffsetRange, Offsets, of_position, to_position
from millrace_jobs.sources.kafka.range_reader import RangeReader, offset_of
from millrace_jobs.sources.kafka.source import KafkaSource

SILENCE = 2 * PATIENCE
"""Seconds without a manifest, while raw records wait, after which a run of all that exists gives up."""

_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

_WAIT_SECONDS = 0.005
"""Seconds for which one call for manifests waits."""


@dataclass(frozen=True)
class RoutedSlice(PlacedSlice):
    """The packs of one worker in a batch; ``within`` covers ``packs``, and perhaps packs of other batches."""

    within: OffsetRange | None = None
    packs: tuple[PackRange, ...] = ()


class PlacedManifest(NamedTuple):
    """A manifest with its offset in the topic of manifests."""

    offset: int
    manifest: Manifest


class ManifestReader(TopicReader):
    """Reads the manifests of one generation from an offset on; those of others are passed over.

    Methods raise MillraceError if Kafka fails permanently, or for longer than ``PATIENCE``.
    """

    def __init__(self, topic: str, connection: Connection, generation: str, begin: int) -> None:
        super().__init__(topic, connection, begin, "error")  # manifests that are gone must never be skipped silently
        self._generation = generation
        self._newest: dict[int, int] = {}  # the last heartbeat, by replica
        self.waiting: deque[PlacedManifest] = deque()
        """Manifests that are in no batch before the next one, in order."""

    def poll(self, seconds: float = 0.0) -> None:
        """Take in what has come; wait for the first if there is nothing."""
        for message in self.take(seconds):
            manifest = Manifest.of(message.value() or b"")
            if manifest.generation == self._generation:
                self._newest[manifest.replica] = manifest.heartbeat
                self.waiting.append(PlacedManifest(message.offset() or 0, manifest))

    def drop_before(self, offset: int) -> None:
        """Forget the manifests before this offset, which are in a batch that was begun."""
        while self.waiting and self.waiting[0].offset < offset:
            self.waiting.popleft()

    def poll_until_due(self, batch: int, replicas: Collection[int], until: float) -> None:
        """Take in what has come, and wait for the manifests of an interval.

        Args:
            batch: number of the interval.
            replicas: those to wait for.
            until: the time, in seconds since 1970, from which on not to wait.
        """
        self.poll()
        while time.time() < until and any(self._newest.get(replica, 0) < batch for replica in replicas):
            self.poll(_WAIT_SECONDS)

    def _meet(self, error: KafkaError) -> None:
        if error.code() in _GONE:
            message = f"topic {self._topic} no longer has manifests that no batch has read"
            raise TransientError(Problem(message, "their records are placed again from the source's topics"))
        super()._meet(error)


class RoutedSource(Source):
    """The placed records of a query, which a generation of replicas writes.

    Args:
        raw: the source that the replicas read.
        topics: names of the query's topics.
        work: what the replicas do from now on; None to finish a batch of an earlier generation, and begin no other.
    """

    is_placed = True

    def __init__(self, raw: KafkaSource, topics: Topics, work: Work | None) -> None:
        self.name = raw.name
        self.schema = raw.schema
        self._raw = raw
        self._topics = topics
        self._work = work
        self._reader: ManifestReader | None = None
        self._active: frozenset[int] = frozenset()
        self._taken: dict[tuple[int, int], list[Manifest]] = {}
        self._placed_under: dict[int, Mapping[str, Any]] = {}

    @cached_property
    def _cluster(self) -> KafkaCluster:
        return KafkaCluster(self._raw.connection, answered=True)

    def initial(self) -> Position:
        """Return where a new query starts in the raw topics."""
        return self._raw.initial()

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return the position after the manifests of the next batch, which were all placed under one plan.

        A batch has all manifests that have come, as far as limits and a change of plan let it. Shortly after the end of
        an interval, those of the interval are waited for. With ``everything``, wait until all that existed is placed.

        Raises:
            MillraceError: a replica cannot go on, raw records are gone, or Kafka fails.
        """
        at = of_position(start)
        ends = self._raw.ends(at, everything=everything)
        if self._work is None:
            return start
        work, last = self._work, start.get(PLACED)
        begin = last["end"] if last is not None and last["generation"] == work.generation else work.first
        if self._reader is None:
            self._reader = ManifestReader(self._topics.manifests, self._raw.connection, work.generation, begin)
        reader = self._reader
        reader.drop_before(begin)
        if everything:
            self._wait_for_all(reader, at, ends)
        else:
            due = int(time.time() // work.interval)
            reader.poll_until_due(due, self._active, (due + MOST_SLACK) * work.interval)
        taken = self._next_batch(reader, most)
        if not taken:
            return start
        self._active = frozenset(each.manifest.replica for each in taken if each.manifest.read)
        for each in taken:
            at |= each.manifest.raw
        begin, end = taken[0].offset, taken[-1].offset + 1
        self._taken = {(begin, end): [each.manifest for each in taken]}  # until the next batch
        self._placed_under = {end: taken[-1].manifest.pin.to_json()}
        entry = {"generation": work.generation, "version": work.version, "routed": work.routed}
        return {**to_position(at), PLACED: {**entry, "begin": begin, "end": end}}

    def placed_under(self, end: Position) -> Mapping[str, Any] | None:
        """Return the pin of the manifests of the batch that ``latest`` has just returned."""
        return self._placed_under.get(end[PLACED]["end"]) if PLACED in end else None

    def exhausted(self, position: Position) -> bool:
        """Return whether the query has reached the offsets at which it stops."""
        return self._raw.exhausted(position)

    def lag(self, position: Position) -> int:
        """Return the number of raw offsets beyond ``position``, placed or not, as of the last call of ``latest``."""
        return self._raw.lag(position)

    def longest_lags(self, position: Position) -> Mapping[str, int]:
        """Return the longest backlogs of partitions of the raw topics, as of the last call of ``latest``."""
        return self._raw.longest_lags(position)

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Return a slice for each worker that has packs in the batch, or slices of the raw topics if they are gone.

        Packs are also left where they are if the query has changed since they were written, so that they have other
        columns, or lack records that it no longer drops.
        """
        entry = end.get(PLACED)
        manifests = None if entry is None or entry == start.get(PLACED) else self._manifests_of(entry)
        if manifests is None:
            return self._raw.slices(start, end, replicas)
        slices = list(self._by_worker(manifests))
        notes = tuple(_note(manifest) for manifest in manifests)
        first, *others = slices or [RoutedSlice(0)]
        return [RoutedSlice(first.worker, notes, first.within, first.packs), *others]

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records of a slice of the raw topics."""
        return self._raw.read(piece, label, on_arrival)

    def placed_blocks(self, piece: PlacedSlice) -> Iterator[bytes]:
        """Yield the packs of one worker."""
        assert isinstance(piece, RoutedSlice)
        if piece.within is None:
            return
        begins = [pack.begin for pack in piece.packs]
        with RangeReader(self.name, self._raw.connection, [piece.within]) as reader:
            for block in reader.blocks():
                for message in block:
                    place = bisect_right(begins, offset_of(message)) - 1
                    if place >= 0 and offset_of(message) < piece.packs[place].end:
                        yield message.value() or b""

    def _wait_for_all(self, reader: ManifestReader, at: Offsets, ends: Offsets) -> None:
        """Wait until there is a manifest, or the position has reached the ends. Raises TransientError after SILENCE."""
        until = time.monotonic() + SILENCE
        reader.poll()
        while not reader.waiting and any(self._raw.begin(partition, at) < end for partition, end in ends.items()):
            reader.poll(0.1)
            if time.monotonic() > until:
                message = f"source {self.name}: no replica of the partitioner has placed a record for {SILENCE:.0f} s"
                raise TransientError(Problem(message, "see what the replicas report"))

    def _next_batch(self, reader: ManifestReader, most: int | None) -> list[PlacedManifest]:
        """Return the manifests of the next batch: of one plan, and at least one, whatever the limit."""
        taken: list[PlacedManifest] = []
        records = size = 0
        most_records = min((limit for limit in (most, self._raw.max_records) if limit is not None), default=None)
        for placed in reader.waiting:
            manifest = placed.manifest
            records, size = records + manifest.read, size + manifest.size
            if manifest.failure is not None and not taken:
                raise MillraceError(Problem(*manifest.failure))
            if taken and (manifest.failure is not None or manifest.pin != taken[0].manifest.pin):
                break
            if taken and most_records is not None and records > most_records:
                break
            if taken and self._raw.max_bytes is not None and size > self._raw.max_bytes:
                break
            if not manifest.raw.keys() <= self._raw.first.keys():
                break  # the replica has found a partition before this process did
            taken.append(placed)
        return taken

    def _manifests_of(self, entry: Mapping[str, Any]) -> list[Manifest] | None:
        """Return the manifests of a batch; None if it has to be read from the raw topics."""
        now = self._work
        if now is not None and (entry["version"], entry["routed"]) != (now.version, now.routed):
            return None
        known = self._taken.get((entry["begin"], entry["end"]))
        if known is not None and not self._are_old(known):
            return known
        stored = OffsetRange(Partition(self._topics.manifests, 0), entry["begin"], entry["end"])
        if not self._are_there([stored]):
            return None
        with RangeReader(self.name, self._raw.connection, [stored]) as reader:
            messages = [message for block in reader.blocks() for message in block]
        found = [PlacedManifest(offset_of(message), Manifest.of(message.value() or b"")) for message in messages]
        own = [each for each in found if each.manifest.generation == entry["generation"]]
        if not own or (own[0].offset, own[-1].offset + 1) != (entry["begin"], entry["end"]):
            return None  # the topic was made again
        manifests = [each.manifest for each in own]
        packs = [piece.within for piece in self._by_worker(manifests) if piece.within is not None]
        return manifests if self._are_there(packs) else None

    def _are_old(self, manifests: Sequence[Manifest]) -> bool:
        """Whether packs of these manifests may have been deleted from their topic."""
        assert self._work is not None
        written = min(manifest.heartbeat for manifest in manifests) * self._work.interval
        return time.time() - written > KEPT_MS / 2000

    def _are_there(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether the topics still have all of these offsets."""
        topics = {each.partition.topic for each in ranges}
        found = self._cluster.topics(sorted(topics), None)
        partitions = {each.partition for each in ranges}
        if not partitions <= {partition for topic in found.values() for partition in topic.partitions}:
            return False
        beginnings, ends = self._cluster.beginnings(partitions), self._cluster.ends(partitions)
        return all(beginnings[each.partition] <= each.begin and each.end <= ends[each.partition] for each in ranges)

    def _by_worker(self, manifests: Iterable[Manifest]) -> Iterator[RoutedSlice]:
        """Yield the slices of the workers that have packs, without notes."""
        packs: dict[int, list[PackRange]] = defaultdict(list)
        for manifest in manifests:
            for worker, ranges in manifest.packs.items():
                packs[worker] += ranges
        for worker in sorted(packs):
            ranges = sorted(packs[worker])
            within = OffsetRange(Partition(self._topics.routed, worker), ranges[0].begin, ranges[-1].end)
            yield RoutedSlice(worker, (), within, tuple(ranges))


def _note(manifest: Manifest) -> dict[str, Any]:
    """Return what a replica's note to the driver has; its seconds are none of the batch's."""
    note = {
        "replica": manifest.replica,
        "read": manifest.read,
        "bytes": manifest.size,
        "routed": manifest.routed,
        "rejected": manifest.rejected,
        "incomplete": manifest.incomplete,
        "epoch": manifest.pin.epoch,
        **manifest.arrivals,
    }
    return note if manifest.latest is None else note | {"latest": manifest.latest}
