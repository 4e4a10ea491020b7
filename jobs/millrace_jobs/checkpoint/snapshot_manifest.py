"""What a snapshot of a checkpoint says of itself, in ``snapshot.json``: of what it is, and its files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.checkpoint.marker import MARKER, Versions
from millrace_jobs.places import Place, within, write_durably

MANIFEST = "snapshot.json"

KEPT = ("sources", "policies", "tables")
"""What a query goes on from beside Spark's part and the marker."""

SHARED = "_shared"
"""The folder beside snapshots in an object store that has the objects which they share; no snapshot has its name."""


class SnapshotReason(StrEnum):
    """Why a snapshot was taken."""

    REQUEST = "request"
    """A person asked for it, and only a person removes it."""
    SCHEDULE = "schedule"
    CHANGE = "change"
    COMPARISON = "comparison"
    """Two versions are compared from it on; the comparison removes it at its end, or the next one."""

    @property
    def is_automatic(self) -> bool:
        """Whether the driver has taken it by itself."""
        return self in (SnapshotReason.SCHEDULE, SnapshotReason.CHANGE)


@dataclass(frozen=True)
class StoredFile:
    """A file of a snapshot.

    Attributes:
        name: its name from the snapshot on.
        bytes: its size.
        digest: its SHA-256, or the tag of its object.
        shared: the name of its object in ``SHARED``; empty if it is in the snapshot itself.
        origin: the tag of the object in the checkpoint that a shared one is a copy of, or empty.
    """

    name: str
    bytes: int
    digest: str
    shared: str = ""
    origin: str = ""

    def place(self, snapshot: Place) -> Place:
        """Return the file's place, given that of the snapshot."""
        return snapshot.parent / SHARED / self.shared if self.shared else within(snapshot, self.name)

    def described(self) -> dict[str, str | int]:
        """Return what a manifest says of it: nothing that is empty, which earlier versions do not know."""
        return {name: value for name, value in asdict(self).items() if value != ""}


@dataclass(frozen=True)
class Snapshot:
    """What a whole snapshot says of itself; its name is that of its folder.

    ``checkpoint`` is the id of the one that it was taken of. ``asked`` is when the query's annotation was first seen
    that asked for it; empty if none did.
    """

    name: str
    query: str
    checkpoint: str
    batch: int
    taken: datetime
    versions: Versions | None
    files: tuple[StoredFile, ...]
    reason: SnapshotReason = SnapshotReason.REQUEST
    asked: str = ""

    @property
    def bytes(self) -> int:
        """The size of all files; those that several snapshots have are stored once."""
        return sum(file.bytes for file in self.files)

    @classmethod
    def read(cls, place: Place) -> Self:
        """Return what the snapshot in a place says of itself.

        Raises:
            MillraceError: there is no whole snapshot, or its manifest is damaged.
            OSError: the place cannot be read.
        """
        try:
            content = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
            if content.pop("digest") != _digest_of(content):
                raise ValueError(MANIFEST)
            versions = content["versions"]
            return cls(
                place.name,
                content["query"],
                content["checkpoint"],
                int(content["batch"]),
                datetime.fromisoformat(content["taken"]).astimezone(UTC),
                None if versions is None else Versions(**versions),
                tuple(_stored_file(**file) for file in content["files"]),
                SnapshotReason(content["reason"]),
                str(content.get("asked", "")),
            )
        except (FileNotFoundError, NotADirectoryError):
            message = f"there is no snapshot {place}, or it is not whole: it has no {MANIFEST}"
            raise MillraceError(Problem(message, "millrace snapshot ls shows the snapshots of a checkpoint")) from None
        except (ValueError, KeyError, TypeError):
            raise damaged_snapshot(place, f"{MANIFEST} is not what Millrace writes there") from None

    def write(self, place: Place) -> None:
        """Write the manifest, by which the snapshot becomes whole."""
        files = [each.described() for each in self.files]
        content: dict[str, Any] = asdict(self) | {"taken": self.taken.isoformat(), "files": files}
        content["digest"] = _digest_of(content)
        write_durably(place / MANIFEST, json.dumps(content, indent=1).encode())


def _digest_of(content: Mapping[str, Any]) -> str:
    """Return the digest of what a manifest says beside it."""
    return f"sha256:{hashlib.sha256(json.dumps(content).encode()).hexdigest()}"


def _stored_file(name: str, bytes: int, digest: str, shared: str = "", origin: str = "") -> StoredFile:
    """Return a file of a manifest. Raises ValueError if its name is none that a snapshot has, or leads out of it."""
    first, *others = name.split("/")
    if name != MARKER and (first not in ("spark", *KEPT) or not others or {"", ".", ".."} & set(others)):
        raise ValueError(name)
    if shared and not re.fullmatch("[0-9a-f]{32}", shared):
        raise ValueError(shared)
    return StoredFile(name, int(bytes), str(digest), shared, str(origin))


def damaged_snapshot(place: Place, why: str) -> MillraceError:
    """Return the error for a snapshot that is not as it was taken."""
    message = f"the snapshot {place} is damaged: {why}"
    return MillraceError(Problem(message, "use another snapshot: millrace snapshot ls shows those that there are"))
