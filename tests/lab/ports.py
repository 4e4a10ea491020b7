"""Ports that are free, and stay free while a service that listens there is down for a while."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FIRST = 10_000
_NODE_PORTS = 30_000
"""From here on Kubernetes gives ports to services."""

_given: set[int] = set()


def free_port() -> int:
    """A port that is free at every address of this machine, and that this process was not given before.

    It is below those that the system gives to outgoing connections: such a connection could else take the port of a
    service that is being restarted.
    """
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(_FIRST, min(first_outgoing, _NODE_PORTS))
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
