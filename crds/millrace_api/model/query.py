"""The computation of a StreamQuery: SQL with the user's functions and aggregates, or a Python aggregator."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, exactly_one
from millrace_api.model.changes import FREE, CheckpointChange
from millrace_api.model.functions import FUNCTION_NAME, AggregateSpec, FunctionName, FunctionSpec
from millrace_api.model.python_query import PythonQuery
from millrace_api.model.values import Text


class Query(Model):
    """What is computed."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("sql", "python", hint="write sql: SELECT ... FROM a source, or python: {aggregator: ...}"),
        Rule(
            "functions are for SQL",
            "leave functions out, or write sql",
            ("functions",),
            "!has(self.functions) || has(self.sql)",
            lambda query: not query.functions or query.sql is not None,
        ),
        Rule(
            "a function's name is what the SQL calls it by",
            "write lower-case letters, digits and '_', not a digit first; the SQL may call it in any case",
            ("functions",),
            f"!has(self.functions) || self.functions.all(name, name.size() <= 63 && name.matches('^{FUNCTION_NAME}$'))",
            None,  # the type of the keys says it
        ),
        Rule(
            "aggregates are for SQL",
            "leave aggregates out, or write sql",
            ("aggregates",),
            "!has(self.aggregates) || has(self.sql)",
            lambda query: not query.aggregates or query.sql is not None,
        ),
        Rule(
            "an aggregate's name is what the SQL calls it by",
            "write lower-case letters, digits and '_', not a digit first; the SQL may call it in any case",
            ("aggregates",),
            "!has(self.aggregates) || "
            f"self.aggregates.all(name, name.size() <= 63 && name.matches('^{FUNCTION_NAME}$'))",
            None,  # as above
        ),
        Rule(
            "a name is that of a function and of an aggregate",
            "give one of them another name",
            ("functions", "aggregates"),
            "!has(self.aggregates) || !has(self.functions) || self.aggregates.all(name, !(name in self.functions))",
            lambda query: not set(query.functions or ()) & set(query.aggregates or ()),
        ),
    )

    sql: Annotated[Text | None, CheckpointChange.SQL] = Field(
        default=None, description="One SELECT in Spark SQL; the sources are its tables."
    )
    python: Annotated[PythonQuery | None, CheckpointChange.STATE] = Field(
        default=None, description="A Python aggregator."
    )
    functions: Annotated[dict[FunctionName, FunctionSpec] | None, FREE] = Field(
        default=None, min_length=1, max_length=32, description="Functions in Python that the SQL may call, by name."
    )
    aggregates: Annotated[dict[FunctionName, AggregateSpec] | None, FREE] = Field(
        default=None, min_length=1, max_length=16, description="Aggregators in Python that the SQL may call, by name."
    )
