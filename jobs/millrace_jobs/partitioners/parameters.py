"""Kinds of parameters that an algorithm can take, each with its default and its bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Value = int | float | str


class ParameterError(ValueError):
    """A name or a value that a partitioner does not take: what is wrong, and what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


@dataclass(frozen=True)
class WholeNumber:
    """A parameter that is an integer of at least ``least``."""

    default: int
    least: int

    def check(self, name: str, value: Any) -> int:
        """Return ``value`` as an int. Raises ParameterError unless it is such an integer."""
        return whole_number(name, value, self.least)


@dataclass(frozen=True)
class Number:
    """A parameter that is a real number between ``least`` and ``most``, both included."""

    default: float
    least: float
    most: float

    def check(self, name: str, value: Any) -> float:
        """Return ``value`` as a float. Raises ParameterError unless it is such a number."""
        real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not real or not self.least <= value <= self.most:
            raise ParameterError(f"{name} is {value!r}", f"write a number between {self.least:g} and {self.most:g}")
        return float(value)


@dataclass(frozen=True)
class OneOf:
    """A parameter that is one of a few words, the first of which is the default."""

    words: tuple[str, ...]

    @property
    def default(self) -> str:
        """The default value, which is the first word."""
        return self.words[0]

    def check(self, name: str, value: Any) -> str:
        """Return ``value``. Raises ParameterError unless it is one of the words."""
        if value not in self.words:
            raise ParameterError(f"{name} is {value!r}", f"write one of: {', '.join(self.words)}")
        return str(value)


Parameter = WholeNumber | Number | OneOf


def whole_number(name: str, value: Any, least: int) -> int:
    """Return ``value`` as an int. Raises ParameterError if it is none, or below ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ParameterError(f"{name} is {value!r}", f"write a whole number of at least {least}")
    return int(value)
