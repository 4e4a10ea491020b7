"""Spark's daemon for Python workers, with all that their tasks import loaded before it forks the first of them.

PySpark's own daemon forks workers that import everything by themselves, and each of them collects garbage over all of
these modules after every task, for which the next task waits. Here workers share the modules, and what was loaded is
frozen, so that the collector passes over it: before the first fork, and in a worker what its tasks have loaded besides.

``worker-python`` runs this module in place of ``pyspark.daemon``, for tasks and for the processes that plan a source.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

_MODULES = ("millrace_jobs.pipeline.reader", "millrace_jobs.pipeline.merge_states", "pyspark.worker")
"""What tasks of any query need; aggregators of the user are imported by the worker."""

_LOOK_UP = "pyspark.sql.worker.lookup_data_sources"
"""The worker that looks for installed packages with data sources, once, and needs none of them."""

_THREADS = Path("/proc/self/task")
_HARMLESS = "jemalloc_bg_thd"
"""The thread of Arrow's memory allocator, which holds its locks over a fork and makes a new thread after it."""


_MANY = 10_000
"""Objects that a worker looks at within a millisecond or two when it collects garbage."""


def main() -> None:
    """Load, freeze, and serve as PySpark's daemon does, in this process.

    A process that has threads must not fork: another thread may hold a lock, which is never released in the worker.
    Where a library has started one, PySpark's own daemon takes over, which has loaded nothing.
    """
    from pyspark import daemon  # which looks at this process's arguments

    if sys.argv[1:] != [_LOOK_UP]:
        load()
    if has_threads():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    gc.collect()
    gc.freeze()
    daemon.worker = freezing(daemon.worker)
    daemon.manager()


def load() -> None:
    """Load what tasks need; what is loaded already takes no time."""
    for name in _MODULES:
        importlib.import_module(name)
    pa.array([])  # the first time, Arrow loads pandas to see whether it is given something of it


def freezing(task: Callable[..., int]) -> Callable[..., int]:
    """The function that a worker calls for each task; what is still there in great number after one is frozen."""

    def run(*arguments: Any) -> int:
        status = task(*arguments)
        if len(gc.get_objects()) > _MANY:
            gc.collect()
            gc.freeze()
        return status

    return run


def has_threads() -> bool:
    """Whether this process has other threads than one that does not mind a fork; True where that cannot be known."""
    if not _THREADS.is_dir():
        return True
    names = [(thread / "comm").read_text(encoding="utf-8").strip() for thread in _THREADS.iterdir()]
    return len(names) - names.count(_HARMLESS) > 1


if __name__ == "__main__":
    main()
