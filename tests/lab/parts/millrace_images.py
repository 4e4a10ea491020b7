"""Millrace's own images, built of this checkout's Dockerfiles as users build them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ..cache import state_folder
from .base_image import BASE_IMAGE
from .buildah import build, export
from .part import FolderPart, Report, digest_of
from .pip_settings import pip_settings

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "cluster"
OPERATOR_IMAGE, JOBS_IMAGE = "millrace.local/operator", "millrace.local/jobs"
TAG = "1"
SCORING_IMAGE = "millrace.local/scoring:1"
"""That of the example's query: the jobs' image with an aggregator in it."""

_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_IMAGES = {
    "operator": (f"{OPERATOR_IMAGE}:{TAG}", ROOT / "images/operator/Dockerfile", ROOT),
    "jobs": (f"{JOBS_IMAGE}:{TAG}", ROOT / "images/jobs/Dockerfile", ROOT),
    "scoring": (SCORING_IMAGE, EXAMPLE / "Dockerfile", EXAMPLE),
}
_DIGEST = 64
"""Length of a layer's name."""


class MillraceImages(FolderPart):
    """A folder with an exported image in each folder: ``operator``, ``jobs`` and ``scoring``."""

    name = "Millrace's images"
    slug = "millrace-images"

    def identity(self) -> str:
        contents = [(str(path.relative_to(ROOT)).encode(), path.read_bytes()) for path in _sources()]
        return digest_of(*(each for pair in contents for each in pair))

    def fill(self, folder: Path, report: Report) -> None:
        BASE_IMAGE.find()
        for kind, (name, dockerfile, context) in _IMAGES.items():
            began = time.monotonic()
            identity = build(
                name,
                dockerfile,
                context,
                volumes=_volumes(),
                each_step=lambda step, kind=kind: report.progress(f"{kind}: {step}"),  # type: ignore[misc]
            )
            export(name, identity, folder / kind)
            self._share_layers(folder / kind)
            report.say(f"{kind}: {time.monotonic() - began:.1f} s")

    def _share_layers(self, image: Path) -> None:
        """Replace layers that another image has, too, by links to that one's. Files are named by their digests."""
        others = image.parents[2].glob(f"{self.slug}*/**/*")
        layers = {path.name: path for path in others if len(path.name) == _DIGEST and path.parent != image}
        for layer in image.iterdir():
            if layer.name in layers:
                layer.unlink()
                layer.hardlink_to(layers[layer.name])


MILLRACE_IMAGES = MillraceImages()


def _sources() -> Iterator[Path]:
    """All files that a build can see, in their order: what ``.dockerignore`` lets in, and the example."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    places = [ROOT / line.removeprefix("!") for line in lines if line.startswith("!")]
    for place in (ROOT / ".dockerignore", EXAMPLE, *places):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts and not path.parent.name.endswith(".egg-info"):
                yield path


def _volumes() -> list[str]:
    """What pip needs on this machine: its settings, the authorities it trusts, and a cache."""
    settings = state_folder("images") / "pip.conf"
    settings.write_text(pip_settings("/run/lab/authorities.crt", "/run/lab/pip"), encoding="utf-8")
    settings.chmod(0o600)
    return [
        f"{_AUTHORITIES}:/run/lab/authorities.crt:ro",
        f"{settings}:/etc/pip.conf:ro",
        f"{state_folder('pip')}:/run/lab/pip:rw",
    ]
