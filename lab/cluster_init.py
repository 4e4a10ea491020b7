"""The first process of a cluster's node, in its own namespaces: it makes mounts and a network, and then waits.

Run as ``cluster_init.py NAME ADDRESS``; it prints ``ready``. Killing it kills everything in its namespaces.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_HIDDEN = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")
"""Folders that containerd and kubelet write to regardless of their settings. Here each is private to the node."""

_KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""Settings that kubelet would change for the whole machine. It sees the values that it wants and leaves them alone."""


def main(name: str, address: str) -> None:
    Path("/proc/sys/kernel/hostname").write_text(name)
    _make_mounts()
    _make_network(address)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans become children of this process, and must not stay zombies
    print("ready", flush=True)
    while True:
        signal.pause()


def _make_mounts() -> None:
    _run("mount", "--make-rshared", "/")
    for folder in _HIDDEN:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "lab", folder)
    for setting, value in _KERNEL.items():
        with tempfile.NamedTemporaryFile("w", dir="/run", delete=False) as file:
            file.write(f"{value}\n")
        _run("mount", "--bind", file.name, f"/proc/sys/{setting}")


def _make_network(address: str) -> None:
    """Put the node's address on a veth pair, since not every kernel has dummy links, and route services to it."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node0-peer")
    _run("ip", "link", "set", "node0-peer", "up")
    _run("ip", "address", "add", f"{address}/32", "dev", "node0")
    _run("ip", "link", "set", "node0", "up")
    _run("ip", "route", "add", "default", "dev", "node0")
    for setting in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
        Path("/proc/sys/net", setting).write_text("1")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
