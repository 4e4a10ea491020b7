"""The images of a release: for each an OCI archive, and a list of what it has.

They are built by the lab's buildah from the lab's image of Debian, and from the first step on, so that all their files
have the time of the release. Debian's mirror and the lab's image decide which packages of Debian they get.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.cache import FailedError, MissingError, locked
from lab.parts.base_image import BASE_IMAGE
from lab.parts.buildah import build, buildah, export_oci, mounted
from lab.parts.debian_packages import IMAGE_PACKAGES
from lab.parts.millrace_images import build_mounts
from lab.parts.part import Report, retried
from lab.parts.printed_report import PrintedReport
from tools.sbom import image_bom

ROOT = Path(__file__).parents[1]


def write_images(folder: Path, version: str, epoch: int) -> None:
    """Build both images and write them into a folder. Exits with the reason where this machine cannot."""
    report = PrintedReport("images")
    try:
        for part in (IMAGE_PACKAGES, BASE_IMAGE):
            part.make(report)
        for kind in ("jobs", "operator"):
            with _only_for_now(epoch):
                _write_image(folder, kind, version, epoch, report)
    except (MissingError, FailedError) as error:
        raise SystemExit(f"images cannot be built: {error}") from None


def _write_image(folder: Path, kind: str, version: str, epoch: int, report: Report) -> None:
    name = f"millrace-{kind}"
    building = partial(build, f"millrace.release/{kind}:{version}", ROOT / "images" / kind / "Dockerfile", ROOT)
    report.say(f"building {name}")
    mounts = build_mounts()
    identity = retried(lambda: building(volumes=mounts, timestamp=epoch, each_step=report.progress), report)
    with mounted(identity) as root:
        (folder / f"{name}-{version}.cdx.json").write_text(image_bom(name, version, root, epoch), encoding="utf-8")
    with TemporaryDirectory(prefix="image-", dir=folder) as place:
        archive = Path(place, "image.tar")
        export_oci(f"{name}:{version}", identity, archive)
        repack(archive, folder / f"{name}-{version}.oci.tar", epoch, f"{name}:{version}")


@contextmanager
def _only_for_now(epoch: int) -> Iterator[None]:
    """Remove the images that the block leaves in the store, where they take gigabytes; the lab waits meanwhile."""
    with locked("millrace-images"):
        before = buildah("images", "--all", "--quiet", "--no-trunc").split()
        try:
            yield
        finally:
            if made := made_at(epoch, buildah("images", "--all", "--no-trunc", "--json"), before):
                buildah("rmi", *made)


def made_at(epoch: int, listing: str, before: Collection[str]) -> list[str]:
    """Return the ids of the new images with the time of the release: others that are built meanwhile have their own.

    Args:
        epoch: time of the release, in seconds since 1970.
        listing: the images of the store, as buildah prints them in JSON.
        before: ids of the images that are not new.
    """
    return [each["id"] for each in json.loads(listing) if each["created"] == epoch and each["id"] not in before]


def repack(archive: Path, target: Path, epoch: int, image: str) -> None:
    """Write an archive again with a fixed order, time and owner, in place of those of buildah's temporary files.

    The image also gets the name by which kubelet looks for it where containerd has imported the archive.
    """
    with tarfile.open(archive) as old, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted((each for each in old.getmembers() if each.isfile()), key=lambda each: each.name):
            content = old.extractfile(member)
            assert content is not None, "it is a file"
            again = tarfile.TarInfo(member.name)
            again.size, again.mtime = member.size, epoch
            if member.name == "index.json":
                index = with_image_name(content.read(), image)
                again.size, content = len(index), io.BytesIO(index)
            new.addfile(again, content)


def with_image_name(index: bytes, image: str) -> bytes:
    """Return the index of an OCI archive with containerd's annotation for the name of its image.

    By the annotation of OCI alone, containerd takes the name as it is, ``NAME:TAG``, while kubelet asks for the full
    one, with Docker's registry, of an image that has no other.
    """
    document = json.loads(index)
    for manifest in document["manifests"]:
        manifest["annotations"] = {
            **manifest.get("annotations", {}),
            "io.containerd.image.name": f"docker.io/library/{image}",
        }
    return json.dumps(document).encode()
