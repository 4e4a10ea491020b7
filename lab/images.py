"""Images that tests build from the lab's images."""

from __future__ import annotations

from pathlib import Path

from .cache import FailedError
from .parts import buildah
from .parts.millrace_images import MILLRACE_IMAGES


def build(name: str, dockerfile: Path, context: Path, folder: Path) -> Path:
    """Build an image from one of the lab's without a network, and return the folder that it is exported to.

    Raises:
        MissingError: if the lab's images were not made.
        AssertionError: if the Dockerfile cannot be built.
    """
    with MILLRACE_IMAGES.named():
        try:
            buildah.export(name, buildah.build(name, dockerfile, context), folder)
        except FailedError as error:
            raise AssertionError(f"{dockerfile}: {error}") from error
    return folder
