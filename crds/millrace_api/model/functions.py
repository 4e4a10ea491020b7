"""Functions and aggregators in Python that the SQL of a query may call."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, exactly_one
from millrace_api.model.changes import CheckpointChange
from millrace_api.model.values import text

PYTHON_PATH = "[A-Za-z_][A-Za-z0-9_]*(\\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
"""Pattern of ``module:name``."""

FunctionPath = Annotated[
    str,
    *text(PYTHON_PATH, 512, "a Python function", 'write "module:function", such as "mypackage.geo:distance"'),
]

AggregatorPath = Annotated[
    str,
    *text(PYTHON_PATH, 512, "an aggregator", 'write "module:Name", such as "mypackage.routes:TopRoutes"'),
]

FUNCTION_NAME = "[a-z_][a-z0-9_]*"
"""Pattern of the name by which the SQL calls a function."""

FunctionName = Annotated[
    str,
    *text(
        FUNCTION_NAME,
        63,
        "a name for a function",
        "write lower-case letters, digits and '_', not a digit first; the SQL may call it in any case",
    ),
]

TypeText = Annotated[
    str,
    *text("[A-Za-z][A-Za-z0-9_]*( ?\\( ?[0-9]+ ?(, ?[0-9]+ ?)?\\))?", 63, "a type", "write a type such as DOUBLE"),
]


class FunctionSpec(Model):
    """A deterministic Python function over Arrow arrays, which computes each value from the values of one record."""

    python: FunctionPath = Field(description="The function, module:function.", examples=["mypackage.geo:distance"])
    returns: TypeText = Field(description="Spark SQL type of its values; not a nested type.", examples=["DOUBLE"])


class BuiltinAggregator(StrEnum):
    """Aggregators that come with Millrace; their classes are in ``millrace_jobs.aggregates.library``."""

    TOP_K = "TopK"
    QUANTILES = "Quantiles"
    HISTOGRAM = "Histogram"
    LATEST = "Latest"


class AggregateSpec(Model):
    """An aggregator that the SQL calls like an aggregate function, over the arguments of the records of a group."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one(
            "python", "builtin", hint='write python: "module:Name", or builtin: TopK, Quantiles, Histogram or Latest'
        ),
    )

    python: Annotated[AggregatorPath | None, CheckpointChange.STATE] = Field(
        default=None, description="A class of your own, module:Name.", examples=["mypackage.routes:TopRoutes"]
    )
    builtin: Annotated[BuiltinAggregator | None, CheckpointChange.STATE] = Field(
        default=None,
        description="TopK: the most frequent values. Quantiles: quantiles of numbers. Histogram: counts of numbers by "
        "range. Latest: the last value by time.",
    )
    options: Annotated[dict[str, Any], CheckpointChange.STATE] = Field(
        default={}, description="Keyword arguments of the class."
    )
