"""Ports of loopback that are free, and stay free while a service that listens there is down for a while."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FIRST = 10_000


def free_port() -> int:
    """A port nobody listens on, from below those that the system gives to outgoing connections.

    Such a connection could else take the port of a service that is being restarted.
    """
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(_FIRST, first_outgoing)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
