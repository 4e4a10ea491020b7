"""Actions of a step: what ``step`` decides and ``reconcile`` carries out against the API server."""

from __future__ import annotations

from dataclasses import dataclass

from ..resources.names import Manifest


@dataclass(frozen=True)
class Apply:
    """Action that creates an object or updates it to its manifest."""

    manifest: Manifest


@dataclass(frozen=True)
class Compare:
    """Action that creates an object of a comparison; that one is refused keeps nothing else from being done."""

    manifest: Manifest


@dataclass(frozen=True)
class Drain:
    """Action that lets the pods of a StatefulSet end after their running batch and changes nothing else.

    ``replacements`` are the objects with pods to apply after the drain, none if no driver follows. If the API server
    rejects one of them in a dry run, the drain does not start.
    """

    stateful_set: str
    replacements: tuple[Manifest, ...] = ()


@dataclass(frozen=True)
class Finalize:
    """Action that sets or removes the finalizer."""

    present: bool


@dataclass(frozen=True)
class MakeSecret:
    """Action that makes a Secret for the next driver. The objects that name it follow in the next step."""


@dataclass(frozen=True)
class DropSecret:
    """Action that deletes the Secret of drivers that have ended."""

    name: str


@dataclass(frozen=True)
class Drop:
    """Action that deletes a ConfigMap or a pod: configurations of drivers that have ended, comparisons not needed."""

    found: Manifest


@dataclass(frozen=True)
class DropPodGroup:
    """Action that deletes the PodGroup of a query that Volcano schedules no longer, which would reserve its room."""


Action = Apply | Compare | Drain | Finalize | MakeSecret | DropSecret | Drop | DropPodGroup
