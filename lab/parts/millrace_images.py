"""Millrace's own images, built from this checkout's Dockerfiles as users build them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ..cache import locked, state_folder
from .base_image import BASE_IMAGE
from .buildah import build, buildah, export
from .part import FolderPart, Report, digest_of, retried
from .pip_settings import pip_settings

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "cluster"
OPERATOR_IMAGE, JOBS_IMAGE = "millrace.local/operator", "millrace.local/jobs"
TAG = "1"
SCORING_IMAGE = "millrace.local/scoring:1"
"""Image of the example's query: the jobs' image with an aggregator added."""

_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_JAVA_AUTHORITIES = Path("/etc/ssl/certs/java/cacerts")
_IMAGES = {
    "operator": (f"{OPERATOR_IMAGE}:{TAG}", ROOT / "images/operator/Dockerfile", ROOT),
    "jobs": (f"{JOBS_IMAGE}:{TAG}", ROOT / "images/jobs/Dockerfile", ROOT),
    "scoring": (SCORING_IMAGE, EXAMPLE / "Dockerfile", EXAMPLE),
}
_DIGEST = 64
"""Length of a layer's name."""


class MillraceImages(FolderPart):
    """A folder with an exported image in each folder: ``operator``, ``jobs`` and ``scoring``.

    The file ``id`` in each has the image's id in buildah's store, since the name may now belong to another checkout.
    """

    name = "Millrace's images"
    slug = "millrace-images"

    def identity(self) -> str:
        return digest_of(*(each for path in _sources() for each in _described(path)))

    def fill(self, folder: Path, report: Report) -> None:
        BASE_IMAGE.find()
        for kind, (name, dockerfile, context) in _IMAGES.items():
            began = time.monotonic()

            def report_step(step: str, kind: str = kind) -> None:
                report.progress(f"{kind}: {step}")

            arguments = (name, dockerfile, context)
            identity = retried(partial(build, *arguments, volumes=build_mounts(), each_step=report_step), report)
            export(name, identity, folder / kind)
            (folder / kind / "id").write_text(identity, encoding="utf-8")
            share_layers(folder / kind, folder.parents[1].glob(f"{self.slug}*/**/*"))
            report.say(f"{kind}: {time.monotonic() - began:.1f} s")

    def problem(self, folder: Path) -> str | None:
        known = buildah("images", "--all", "--quiet", "--no-trunc").split()
        gone = [kind for kind in _IMAGES if _id(folder, kind) not in known]
        return f"the store has lost the image {gone[0]}" if gone else None

    @contextmanager
    def named(self) -> Iterator[None]:
        """Give the images' names in the store to the images of this checkout during the ``with`` block.

        Raises:
            MissingError: if the images were not made.
        """
        folder = self.find()
        with locked(self.slug):
            for kind, (name, _, _) in _IMAGES.items():
                buildah("tag", _id(folder, kind), name)
            yield


def share_layers(image: Path, others: Iterable[Path]) -> None:
    """Replace layers of an exported image by hard links to identical layers of other images.

    Layers are named after their digests. A file whose content does not match its name is not linked to.
    """
    layers = {path.name: path for path in others if len(path.name) == _DIGEST and path.parent != image}
    for layer in image.iterdir():
        other = layers.get(layer.name)
        if other is not None and _digest(other) == other.name:
            layer.unlink()
            layer.hardlink_to(other)


MILLRACE_IMAGES = MillraceImages()


def _sources() -> Iterator[Path]:
    """Yield all files that a build can see, in order: those that ``.dockerignore`` admits, and the example."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    places = [ROOT / line.removeprefix("!") for line in lines if line.startswith("!")]
    for place in (ROOT / ".dockerignore", EXAMPLE, *places):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts and not path.parent.name.endswith(".egg-info"):
                yield path


def _described(path: Path) -> Iterator[bytes]:
    """Return the path, the executable bit and the content of a file, for a digest."""
    yield str(path.relative_to(ROOT)).encode()
    yield b"program" if path.stat().st_mode & 0o100 else b""
    yield path.read_bytes()


def _id(folder: Path, kind: str) -> str:
    return (folder / kind / "id").read_text(encoding="utf-8")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_mounts() -> list[str]:
    """Return the mounts that pip and Maven need on this machine: settings, the authorities they trust, and a cache."""
    settings = state_folder("images") / "pip.conf"
    settings.write_text(pip_settings("/run/lab/authorities.crt", "/run/lab/pip"), encoding="utf-8")
    settings.chmod(0o600)
    return [
        f"{_AUTHORITIES}:/run/lab/authorities.crt:ro",
        f"{settings}:/etc/pip.conf:ro",
        f"{state_folder('pip')}:/run/lab/pip:rw",
        *_for_maven(),
    ]


def _for_maven() -> Iterator[str]:
    """Yield the mounts of this machine's settings of Maven, and of the authorities that its Java trusts."""
    options, lines = state_folder("images") / "mavenrc", []
    if _JAVA_AUTHORITIES.is_file():
        lines.append("MAVEN_OPTS=-Djavax.net.ssl.trustStore=/run/lab/java-authorities")
        yield f"{_JAVA_AUTHORITIES}:/run/lab/java-authorities:ro"
    if (settings := Path.home() / ".m2" / "settings.xml").is_file():
        lines.append('MAVEN_CONFIG="--settings /run/lab/maven-settings.xml"')
        yield f"{settings}:/run/lab/maven-settings.xml:ro"
    options.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    yield f"{options}:/etc/mavenrc:ro"
