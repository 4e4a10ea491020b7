"""Buildah with a store in the lab's cache, so that the machine's own images are neither seen nor touched.

An exported image is a folder as buildah's transport ``dir`` writes it, with layers that are not compressed, and with the
image's name in the file ``name``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..cache import state_folder
from .commands import run

_SECONDS = 3600.0
_STEP = re.compile(r"(?:\[.*?\] )?STEP \d+/\d+: (.{0,70})")


def has(image: str) -> bool:
    """Return whether the store has an image of this name."""
    return image in buildah("images", "--format", "{{.Name}}:{{.Tag}}").splitlines()


def build(
    name: str,
    dockerfile: Path,
    context: Path,
    *,
    volumes: Sequence[str] = (),
    timestamp: int | None = None,
    each_step: Callable[[str], None] = lambda step: None,
) -> str:
    """Build an image of what is in the store, and return its id; steps that have not changed are taken from before.

    Args:
        name: tag of the new image.
        dockerfile, context: what to build.
        volumes: mounts that exist only during the build.
        timestamp: the time of the image and all its new files, in seconds since 1970; then no step is taken from
            before, since its files have other times. None for the times at which things are made.
        each_step: called with each step of the Dockerfile.

    Raises:
        FailedError: if it cannot be built.
    """
    with tempfile.TemporaryDirectory() as folder:
        identity = Path(folder, "id")
        options = ["--isolation=chroot", "--pull-never", "--layers", f"--file={dockerfile}", f"--tag={name}"]
        options += [] if timestamp is None else [f"--timestamp={timestamp}", "--no-cache"]
        mounts = [f"--volume={each}" for each in volumes]

        def match_step(line: str) -> None:
            step = _STEP.match(line)
            if step:
                each_step(step[1])

        buildah("build", *options, *mounts, f"--iidfile={identity}", context, each_line=match_step)
        return identity.read_text(encoding="utf-8").strip()


def export(name: str, identity: str, folder: Path) -> None:
    """Write an image into a folder that is empty or not there."""
    buildah("push", "--quiet", "--disable-compression", identity, f"dir:{folder}")
    (folder / "name").write_text(name, encoding="utf-8")


def export_oci(name: str, identity: str, file: Path) -> None:
    """Write an image into an OCI archive, under this name."""
    buildah("push", "--quiet", identity, f"oci-archive:{file}:{name}")


@contextmanager
def mounted(identity: str) -> Iterator[Path]:
    """Give the folder in which an image's files can be read during the block."""
    container = buildah("from", "--pull-never", identity)
    try:
        yield Path(buildah("mount", container))
    finally:
        buildah("rm", container)


def buildah(*arguments: str | Path, each_line: Callable[[str], None] = lambda line: None) -> str:
    """Return what a command of buildah prints. Raises ``MissingError`` where it fails."""
    folder = state_folder("images")
    store: list[str | Path] = ["--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "overlay"]
    return run(["buildah", *store, *arguments], seconds=_SECONDS, each_line=each_line).strip()
