"""Snapshots of a query's checkpoint: how its annotation asks for one, and what its driver reports of them.

A request and the report are entries of the plan's ConfigMap; the report is also in the query's status.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from millrace_api.model.base import Model
from millrace_api.model.values import SNAPSHOT_NAME, SnapshotName, Timestamp, WholeNumber

SNAPSHOT_ANNOTATION = "millrace.io/snapshot"
"""Annotation of a StreamQuery with the name of a snapshot to take, or with ``-`` and the name of one to remove."""

SNAPSHOT_REQUEST_KEY = "snapshot-request.json"
"""Entry of the ConfigMap with the snapshot that is asked for; the operator writes it, and empties it at its end."""

SNAPSHOTS_KEY = "snapshots.json"
"""Entry of the ConfigMap with the driver's report on snapshots; the driver writes it."""

MOST_REPORTED = 10
"""Snapshots that a report has, of any number."""

_REQUEST = re.compile(f"-?(?:{SNAPSHOT_NAME})")


class SnapshotOrigin(StrEnum):
    """Who wanted a snapshot."""

    PERSON = "Person"
    CLOCK = "Clock"
    CHANGE = "Change"


class SnapshotRequestState(StrEnum):
    """How far a request is."""

    PENDING = "Pending"
    """The driver has not begun."""
    RUNNING = "Running"
    """The driver has begun, or waits for its first finished batch."""
    DONE = "Done"
    """The snapshot was taken, or removed."""
    FAILED = "Failed"
    """It was not; the message says why. It is not tried again."""

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens."""
        return self in (SnapshotRequestState.DONE, SnapshotRequestState.FAILED)


class ReportedSnapshot(Model):
    """A whole snapshot of the checkpoint."""

    model_config = ConfigDict(extra="ignore")

    name: SnapshotName = Field(description="Its name; it is in snapshots/NAME of the checkpoint.")
    batch: WholeNumber = Field(description="The batch after which a query goes on from it.")
    time: Timestamp = Field(description="When it was taken.")
    bytes: WholeNumber = Field(description="Size of its files, some of which others may share.")
    origin: SnapshotOrigin = Field(description="Who wanted it: Person, Clock, or Change: before a change.")


class SnapshotRequest(Model):
    """What the annotation asks for, and what has become of it; name and time identify it."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(max_length=64)] = Field(description="Value of the annotation, shortened.")
    time: Timestamp = Field(description="When it was first seen.")
    state: SnapshotRequestState = Field(default=SnapshotRequestState.PENDING, description="How far it is.")
    message: Annotated[str, Field(max_length=1024)] = Field(default="", description="What it waits for or has come to.")

    @property
    def snapshot(self) -> str:
        """Name of the snapshot to take or to remove."""
        return self.name.removeprefix("-")

    @property
    def removes(self) -> bool:
        """Whether the snapshot is to be removed."""
        return self.name.startswith("-")

    @property
    def identity(self) -> tuple[str, str]:
        """What no other request of the query has."""
        return self.name, self.time


class SnapshotsReport(Model):
    """The snapshots that a checkpoint has, as its driver has last seen them, and the last one that was asked for."""

    model_config = ConfigDict(extra="ignore")

    request: SnapshotRequest | None = Field(
        default=None, description=f"The last request by the annotation {SNAPSHOT_ANNOTATION}, as long as that stays."
    )
    count: WholeNumber = Field(default=0, description="Number of whole snapshots.")
    newest: tuple[ReportedSnapshot, ...] = Field(
        default=(), max_length=MOST_REPORTED, description=f"The newest {MOST_REPORTED}, latest first."
    )


def is_request(value: str) -> bool:
    """Return whether a value of the annotation asks for something that can be."""
    return len(value) <= len("-") + 63 and _REQUEST.fullmatch(value) is not None
