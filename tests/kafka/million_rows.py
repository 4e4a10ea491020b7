"""A program that writes a table with a million rows, or lets them expire, and prints the memory that this took it.

python million_rows.py BOOTSTRAP TOPIC FOLDER write|expire
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa

from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, WindowColumn
from millrace_jobs.sinks.kafka.table import TableSink
from millrace_jobs.sinks.kafka.topic import TargetTopic

BATCHES, ROWS = 50, 20_000
MINUTE = 60_000_000
KEYS = ResultKeys(("k", "until"), WindowColumn("until", "end", 0))


def resident(name: str) -> int:
    """A figure of this process's status in bytes, such as ``VmHWM``, the most memory that it has had."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def batch(number: int) -> pa.Table:
    """Rows with names in no order, whose windows end in the minute of the batch."""
    names = [(number * ROWS + each) * 2_654_435_761 % (1 << 32) for each in range(ROWS)]
    keys = [f'{{"k":"customer {name:010}","until":"1970-01-01T00:{number + 1:02}:00.000000Z"}}' for name in names]
    return pa.table({"key": keys, "value": ["{}"] * ROWS, "end": pa.array([(number + 1) * MINUTE] * ROWS, pa.int64())})


def main(servers: str, topic: str, folder: str, step: str) -> None:
    """Do the step, and print the rows that are then in the table, and the memory beyond that of the libraries."""
    before = resident("VmRSS")
    target = TargetTopic(topic, Connection(servers), "spec.sink.table.topic")
    sink = TableSink(target, KEYS, "trips", "million", folder=Path(folder))
    last = None if step == "write" else BATCHES - 1
    sink.prepare(LastBatch(last, last))
    read = resident("VmHWM") - before
    if step == "write":
        for number in range(BATCHES):
            sink._write([batch(number)], ResultBatch(number, 1, 0))
    else:
        sink._write([batch(0).slice(0, 0)], ResultBatch(BATCHES, 1, 60 * MINUTE // 1000))
    assert sink._live is not None
    print(json.dumps({"rows": len(sink._live), "read": read, "bytes": resident("VmHWM") - before}))
    sink.close()


main(*sys.argv[1:])
