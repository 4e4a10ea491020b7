"""Whether a Python task has got all of its input.

Arrow takes the end of a connection for the end of a stream. If Spark's JVM dies between two record batches, or has the
task killed, its Python worker would take the part that it has got for the whole. A task whose results count only when
Spark has them may do so, but not one that commits them by itself. After the last record batch, the JVM writes a mark.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from millrace_api.errors import Problem, TransientError

_WORKER, _INPUT = "invoke_udf", "input_data_stream"
"""The function of PySpark's worker that runs a task, and its variable with the connection to the JVM."""


def require_whole() -> None:
    """Check that the input of the running task, which has been read to its end, is complete.

    Raises:
        TransientError: the connection has ended before the input did.
    """
    try:
        is_whole = bool(_connection().peek(1))
    except OSError:
        is_whole = False
    if not is_whole:
        message = "the input of a task has ended early: its executor has died, or has killed it"
        raise TransientError(Problem(message, "its results are written by another attempt"))


def _connection() -> Any:
    """Return the connection from which PySpark's worker reads the input of the running task."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _WORKER and frame.f_globals.get("__name__", "").startswith("pyspark."):
            return frame.f_locals[_INPUT]
        frame = frame.f_back
    raise RuntimeError(f"{_WORKER} of PySpark's worker is not what runs this task")
