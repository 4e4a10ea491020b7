"""Processor time and memory of a command with everything that it starts, by a control group of its own on Linux."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from bench.processes import Command
from bench.processor_time import tree, tree_seconds

_ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
_PATIENCE = 10.0


class ProcessAccount(Protocol):
    """What a command and all that it starts have used; ``started`` has to be called with the command's process id."""

    def command(self, command: Command) -> Command:
        """Return what to run in the place of ``command``. It has the same process id."""

    def started(self, process: int) -> None:
        """Take note of the command's process id."""

    def processor_seconds(self) -> float:
        """Return the processor time so far in seconds, including that of ended processes."""

    def memory(self) -> int:
        """Return the memory in bytes that is not a file's. Pages that several processes share count once."""


class ControlGroup:
    """A control group (version 1 or 2) for a command, from which none of its descendants can get out.

    The kernel adds up its processor time. Memory is summed over the processes in the group, because the kernel's sum
    would include the page cache of every file that they read or write.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, command: Command) -> Command:
        """Return a command that enters the group, and then becomes ``command``."""
        return ["sh", "-c", _ENTER, str(self._folder), *command]

    def started(self, process: int) -> None:
        """Do nothing: the kernel knows the processes of the group."""

    def processor_seconds(self) -> float:
        """Return the processor time of the group so far, in seconds."""
        with suppress(FileNotFoundError):
            return int((self._folder / "cpuacct.usage").read_text()) / 1e9
        fields = dict(line.split() for line in (self._folder / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def memory(self) -> int:
        """Return the memory of the group's processes in bytes."""
        return sum(map(_own_bytes, self._processes()))

    def end(self) -> None:
        """Kill the processes that are left, and remove the group. One that stays busy is left to the machine."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            for process in self._processes():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            with suppress(OSError):  # killed processes take a moment to leave
                self._folder.rmdir()
                return
            time.sleep(0.05)

    def _processes(self) -> list[int]:
        return [int(line) for line in (self._folder / "cgroup.procs").read_text().split()]


class ProcessTree:
    """The descendants of a command, where no control group can be made.

    A process that outlives its parent is not counted from then on.
    """

    def __init__(self) -> None:
        self._root: int | None = None

    def command(self, command: Command) -> Command:
        """Return the command unchanged."""
        return command

    def started(self, process: int) -> None:
        """Count this process and its descendants."""
        self._root = process

    def processor_seconds(self) -> float:
        """Return the processor time of the tree so far, in seconds."""
        return 0.0 if self._root is None else tree_seconds(self._root)

    def memory(self) -> int:
        """Return the memory of the tree in bytes."""
        return 0 if self._root is None else sum(map(_own_bytes, tree(self._root)))


@contextmanager
def process_account() -> Iterator[ProcessAccount]:
    """Make an account for one command: a control group for the length of the block, or else a process tree."""
    parent = accounting_folder(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    folder = None if parent is None else parent / f"millrace-bench-{uuid.uuid4().hex[:8]}"
    try:
        if folder is not None:
            folder.mkdir()
    except OSError:  # this user may not make one
        folder = None
    if folder is None:
        yield ProcessTree()
        return
    group = ControlGroup(folder)
    try:
        yield group
    finally:
        group.end()


def accounting_folder(mounts: str, groups: str) -> Path | None:
    """Return the folder of the control group that counts this process's processor time, or None.

    Args:
        mounts: what ``/proc/self/mounts`` has.
        groups: what ``/proc/self/cgroup`` has: lines of number, controllers and path.
    """
    mounted = list(_mounted(mounts))
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers.split(","):
            for kind, folder, options in mounted:
                if kind == "cgroup" and "cpuacct" in options:
                    return folder / path.lstrip("/")
    for line in groups.splitlines():
        if line.startswith("0::"):
            for kind, folder, _ in mounted:
                if kind == "cgroup2":
                    return folder / line[3:].lstrip("/")
    return None


def _mounted(mounts: str) -> Iterable[tuple[str, Path, Sequence[str]]]:
    for line in mounts.splitlines():
        _, folder, kind, options, *_ = line.split()
        yield kind, Path(folder), options.split(",")


def _own_bytes(process: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines[1:])
        return sum(int(fields[name].split()[0]) for name in ("Pss_Anon", "Pss_Shmem")) * 1024
    return 0
