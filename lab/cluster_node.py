"""The simulated machine of a cluster, with its own namespaces and control groups: see ``Node``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .processes import Process, command_of

_INIT = Path(__file__).with_name("cluster_init.py")
_PATIENCE = 60.0
_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
"""Controllers of control groups version 2 that kubelet asks for if the kernel has them."""


class Node:
    """A machine with its own mounts, process ids, network, host name and control groups, invisible from outside.

    Args:
        folder: folder for its log.
        name: host name.
        address: address of its network link.
    """

    def __init__(self, folder: Path, name: str, address: str) -> None:
        self._folder, self._name, self._address = folder, name, address
        self.cgroup = f"millrace-{os.getpid()}"
        """Parent of all control groups of pods."""
        self.pid = 0
        """Id of its first process, as seen from outside."""
        self._process: Process | None = None

    def start(self) -> None:
        """Create the node, and remove what is left of nodes whose tests were killed."""
        self._remove_stale_cgroups()
        self._make_cgroups()
        _load_kernel_modules()
        namespaces = ("--mount", "--pid", "--net", "--uts", "--ipc")
        unshare = ["unshare", *namespaces, "--fork", "--kill-child", "--mount-proc"]
        command = [*unshare, sys.executable, str(_INIT), self._name, self._address]
        self._process = Process(command, self._folder / "node.log")
        deadline = time.monotonic() + _PATIENCE
        while "ready" not in self._process.said:
            assert self._process.status is None, f"the node ended: {self._process.said}"
            assert time.monotonic() < deadline, f"no node in {_PATIENCE} s: {self._process.said}"
            time.sleep(0.02)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.pid = int(children.read_text())

    def inside(self, *command: str | Path) -> list[str | Path]:
        """Return a command that runs ``command`` on the node."""
        namespaces = ("--mount", "--pid", "--net", "--uts", "--ipc")
        return ["nsenter", f"--target={self.pid}", *namespaces, "--", *command]

    def stop(self) -> None:
        """End all processes of the node, and remove its control groups."""
        if self._process is not None:
            self._process.kill()
            deadline = time.monotonic() + _PATIENCE
            while Path(f"/proc/{self.pid}").exists():  # until the last process of its namespaces has ended
                assert time.monotonic() < deadline, f"process {self.pid} does not end"
                time.sleep(0.02)
        for hierarchy in _hierarchies():
            _remove(hierarchy / self.cgroup)

    def _make_cgroups(self) -> None:
        for hierarchy in _hierarchies():
            subtree = hierarchy / "cgroup.subtree_control"
            if subtree.exists():
                offered = (hierarchy / "cgroup.controllers").read_text().split()
                subtree.write_text(" ".join(f"+{name}" for name in _CONTROLLERS if name in offered))
            group = hierarchy / self.cgroup
            group.mkdir()
            for setting in ("cpuset.cpus", "cpuset.mems"):  # a new group of version 1 has none
                if (hierarchy / setting).exists():
                    (group / setting).write_text((hierarchy / setting).read_text())

    def _remove_stale_cgroups(self) -> None:
        for hierarchy in _hierarchies():
            for group in hierarchy.glob("millrace-*"):
                owner = group.name.rpartition("-")[2]
                if owner.isdecimal() and (int(owner) == os.getpid() or not command_of(int(owner))):
                    _remove(group)


def _hierarchies() -> Iterator[Path]:
    """Yield where control groups are mounted: one place, or one for each kind of control in version 1."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount = re.match(r"(?:\S+ ){4}(\S+) .* - (\S+) ", line)
        if mount is not None and mount[2] in ("cgroup", "cgroup2"):
            yield Path(mount[1])


def _remove(group: Path) -> None:
    """Remove a control group and its children. The kernel may keep one briefly after its last process has ended."""
    deadline = time.monotonic() + _PATIENCE
    while group.exists():
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        assert time.monotonic() < deadline, f"the control group {group} cannot be removed"


def _load_kernel_modules() -> None:
    """Load the kernel modules that are not built in."""
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "--all", "--quiet", "overlay", "br_netfilter"], check=False)
