"""Spark's daemon for Python workers, which imports everything that tasks need before it forks the first worker.

Workers of PySpark's own daemon import everything themselves. After every task each of them collects garbage over all
of these modules, and the next task waits for it. Here workers share the modules. Loaded objects are frozen, so the
garbage collector skips them: once before the first fork, and again in a worker whose tasks have loaded more.

``worker-python`` runs this module in place of ``pyspark.daemon``, for tasks and for the processes that plan a source.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

_MODULES = (
    "millrace_jobs.pipeline.projection",
    "millrace_jobs.pipeline.reader",
    "millrace_jobs.queries.routed.merge",
    "pyspark.worker",
)
"""Modules that the tasks of any query need; the worker imports the user's aggregators."""

_FOR_GROUPING = ("pyarrow.acero", "pyspark.sql.streaming.proto.StateMessage_pb2")
"""Further modules that tasks need to group records and to keep state."""

_LOOK_UP = "pyspark.sql.worker.lookup_data_sources"
"""The worker that looks once for installed packages with data sources; it needs none of ``_MODULES``."""

_THREADS = Path("/proc/self/task")
_HARMLESS = "jemalloc_bg_thd"
"""The thread of Arrow's memory allocator, which holds its locks across a fork and starts a new thread afterwards."""


_ENDED = 1
"""Result of a task after which PySpark's daemon lets the worker end."""

_MANY = 10_000
"""Number of objects that a worker's garbage collection handles within a millisecond or two."""


def main() -> None:
    """Load the modules, freeze them, and run PySpark's daemon in this process.

    A process with threads must not fork: another thread may hold a lock, which the worker would never see released.
    If a library has started a thread, PySpark's own daemon, which has loaded nothing, replaces this process.
    """
    from pyspark import daemon  # imported here because it reads this process's arguments

    gc.disable()  # modules are no garbage, and looking for it takes a tenth of the time of their imports
    if sys.argv[1:] != [_LOOK_UP]:
        load()
        report_memory()
    if has_threads():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    freeze()
    daemon.worker = while_connected(freezing(daemon.worker))
    daemon.manager()


def freeze() -> None:
    """Collect garbage once, let the collector skip what is left from now on, and switch it on."""
    gc.collect()
    gc.freeze()
    gc.enable()


def load() -> None:
    """Import the modules that tasks need."""
    for name in _MODULES:
        importlib.import_module(name)
    pa.array([])  # the first call makes Arrow load pandas, to recognize its types


def report_memory() -> None:
    """Let tasks report the memory of the executor that this process belongs to; nothing for any other process."""
    from millrace_jobs.process.used_memory import memory_of_executor, reporting  # imports more than a look-up needs

    if (memory := memory_of_executor(os.getppid())) is not None:
        worker: Any = importlib.import_module("pyspark.worker")
        worker.send_accumulator_updates = reporting(worker.send_accumulator_updates, memory)


def load_grouping() -> None:
    """Load what tasks need that hash keys, group records and keep state.

    These are Arrow's engine, the runtime of compiled kernels, and the messages by which PySpark asks for state.
    That takes 0.3 s of one core, which otherwise each worker spends in the first batch.
    """
    from millrace_jobs.partitioners.key_hashes import hash_columns  # only here, since other processes wait for imports

    for name in _FOR_GROUPING:
        importlib.import_module(name)
    hash_columns([pa.array([""])], rows=1)


def freezing(task: Callable[..., int]) -> Callable[..., int]:
    """Wrap the function that a worker calls for each task; freeze objects that remain after it, if there are many."""

    def run(*arguments: Any) -> int:
        status = task(*arguments)
        if len(gc.get_objects()) > _MANY:
            gc.collect()
            gc.freeze()
        return status

    return run


def while_connected(task: Callable[..., int]) -> Callable[..., int]:
    """Wrap the function that a worker calls for each task; end a worker to which Spark gives no other task.

    Spark then closes the connection. PySpark's function would take that for an error of the next task, and print the
    traceback of its attempt to report it. It begins the first task at once, since it also sets the worker's signals.
    """
    is_new = True

    def run(connection: socket.socket, authenticated: bool) -> int:
        nonlocal is_new
        if not is_new and not _has_data(connection):
            return _ENDED
        is_new = False
        return task(connection, authenticated)

    return run


def _has_data(connection: socket.socket) -> bool:
    """Wait for data, and return whether there is any, or the connection is closed."""
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except OSError:
        return False


def has_threads() -> bool:
    """Return whether this process has threads that make a fork unsafe; True if that cannot be determined."""
    if not _THREADS.is_dir():
        return True
    names = [(thread / "comm").read_text(encoding="utf-8").strip() for thread in _THREADS.iterdir()]
    return len(names) - names.count(_HARMLESS) > 1


if __name__ == "__main__":
    main()
