"""Go programs that are built from modules of the lab, in the lab's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from .cache import MissingError, cached, require
from .networks import host_network

_PATIENCE = 3600.0
"""Seconds that a build may take on a busy machine, when nothing of it is in Go's own cache."""


def go_program(module: Path) -> Path:
    """The program that a folder with ``go.mod`` and ``main.go`` makes; other content, another program.

    Raises:
        MissingError: there is no Go, or it cannot be built.
    """
    name = f"{module.name}-{_content(module)}"
    flags = ["-ldflags", f"-s -w {_versions(module)}"]
    return cached(name, lambda folder: _build(module, flags, folder / "program", ".")) / "program"


def go_tools(module: Path, tags: str) -> Path:
    """A folder with the programs that a ``go.mod`` names as its tools, built with these tags, separated by commas.

    Raises:
        MissingError: there is no Go, or they cannot be built.
    """
    name = f"{module.name}-{tags.replace(',', '-')}-{_content(module)}"
    flags = ["-ldflags", "-s -w", "-tags", tags]
    return cached(name, lambda folder: _build(module, flags, folder, "tool"))


def _content(module: Path) -> str:
    require("go")
    files = sorted(path for path in module.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def _build(module: Path, flags: list[str], output: Path, packages: str) -> None:
    with host_network():
        done = subprocess.run(
            ["go", "build", "-trimpath", "-buildvcs=false", *flags, "-o", output, packages],
            cwd=module,
            env=os.environ | {"CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    if done.returncode:
        raise MissingError(f"Go cannot build {module.name}: {done.stderr.strip()[-500:]}")


def _versions(module: Path) -> str:
    """What its own build scripts tell Kubernetes of its version; without, clients and servers say v0.0.0."""
    lines = (module / "go.mod").read_text(encoding="utf-8").splitlines()
    version = next((line.split()[1] for line in lines if line.strip().startswith("k8s.io/kubernetes ")), None)
    if version is None:
        return ""
    minor = version.split(".")[1]
    told = {"gitVersion": version, "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in told.items())
