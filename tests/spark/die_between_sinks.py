"""A process that runs a query with several outputs, and dies between two of them.

    python die_between_sinks.py QUERY BATCH

It does what ``millrace run --once`` does, until the first sink has written the batch and the second one has not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import DataFrame

from millrace_jobs.run.job import Job
from millrace_jobs.run.query_file import query_of
from millrace_jobs.sinks.base import ResultBatch, Sink
from millrace_jobs.sinks.files.sink import FilesSink
from millrace_jobs.sinks.kafka.sink import KafkaSink
from millrace_jobs.sinks.lakehouse.sink import LakehouseSink

Write = Callable[[Sink, DataFrame, ResultBatch], int]


def die_between_sinks(folder: Path, query: str, batch: int) -> None:
    """Run a query in a process of its own that dies when one sink has this batch and the next one has not."""
    program = [sys.executable, __file__, query, str(batch)]
    died = subprocess.run(program, cwd=folder, capture_output=True, timeout=600, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()


def dying(write: Write, last: int, written: Counter[int]) -> Write:
    """Return a ``write`` that dies once a sink has the batch ``last``; ``written`` counts the sinks by batch."""

    def write_or_die(sink: Sink, results: DataFrame, batch: ResultBatch) -> int:
        if batch.number == last and written[last]:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = write(sink, results, batch)
        written[batch.number] += 1
        return rows

    return write_or_die


if __name__ == "__main__":
    last, written = int(sys.argv[2]), Counter[int]()
    with (
        patch.object(FilesSink, "write", dying(FilesSink.write, last, written)),
        patch.object(KafkaSink, "write", dying(KafkaSink.write, last, written)),
        patch.object(LakehouseSink, "write", dying(LakehouseSink.write, last, written)),
        Job(query_of(Path(sys.argv[1])), once=True, debug=True) as job,  # its output ends with the JVM
    ):
        job.run()
