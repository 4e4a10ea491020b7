"""Signals and process groups: what Ctrl-C and SIGTERM do to a command, and to the processes that it starts.

A command handles Ctrl-C (SIGINT) and SIGTERM: the first one shuts it down gracefully, a second one ends it at once.
A signal often goes to the whole process group, as from a terminal, ``timeout`` or CI, and would then end Spark's JVM in
the middle of a batch. So children run in process sessions of their own, and end when their standard input closes, which
happens even if the command is killed. That does not protect them from a signal to a whole control group,
which systemd sends by default: docs/pipeline.md has the setting for that.

``zygote_client`` forwards the signals that Spark sends to its Python processes. It must import little, so it does that
itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_SHUTDOWN_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def on_shutdown_request(handle: Callable[[int], None]) -> Callable[[], None]:
    """Call ``handle`` with the number of each Ctrl-C and SIGTERM; return a function that restores the handlers."""
    before = {number: signal.signal(number, lambda number, _: handle(number)) for number in _SHUTDOWN_SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


class GracefulShutdown:
    """The shutdown of a run in two steps, by signals that arrive after ``listen``.

    The first Ctrl-C or SIGTERM calls ``stop``, which asks the run to end. A second one calls ``abandon``, and ends this
    process with the status of the signal. ``give_up`` is called, in a thread, if the run goes on for ``grace`` seconds
    after the first one: ``cancel``, at the end of the run, prevents that.
    """

    def __init__(
        self, stop: Callable[[], None], abandon: Callable[[], None], give_up: Callable[[], None], grace: float
    ) -> None:
        self._stop, self._abandon = stop, abandon
        self._is_requested = False
        self._overdue = threading.Timer(grace, give_up)
        self._overdue.daemon = True

    def listen(self) -> None:
        """Handle the signals from now on, also after ``cancel``."""
        on_shutdown_request(self._handle)

    def cancel(self) -> None:
        """Stop waiting for the end of the run: it has ended."""
        self._overdue.cancel()

    def _handle(self, number: int) -> None:
        if self._is_requested:
            self._abandon()
            os._exit(128 + number)
        self._is_requested = True
        self._stop()
        self._overdue.start()


def restore_default_action(number: int) -> None:
    """Let the next signal of this number end the process at once."""
    signal.signal(number, signal.SIG_DFL)


@contextmanager
def interrupt_handler_kept() -> Iterator[None]:
    """Restore the Ctrl-C handler afterwards: a new SparkContext installs one that cancels even the running batch."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def start_child(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    *,
    quiet: bool,
    pass_fds: Sequence[int] = (),
    output: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that no signal to this process's group reaches.

    It must end when its standard input closes. ``quiet`` discards its output; ``output`` is a file for it instead.
    """
    output = subprocess.DEVNULL if quiet else output
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env=environment,
        pass_fds=pass_fds,
        start_new_session=True,
    )


def end_child(process: subprocess.Popen[Any], seconds: float) -> None:
    """Close a child's standard input, which ends it, and wait; it is killed if that takes longer than ``seconds``."""
    with suppress(OSError):  # it has ended, with input that it has not read
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
