"""Debian packages that the lab installs where they are missing, since a machine has them once for all."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .cache import MissingError
from .networks import host_network

_PATIENCE = 600.0


def install(programs: Mapping[str, str]) -> None:
    """Install the packages of those programs, or files by their path, that are not there: packages by program.

    Raises:
        MissingError: there is no apt-get, we are not root, or it fails.
    """
    missing = {program: package for program, package in programs.items() if not _is_there(program)}
    if not missing:
        return
    packages = sorted(set(missing.values()))
    if os.geteuid() or shutil.which("apt-get") is None:
        raise MissingError(f"not installed: {', '.join(missing)} (packages {', '.join(packages)})")
    with host_network():
        _apt_get("update", "-qq")
        _apt_get("install", "-qq", "--no-install-recommends", *packages)


def _is_there(program: str) -> bool:
    return Path(program).exists() if program.startswith("/") else shutil.which(program) is not None


def _apt_get(*arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments],
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode:
        raise MissingError(f"apt-get {' '.join(arguments)} fails: {done.stderr.strip()[-500:]}")
