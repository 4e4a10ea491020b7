"""Everything that a fault can hit: the broker and the network to it, the disk, the clock, the stream and the job."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import yaml

from lab import topics
from lab.cache import MissingError
from lab.clock import Clock
from lab.disks import SmallDisk, small_disk
from lab.kafka import Broker
from lab.processes import command_of
from lab.proxy import Proxy

from .changelog import Positions, read_by
from .corruption import Kind
from .feed import Feed, events_in
from .job import Job
from .queries import NAME, Case

SOURCE, SINK = "events", "results"
PARTITIONS = 3
DISK = 96 << 20
"""Size of the checkpoint's disk, in bytes."""


@dataclass
class Scene:
    """One stream and one job with their environment. ``disk`` and ``clock`` are None if unavailable."""

    case: Case
    broker: Broker
    proxy: Proxy
    feed: Feed
    job: Job
    chance: random.Random
    damages: Iterator[Kind]
    """Kinds of damage, in the order in which faults use them."""
    checkpoint: Path
    """The checkpoint's path for the test, which may differ from the job's."""
    disk: SmallDisk | None
    clock: Clock | None

    @property
    def group(self) -> str:
        """The consumer group in which the job's sink keeps its batch number."""
        found = [group for group in topics.groups(self.broker) if group.startswith("millrace-")]
        return min(set(found) - set(self.replica_groups), key=len)  # those of partitions begin with it

    @property
    def replica_groups(self) -> list[str]:
        """The consumer groups of the partitioner's replicas: of this generation, and perhaps of former ones."""
        return [group for group in topics.groups(self.broker) if group.startswith(f"millrace.default.{NAME}.")]

    @property
    def replicas(self) -> list[int]:
        """The processes of the partitioner's replicas that run now, by index."""
        commands = {member: command_of(member) for member in self.job.process.members()}
        found = {member: command for member, command in commands.items() if " partitioner " in command}
        return sorted(found, key=lambda member: int(found[member].partition("--index ")[2].split()[0]))

    def output(self) -> list[topics.Message]:
        """Return the committed output of the job."""
        return topics.committed(self.broker, SINK)

    def go_on(self) -> None:
        """Wait until the job finishes further batches, and start it first if it has ended."""
        if self.job.process.status is not None:
            self.job.start()
        assert self.job.wait_for_batches(2), f"it does not go on: {self.job.report()}"

    def check(self, *, ended: bool = False) -> None:
        """Compare the output with DuckDB's answer, as far as it is due if the job still runs."""
        output = self.output()  # first, since the input grows
        self.case.check(output, events_in(self.broker, SOURCE), self._read_by, ended=ended)

    def end(self, *, by_itself: bool = False) -> None:
        """End the stream, let the job process the rest, and check that every record counts once.

        With ``by_itself``, the running job processes the rest and then ends. Otherwise a last run with ``--once`` does,
        which also closes all windows.
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
        self.case.check(self.output(), events, self._read_by, ended=True)

    def _read_by(self, batch: int) -> Positions | None:
        return read_by(self.checkpoint, batch)

    def _is_exact(self, events: pa.Table) -> bool:
        with suppress(AssertionError):
            self.case.check(self.output(), events, self._read_by, ended=True)
            return True
        time.sleep(1.0)
        return False


@contextmanager
def scene(
    case: Case,
    broker: Broker,
    folder: Path,
    chance: random.Random,
    damages: Iterator[Kind],
    *,
    own_machine: bool = True,
    options: Sequence[str] = (),
) -> Iterator[Scene]:
    """Run a job on a stream that has just started; with ``own_machine``, on a disk and a clock of its own.

    ``options`` are those of the job's first run.
    """
    with ExitStack() as stack:
        disk = clock = None
        if own_machine:
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
        job.start(*options)
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
