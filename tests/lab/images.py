"""Images that tests make of those that the lab has."""

from __future__ import annotations

from pathlib import Path

from .parts import buildah
from .parts.base_image import BASE_IMAGE


def build(name: str, dockerfile: Path, context: Path, folder: Path) -> Path:
    """Build an image from one of the lab's, without any network, and return the folder that it is exported to.

    Raises:
        MissingError: the lab's images were not made, or the Dockerfile cannot be built.
    """
    BASE_IMAGE.find()
    buildah.export(name, buildah.build(name, dockerfile, context), folder)
    return folder
