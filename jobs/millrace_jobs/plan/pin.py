"""The pin: the plan of one batch, as its tasks see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Pin:
    """The plan that a batch is pinned to, as part of its end offset: Spark writes it before the batch's first task.

    A retried task and a batch replayed after a crash get the same pin, and so route as before. ``policy`` is the batch
    whose learned state the replicas of this one start from (``policies``); None if they start without one.
    """

    epoch: int
    algorithm: str
    replicas: int
    workers: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    policy: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the pin in the form that the offset stores."""
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
        """Return a pin from the form that ``to_json`` returns."""
        return cls(**stored)
