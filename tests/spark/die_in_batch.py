"""Run a query like ``millrace run``, and kill this process when the first batch has been computed.

    python die_in_batch.py QUERY PLAN

The offset of the batch, with its plan, is written by then, and nothing of the batch is committed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.query_file import query_of
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.files.sink import FilesSink


def die(sink: FilesSink, results: DataFrame, batch: ResultBatch) -> int:
    """Compute the results, and kill the process instead of writing them."""
    results.write.format("noop").mode("overwrite").save()
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


FilesSink.write = die  # type: ignore[method-assign]
with Job(query_of(Path(sys.argv[1])), OneProcess(Path(sys.argv[2])), debug=True) as job:  # its output ends with the JVM
    job.run()
