"""Declaration of a metric: the contract of what exports it with dashboards, alerts and its reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Unit = Literal["seconds", "bytes", "ratio", "rows", "keys", "number"]
"""What a metric counts or measures, in base units; ``number`` for everything that has no unit."""


@dataclass(frozen=True)
class Label:
    """A label of a metric: a closed list of values, or values of a pattern with what bounds their number.

    Attributes:
        name: name of the label.
        values: all values that it can have; empty if they are not a closed list.
        pattern: what each value matches as a whole if there is no closed list.
        bound: what bounds the number of values if there is no closed list.
    """

    name: str
    values: tuple[str, ...] = ()
    pattern: str = ""
    bound: str = ""

    def admits(self, value: str) -> bool:
        """Return whether the label may have this value."""
        return value in self.values if self.values else re.fullmatch(self.pattern, value) is not None


QUERY = Label("query", pattern="[a-z0-9][a-z0-9.-]*", bound="the query's name")


@dataclass(frozen=True)
class Metric:
    """One metric that is exported; ``buckets`` are the upper bounds of a histogram, in its unit."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: Unit
    help: str
    dimensions: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""
        return tuple(label.name for label in self.dimensions)

    def violations(self, labels: Mapping[str, str]) -> list[str]:
        """Return what is wrong with the labels of a series; the bound of a bucket does not count."""
        known = {label.name: label for label in self.dimensions}
        found = {name: value for name, value in labels.items() if name != "le"}
        wrong = [f"{self.name} has no label {name}" for name in found.keys() - known.keys()]
        wrong += [f"{self.name} lacks the label {name}" for name in known.keys() - found.keys()]
        return wrong + [
            f"{self.name}: {name} cannot be {value!r}"
            for name, value in found.items()
            if name in known and not known[name].admits(value)
        ]
