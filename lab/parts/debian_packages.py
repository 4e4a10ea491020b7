"""Debian packages that `make lab` installs if they are missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ..cache import MissingError, locked
from .commands import run
from .part import Made, Report, retried

_APT = ("apt-get", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::http::Timeout=60", "-o", "Acquire::Retries=2")
_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}
_SECONDS = 900.0


class DebianPackages:
    """Packages, each identified by a program, or by the path of a file, that the lab needs.

    Args:
        name: display name.
        programs: package of each program or file.
    """

    def __init__(self, name: str, programs: Mapping[str, str]) -> None:
        self.name = name
        self._programs = programs

    def find(self) -> None:
        """Raise ``MissingError`` if one is not installed."""
        missing = self._missing()
        if missing:
            raise MissingError(f"{self.name}: not installed: {', '.join(missing)}; as root, `make lab` installs them")

    def make(self, report: Report) -> Made:
        """Install what is missing.

        Raises:
            MissingError: there is no apt-get, or we are not root.
            FailedError: apt-get fails.
        """
        with locked("debian-packages", lambda: report.say("another run installs packages: waiting for that one")):
            missing = self._missing()
            if not missing:
                return Made(True, 0)
            packages = sorted(set(missing.values()))
            if os.geteuid() or shutil.which("apt-get") is None:
                wanted = f"not installed: {', '.join(missing)} (Debian packages {', '.join(packages)})"
                raise MissingError(f"{wanted}; only root can install them, and only with apt-get")
            report.say(f"installing {', '.join(packages)}")
            retried(lambda: _install(packages), report)
            self.find()
            return Made(False, 0)

    def _missing(self) -> dict[str, str]:
        return {program: package for program, package in self._programs.items() if not _is_there(program)}


NODE_PACKAGES = DebianPackages(
    "Debian packages for the node",
    {
        "containerd": "containerd",
        "ctr": "containerd",
        "runc": "runc",
        "/usr/lib/cni/bridge": "containernetworking-plugins",
        "iptables": "iptables",
        "ipset": "ipset",
        "openssl": "openssl",
        "ip": "iproute2",
    },
)
IMAGE_PACKAGES = DebianPackages(
    "Debian packages for images",
    {
        "buildah": "buildah",
        "debootstrap": "debootstrap",
        "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
        "cc": "gcc",
        "/usr/include/stdlib.h": "libc6-dev",
    },
)

BROWSER_PACKAGES = DebianPackages("Debian's Chromium", {"chromium": "chromium"})

_CLUSTERS = Path("/etc/postgresql-common/createcluster.conf")


class PostgresPackages(DebianPackages):
    """Debian's PostgreSQL, in the newest version that is installed."""

    def programs(self) -> Path:
        """Return the folder of its programs. Raise ``MissingError`` if it is not installed."""
        self.find()
        return _newest_postgres()

    def make(self, report: Report) -> Made:
        """Install what is missing, without a database and a server that Debian would make of it."""
        if self._missing() and not os.geteuid() and not _CLUSTERS.exists():
            _CLUSTERS.parent.mkdir(exist_ok=True)
            _CLUSTERS.write_text("create_main_cluster = false\n", encoding="utf-8")
        return super().make(report)

    def _missing(self) -> dict[str, str]:
        there = (_newest_postgres() / "postgres").exists()
        return super()._missing() | ({} if there else {"postgres": "postgresql"})


MARIADB_PACKAGES = DebianPackages(
    "Debian packages for MariaDB",
    {
        "/usr/sbin/mariadbd": "mariadb-server-core",
        "/usr/share/mysql/mysql_system_tables.sql": "mariadb-server-core",
        "setpriv": "util-linux",
    },
)
POSTGRES_PACKAGES = PostgresPackages("Debian packages for PostgreSQL", {"setpriv": "util-linux"})


def _newest_postgres() -> Path:
    found = Path("/usr/lib/postgresql").glob("*/bin")
    return max(found, key=lambda folder: float(folder.parent.name), default=Path("/usr/lib/postgresql/none/bin"))


def _is_there(program: str) -> bool:
    return Path(program).exists() if program.startswith("/") else shutil.which(program) is not None


def _install(packages: list[str]) -> None:
    run(["dpkg", "--configure", "-a"], environment=_QUIET, seconds=_SECONDS)  # where an earlier run was killed
    run([*_APT, "update", "-qq"], environment=_QUIET, seconds=_SECONDS)
    run([*_APT, "install", "-qq", "--no-install-recommends", *packages], environment=_QUIET, seconds=_SECONDS)
