"""The pause image, which holds the namespaces of a pod."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .buildah import build, export
from .commands import run
from .debian_packages import IMAGE_PACKAGES
from .part import FolderPart, Report, digest_of

PAUSE = "millrace.local/pause:1"
_SOURCE = Path(__file__).with_name("pause.c")
_DOCKERFILE = 'FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n'


class PauseImage(FolderPart):
    """A folder with the exported image."""

    name = "pause image"
    slug = "pause"

    def identity(self) -> str:
        return digest_of(_SOURCE.read_bytes(), _DOCKERFILE.encode())

    def fill(self, folder: Path, report: Report) -> None:
        IMAGE_PACKAGES.find()
        with tempfile.TemporaryDirectory() as context:
            run(["cc", "-static", "-Os", "-s", "-o", Path(context, "pause"), _SOURCE], seconds=120)
            dockerfile = Path(context, "Dockerfile")
            dockerfile.write_text(_DOCKERFILE, encoding="utf-8")
            export(PAUSE, build(PAUSE, dockerfile, Path(context)), folder)


PAUSE_IMAGE = PauseImage()
