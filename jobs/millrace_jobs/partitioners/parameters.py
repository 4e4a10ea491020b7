"""Kinds of parameters that an algorithm can take, each with its default and its bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .arguments import whole_number

Value = int | float | str
"""What a parameter can be."""


@dataclass(frozen=True)
class WholeNumber:
    """An integer of at least ``least``."""

    default: int
    least: int

    def check(self, name: str, value: Any) -> int:
        """``value``, if it is one. Raises ValueError, which quotes it, if not."""
        return whole_number(name, value, self.least)


@dataclass(frozen=True)
class Number:
    """A real number between ``least`` and ``most``, both included."""

    default: float
    least: float
    most: float

    def check(self, name: str, value: Any) -> float:
        """``value`` as a float, if it is one. Raises ValueError, which quotes it, if not."""
        real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not real or not self.least <= value <= self.most:
            raise ValueError(f"{name} is {value!r}; write a number between {self.least:g} and {self.most:g}")
        return float(value)


@dataclass(frozen=True)
class OneOf:
    """One of a few words, the first of which is the default."""

    words: tuple[str, ...]

    @property
    def default(self) -> str:
        """What it is when nothing is said."""
        return self.words[0]

    def check(self, name: str, value: Any) -> str:
        """``value``, if it is one of the words. Raises ValueError, which quotes it, if not."""
        if value not in self.words:
            raise ValueError(f"{name} is {value!r}; write one of: {', '.join(self.words)}")
        return str(value)


Parameter = WholeNumber | Number | OneOf


def resolve(algorithm: str, declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """All declared parameters, those not given by their defaults.

    Raises ValueError, which says what to write, on an unknown parameter or a bad value.
    """
    for name in given:
        if name not in declared:
            allowed = f"write one of: {', '.join(declared)}" if declared else "it takes none"
            raise ValueError(f"partitioner {algorithm} has no parameter {name!r}; {allowed}")
    return {
        name: kind.check(f"parameter {name!r} of partitioner {algorithm}", given.get(name, kind.default))
        for name, kind in declared.items()
    }
