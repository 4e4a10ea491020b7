"""The first process of a cluster's node, in namespaces of its own: it makes mounts and a network, and then waits.

Run as ``cluster_init.py NAME ADDRESS``; it says ``ready``. When it is killed, so is all that runs in its namespaces.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_HIDDEN = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")
"""Folders that containerd, kubelet and others write to, whatever they are told: here, they have them for themselves."""

_KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""Settings that kubelet would make for the whole machine; it believes that it is as it wants them."""


def main(name: str, address: str) -> None:
    Path("/proc/sys/kernel/hostname").write_text(name)
    _make_mounts()
    _make_network(address)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what loses its parent comes to this process, and ends unseen
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
    """The node's address is on a pair of links, since not every kernel has dummy links; services are routed to it."""
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
