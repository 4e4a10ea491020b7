"""The registry of partitioners: which there are, which parameters they take, how to make one, and with which state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .base import Partitioner, whole_number
from .cardinality import (
    CARDINALITIES,
    CardinalityAware,
    CardinalityImbalanceMinimization,
    GroupAffinity,
    GroupAffinityByRecords,
    HybridImbalanceMinimization,
)
from .dagreedy import HEAD as DAGREEDY_HEAD
from .dagreedy import DAGreedy
from .dalton import Dalton
from .dchoices import HEAD, DChoices, WChoices
from .hash import Hash
from .parameters import Number, OneOf, Parameter, Value, WholeNumber, resolve
from .pkg import PartialKeyGrouping
from .prompt.partitioner import BUFFERING, PACKING, PromptPartitioner
from .shuffle import Shuffle

NATIVE = "native"
"""The algorithm that routes nothing: Spark's own plan."""


@dataclass(frozen=True)
class ReplicaSetting:
    """The position of one partitioner: replica ``replica`` of ``replicas``, over ``workers`` workers."""

    workers: int
    replica: int
    replicas: int
    seed: int


@dataclass(frozen=True)
class Declaration:
    """One algorithm: the parameters it takes, and how to build a replica from all of them.

    ``cooperative`` replicas learn together, so each one begins a batch with what all of them know.
    """

    build: Callable[[ReplicaSetting, dict[str, Any]], Partitioner]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    cooperative: bool = False


def _cardinality_aware(kind: type[CardinalityAware], **more: Parameter) -> Declaration:
    return Declaration(
        lambda at, given: kind(workers=at.workers, seed=at.seed, **given),
        {
            "choices": WholeNumber(default=2, least=1),
            "cardinality": OneOf(CARDINALITIES),
            "slides": WholeNumber(default=1, least=1),
            **more,
        },
    )


_DECLARED: Mapping[str, Declaration] = MappingProxyType(
    {
        Shuffle.NAME: Declaration(lambda at, _: Shuffle(workers=at.workers, replica=at.replica, replicas=at.replicas)),
        Hash.NAME: Declaration(lambda at, _: Hash(workers=at.workers, seed=at.seed)),
        PartialKeyGrouping.NAME: Declaration(
            lambda at, given: PartialKeyGrouping(workers=at.workers, seed=at.seed, **given),
            {"choices": WholeNumber(default=2, least=1), "slides": WholeNumber(default=1, least=0)},
        ),
        CardinalityImbalanceMinimization.NAME: _cardinality_aware(CardinalityImbalanceMinimization),
        GroupAffinity.NAME: _cardinality_aware(GroupAffinity),
        GroupAffinityByRecords.NAME: _cardinality_aware(GroupAffinityByRecords),
        HybridImbalanceMinimization.NAME: _cardinality_aware(
            HybridImbalanceMinimization, weight=Number(default=0.5, least=0.0, most=1.0)
        ),
        DChoices.NAME: Declaration(
            lambda at, given: DChoices(workers=at.workers, seed=at.seed, **given), {"head": HEAD}
        ),
        WChoices.NAME: Declaration(
            lambda at, given: WChoices(workers=at.workers, seed=at.seed, **given), {"head": HEAD}
        ),
        DAGreedy.NAME: Declaration(
            lambda at, given: DAGreedy(workers=at.workers, seed=at.seed, **given),
            {"head": DAGREEDY_HEAD, "slides": WholeNumber(default=1, least=1)},
        ),
        Dalton.NAME: Declaration(
            lambda at, given: Dalton(
                workers=at.workers, seed=at.seed, replica=at.replica, replicas=at.replicas, **given
            ),
            {
                "slides": WholeNumber(default=1, least=1),
                "balance": Number(default=0.5, least=0.0, most=1.0),
                "epsilon": Number(default=0.1, least=0.0, most=1.0),
                "gamma": Number(default=0.1, least=0.001, most=1.0),
                "statistics": OneOf(("hybrid", "exact", "sketch")),
                "statistics_window": WholeNumber(default=0, least=0),
                "keys": OneOf(("hot", "all")),
                "fragmentation": OneOf(("batch", "window")),
            },
            cooperative=True,
        ),
        PromptPartitioner.NAME: Declaration(
            lambda at, given: PromptPartitioner(workers=at.workers, **given),
            {
                "budget": WholeNumber(default=10, least=1),
                "buffering": OneOf(BUFFERING),
                "packing": OneOf(tuple(PACKING)),
            },
        ),
    }
)

ALGORITHMS = (NATIVE, *_DECLARED)
"""Every name that ``StreamQuery.spec.partitioner.algorithm`` can take, besides ``auto``."""


def is_routed(algorithm: str) -> bool:
    """Whether the algorithm places records, so that ``make`` can build it. Raises ValueError on an unknown name."""
    return _declaration(algorithm) is not None


def is_cooperative(algorithm: str) -> bool:
    """Whether replicas of the algorithm begin a batch with what all of them know."""
    declaration = _declaration(algorithm)
    return declaration is not None and declaration.cooperative


def parameters_of(algorithm: str) -> Mapping[str, Parameter]:
    """Return the parameters that the algorithm takes. Raises ValueError on an unknown name."""
    declaration = _declaration(algorithm)
    return {} if declaration is None else declaration.parameters


def resolve_parameters(algorithm: str, parameters: Mapping[str, Any]) -> dict[str, Value]:
    """Return all parameters of the algorithm, with the default of each one that is not given.

    Raises ValueError, which says what to write, on an unknown algorithm, an unknown parameter or a bad value.
    """
    return resolve(algorithm, parameters_of(algorithm), parameters)


def make(
    algorithm: str, *, workers: int, replica: int, replicas: int, seed: int, parameters: Mapping[str, Any]
) -> Partitioner:
    """Make replica ``replica`` (in ``range(replicas)``) of an algorithm over ``workers`` workers, without history.

    Replicas with the same seed agree on where a key may go; only the low 64 bits of the seed count. Raises ValueError,
    which says what to write, in the cases of ``resolve_parameters``, for ``native``, and on numbers out of range.
    """
    resolved = resolve_parameters(algorithm, parameters)
    if whole_number("replica", replica, 0) >= whole_number("replicas", replicas, 1):
        raise ValueError(f"replica is {replica}; write a whole number below replicas, which is {replicas}")
    whole_number("seed", seed, 0)
    declaration = _declaration(algorithm)
    if declaration is None:
        raise ValueError(
            f"partitioner {algorithm} routes nothing, so none can be made; write one of: {', '.join(_DECLARED)}"
        )
    return declaration.build(ReplicaSetting(workers, replica, replicas, seed), resolved)


def _declaration(algorithm: str) -> Declaration | None:
    """Return how the algorithm is made, or None for ``native``, which cannot be made."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"there is no partitioner {algorithm!r}; write one of: {', '.join(ALGORITHMS)}")
    return _DECLARED.get(algorithm)


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
