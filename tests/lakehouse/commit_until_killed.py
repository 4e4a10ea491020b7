"""A program for ``test_killed_beside_compaction``: commit batches to a table, in a process that is killed again and again.

It takes a JSON document: the kind of the table, the fields of its sink, the file of the log, the number of batches, after
how many to compact, how often to kill, and the seed of when. The log stands for Spark's: ``begun N`` and ``committed N``, each on disk before what follows.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakehouse import delta_tables as delta
from lakehouse import iceberg_commits as iceberg
from millrace_api.errors import TransientError
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.lakehouse.delta_files import add_actions
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaTarget
from millrace_jobs.sinks.lakehouse.iceberg_sink import Changes, IcebergTarget
from millrace_jobs.sinks.lakehouse.sink import REMOVED

KEYS, EACH = 7, 3
RESTARTS = 6
"""How often in a row a batch that met other writers is tried again from the start, as a query is."""

Target = DeltaTarget | IcebergTarget


def rows_of(number: int) -> list[tuple[str, int]]:
    """Return the rows of a batch: the keys of one batch come again in later ones."""
    return [(f"k{(number * EACH + place) % KEYS}", number * EACH + place) for place in range(EACH)]


def opened(given: Mapping[str, Any], last: LastBatch) -> Target:
    """Take the table over."""
    fields = given["fields"]
    if given["kind"] == "delta":
        return delta.taken(fields["path"], last, **{name: each for name, each in fields.items() if name != "path"})
    return iceberg.taken(fields, last)


def commit(to: Target, given: Mapping[str, Any], number: int) -> None:
    """Write the rows of a batch: appended, or by their keys."""
    rows, batch = rows_of(number), ResultBatch(number, 1, 0)
    if isinstance(to, IcebergTarget):
        to.write(Changes(iceberg.files(to, rows)), batch)
    elif given["fields"].get("key"):
        schema = delta.SCHEMA.append(pa.field(REMOVED, pa.bool_()))
        table = pa.Table.from_pylist([{"k": k, "n": n, REMOVED: False} for k, n in rows], schema)
        to.merge(table.to_reader, "", batch)
    else:
        to.append(add_actions(delta.files(given["fields"]["path"], rows), delta.SCHEMA), batch)


class Log:
    """The log of batches."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def last(self, what: str) -> int | None:
        """Return the last batch of which it says this."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        numbers = [int(line.split()[1]) for line in lines if line.startswith(what)]
        return max(numbers, default=None)

    def say(self, what: str, number: int) -> None:
        """Add a line, which is on disk afterwards."""
        with self.file.open("a") as file:
            file.write(f"{what} {number}\n")
            file.flush()
            os.fsync(file.fileno())


def run(given: Mapping[str, Any], log: Log) -> None:
    """Write batches from where the log ends, as a driver does."""
    begun, done = log.last("begun"), log.last("committed")
    to = opened(given, LastBatch(begun, done))
    for number in range(LastBatch(begun, done).next, given["batches"]):
        if begun is None or number > begun:
            log.say("begun", number)
        if number > to.last:
            commit(to, given, number)
        every = given["compact_every"]
        if every and (number + 1) % every == 0:
            to.compact()
        log.say("committed", number)


def restarted(given: Mapping[str, Any], log: Log) -> None:
    """Run until all batches are written, again after errors that may pass."""
    for attempt in range(RESTARTS):
        try:
            run(given, log)
            break
        except TransientError as error:
            print(f"restarted: {error}", flush=True)
            if attempt == RESTARTS - 1:
                raise


def forked(action: Callable[[], None]) -> int:
    """Run an action in a process of its own, and return the id of that."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            sys.stdout.flush()
            sys.excepthook(*sys.exc_info()) if status else None
            os._exit(status)
    return process


def pauses(given: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """Yield for each run that is killed after how many lines of the log, and how much later in seconds."""
    chance = random.Random(given["seed"])
    for _ in range(given["kills"]):
        yield chance.randint(1, 8), chance.uniform(0, 0.06)


def main(given: Mapping[str, Any]) -> None:
    """Kill the writer again and again, then let it end."""
    log = Log(Path(given["log"]))
    for lines, seconds in pauses(given):
        before = _lines(log.file)
        process = forked(lambda: restarted(given, log))
        while _lines(log.file) < before + lines:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                raise SystemExit(f"the writer ended with status {status}")
            time.sleep(0.001)
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    _, status = os.waitpid(forked(lambda: restarted(given, log)), 0)
    sys.exit(status and 1)


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
