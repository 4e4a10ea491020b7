"""The registry of partitioners: their names and parameters, and how to make one, new or from saved states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .base import Partitioner
from .cardinality import CARDINALITIES, CardinalityImbalanceMinimization, HybridImbalanceMinimization
from .cardinality_affinity import GroupAffinity, GroupAffinityByRecords
from .dagreedy import HEAD as DAGREEDY_HEAD
from .dagreedy import DAGreedy
from .dalton import Dalton
from .dchoices import HEAD as DCHOICES_HEAD
from .dchoices import DChoices, WChoices
from .hash import Hash
from .own_code import OWN, OwnPartitioner, own_is_cooperative, own_parameters
from .parameters import Number, OneOf, Parameter, ParameterError, Value, WholeNumber, whole_number
from .pkg import PartialKeyGrouping
from .prompt.partitioner import BUFFERING, PACKING, PromptPartitioner
from .shuffle import Shuffle

NATIVE = "native"
"""The algorithm that routes nothing: Spark's own plan."""


PROBING = "probing"
"""Parameter of ``pkg``: after how many slides a replica takes the loads of all; 0 for never."""


@dataclass(frozen=True)
class Declaration:
    """One algorithm: its class, its parameters, and the other arguments of its class.

    ``native`` has no class. ``position`` names the arguments that say where a replica is. ``cooperative`` replicas
    learn together, so each one begins a batch with what all of them know. ``exchange`` are parameters of how replicas
    in processes of their own exchange what they know; the class does not take them.
    """

    kind: Callable[..., Partitioner] | None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    position: tuple[str, ...] = ("workers", "seed")
    cooperative: bool = False
    exchange: Mapping[str, Parameter] = field(default_factory=dict)


_AMONG_OTHERS = ("workers", "seed", "replicas")
_TWO = WholeNumber(default=2, least=1)
_ONE = WholeNumber(default=1, least=1)
_HALF = Number(default=0.5, least=0.0, most=1.0)
_TENTH = Number(default=0.1, least=0.0, most=1.0)
_CARDINALITY_AWARE: Mapping[str, Parameter] = {"choices": _TWO, "cardinality": OneOf(CARDINALITIES), "slides": _ONE}

_DECLARED: Mapping[str, Declaration] = MappingProxyType(
    {
        NATIVE: Declaration(None),
        Shuffle.NAME: Declaration(Shuffle, position=("workers", "replica", "replicas")),
        Hash.NAME: Declaration(Hash),
        PartialKeyGrouping.NAME: Declaration(
            PartialKeyGrouping,
            {"choices": _TWO, "slides": WholeNumber(default=1, least=0)},
            exchange={PROBING: WholeNumber(default=0, least=0)},
        ),
        CardinalityImbalanceMinimization.NAME: Declaration(CardinalityImbalanceMinimization, _CARDINALITY_AWARE),
        GroupAffinity.NAME: Declaration(GroupAffinity, _CARDINALITY_AWARE, position=_AMONG_OTHERS, cooperative=True),
        GroupAffinityByRecords.NAME: Declaration(
            GroupAffinityByRecords, _CARDINALITY_AWARE, position=_AMONG_OTHERS, cooperative=True
        ),
        HybridImbalanceMinimization.NAME: Declaration(
            HybridImbalanceMinimization, {**_CARDINALITY_AWARE, "weight": _HALF}
        ),
        DChoices.NAME: Declaration(DChoices, {"head": DCHOICES_HEAD}),
        WChoices.NAME: Declaration(WChoices, {"head": DCHOICES_HEAD}),
        DAGreedy.NAME: Declaration(DAGreedy, {"head": DAGREEDY_HEAD, "slides": _ONE}),
        Dalton.NAME: Declaration(
            Dalton,
            {
                "slides": _ONE,
                "balance": _HALF,
                "epsilon": _TENTH,
                "gamma": Number(default=0.1, least=0.001, most=1.0),
                "statistics": OneOf(("hybrid", "exact", "sketch")),
                "statistics_window": WholeNumber(default=0, least=0),
                "keys": OneOf(("hot", "all")),
                "fragmentation": OneOf(("batch", "window")),
            },
            position=("workers", "seed", "replica", "replicas"),
            cooperative=True,
        ),
        PromptPartitioner.NAME: Declaration(
            PromptPartitioner,
            {
                "budget": WholeNumber(default=10, least=1),
                "buffering": OneOf(BUFFERING),
                "packing": OneOf(tuple(PACKING)),
            },
            position=_AMONG_OTHERS,
            cooperative=True,
        ),
    }
)

_OWN = Declaration(OwnPartitioner)
"""An algorithm whose class, parameters and cooperation are those of the class that its parameters name."""

ALGORITHMS = tuple(_DECLARED)
"""Every name that ``StreamQuery.spec.partitioner.algorithm`` can take, besides ``auto`` and ``python``."""


def is_routed(algorithm: str) -> bool:
    """Whether the algorithm places records, so that ``make`` can build it. Raises ParameterError on an unknown name."""
    return _declaration(algorithm).kind is not None


def is_cooperative(algorithm: str, parameters: Mapping[str, Any]) -> bool:
    """Whether replicas of the algorithm begin a batch with what all of them know."""
    return own_is_cooperative(parameters) if algorithm == OWN else _declaration(algorithm).cooperative


def parameters_of(algorithm: str) -> Mapping[str, Parameter]:
    """Return the parameters that the algorithm takes. Raises ParameterError on an unknown name."""
    declaration = _declaration(algorithm)
    return {**declaration.parameters, **declaration.exchange}


def exchange_parameters_of(algorithm: str) -> Mapping[str, Parameter]:
    """Return the parameters among them that only replicas in processes of their own take."""
    return _declaration(algorithm).exchange


def resolve_parameters(algorithm: str, parameters: Mapping[str, Any]) -> dict[str, Value]:
    """Return all parameters of the algorithm, with the default of each one that is not given.

    Raises ParameterError on an unknown algorithm, an unknown parameter or a bad value.
    """
    if algorithm == OWN:
        return own_parameters(parameters)
    declared = parameters_of(algorithm)
    for name in parameters:
        if name not in declared:
            allowed = f"write one of: {', '.join(declared)}" if declared else "it takes none"
            raise ParameterError(f"partitioner {algorithm} has no parameter {name!r}", allowed)
    return {
        name: kind.check(f"parameter {name!r} of partitioner {algorithm}", parameters.get(name, kind.default))
        for name, kind in declared.items()
    }


def make(
    algorithm: str, *, workers: int, replica: int, replicas: int, seed: int, parameters: Mapping[str, Any]
) -> Partitioner:
    """Make replica ``replica`` (in ``range(replicas)``) of an algorithm over ``workers`` workers, without history.

    Replicas with the same seed agree on where a key may go; only the low 64 bits of the seed count. Raises ValueError,
    which says what to write, in the cases of ``resolve_parameters``, for ``native``, and on numbers out of range.
    """
    resolved = resolve_parameters(algorithm, parameters)
    if whole_number("replica", replica, 0) >= whole_number("replicas", replicas, 1):
        raise ParameterError(f"replica is {replica}", f"write a whole number below replicas, which is {replicas}")
    whole_number("seed", seed, 0)
    if algorithm == OWN:
        return OwnPartitioner(resolved, workers, seed, replica, replicas)
    declaration = _declaration(algorithm)
    if declaration.kind is None:
        message = f"partitioner {algorithm} routes nothing, so none can be made"
        raise ParameterError(message, f"write one of: {', '.join(ALGORITHMS[1:])}")
    known = {"workers": workers, "seed": seed, "replica": replica, "replicas": replicas}
    own = {name: value for name, value in resolved.items() if name not in declaration.exchange}
    return declaration.kind(**{name: known[name] for name in declaration.position}, **own)


def _declaration(algorithm: str) -> Declaration:
    if algorithm == OWN:
        return _OWN
    if algorithm not in ALGORITHMS:
        raise ParameterError(f"there is no partitioner {algorithm!r}", f"write one of: {', '.join(ALGORITHMS)}")
    return _DECLARED[algorithm]


def initial_states(
    algorithm: str,
    states: Sequence[bytes],
    *,
    workers: int,
    replicas: int,
    seed: int,
    parameters: Mapping[str, Any],
) -> list[bytes]:
    """Return the initial state of each of ``replicas`` replicas over ``workers`` workers, from the saved ``states``.

    This is the handover between micro-batches. Cooperative replicas all start with the merged state. Other replicas
    keep their own state. If there are fewer of them than before, the remaining ones take over the states of the others;
    if there are more, a new one starts with a copy. Returns an empty list if there are no states. Raises ValueError on
    bytes that are not a state of the algorithm.
    """

    def merged(replica: int, saved: Sequence[bytes]) -> bytes:
        first, *others = (
            make(algorithm, workers=workers, replica=replica, replicas=replicas, seed=seed, parameters=parameters)
            for _ in saved
        )
        for partitioner, state in zip((first, *others), saved, strict=True):
            partitioner.restore(state)
        if others:
            first.merge(others)
        if first.workers != workers:
            first.resize(workers)
        return first.save()

    if not states:
        return []
    if is_cooperative(algorithm, parameters):
        return [merged(0, states)] * replicas
    return [
        merged(replica, states[replica::replicas] or [states[replica % len(states)]]) for replica in range(replicas)
    ]
