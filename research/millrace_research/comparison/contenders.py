"""The algorithms to compare: ``pkg``, ``pkg:choices=5``, ``am:choices=5:cardinality=hll``, or ``all``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from millrace_api.errors import MillraceError, Problem, suggest
from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.base import Partitioner
from millrace_jobs.partitioners.parameters import Number, Parameter, Value, WholeNumber

ROUTED = tuple(name for name in registry.ALGORITHMS if registry.is_routed(name))
"""Names of the algorithms that can be compared."""

_NOT_COMPARABLE = {
    "all": "all takes no parameters",
    "auto": "auto is not one algorithm but chooses among them",
    registry.NATIVE: "native routes nothing",
}
_HINT = f"write all, or some of: {', '.join(ROUTED)}"


@dataclass(frozen=True)
class ComparisonSetting:
    """The setting in which all contenders run: ``replicas`` over ``workers``, with windows of ``slides`` slides.

    At the end of the stream, they are resized to ``resize`` workers, unless it is None.
    """

    workers: int
    replicas: int
    seed: int
    slides: int
    resize: int | None = None


@dataclass(frozen=True)
class Contender:
    """An algorithm with all of its parameters; ``label`` is what the user wrote."""

    label: str
    algorithm: str
    parameters: Mapping[str, Value]

    @property
    def file_stem(self) -> str:
        """The label as a file name: every character except ASCII letters, digits, '.', '=', '_' and '-' becomes '-'."""
        return re.sub(r"[^A-Za-z0-9.=_-]", "-", self.label)

    @property
    def is_cooperative(self) -> bool:
        """Whether each replica begins a batch with what all of them know."""
        return registry.is_cooperative(self.algorithm, self.parameters)

    def replicas(self, setting: ComparisonSetting) -> list[Partitioner]:
        """Create new replicas of the algorithm."""
        return [
            registry.make(
                self.algorithm,
                workers=setting.workers,
                replica=replica,
                replicas=setting.replicas,
                seed=setting.seed,
                parameters=self.parameters,
            )
            for replica in range(setting.replicas)
        ]


def parse_contenders(text: str, slides: int) -> list[Contender]:
    """Parse a comma-separated list of contenders.

    ``slides`` is the slides per window of algorithms that take this parameter and whose label does not set it.

    Raises:
        MillraceError: a name or a value is unknown, or a contender is listed twice.
    """
    if not text.strip():
        raise MillraceError(Problem("--algorithm names nothing", _HINT))
    labels = [label.strip() for label in text.split(",")]
    if "" in labels:
        raise MillraceError(Problem(f"--algorithm {text}: there is an empty name", "remove the comma"))
    named = [name for label in labels for name in (ROUTED if label == "all" else (label,))]
    contenders = [parse_contender(label, slides) for label in named]
    stems = [contender.file_stem for contender in contenders]
    for index, stem in enumerate(stems):
        if stem in stems[:index]:
            raise MillraceError(Problem(f"--algorithm names {contenders[index].label} twice", "name it once"))
    return contenders


def parse_contender(label: str, slides: int) -> Contender:
    """Parse one contender. Raises MillraceError for an unknown name or value."""
    algorithm, *settings = label.split(":")
    _check_name(label, algorithm)
    try:
        declared = registry.parameters_of(algorithm)
        given: dict[str, Value] = {"slides": slides} if "slides" in declared else {}
        for setting in settings:
            name, sign, value = setting.partition("=")
            if not sign:
                message = f"--algorithm {label}: {setting!r} is not a parameter"
                raise MillraceError(Problem(message, "write name=value after each ':'"))
            if name in registry.exchange_parameters_of(algorithm):
                message = f"--algorithm {label}: {name} is for replicas in processes of their own"
                raise MillraceError(Problem(message, "leave it out"))
            given[name] = _value(declared.get(name), value)
        return Contender(label, algorithm, registry.resolve_parameters(algorithm, given))
    except ValueError as error:
        raise MillraceError(Problem(f"--algorithm {label}: {error}")) from None


def _check_name(label: str, algorithm: str) -> None:
    spaced = len(label.split()) > 1
    if spaced and label.replace(":", " ").split()[0] in ROUTED:
        raise MillraceError(Problem(f"--algorithm {label}: there is a space in it", f"write {_without_spaces(label)}"))
    if algorithm in ROUTED:
        return
    if algorithm in _NOT_COMPARABLE:
        raise MillraceError(Problem(f"--algorithm {label}: {_NOT_COMPARABLE[algorithm]}", _HINT))
    hint = suggest(algorithm, ROUTED, _HINT)
    raise MillraceError(Problem(f"--algorithm {label}: there is no partitioner {algorithm!r}", hint))


def _without_spaces(label: str) -> str:
    """Return what the user probably meant: ``pkg:choices=3`` for ``pkg choices=3``, ``hash,pkg`` for ``hash pkg``."""
    joined = re.sub(r"\s*([:=])\s*", r"\1", label)
    return re.sub(r"\s+", ",", re.sub(r"\s+(?=[^\s:=]+=)", ":", joined))


def _value(kind: Parameter | None, text: str) -> Value:
    """Convert ``text`` to the parameter's type; return invalid text unchanged, for the parameter's own message."""
    with suppress(ValueError):
        match kind:
            case WholeNumber():
                return int(text)
            case Number():
                return float(text)
    return text
