"""Buildah with a store in the lab's cache, so that nothing of the machine's own images is seen or touched."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .cache import cached
from .networks import host_network

_PATIENCE = 3600.0


def folder() -> Path:
    """Where images and what belongs to them are kept."""
    return cached("images", lambda made: None)


@contextmanager
def making(image: str) -> Iterator[None]:
    """Others who want to make this image wait meanwhile."""
    with (folder() / f"{file_name(image)}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def file_name(image: str) -> str:
    """For what belongs to an image, by the image's name."""
    return image.replace("/", "_").replace(":", "_")


def has(image: str) -> bool:
    """Whether the store has an image of this name."""
    return image in buildah("images", "--format", "{{.Name}}:{{.Tag}}").splitlines()


def buildah(*arguments: str | Path) -> str:
    """What a command of buildah prints; an ``AssertionError`` where it fails, as for a Dockerfile that is wrong."""
    store = ["--root", folder() / "store", "--runroot", folder() / "run", "--storage-driver", "overlay"]
    with host_network():
        done = subprocess.run(
            ["buildah", *store, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    assert done.returncode == 0, f"buildah {arguments[0]} fails: {done.stdout}{done.stderr}"[-3000:]
    return done.stdout.strip()
