"""The driver's side of the replicas: it begins their generations, and instructs them.

The replicas read its instructions from ``control_topic``; the job reads what they place by ``routed_source``.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from dataclasses import replace

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.dedicated.control_topic import ControlReader, ControlWriter, taken_over
from millrace_jobs.dedicated.instructions import DRIVER, PLAN, WORK, Instructions, Work, version_of
from millrace_jobs.dedicated.routed_source import RoutedSource
from millrace_jobs.dedicated.topics import TopicAdmin, Topics
from millrace_jobs.kafka.errors import PATIENCE
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.sources.base import Position
from millrace_jobs.sources.kafka.offsets import PLACED, of_position
from millrace_jobs.sources.kafka.source import KafkaSource

_LESS = 0.8
"""A limit of records is published again when it has changed by more than this factor."""


class Coordinator:
    """The driver of one query's replicas.

    Args:
        query: the query.
        compiled: the compiled query, whose ``dedicated_problem`` is none.
        source: the source that it reads.
        driver: id of the driver.

    Raises:
        MillraceError: every method raises it if Kafka fails, or another driver has taken over the query's topics.
    """

    def __init__(self, query: StreamQuery, compiled: Routed, source: KafkaSource, driver: str) -> None:
        self.topics = topics_of(query)
        self._definition = query.spec.sources[source.name]
        self._interval = query.spec.batch_interval.seconds
        self._compiled = compiled
        self._source = source
        self._admin = TopicAdmin(self.topics, source.connection)
        self._driver = driver
        self._writer: ControlWriter | None = None
        self._control: ControlReader | None = None
        self._workers = 0
        self._work: Work | None = None  # what the control topic has
        self._generation: str | None = None  # the one that is instructed
        self._written: Instructions | None = None

    def begin(self, position: Position | None, pin: Pin) -> RoutedSource:
        """Return the source of placed records after ``position``; None is the beginning.

        The replicas' generation goes on if it has placed all up to there and means the same query; else another one
        begins at the position, and what the last one has placed beyond it is placed again, also if it is gone.
        """
        is_kept = self._admin.prepare(pin.workers)
        self._workers = pin.workers
        if self._writer is None:
            self._writer = ControlWriter(self.topics, self._source.connection)
            self._writer.write({DRIVER: self._driver.encode()})
            self._control = ControlReader(self.topics, self._source.connection, self._driver)
            self._work = self._known_work(self._control)
        position = position or self._source.initial()
        work = self._work
        if work is None or not is_kept or not self._goes_on(work, position):
            self._work = work = self._new_work(position)
            self._writer.write({WORK: work.to_bytes()})
        self._generation, self._written = work.generation, None
        self._admin.remove_groups(but=work.generation)
        return RoutedSource(self._source, self.topics, work)

    def finish(self) -> RoutedSource:
        """Return a source that finishes a batch of placed records, and begins no other."""
        return RoutedSource(self._source, self.topics, None)

    def instruct(self, pin: Pin, committed: Position | None, most: int) -> None:
        """Publish the plan and how far the job is, if either has changed; a no-op before ``begin``.

        Args:
            pin: the plan of the next intervals; the routed topic gets as many partitions as it has workers.
            committed: the position after the last committed batch.
            most: the maximum number of records in the next batch.
        """
        if self._writer is None or self._generation is None:
            return
        placed = (committed or {}).get(PLACED)
        own = placed is not None and placed["generation"] == self._generation
        consumed = placed["end"] if placed is not None and own else 0
        share = max(most // pin.replicas, 1)
        before = self._written
        if before is not None and _LESS <= share / before.most <= 1 / _LESS:
            share = before.most
        instructions = Instructions(self._generation, replace(pin, policy=None), consumed, share)
        if instructions == before:
            return
        if pin.workers > self._workers:
            self._admin.prepare(pin.workers)
            self._workers = pin.workers
        self._writer.write({PLAN: instructions.to_bytes()})
        self._written = instructions

    def require_driver(self) -> None:
        """Raise MillraceError if another driver has taken over: this one may have nothing to write for long."""
        if self._control is None:
            return
        with suppress(MillraceError):  # as of brokers that do not answer, which other clients of the run report
            self._control.follow()
        if self._control.is_taken_over:
            raise taken_over(self.topics)

    def close(self) -> None:
        """Leave the control topic."""
        if self._control is not None:
            self._control.close()

    def release(self) -> None:
        """Let the replicas rest: the query no longer reads what they place."""
        if self._writer is not None and self._generation is not None and self._written is not None:
            self._writer.write({PLAN: replace(self._written, generation="").to_bytes()})
        self._generation = self._written = None

    def _known_work(self, control: ControlReader) -> Work | None:
        """Return the work that the control topic has, or None if there is none."""
        until = time.monotonic() + PATIENCE
        try:
            while not control.is_current and time.monotonic() < until:
                control.follow(0.1)
        except MillraceError:
            return None  # of another version of Millrace
        return control.work

    def _goes_on(self, work: Work, position: Position) -> bool:
        """Whether the replicas are beyond the position, have all manifests after it, and place what the query needs."""
        placed = position.get(PLACED)
        if placed is None or placed["generation"] != work.generation or not self._admin.has_manifests(placed["end"]):
            return False
        if work != replace(self._new_work(position), generation=work.generation, starts=work.starts, first=work.first):
            return False
        reached = work.starts | self._admin.committed(work.generation)
        return all(reached.get(partition, 0) >= offset for partition, offset in of_position(position).items())

    def _new_work(self, position: Position) -> Work:
        window = self._compiled.window
        return Work(
            generation=uuid.uuid4().hex[:12],
            source=self._source.name,
            projection=self._compiled.projection,
            time_column=window.column if window is not None else "",
            interval=self._interval,
            version=version_of(self._definition, self._compiled.projection),
            starts=of_position(position),
            ends=self._source.ending,
            first=self._admin.end(self.topics.manifests),
            routed=self._admin.routed_id(),
        )


def topics_of(query: StreamQuery) -> Topics:
    """Return the names of the topics of a query's replicas."""
    return Topics(query.metadata.namespace or "default", query.name)
