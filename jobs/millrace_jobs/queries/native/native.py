"""A query that Spark runs by its own plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from sqlglot import exp

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import Spec
from millrace_api.sql.groups import (
    Group,
    group_expressions,
    is_aggregate,
    is_any_window,
    is_window,
    select_aliases,
)
from millrace_api.sql.outline import outline
from millrace_api.sql.parsed_query import ParsedQuery
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.dedicated_needs import unrouted_problem
from millrace_jobs.queries.execution import Execution, source_step, transactions
from millrace_jobs.queries.native.joins import with_joins_of_sql
from millrace_jobs.queries.reading import RunContext, records
from millrace_jobs.queries.results import keys_of_groups, updates_table
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sources.base import Source

_CLAUSES = {"expressions", "from_", "from", "where", "group", "having"}
"""Clauses of a SELECT behind whose groups Spark does not shuffle."""


@dataclass(frozen=True)
class Native(Execution):
    """SQL that Structured Streaming runs by itself, and the reason it is not routed."""

    is_spark_plan: ClassVar[bool] = True
    query: ParsedQuery
    reason: str

    def build(self, result: StructType, spec: Spec, context: RunContext, *, routed: bool) -> DataFrame:
        """Return the DataFrame of the SQL over the sources, with joins of streams as SQL defines them."""
        for name in context.sources:
            records(name, spec, context).createOrReplaceTempView(name)
        return with_joins_of_sql(context.spark.sql(self.query.text))

    def explain(
        self, result: StructType, spec: Spec, sources: Mapping[str, Source], pin: Pin, partitions: int | None
    ) -> tuple[str, list[str]]:
        """Return the reason, and Spark's plan as one step."""
        streams = {name.lower() for name, source in spec.sources.items() if not source.is_static}
        read = [table for table in self.query.tables if table in streams]
        joins = len(read) > 1 and self.query.has_joins
        return f"runs natively, by Spark's own plan: {self.reason}", [
            *(source_step(name, source) for name, source in spec.sources.items()),
            f"Spark    the SQL as it is written{'; NULL matches nothing in its joins' if joins else ''}",
            f"emit     {spec.emit.value} -> {spec.sink.kind}{transactions(spec.sink, partitions)}",
        ]

    def layout(self) -> dict[str, Any]:
        """Return what of the SQL decides the state of Spark's plan."""
        return dict(outline(self.query, frozenset()).layout)

    def result_keys(
        self, columns: tuple[str, ...] | None, names: Sequence[str], groups: Sequence[Group], spec: Spec
    ) -> ResultKeys:
        """Return the keys of Spark's groups; its plan keeps no record of the rows that HAVING admitted before."""
        if columns is not None and updates_table(spec) and self.query.filters_groups:
            why = f"because the query is not routed: {self.reason}"
            message = f"a table cannot take back rows that HAVING no longer admits, {why}"
            hint = "leave HAVING to the readers of the table, or write emit: OnWindowClose"
            raise MillraceError(Problem(message, hint, field="spec.query.sql"))
        return keys_of_groups(columns, names, groups, spec)

    def result_partitions(self, state: int) -> int | None:
        """Return the number of partitions for one SELECT with groups of a source's records; None for all else."""
        query = self.query.tree
        if not isinstance(query, exp.Select) or {name for name, value in query.args.items() if value} - _CLAUSES:
            return None
        source = query.args.get("from_") or query.args.get("from")
        table = source.this if source else None
        if not isinstance(table, exp.Table) or any(
            v for name, v in table.args.items() if name not in ("this", "alias")
        ):
            return None
        if query.find(exp.Window) or any(inner is not query for inner in query.find_all(exp.Query)):
            return None
        if query.args.get("group") is None:
            return 1 if any(is_aggregate(call) for call in query.find_all(exp.Func)) else None
        keys = group_expressions(query, select_aliases(query, ())) or ()
        sessions = [key for key in keys if is_any_window(key) and not is_window(key)]
        return state if len(keys) > len(sessions) else None

    @property
    def unpartitioned(self) -> str:
        """Whether there is no state at all, or a shuffle behind it."""
        if self.query.aggregates:
            return super().unpartitioned
        return "the query keeps no state, so it has no partitions of one to write by"

    @property
    def unplaced(self) -> str:
        """Spark's plan, and why it is that."""
        return f"natively: {self.reason}"

    def dedicated_problem(self, spec: Spec, schemas: Mapping[str, pa.Schema]) -> Problem:
        """Return why the query is not routed."""
        return unrouted_problem(self.reason)
