"""A process that runs a query with several outputs, and dies between two of them.

    python die_between_sinks.py QUERY BATCH

It does what ``millrace run --once`` does, until the first sink has written the batch and the second one has not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from millrace_jobs.run.job import Job
from millrace_jobs.run.query_file import query_of
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.outputs import OutputSinks


def die_between_sinks(folder: Path, query: str, batch: int) -> None:
    """Run a query in a process of its own that dies when one sink has this batch and the next one has not."""
    program = [sys.executable, __file__, query, str(batch)]
    died = subprocess.run(program, cwd=folder, capture_output=True, timeout=600, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()


_write = OutputSinks._write


def _write_or_die(sinks: OutputSinks, number: int, results: DataFrame, batch: ResultBatch, *, last: int) -> int:
    if number == 1 and batch.number == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return _write(sinks, number, results, batch)


if __name__ == "__main__":
    OutputSinks._write = lambda *call: _write_or_die(*call, last=int(sys.argv[2]))  # type: ignore[method-assign]
    with Job(query_of(Path(sys.argv[1])), once=True, debug=True) as job:  # its output ends with the JVM
        job.run()
