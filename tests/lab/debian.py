"""The image ``debian:bookworm-slim`` without a registry of images: made of Debian's packages, from where apt gets them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from .buildah import buildah, folder, has, making
from .cache import MissingError
from .networks import host_network

IMAGE = "docker.io/library/debian:bookworm-slim"
_RELEASE = "bookworm"
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
_UNNEEDED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")
_PATIENCE = 1800.0


def make_base() -> None:
    """Make it where buildah's store has none.

    Raises:
        MissingError: debootstrap fails.
    """
    with making(IMAGE):
        if not has(IMAGE):
            _make()


def _make() -> None:
    with tempfile.TemporaryDirectory(dir=folder()) as partial:
        root = Path(partial, "root")
        _debootstrap(root)
        for name in _UNNEEDED:
            for path in (root / name).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if _is_same_release():
            shutil.copy(_SOURCES, root / "etc/apt/sources.list.d")
            (root / "etc/apt/sources.list").write_text("")
        container = buildah("from", "scratch")
        buildah("add", "--quiet", container, root, "/")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        buildah("config", "--cmd", "bash", "--env", path, container)
        buildah("commit", "--quiet", "--rm", container, IMAGE)


def _debootstrap(root: Path) -> None:
    """From the machine's own mirror if it is a Debian, else from debootstrap's usual one."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", f"Codename: {_RELEASE}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout.splitlines()
    with host_network():
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", _RELEASE, root, *listed[:1]],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    if done.returncode:
        raise MissingError(f"debootstrap fails: {done.stdout.strip()[-500:]}")


def _is_same_release() -> bool:
    """Whether the machine's sources, which may name mirrors for updates, too, are right for the image."""
    return _SOURCES.exists() and f"VERSION_CODENAME={_RELEASE}" in Path("/etc/os-release").read_text()
