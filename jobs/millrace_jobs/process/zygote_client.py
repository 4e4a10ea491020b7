"""Stand-in for a Python process that Spark starts; a child of the zygote does the actual work.

    python -I -S zygote_client.py PYTHON -m MODULE ARGUMENTS

The client hands its arguments, environment, working folder and standard streams to the zygote, forwards signals, and
exits with the child's status. If the zygote does not answer, the client replaces itself with the process that Spark
wanted, with PYTHON as the interpreter.

The request is one byte that carries the streams, the length of the JSON in four bytes, and the JSON. The answer is one
byte when the child has started, and one byte with its exit status when it has ended. In between, each signal is sent
as one byte with its number. This file imports little: every start of a Python process waits for it.
"""

import json
import os
import signal
import socket
import sys

ADDRESS = "MILLRACE_ZYGOTE"
"""Environment variable with the path of the zygote's socket."""

GROUPING = "grouping"
"""Argument of a zygote whose tasks will hash keys and group records."""

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_UNKNOWN = 1
"""Exit status used if the child's own was not reported."""


def main() -> None:
    """Request a child, and exit when it has ended."""
    connection = socket.socket(socket.AF_UNIX)
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until there is a child to receive them
    try:
        folder = os.getcwd()  # noqa: PTH109 - pathlib takes long to import; fails if the folder was deleted
        request = json.dumps([sys.argv[2:], dict(os.environ), folder]).encode()
        connection.connect(os.environ[ADDRESS])  # the zygote answers no other client until it has the request
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
    """Replace this process with the one that Spark wanted, without a zygote."""
    del os.environ[ADDRESS]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
