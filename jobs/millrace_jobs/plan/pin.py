"""The plan of one batch, as its tasks see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Pin:
    """What a batch runs under; part of its end offset, so Spark writes it ahead of the batch's first task.

    A retried task and a batch replayed after a crash get the same pin, and so route as before. ``policy`` is the
    batch whose replicas have left what those of this one begin with (``policies``); None where they begin anew.
    """

    epoch: int
    algorithm: str
    replicas: int
    workers: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    policy: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in the offset."""
        return {
            "epoch": self.epoch,
            "algorithm": self.algorithm,
            "replicas": self.replicas,
            "workers": self.workers,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "policy": self.policy,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Pin:
        """The inverse of ``to_json``."""
        return cls(**stored)
