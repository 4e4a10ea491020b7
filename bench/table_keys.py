"""Measure what the copy of a table's keys on the driver's disk costs: memory, disk and processor time for each row.

    python -m bench.table_keys [ROWS]

The copy is made from ROWS keys of 50 bytes, a million by default, whose hashes are in no order, and which never expire:
the order that costs most. Then come batches of 20,000 rows: rows that stay, new rows, rows that are not admitted and
were not there, and rows that go. At last the copy is closed, and continued as by the next run. Memory is the most that
the process has had beyond that of its libraries; the messages themselves are no part of it.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from millrace_jobs.sinks.kafka.live_rows import LiveRows
from millrace_jobs.sinks.kafka.messages import NO_END, Row
from millrace_jobs.sinks.kafka.topic import LastWritten, TableOrigin

BATCH = 20_000
ORIGIN = TableOrigin("bench", {})


def key(number: int) -> str:
    """Return one of 2**32 keys."""
    return f'{{"k":"customer {number * 2_654_435_761 % (1 << 32):010}","region":"north-w"}}'


def resident(name: str) -> float:
    """Return a figure of this process's memory in MiB: ``VmRSS`` now, or ``VmHWM`` at most so far."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def main(count: int) -> None:
    """Measure with this number of rows, and print each step."""
    before, chance = resident("VmRSS"), random.Random(1)

    @contextmanager
    def step(name: str, rows: int) -> Iterator[None]:
        began = os.times()
        yield
        ended = os.times()
        seconds = ended.user + ended.system - began.user - began.system
        print(f"{name:<36}{seconds / rows * 1e6:8.2f} us/row{resident('VmHWM') - before:10.1f} MiB", flush=True)

    batches: Sequence[tuple[str, list[Row]]] = [
        ("a batch of rows that stay", [(key(chance.randrange(count)), "{}", NO_END) for _ in range(BATCH)]),
        ("a batch of new rows", [(key(count + each), "{}", NO_END) for each in range(BATCH)]),
        ("a batch of rows that were not there", [(key(2 * count + each), None, NO_END) for each in range(BATCH)]),
        ("a batch of rows that go", [(key(each), None, NO_END) for each in chance.sample(range(count), BATCH)]),
    ]
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        live = LiveRows(Path(name))
        with step(f"made from {count:,} keys", count):
            live.rebuild(ORIGIN, LastWritten(), ((key(each), NO_END) for each in range(count)))
        for number, (what, rows) in enumerate(batches):
            with step(what, BATCH):
                live.begin()
                for _ in chain(live.change(rows), live.finish(LastWritten(number, number), 0)):
                    pass
        live.close()
        size = sum(file.stat().st_size for file in Path(name).iterdir())
        print(f"on disk: {size / count:.0f} bytes a row, for keys of {len(key(0))} bytes")
        live = LiveRows(Path(name))
        with step("continued by the next run", count):
            assert live.resume(ORIGIN, LastWritten(len(batches) - 1, len(batches) - 1))
        live.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
