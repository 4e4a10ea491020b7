"""A control group of Linux, which counts the processor time of a command and of all that it starts, ended or running.

Sums over ``/proc`` miss a process that ends without being waited for, such as Spark's Python workers.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.processes import Command

_ENTER = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
_PATIENCE = 10.0


class ControlGroup:
    """A control group of this process's own control group, in version 1 or 2 of the kernel's interface.

    Args:
        folder: its folder, which exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, command: Command) -> Sequence[str | os.PathLike[str]]:
        """Return a command that enters the group and then becomes ``command``."""
        return ["/bin/sh", "-c", _ENTER, self.folder, *command]

    def seconds(self) -> float:
        """Return the processor time of all processes of the group so far, in seconds."""
        with suppress(FileNotFoundError):
            return int((self.folder / "cpuacct.usage").read_text()) / 1e9
        values = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(values["usage_usec"]) / 1e6

    def remove(self) -> None:
        """Remove the group once its last process has ended; raise OSError if that takes too long."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextmanager
def control_group() -> Iterator[ControlGroup | None]:
    """Make a control group for the length of the block; yield None where this user cannot make one."""
    parent = accounting_folder(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    group = None
    if parent is not None:
        with suppress(OSError):
            folder = parent / f"millrace-bench-{uuid.uuid4().hex[:8]}"
            folder.mkdir()
            group = ControlGroup(folder)
    try:
        yield group
    finally:
        if group is not None:
            group.remove()


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
