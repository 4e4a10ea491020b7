"""The zygote: a process that has loaded the modules of Spark's Python processes and forks each of them.

For every query, Spark's driver starts half a dozen Python processes in sequence: to look for sources, to create one, to
ask it for offsets, to plan its reads, and to run tasks. Each would take a second to import PySpark and Millrace.

``worker-python`` sends requests over a Unix socket (``zygote_client``). The zygote ends when the process that started
it has ended, for whatever reason, and all of its own children have ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace_jobs.process import python_daemon
from millrace_jobs.process.zygote_client import GROUPING

_MODULES = (
    "millrace_jobs.sources.kafka.source",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
)
"""Modules that processes need to look for, create and plan sources, beyond the modules of tasks."""

_STREAMS = 3
_NAME = Path("/proc/self/comm")
"""File with the name under which ``ps`` and ``top`` show this process; Linux keeps 15 characters."""

_REQUEST_SECONDS = 10.0
"""Seconds that a request may take to arrive."""


@dataclass(frozen=True)
class ForkRequest:
    """A request for a Python process: ``-m MODULE ARGUMENTS``, with its environment and working folder.

    ``streams`` are the file descriptors of its standard input, output and error.
    """

    arguments: Sequence[str]
    environment: dict[str, str]
    folder: str
    streams: Sequence[int]


class ZygoteServer:
    """Server that forks a child per request until the process that started it ends; it then closes ``listener``."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, socket.socket] = {}
        self._selector.register(listener, selectors.EVENT_READ, self._answer)
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._stop_listening)

    def serve(self) -> None:
        """Serve requests until the starting process and all children have ended."""
        while self._selector.get_map():
            for key, _ in self._selector.select():
                key.data()

    def _stop_listening(self) -> None:
        if not os.read(sys.stdin.fileno(), 1):
            self._selector.unregister(sys.stdin.fileno())
            self._selector.unregister(self._listener)
            self._listener.close()

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_REQUEST_SECONDS)
        try:
            request = _receive(connection)
        except (OSError, ValueError):
            connection.close()
            return
        try:
            pid = os.fork()
            if not pid:
                self._work(connection, request)
        except OSError:  # too many processes, or too little memory: the client starts Python itself
            connection.close()
            return
        finally:
            for stream in request.streams:
                os.close(stream)
        try:
            self._watch(pid, connection)
        except OSError:  # too many open files: a child that cannot be watched must not run
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            connection.close()
            return
        with suppress(OSError):
            connection.sendall(b"\1")

    def _watch(self, pid: int, connection: socket.socket) -> None:
        """Forward signals to the child, and report its exit status to the client."""
        ended = os.pidfd_open(pid)
        self._children[ended] = connection

        def signalled() -> None:
            if self._children.get(ended) is not connection:  # already reaped, by another event of the same ``select``
                return
            try:
                number = connection.recv(1)
            except OSError:
                number = b""
            if not number:  # the client was killed
                self._selector.unregister(connection)
            os.kill(pid, number[0] if number else signal.SIGKILL)

        def reap() -> None:
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            with suppress(OSError):
                connection.sendall(bytes([code if code >= 0 else 128 - code]))
            with suppress(KeyError):
                self._selector.unregister(connection)
            self._selector.unregister(ended)
            del self._children[ended]
            connection.close()
            os.close(ended)

        self._selector.register(connection, selectors.EVENT_READ, signalled)
        self._selector.register(ended, selectors.EVENT_READ, reap)

    def _work(self, connection: socket.socket, request: ForkRequest) -> None:
        """Run the request in the forked child, which first closes everything that belongs to the zygote."""
        status = 1
        try:
            self._selector.close()
            self._listener.close()
            connection.close()
            for ended, other in self._children.items():
                os.close(ended)
                other.close()
            become(request)
            status = 0
        except SystemExit as end:
            status = _status(end.code)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)


def _receive(connection: socket.socket) -> ForkRequest:
    """Receive a request; raise ValueError or OSError if the client disappears before it has sent all of it."""
    _, streams, _, _ = socket.recv_fds(connection, 1, _STREAMS)
    try:
        with connection.makefile("rb") as file:
            arguments, environment, folder = json.loads(file.read(int.from_bytes(file.read(4), "big")))
    except (OSError, ValueError):
        for stream in streams:
            os.close(stream)
        raise
    return ForkRequest(arguments, environment, folder, streams)


def become(request: ForkRequest) -> None:
    """Turn this process into the requested one and do its work."""
    for target, stream in enumerate(request.streams):
        os.dup2(stream, target)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    paths = request.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in paths if path and path not in sys.path]
    _, module, *arguments = request.arguments
    sys.argv = [module, *arguments]
    with suppress(OSError):
        _NAME.write_text(module.rpartition(".")[2], encoding="utf-8")
    if module == "pyspark.daemon":
        python_daemon.main()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _status(code: object) -> int:
    """Return the exit status that Python derives from the argument of ``sys.exit``."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _can_watch() -> bool:
    """Return whether this system reports the end of a process through a pidfd; some containers' filters forbid it."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def main() -> None:
    """Load the modules, and serve the socket whose file descriptor is the first argument.

    The socket's folder, the second argument, is removed at the end. The third is GROUPING if tasks will need what it
    stands for. A process with threads must not fork, and one that
    cannot watch its children must not have any. In either case the zygote ends, and its clients start Python
    themselves.
    """
    descriptor, folder = int(sys.argv[1]), Path(sys.argv[2])
    try:
        with socket.socket(fileno=descriptor) as listener:
            gc.disable()  # until ``freeze``
            python_daemon.load()
            for name in _MODULES:
                importlib.import_module(name)
            if GROUPING in sys.argv[3:]:
                python_daemon.load_grouping()
            if python_daemon.has_threads() or not _can_watch():
                return
            python_daemon.freeze()
            ZygoteServer(listener).serve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
