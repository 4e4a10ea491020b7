"""Stands where Spark has started a Python process, while a child of the zygote does that process's work.

    python -I -S zygote_client.py PYTHON -m MODULE ARGUMENTS

Hands its arguments, environment, folder and standard streams to the zygote, passes on signals, and ends as the child
does. Where the zygote does not answer, it becomes the process itself, with PYTHON as the interpreter.

The request: one byte that carries the streams, the length of what follows in four bytes, and JSON. The answer: one byte
when the child is there, and one with its exit status when it has ended. Between them, a signal is its number in a byte.
This file imports little: every start of a Python process waits for it.
"""

import json
import os
import signal
import socket
import sys

ADDRESS = "MILLRACE_ZYGOTE"
"""Variable of the environment with the path of the zygote's socket."""

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_UNKNOWN = 1
"""Exit status of a child whose own was not reported."""


def main() -> None:
    """Ask for a child, and end when it has ended."""
    connection = socket.socket(socket.AF_UNIX)
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until the child is there to have them
    try:
        connection.connect(os.environ[ADDRESS])
        request = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode()  # noqa: PTH109 - pathlib takes long to import
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        connection.sendall(len(request).to_bytes(4, "big") + request)
        started = connection.recv(1)
    except OSError:
        started = b""
    if not started:
        _run_it_here()
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    try:
        status = connection.recv(1)
    except OSError:
        status = b""
    os._exit(status[0] if status else _UNKNOWN)


def _run_it_here() -> None:
    """Become what Spark has asked for, without a zygote."""
    del os.environ[ADDRESS]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
