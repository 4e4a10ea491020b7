"""What is computed: Spark SQL, or a Python aggregator."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, exactly_one
from millrace_api.model.values import ColumnName, PositiveDuration, SourceName, Text, text

AggregatorPath = Annotated[
    str,
    *text(
        "[A-Za-z_][A-Za-z0-9_]*(\\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*",
        512,
        "an aggregator",
        'write "module:Name", such as "mypackage.routes:TopRoutes"',
    ),
]


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

    column: ColumnName = Field(description="TIMESTAMP column with the event time.", examples=["pickup"])
    size: PositiveDuration = Field(description="Length of the window.", examples=["10 minutes"])
    slide: PositiveDuration | None = Field(default=None, description="Distance between windows; default: the size.")


class PythonQuery(Model):
    """An aggregation by a Python class that follows the Aggregator protocol."""

    aggregator: AggregatorPath = Field(description="The class, module:Name.", examples=["mypackage.routes:TopRoutes"])
    source: SourceName | None = Field(default=None, description="Source it reads; needed where there are several.")
    group_by: tuple[ColumnName, ...] = Field(
        default=(), max_length=32, description="Columns of the key; default: one group for all."
    )
    window: WindowSpec | None = Field(default=None, description="Event-time window that is part of the key.")
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of the class.")


class Query(Model):
    """What is computed."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("sql", "python", hint="write sql: SELECT ... FROM a source, or python: {aggregator: ...}"),
    )

    sql: Text | None = Field(default=None, description="One SELECT in Spark SQL; the sources are its tables.")
    python: PythonQuery | None = Field(default=None, description="A Python aggregator.")
