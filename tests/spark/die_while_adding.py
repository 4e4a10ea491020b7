"""Run a query whose state takes up aggregates, and kill this process at a step of that.

    python -m spark.die_while_adding QUERY STEP

A run that does not come to the step ends with status 0.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from millrace_jobs.run.job import Job
from millrace_jobs.run.query_file import query_of

STEPS = {
    "before the copy": "millrace_jobs.run.state_widening.make_copy",
    "before the rows are written": "millrace_jobs.run.state_widening._RowChange.apply",
    "before it is noted": "millrace_jobs.checkpoint.changeable_state.ChangeableState.adopt_spark",
    "before the renaming": "millrace_jobs.checkpoint.changeable_state.adopt",
    "before the original is removed": "millrace_jobs.run.state_widening.remove_outdated",
    "before the sink is ready": "millrace_jobs.run.prepared_query.prepare_sink",
}
"""Functions that are not called any more; those up to the renaming leave the state as it was."""


def die(*_: Any, **__: Any) -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with (
        patch(STEPS[sys.argv[2]], die),
        Job(
            query_of(Path(sys.argv[1])), once=True, leaves_open=True, debug=True
        ) as job,  # its output ends with the JVM
    ):
        job.run()
