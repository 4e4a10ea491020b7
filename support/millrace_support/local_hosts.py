"""Whether a request came by a local host name, as a guard against DNS rebinding.

A page of another site, whose name resolves to this machine, reaches ports of the loopback interface through the
browser of a user here; its requests still have the name of that site.
"""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit

_LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


def is_local(host: str) -> bool:
    """Return whether a ``Host`` header, with or without a port, names this machine."""
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname in _LOCAL_NAMES
    return False
