"""The container runtime of a cluster, and its images: see ``Containerd``."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from typing import IO, Any

from .cache import state_folder

_PATIENCE = 60.0
_IMPORTS = 3

seconds_to_load: list[float] = []
"""Seconds to load each image into a cluster."""


class Containerd:
    """The container runtime's data for the life of a cluster.

    Images are kept in the lab's cache from one cluster to the next, since unpacking them takes long. While another
    cluster runs, this one starts without images and keeps none.

    Args:
        folder: the cluster's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "containerd.sock"
        kept = state_folder("containerd")
        self._lock = (kept / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.root = kept / "root"
        except BlockingIOError:
            self.root = folder / "containerd"
        self._is_kept = self.root.parent == kept

    def wait_until_ready(self) -> None:
        """Wait until the socket answers."""
        deadline = time.monotonic() + _PATIENCE
        while self._ctr("version").returncode:
            assert time.monotonic() < deadline, f"containerd does not answer at {self.socket}"
            time.sleep(0.05)

    def remove_stale(self) -> bool:
        """Remove what the previous cluster left, except named images. Return whether there were containers."""
        containers = self._list("containers", "ls", "--quiet")
        if containers:
            assert self._ctr("containers", "rm", *containers).returncode == 0
        images = [line.split()[:3] for line in self._list("images", "ls")[1:]]
        named = {digest for name, _, digest in images if not name.startswith("sha256:")}
        nameless = [name for name, _, digest in images if digest not in named]
        if nameless:
            self._ctr("images", "rm", *nameless)
        return bool(containers)

    def load(self, image: Path) -> None:
        """Import an exported image without the layers that containerd already has.

        In the meantime, containerd may remove layers of the former image of that name, including shared ones. The import
        then fails, and the next attempt brings these layers along.
        """
        began = time.monotonic()
        problem = ""
        for _ in range(_IMPORTS):
            problem = self._import(image)
            if not problem:
                break
        assert not problem, f"containerd does not take {image}: {problem}"
        seconds_to_load.append(time.monotonic() - began)

    def _import(self, image: Path) -> str:
        """Import the image, and return containerd's error message, or an empty string."""
        known = set(self._list("content", "ls", "--quiet"))
        command = [*self._command(), "images", "import", "-"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as importing:
            assert importing.stdin is not None
            assert importing.stderr is not None
            _write_layout(image, known, importing.stdin)
            importing.stdin.close()
            said = importing.stderr.read().decode()
        return said or f"status {importing.returncode}" if importing.returncode else ""

    def close(self) -> None:
        """Release the images to the next cluster, after containerd has ended."""
        if not self._is_kept:
            shutil.rmtree(self.root, ignore_errors=True)
        self._lock.close()

    def _list(self, *arguments: str) -> list[str]:
        done = self._ctr(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command(), *arguments], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )

    def _command(self) -> list[str | Path]:
        return ["ctr", "--address", self.socket, "--namespace", "k8s.io"]


def _write_layout(image: Path, known: set[str], stream: IO[bytes]) -> None:
    """Write the image as an OCI image layout into an archive, without the contents that are known."""
    manifest = (image / "manifest.json").read_bytes()
    described = json.loads(manifest)
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    entry = {
        "mediaType": described["mediaType"],
        "digest": digest,
        "size": len(manifest),
        "annotations": {"io.containerd.image.name": (image / "name").read_text()},
    }
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
        _add(archive, _place(digest), manifest)
        for each in (described["config"], *described["layers"]):
            if each["digest"] not in known:
                archive.add(image / each["digest"].removeprefix("sha256:"), _place(each["digest"]))


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _place(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()
