"""Java programs from Maven's registry, as a folder of jars in the lab's cache."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from .cache import MissingError, cached, require

_PATIENCE = 540.0


def jars(pom: Path) -> Path:
    """Folder with everything that a pom depends on at run time; another pom, another folder.

    Raises:
        MissingError: there is no Java or no Maven, or Maven cannot get them.
    """
    require("java", "mvn")
    content = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    return cached(f"{pom.parent.name}-{content}", lambda folder: _copy(pom, folder))


def _copy(pom: Path, folder: Path) -> None:
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(
        ["mvn", "--batch-mode", "--no-transfer-progress", "--quiet", "--file", pom, *copy],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode:
        said = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stdout + done.stderr)
        raise MissingError(f"Maven cannot get the jars of {pom.name} in {pom.parent.name}: {said}")
