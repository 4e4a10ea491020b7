"""Run a query like ``millrace run``, and kill this process when one partition of the state has been written.

python die_between_partitions.py QUERY PLAN
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from kafka.partition_attempts import DyingWriter
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.query_file import query_of
from millrace_jobs.sinks.kafka import sink

if __name__ == "__main__":
    with (
        patch.object(sink, "PartitionWriter", DyingWriter),
        Job(
            query_of(Path(sys.argv[1])), OneProcess(Path(sys.argv[2])), debug=True
        ) as job,  # its output ends with the JVM
    ):
        job.run()
