"""Container images without a registry, made of ordinary Dockerfiles in the lab's cache.

An image is a folder as buildah's transport ``dir`` writes it, with layers that are not compressed, and with the image's
name in the file ``name``.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from .buildah import buildah, file_name, folder, making
from .cache import MissingError, cached
from .debian import make_base
from .packages import install
from .pip_settings import pip_settings

_PATIENCE = 600.0
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_PROGRAMS = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "cc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
}
_PAUSE_SOURCE = Path(__file__).with_name("pause.c")

seconds_to_build: list[float] = []
"""How long it took to make each image, or to find that it is there."""


def build(name: str, dockerfile: Path, context: Path) -> Path:
    """The image that a Dockerfile makes from ``debian:bookworm-slim``; only what has changed is made anew.

    What pip needs on this machine, its settings and its cache among them, is there meanwhile, and not in the image.

    Raises:
        MissingError: a program or the base is missing, and cannot be got.
        AssertionError: the Dockerfile cannot be built; says why.
    """
    began = time.monotonic()
    install(_PROGRAMS)
    make_base()
    with making(name):
        identity = _built(name, dockerfile, context, _volumes())
        image = folder() / "made" / file_name(name)
        made = image / "identity"
        if not made.exists() or made.read_text() != identity:
            shutil.rmtree(image, ignore_errors=True)
            image.mkdir(parents=True)
            _export(name, identity, image)
            made.write_text(identity)  # last: now it is whole
    seconds_to_build.append(time.monotonic() - began)
    return image


def pause_image(name: str) -> Path:
    """The image with which a pod begins: its one program waits.

    Raises:
        MissingError: a program is missing, and cannot be got.
    """
    content = hashlib.sha256(_PAUSE_SOURCE.read_bytes()).hexdigest()[:12]
    return cached(f"pause-{content}", lambda image: _make_pause(name, image))


def _make_pause(name: str, image: Path) -> None:
    install(_PROGRAMS)
    with tempfile.TemporaryDirectory() as context:
        compiler = ["cc", "-static", "-Os", "-s", "-o", Path(context, "pause"), _PAUSE_SOURCE]
        done = subprocess.run(compiler, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        if done.returncode:
            raise MissingError(f"the C compiler cannot make the program of pause: {done.stderr.strip()}")
        dockerfile = Path(context, "Dockerfile")
        dockerfile.write_text('FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n')
        _export(name, _built(name, dockerfile, Path(context), []), image)


def _built(name: str, dockerfile: Path, context: Path, volumes: list[str]) -> str:
    """Its id."""
    options = ["--quiet", "--isolation=chroot", "--pull-never", "--layers", f"--file={dockerfile}", f"--tag={name}"]
    return buildah("build", *options, *(f"--volume={each}" for each in volumes), context).splitlines()[-1]


def _export(name: str, identity: str, image: Path) -> None:
    buildah("push", "--quiet", "--disable-compression", identity, f"dir:{image}")
    (image / "name").write_text(name)


def _volumes() -> list[str]:
    settings = folder() / "pip.conf"
    settings.write_text(pip_settings("/run/lab/authorities.crt", "/run/lab/pip"), encoding="utf-8")
    settings.chmod(0o600)
    cache = cached("pip", lambda made: None)
    return [
        f"{_AUTHORITIES}:/run/lab/authorities.crt:ro",
        f"{settings}:/etc/pip.conf:ro",
        f"{cache}:/run/lab/pip:rw",
    ]
