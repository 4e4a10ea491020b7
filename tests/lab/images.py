"""Images that tests make of those that the lab has."""

from __future__ import annotations

from pathlib import Path

from .cache import FailedError
from .parts import buildah
from .parts.millrace_images import MILLRACE_IMAGES


def build(name: str, dockerfile: Path, context: Path, folder: Path) -> Path:
    """Build an image from one of the lab's, without any network, and return the folder that it is exported to.

    Raises:
        MissingError: the lab's images were not made.
        AssertionError: the Dockerfile cannot be built; says why.
    """
    with MILLRACE_IMAGES.named():
        try:
            buildah.export(name, buildah.build(name, dockerfile, context), folder)
        except FailedError as error:
            raise AssertionError(f"{dockerfile}: {error}") from error
    return folder
