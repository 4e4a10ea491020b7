"""From one micro-batch to the next: what each replica begins with, given what the replicas before it ended with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .base import Partitioner
from .registry import is_cooperative, make


def beginnings(
    algorithm: str,
    states: Sequence[bytes],
    *,
    workers: int,
    replicas: int,
    seed: int,
    parameters: Mapping[str, Any],
) -> list[bytes]:
    """The state for each of ``replicas`` replicas over ``workers`` workers, from the ``states`` saved before.

    Replicas that learn together all begin with the merged state. Others keep their own; when there are fewer of
    them than before, one takes over those that have gone, and when there are more, a new one begins as a copy.
    Empty where there are no states. Raises ValueError on bytes that are no state of the algorithm.
    """

    def successor(replica: int, inherited: Sequence[bytes]) -> bytes:
        heirs: list[Partitioner] = []
        for state in inherited:
            heir = make(
                algorithm, workers=workers, replica=replica, replicas=replicas, seed=seed, parameters=parameters
            )
            heir.restore(state)
            heirs.append(heir)
        first, *others = heirs
        if others:
            first.merge(others)
        if first.workers != workers:
            first.resize(workers)
        return first.save()

    if not states:
        return []
    if is_cooperative(algorithm):
        return [successor(0, states)] * replicas
    return [
        successor(replica, states[replica::replicas] or [states[replica % len(states)]]) for replica in range(replicas)
    ]
