"""Everything that a fault can befall: the broker and the way to it, the disk, the clock, the stream and the job."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import yaml

from kafka import topics
from lab.cache import MissingError
from lab.clock import Clock
from lab.disks import SmallDisk, small_disk
from lab.kafka import Broker
from lab.proxy import Proxy

from .corruption import Kind
from .feed import Feed, events_in
from .job import Job
from .queries import NAME, Case

SOURCE, SINK = "events", "results"
PARTITIONS = 3
DISK = 96 << 20
"""Bytes of the disk that the checkpoint is on."""


@dataclass
class Scene:
    """One stream, one job, and what is around them; ``disk`` and ``clock`` are None where the machine has none."""

    case: Case
    broker: Broker
    proxy: Proxy
    feed: Feed
    job: Job
    chance: random.Random
    damages: Iterator[Kind]
    """What shall be corrupted next, and how."""
    checkpoint: Path
    """As the test sees it, wherever it is to the job."""
    disk: SmallDisk | None
    clock: Clock | None

    @property
    def group(self) -> str:
        """The consumer group that the job's sink keeps its batch number in."""
        (found,) = [group for group in topics.groups(self.broker) if group.startswith("millrace-")]
        return found

    def output(self) -> list[topics.Message]:
        """What readers of committed records have got from the job."""
        return topics.committed(self.broker, SINK)

    def go_on(self) -> None:
        """Wait until the job has finished further batches, in another run where it has ended."""
        if self.job.process.status is not None:
            self.job.start()
        assert self.job.wait_for_batches(2), f"it does not go on: {self.job.report()}"

    def check(self, *, ended: bool = False) -> None:
        """The output is what DuckDB makes of the input; as far as that can be said of a job that goes on."""
        output = self.output()  # first, since the input grows
        self.case.check(output, events_in(self.broker, SOURCE), ended=ended)

    def end(self, *, by_itself: bool = False) -> None:
        """Let the stream end, the job take the rest, and compare: every record counts once.

        ``by_itself``: the running job takes it, and then ends; else the last run does, by ``--once``, which also
        closes all windows.
        """
        written = self.feed.finish()
        events = events_in(self.broker, SOURCE)
        missing = set(range(written)) - set(events.column("id").to_pylist())
        assert not missing, f"the broker itself has lost {len(missing)} records of the input"
        if by_itself:
            self.job.wait_for(lambda: self._is_exact(events), "end of the stream")
        if self.job.process.status is None:
            self.job.drain()
        if not by_itself:
            self.job.run_to_the_end()
        assert not topics.open_transactions(self.broker, SINK)
        self.case.check(self.output(), events, ended=True)

    def _is_exact(self, events: pa.Table) -> bool:
        with suppress(AssertionError):
            self.case.check(self.output(), events, ended=True)
            return True
        time.sleep(1.0)
        return False


@contextmanager
def scene(case: Case, broker: Broker, folder: Path, chance: random.Random, damages: Iterator[Kind]) -> Iterator[Scene]:
    """A job that is running, and a stream that begins to flow."""
    with ExitStack() as stack:
        disk = _or_none(lambda: stack.enter_context(small_disk(folder / "disk", DISK)), "full disk")
        clock = _or_none(lambda: Clock(folder / "clock"), "clock step")
        proxy = stack.enter_context(broker.proxied())
        topics.make(broker, SOURCE, PARTITIONS)
        topics.make(broker, SINK, 2, **case.sink_config)
        inside = (disk.folder if disk is not None else folder) / "checkpoint"
        query = folder / f"{NAME}.yaml"
        query.write_text(
            yaml.safe_dump(case.document(proxy.bootstrap, SOURCE, SINK, inside.as_uri())), encoding="utf-8"
        )
        job = Job(query, clock.environment if clock is not None else {}, disk.enter if disk is not None else ())
        stack.callback(job.close)
        feed = Feed(broker, SOURCE, chance.getrandbits(32), PARTITIONS)
        stack.callback(feed.stop)
        outside = (disk.outside if disk is not None else folder) / "checkpoint"
        job.start()
        assert job.wait_for(lambda: "started=" in job.said, "start of the query"), job.report()
        feed.start()
        yield Scene(case, broker, proxy, feed, job, chance, damages, outside, disk, clock)


T = TypeVar("T")


def _or_none(make: Callable[[], T], fault: str) -> T | None:
    try:
        return make()
    except MissingError as error:
        if os.environ.get("CI"):
            raise
        warnings.warn(f"the fault {fault!r} is left out: {error}", stacklevel=2)
        return None
