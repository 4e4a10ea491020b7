"""The commands on checkpoints by their place: ``millrace checkpoint ls``, ``show``, ``rm`` and ``copy``.

A place is a folder, its URI, or a prefix in an object store. A checkpoint is copied, or removed, only while no driver
holds it; its marker is written last and removed first, since a place with a marker is a whole checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.checkpoint.checkpoint import COPIES, Checkpoint
from millrace_jobs.checkpoint.handover import FOLDER as REPARTITIONED
from millrace_jobs.checkpoint.marker import MARKER, Marker
from millrace_jobs.checkpoint.snapshots import SNAPSHOTS, names_of_snapshots
from millrace_jobs.places import Place, files_below, folders_in, remove_all, within, write_durably
from millrace_jobs.stores.objects import ObjectPath

_OF_THE_DRIVER = ("lease.json", "lease.new", "lock", "lookups.json")
"""Files that are the running driver's, and no part of a copy."""


def checkpoints_in(place: Place) -> list[Place]:
    """Return the checkpoints that are directly in a place, or the place itself if it is one, in the order of names."""
    with reported(place):
        if (place / MARKER).exists():
            return [place]
        return [folder for folder in folders_in(place) if (folder / MARKER).exists()]


def describe(place: Place) -> str:
    """Describe a checkpoint, without Spark, also while its query runs.

    Raises:
        MillraceError: there is none.
    """
    checkpoint, marker = _existing(place)
    with reported(place):
        last, files, driver = checkpoint.last_batch(), list(files_below(place)), checkpoint.holder()
    files = [each for each in files if not each[0].startswith((f"{SNAPSHOTS}/", f"{REPARTITIONED}/"))]
    state = sum(size for name, size in files if name.startswith(f"{checkpoint.spark.name}/state/"))
    lines = {
        "checkpoint": place,
        "query": marker.query.name,
        "id": marker.id,
        "continued by": "-" if marker.versions is None else str(marker.versions),
        "driver": driver or "-",
        "state partitions": checkpoint.state_partitions,
        "last batch": "-" if last.committed is None else last.committed,
        "unfinished batch": "-" if last.unfinished is None else last.unfinished,
        "state stored": f"{state / (1 << 20):,.1f} MiB",
        "all files": f"{len(files):,}, {sum(size for _, size in files) / (1 << 20):,.1f} MiB",
    }
    return "\n".join(f"{name:<18}{value}" for name, value in lines.items())


def remove(place: Place) -> None:
    """Remove a checkpoint that no driver holds.

    Raises:
        MillraceError: there is none, a driver holds it, or it has snapshots.
    """
    checkpoint, _ = _existing(place)
    with reported(place):
        snapshots = ", ".join(names_of_snapshots(place))
    if snapshots:
        hint = "remove them first, by millrace snapshot rm"
        raise MillraceError(Problem(f"the checkpoint {place} has snapshots: {snapshots}", hint))
    with reported(place), checkpoint.held():
        (place / MARKER).unlink()
        remove_all(place)


def copy(source: Place, target: Place) -> int:
    """Copy a checkpoint that no driver holds to a place where there is nothing, and return the number of files.

    The copy has the same id: of the two, one can be continued.

    Raises:
        MillraceError: there is no such checkpoint, a driver holds it, or there is something in the other place.
    """
    checkpoint, _ = _existing(source)
    with reported(target), checkpoint.held():
        if next(files_below(target), None) is not None:
            raise MillraceError(Problem(f"{target} is not empty", "name another place"))
        spark = f"{checkpoint.spark.name}/"
        names = [name for name, _ in files_below(source) if name not in (*_OF_THE_DRIVER, MARKER)]
        left_out = ("spark", f"{COPIES}/", f"{SNAPSHOTS}/", f"{REPARTITIONED}/")
        names = [name for name in names if name.startswith(spark) or not name.startswith(left_out)]
        if isinstance(target, ObjectPath):  # which has checksums of its own
            names = [name for name in names if not name.endswith(".crc")]
        for name in names:
            copied = f"spark/{name.removeprefix(spark)}" if name.startswith(spark) else name
            write_durably(within(target, copied), within(source, name).read_bytes())
        checkpoint.require_lease()
        marker = Marker.read(source)
        assert marker is not None, "it is held"
        marker.write(target)  # not its bytes: they may tell of a change of the state by the name of a folder
        return len(names) + 1


def _existing(place: Place) -> tuple[Checkpoint, Marker]:
    with reported(place):
        marker = Marker.read(place)
    if marker is None:
        raise MillraceError(Problem(f"there is no checkpoint {place}", "millrace checkpoint ls shows those in a place"))
    return Checkpoint(place), marker


@contextmanager
def reported(place: Place) -> Iterator[None]:
    """Raise what a place refuses as MillraceError."""
    try:
        yield
    except OSError as error:
        where = error.filename or place
        message = f"{where} cannot be used: {error.strerror or error}"
        hint = "check its rights, and for an object store the login" if isinstance(place, Path) else "check the login"
        raise MillraceError(Problem(message, hint)) from None
