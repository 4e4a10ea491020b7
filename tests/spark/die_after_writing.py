"""A process that runs a query, and dies when its sink has written a batch that Spark has not committed.

python die_after_writing.py QUERY BATCH
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import DataFrame

from millrace_jobs.run.job import Job
from millrace_jobs.run.query_file import query_of
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.files.sink import FilesSink

write = FilesSink.write


def die_after_writing(folder: Path, query: str, batch: int) -> None:
    """Run a query in a process of its own that dies when the sink has this batch, or a later one."""
    program = [sys.executable, __file__, query, str(batch)]
    died = subprocess.run(program, cwd=folder, capture_output=True, timeout=600, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()


def write_and_die(sink: FilesSink, results: DataFrame, batch: ResultBatch) -> int:
    """Write a batch, and kill the process if it is the last one; a change of the state has a number before it."""
    rows = write(sink, results, batch)
    if batch.number >= int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return rows


if __name__ == "__main__":
    with (
        patch.object(FilesSink, "write", write_and_die),
        Job(query_of(Path(sys.argv[1])), once=True, debug=True) as job,  # its output ends with the JVM
    ):
        job.run()
