"""Who runs the processes of replicas: the operator, in pods, or a run itself (``local_replicas``)."""

from __future__ import annotations

from typing import Protocol


class ReplicaProcesses(Protocol):
    """The processes of a query's replicas."""

    def scale(self, replicas: int) -> None:
        """Have this many run, with the numbers from 0 on."""

    def require_running(self) -> None:
        """Replace what has ended. Raises MillraceError if a replica ends again and again."""

    def close(self) -> None:
        """End them all."""


class OperatedProcesses:
    """The processes of replicas that an operator runs, in pods of their own."""

    def scale(self, replicas: int) -> None:
        """Do nothing: the operator follows the same plan."""

    def require_running(self) -> None:
        """Do nothing: Kubernetes replaces pods, and the operator reports those that fail."""

    def close(self) -> None:
        """Do nothing: they outlive a driver."""
