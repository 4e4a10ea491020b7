"""A full disk below the results, and one below the checkpoint: one sentence, and with space again the exact result."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cache import MissingError

from .cli import CommandProcess, Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = "SELECT who, sum(n) AS total FROM events GROUP BY who"
KEYS = 20_000
SMALL = 4 << 20
"""Bytes of each of the two disks."""

_IN_OWN_MOUNTS = ["unshare", "--mount", "sh", "-c"]
_MOUNT = f'for disk in "$0" "$1"; do mount -t tmpfs -o size={SMALL} tmpfs "$disk" || exit 1; done; shift; '


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where the two small disks are, for a process that has mounted them."""
    folder = tmp_path_factory.mktemp("disks")
    both = folder / "results", folder / "checkpoint"
    for disk in both:
        disk.mkdir()
    allowed = subprocess.run([*_IN_OWN_MOUNTS, _MOUNT, *both], capture_output=True, text=True, check=False)
    if allowed.returncode:
        raise MissingError(f"this user may not mount a small disk: {allowed.stderr.strip()}")
    return both


@pytest.fixture(scope="module")
def commands(disks: tuple[Path, Path]) -> Iterator[CommandProcess]:
    process = CommandProcess(*_IN_OWN_MOUNTS, _MOUNT + 'exec "$@"', *map(str, disks))
    process.run(disks[0].parent, ("crd",))  # when it answers, the disks are there
    yield process
    process.close()


@pytest.mark.parametrize(("full", "free"), [("results", 200_000), ("checkpoint", 200_000), ("checkpoint", 0)])
def test_a_full_disk_is_one_sentence_and_costs_no_result(
    tmp_path: Path, disks: tuple[Path, Path], commands: CommandProcess, full: str, free: int
) -> None:
    project = Project(tmp_path)
    project.give("1.csv", "at,who,n\n" + "".join(f"2024-01-01T00:00:00Z,key {i},{i}\n" for i in range(KEYS)))
    results, checkpoint = disks
    own = tmp_path.name
    query = project.query(
        SQL,
        partitioner={"algorithm": "hash"},
        sink={"files": {"path": str((results if full == "results" else tmp_path) / own), "format": "csv"}},
        checkpoint={"uri": ((checkpoint if full == "checkpoint" else tmp_path) / f"{own}-state").as_uri()},
    )
    disk = commands.root / str(results if full == "results" else checkpoint).lstrip("/")
    ballast = disk / "ballast"
    _fill(disk, ballast, free)

    failed = commands.run(project.folder, ("run", query, "--once"))
    failed.assert_failed()
    assert "disk is full" in failed.err or "No space left on device" in failed.err
    assert "free some space" in failed.err

    ballast.unlink()
    result = commands.run(project.folder, ("run", query, "--once"))
    assert result.status == 0, result
    written = Project(commands.root / str(results if full == "results" else tmp_path).lstrip("/"))
    assert written.results(own) == Counter((f"key {i}", str(i), "0") for i in range(KEYS))


def _fill(disk: Path, ballast: Path, free: int) -> None:
    """Leave so many bytes. The disk has to be the small one: never fill another."""
    status = os.statvfs(disk)
    assert status.f_blocks * status.f_frsize == SMALL, f"{disk} is not the disk that the test has mounted"
    with ballast.open("wb") as file:
        file.write(bytes(status.f_bavail * status.f_frsize - free))
