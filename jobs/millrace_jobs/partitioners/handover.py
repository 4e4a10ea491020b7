"""Handover between micro-batches: the state that each replica starts with, from the states saved by the last ones."""

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
    """Return the initial state of each of ``replicas`` replicas over ``workers`` workers, from the saved ``states``.

    Cooperative replicas all start with the merged state. Other replicas keep their own state. If there are fewer of
    them than before, the remaining ones take over the states of the others; if there are more, a new one starts with a
    copy. Returns an empty list if there are no states. Raises ValueError on bytes that are not a state of the
    algorithm.
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
