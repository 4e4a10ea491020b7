"""Free ports, which stay free while a service that listens on them is down."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FIRST = 10_000
_NODE_PORTS = 30_000
"""First port that Kubernetes may assign to services."""

_given: set[int] = set()


def free_port() -> int:
    """Return a port that is free on every address of this machine, and that this process has not been given before.

    It is below the ports of outgoing connections. Otherwise, such a connection could take the port of a service that is
    being restarted.
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
