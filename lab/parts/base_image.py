"""The image ``debian:bookworm-slim``, made by debootstrap from an apt mirror instead of pulled from a registry."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from ..cache import FailedError, MissingError, locked, state_folder
from .buildah import buildah, has
from .commands import run
from .debian_packages import IMAGE_PACKAGES
from .part import Made, Report, retried

IMAGE = "docker.io/library/debian:bookworm-slim"
_RELEASE = "bookworm"
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
_UNNEEDED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")
_SILENCE = 180.0
_PARTIAL = "base-"


class BaseImage:
    """The image, in the lab's store."""

    name = "base image"

    def find(self) -> None:
        """Raise ``MissingError`` if it was not made."""
        IMAGE_PACKAGES.find()
        if not has(IMAGE):
            raise MissingError(f"{self.name}: run `make lab` first")

    def make(self, report: Report) -> Made:
        """Make it if the store has none."""
        IMAGE_PACKAGES.find()
        with locked("base-image", lambda: report.say("another run makes it: waiting for that one")):
            if has(IMAGE):
                return Made(True, 0)
            return Made(False, retried(lambda: _make(report), report))


BASE_IMAGE = BaseImage()


def _make(report: Report) -> int:
    """Make the image, and return the bytes of its files. What killed runs left is removed."""
    for left in state_folder("images").glob(f"{_PARTIAL}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        dir=state_folder("images"), prefix=_PARTIAL, ignore_cleanup_errors=True
    ) as partial:
        root = Path(partial, "root")
        _debootstrap(root, report)
        for name in _UNNEEDED:
            for path in (root / name).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if _is_same_release():
            shutil.copy(_SOURCES, root / "etc/apt/sources.list.d")
            (root / "etc/apt/sources.list").write_text("")
        _commit(root)
        files = (file.lstat() for file in root.rglob("*") if file.is_file() and not file.is_symlink())
        return sum(file.st_size for file in files)


def _commit(root: Path) -> None:
    container = buildah("from", "scratch")
    try:
        buildah("add", "--quiet", container, root, "/")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        buildah("config", "--cmd", "bash", "--env", path, container)
        buildah("commit", "--quiet", container, IMAGE)
    finally:
        with suppress(FailedError):
            buildah("rm", container)


def _debootstrap(root: Path, report: Report) -> None:
    """Install from the machine's own mirror if it runs Debian, else from debootstrap's default."""
    targets = ["apt-get", "indextargets", "--format", "$(SITE)", f"Codename: {_RELEASE}"]
    mirrors = run(targets, seconds=60).splitlines()
    run(
        ["debootstrap", "--variant=minbase", _RELEASE, root, *mirrors[:1]],
        silence=_SILENCE,
        each_line=lambda line: report.progress(line.removeprefix("I: ")),
    )


def _is_same_release() -> bool:
    """Whether the machine's sources, which may name mirrors for updates, too, are right for the image."""
    return _SOURCES.exists() and f"VERSION_CODENAME={_RELEASE}" in Path("/etc/os-release").read_text()
