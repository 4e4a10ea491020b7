"""Runs of a query with its checkpoint in a store."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from lab.processes import Process
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.object_lease import ObjectLease
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.stores import objects
from millrace_jobs.stores.objects import ObjectPath
from spark.answers import assert_same, duckdb_rows, latest, with_zones
from spark.killed_queries import QUESTION, document, recording
from spark.streams import results_in

from .leases import entry, logged

MILLRACE = str(Path(sys.executable).parent / "millrace")
RECORDS = 40_000


class Run:
    """A query with its results in a folder and its checkpoint in the store, started as often as a test needs."""

    def __init__(self, folder: Path, place: ObjectPath, **spec: Any) -> None:
        self.folder, self.place = folder, place
        self.events = recording(seed=11).slice(0, RECORDS)
        pq.write_table(with_zones(self.events), folder / "recording.parquet")
        query = document(folder, "OnUpdate")
        query["spec"] |= {"checkpoint": {"uri": str(place)}, "batchInterval": "500ms", "parallelism": {"max": 2}} | spec
        self.file = folder / "query.yaml"
        self.file.write_text(yaml.safe_dump(query), encoding="utf-8")
        self._starts = 0

    def move_checkpoint(self, uri: str) -> None:
        """Let the next start use the checkpoint in another place."""
        query = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        query["spec"]["checkpoint"] = {"uri": uri}
        self.file.write_text(yaml.safe_dump(query), encoding="utf-8")

    def start(self, *options: str) -> Process:
        """Start it, with its output in a file of its own."""
        self._starts += 1
        return Process([MILLRACE, "run", self.file, *options], self.folder / f"{self._starts}.log")

    def finish(self) -> str:
        """Process all records, and return what it printed."""
        run = self.start("--once")
        assert run.wait(600) == 0, run.said
        return run.said

    def check(self) -> None:
        """Compare the results with DuckDB's."""
        results: pa.Table = results_in(self.folder)
        expected = duckdb_rows(self.events, QUESTION.duckdb)
        assert_same(latest(results, QUESTION.key_columns), expected, QUESTION.key_columns)


def batches(run: Process) -> int:
    """The number of batches that it has reported; without bound once it has read the whole recording, and ended."""
    assert run.status in (None, 0), run.said
    return run.said.count("\nbatch=") if run.status is None else RECORDS


def millrace(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MILLRACE, *map(str, arguments)], capture_output=True, text=True, check=False)


FIRST, SECOND = "first", "second"


class Turns:
    """Lets the requests of two threads through in an order; what is left of one goes on when the other has ended."""

    def __init__(self, order):
        self._order = list(order)
        self._ended = set()
        self._changed = threading.Condition()

    def take(self):
        name = threading.current_thread().name
        if name not in (FIRST, SECOND):
            return  # a lease that is renewed meanwhile, on a busy machine
        with self._changed:
            self._changed.wait_for(lambda: self._next() in (name, None), timeout=60)
            if self._order:
                self._order.pop(0)
            self._changed.notify_all()

    def end(self):
        with self._changed:
            self._ended.add(threading.current_thread().name)
            self._changed.notify_all()

    def _next(self):
        while self._order and self._order[0] in self._ended:
            self._order.pop(0)
        return self._order[0] if self._order else None


class TurnTaking:
    """The client of a bucket, each of whose requests waits for its turn."""

    def __init__(self, client, turns):
        self._client, self._turns = client, turns

    def __getattr__(self, name):
        def request(*arguments, **options):
            self._turns.take()
            return getattr(self._client, name)(*arguments, **options)

        return request


def drive(place, lease, memory, ran):
    """One batch as a run has it: it is planned unless Spark has read it, begun, run, and committed."""
    if 1 not in memory:
        text = f"planned by the {threading.current_thread().name}"
        logged(place, 1, text)
        memory[1] = entry(text)
    lease.begin(1, memory.__getitem__)
    ran.append(memory[1])
    (place / "spark" / "commits" / "1").write_bytes(b"v1\n{}")


def read(place):
    """The entries that Spark reads when it starts."""
    entries = LogEntries(place / "spark")
    newest = entries.newest("offsets")
    assert newest is not None
    return {number: entries.text("offsets", number) for number in range(newest + 1)}


def race(place, order, monkeypatch):
    """Run both in an order; return how many of them ran the batch, and whether they ended by an error."""
    first = ObjectLease(place)
    first.take()
    first.restore()
    logged(place, 0)
    first.begin(0, lambda _: entry("0"))
    (place / "spark" / "commits" / "0").write_bytes(b"v1\n{}")
    turns, ran, failed = Turns(order), [], []
    client = objects.client_of

    def as_first():
        drive(place, first, {0: entry("0")}, ran)

    def as_second():
        lease = ObjectLease(place)
        lease.take()
        try:
            lease.restore()
            drive(place, lease, read(place), ran)
        finally:
            lease.release()

    def thread(name, act):
        def run():
            try:
                act()
            except MillraceError as error:
                failed.append((name, str(error)))
            finally:
                turns.end()

        return threading.Thread(target=run, name=name)

    threads = [thread(FIRST, as_first), thread(SECOND, as_second)]
    with monkeypatch.context() as patched:
        patched.setattr(objects, "client_of", lambda scheme, bucket: TurnTaking(client(scheme, bucket), turns))
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    first.release()
    assert ran, failed
    third = ObjectLease(place)
    third.take()
    third.restore()
    third.release()
    now = (place / "spark" / "offsets" / "1").read_text()
    begun = third._begun
    assert begun is not None
    assert {now} == {*ran} == {begun.offsets}
    assert begun.before == entry("0")
    return len(ran), tuple(sorted(name for name, _ in failed))
