"""The partitioners by name: which there are, which parameters they take, and how to make one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .arguments import whole_number
from .base import Partitioner
from .fields import Hash
from .pkg import PartialKeyGrouping
from .shuffle import Shuffle

NATIVE = "native"
"""No routing at all: Spark's own plan."""


@dataclass(frozen=True)
class WholeNumber:
    """A parameter that is an integer of at least ``least``."""

    default: int
    least: int


PARAMETERS: Mapping[str, Mapping[str, WholeNumber]] = MappingProxyType(
    {
        NATIVE: {},
        Shuffle.NAME: {},
        Hash.NAME: {},
        PartialKeyGrouping.NAME: {"choices": WholeNumber(default=2, least=1)},
    }
)
"""The parameters of every algorithm."""

ALGORITHMS = tuple(PARAMETERS)
"""Every name that ``StreamQuery.spec.partitioner.algorithm`` can take in this version."""


def is_routed(algorithm: str) -> bool:
    """Whether the algorithm places records: then ``make`` makes it. Raises ValueError on an unknown name."""
    _declared(algorithm)
    return algorithm != NATIVE


def resolve_parameters(algorithm: str, parameters: Mapping[str, Any]) -> dict[str, int]:
    """All parameters of the algorithm, those not given by their defaults.

    Raises ValueError, which says what to write, on an unknown algorithm, an unknown parameter or a bad value.
    """
    declared = _declared(algorithm)
    for name in parameters:
        if name not in declared:
            allowed = f"write one of: {', '.join(declared)}" if declared else "it takes none"
            raise ValueError(f"partitioner {algorithm} has no parameter {name!r}; {allowed}")
    return {
        name: whole_number(
            f"parameter {name!r} of partitioner {algorithm}", parameters.get(name, spec.default), spec.least
        )
        for name, spec in declared.items()
    }


def make(
    algorithm: str, *, workers: int, replica: int, replicas: int, seed: int, parameters: Mapping[str, Any]
) -> Partitioner:
    """Replica ``replica`` (in ``range(replicas)``) of an algorithm over ``workers`` workers, without history.

    Replicas with the same seed, of which the low 64 bits count, agree on where a key may go. Raises
    ValueError, which says what to write, as ``resolve_parameters`` does, on ``native``, and on numbers out
    of range.
    """
    resolved = resolve_parameters(algorithm, parameters)
    if whole_number("replica", replica, 0) >= whole_number("replicas", replicas, 1):
        raise ValueError(f"replica is {replica}; write a whole number below replicas, which is {replicas}")
    whole_number("seed", seed, 0)
    match algorithm:
        case Shuffle.NAME:
            return Shuffle(workers=workers, replica=replica, replicas=replicas)
        case Hash.NAME:
            return Hash(workers=workers, seed=seed)
        case PartialKeyGrouping.NAME:
            return PartialKeyGrouping(workers=workers, seed=seed, **resolved)
    routed = ", ".join(name for name in ALGORITHMS if is_routed(name))
    raise ValueError(f"partitioner {algorithm} routes nothing, so none can be made; write one of: {routed}")


def _declared(algorithm: str) -> Mapping[str, WholeNumber]:
    if algorithm not in PARAMETERS:
        raise ValueError(f"there is no partitioner {algorithm!r}; write one of: {', '.join(ALGORITHMS)}")
    return PARAMETERS[algorithm]
