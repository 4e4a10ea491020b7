"""Network namespaces: a thread, and everything that it starts, is in one at a time."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


@contextmanager
def network_of(process: int) -> Iterator[None]:
    """Move the calling thread into the network of a process and back. Threads started in the meantime stay there."""
    with _opened(Path(f"/proc/{process}/ns/net")) as inside, _opened(Path("/proc/thread-self/ns/net")) as before:
        _enter(inside)
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
