"""A query that is an aggregation by a Python class."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.functions import AggregatorPath
from millrace_api.model.values import ColumnName, ColumnPath, PositiveDuration, SourceName


class WindowSpec(Model):
    """A tumbling window on event time, or a hopping one where ``slide`` is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "slide is longer than size",
            "write a slide of at most the size, or leave it out for a tumbling window",
            ("size", "slide"),
            None,  # the lengths are text to CEL
            lambda w: w.slide is None or w.slide.microseconds <= w.size.microseconds,
        ),
    )

    column: ColumnPath = Field(
        description="TIMESTAMP column with the event time; also a field of a STRUCT, if the watermark is on it.",
        examples=["pickup"],
    )
    size: PositiveDuration = Field(description="Length of the window.", examples=["10m"])
    slide: PositiveDuration | None = Field(default=None, description="Distance between windows; default: the size.")


class PythonQuery(Model):
    """An aggregation by a Python class that follows the Aggregator protocol."""

    aggregator: AggregatorPath = Field(description="The class, module:Name.", examples=["mypackage.routes:TopRoutes"])
    source: SourceName | None = Field(default=None, description="Source it reads; required if there are several.")
    group_by: tuple[ColumnName, ...] = Field(
        default=(), max_length=32, description="Columns of the key; default: one group for all."
    )
    window: WindowSpec | None = Field(default=None, description="Event-time window that is part of the key.")
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of the class.")
