"""Network namespaces: what a thread does, and what it starts, happens in one of them at a time."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000

_HOST = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
"""That of the machine, in which the tests began."""


@contextmanager
def network_of(process: int) -> Iterator[None]:
    """Moves the calling thread into the network of a process and back; threads that it starts meanwhile stay there."""
    with _opened(Path(f"/proc/{process}/ns/net")) as namespace, _moved(namespace):
        yield


@contextmanager
def host_network() -> Iterator[None]:
    """Moves the calling thread into the machine's own network and back: registries are reached only there."""
    with _moved(_HOST):
        yield


@contextmanager
def _moved(namespace: int) -> Iterator[None]:
    with _opened(Path("/proc/thread-self/ns/net")) as before:
        if os.path.sameopenfile(before, namespace):  # for this, nobody needs to be root
            yield
            return
        _enter(namespace)
        try:
            yield
        finally:
            _enter(before)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
