"""Who runs the processes of replicas: the operator, in pods, or a run itself (``local_replicas``)."""

from __future__ import annotations

import uuid
from typing import Protocol


def new_driver() -> str:
    """Return an id for the driver of one run."""
    return uuid.uuid4().hex[:12]


class ReplicaProcesses(Protocol):
    """The processes of a query's replicas.

    Attributes:
        driver: id of the driver that they are run for.
    """

    driver: str

    def scale(self, replicas: int) -> None:
        """Have this many run, with the numbers from 0 on."""

    def require_running(self) -> None:
        """Replace what has ended. Raises MillraceError if a replica ends again and again."""

    def close(self) -> None:
        """End them all."""


class OperatedProcesses:
    """The processes of replicas that an operator runs, in pods of their own; they work for any driver."""

    def __init__(self) -> None:
        self.driver = new_driver()

    def scale(self, replicas: int) -> None:
        """Do nothing: the operator follows the same plan."""

    def require_running(self) -> None:
        """Do nothing: Kubernetes replaces pods, and the operator reports those that fail."""

    def close(self) -> None:
        """Do nothing: they outlive a driver."""
