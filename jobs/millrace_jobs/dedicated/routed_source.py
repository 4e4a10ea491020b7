"""The source of a job whose records were placed before the batch: whole manifests of one plan, worker by worker.

Its position is that of the raw topics, up to which all records are in a batch, with an entry ``PLACED`` that names the
manifests of the last batch: generation, version, id of the routed topic, and ``begin`` and ``end``, its offsets in the
topic of manifests. A query can therefore go on with the raw topics, and a batch that was begun can be read from them.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.dedicated.manifest import Manifest, PackRange
from millrace_jobs.dedicated.manifest_reader import ManifestReader, PlacedManifest
from millrace_jobs.dedicated.topics import KEPT_MS, Topics
from millrace_jobs.kafka.cluster import KafkaCluster, Partition
from millrace_jobs.kafka.errors import PATIENCE
from millrace_jobs.partitioners.prompt.partitioner import MOST_SLACK
from millrace_jobs.sources.base import OnArrival, PlacedSlice, Position, Rejected, Slice, Source, ignore_arrivals
from millrace_jobs.sources.kafka.offsets import PLACED, OffsetRange, Offsets, of_position, to_position
from millrace_jobs.sources.kafka.range_reader import RangeReader, offset_of
from millrace_jobs.sources.kafka.source import KafkaSource

SILENCE = 2 * PATIENCE
"""Seconds without a manifest, while raw records wait, after which a run of all that exists gives up."""


@dataclass(frozen=True)
class RoutedSlice(PlacedSlice):
    """The packs of one worker in a batch; ``within`` covers ``packs``, and perhaps packs of other batches."""

    within: OffsetRange | None = None
    packs: tuple[PackRange, ...] = ()


@dataclass(frozen=True)
class Generation:
    """A generation of replicas, as its job reads it: see ``instructions.Work``."""

    name: str
    version: str
    first: int
    interval: float
    routed: str


class RoutedSource(Source):
    """The placed records of a query, which a generation of replicas writes.

    Args:
        raw: the source that the replicas read.
        topics: names of the query's topics.
        generation: the generation to read from now on; None to finish a batch of an earlier one, and begin no other.
    """

    is_placed = True

    def __init__(self, raw: KafkaSource, topics: Topics, generation: Generation | None) -> None:
        self.name = raw.name
        self.schema = raw.schema
        self._raw = raw
        self._topics = topics
        self._generation = generation
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
        if self._generation is None:
            return start
        reader = self._open_reader(self._generation, start)
        last = start.get(PLACED)
        if last is not None and last["generation"] == self._generation.name:
            reader.drop_before(last["end"])
        if everything:
            self._wait_for_all(reader, at, ends)
        else:
            due = int(time.time() // self._generation.interval)
            reader.poll_until_due(due, self._active, (due + MOST_SLACK) * self._generation.interval)
        taken = self._next_batch(reader, most)
        if not taken:
            return start
        self._active = frozenset(each.manifest.replica for each in taken if each.manifest.read)
        for each in taken:
            at |= each.manifest.raw
        begin, end = taken[0].offset, taken[-1].offset + 1
        self._taken = {(begin, end): [each.manifest for each in taken]}  # until the next batch
        self._placed_under = {end: taken[-1].manifest.pin.to_json()}
        by = self._generation
        entry = {
            "generation": by.name,
            "version": by.version,
            "routed": by.routed,
            "begin": begin,
            "end": end,
        }
        return {**to_position(at), PLACED: entry}

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

    def _open_reader(self, generation: Generation, start: Position) -> ManifestReader:
        """Return the reader of manifests, which begins after those of the last batch."""
        if self._reader is None:
            last = start.get(PLACED)
            own = last is not None and last["generation"] == generation.name
            begin = last["end"] if last is not None and own else generation.first
            self._reader = ManifestReader(self._topics.manifests, self._raw.connection, generation.name, begin)
        return self._reader

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
        now = self._generation
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
        assert self._generation is not None
        written = min(manifest.heartbeat for manifest in manifests) * self._generation.interval
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
