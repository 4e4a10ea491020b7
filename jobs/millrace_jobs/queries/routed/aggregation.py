"""Translation of SQL to an aggregation that can be routed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
from sqlglot import exp

from millrace_api.errors import Problem
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_api.sql.groups import group_expressions, is_window, select_aliases
from millrace_api.sql.parsed_query import ParsedQuery
from millrace_jobs.aggregates.builtin import BuiltinAggregate, Part, TypeOf, is_scalar
from millrace_jobs.aggregates.in_sql import SqlAggregator
from millrace_jobs.pipeline.expressions.compiler import compile_columns
from millrace_jobs.pipeline.projection import deviating_setting
from millrace_jobs.queries.dedicated_needs import expression_problem, own_function_problem, source_problem
from millrace_jobs.queries.own_functions import functions_of
from millrace_jobs.queries.routed.subqueries import without_subqueries
from millrace_jobs.queries.sql_aggregates import (
    GroupingKey,
    NotRoutableError,
    over_parts,
    parse_window,
    split_aggregates,
    without_aliases,
    without_lateral_aliases,
)
from millrace_jobs.windows import AT, Window


@dataclass(frozen=True)
class Aggregation:
    """``SELECT select FROM source WHERE where GROUP BY window, keys HAVING having``, ready to be routed.

    ``select`` and ``having`` are SQL over the columns ``window``, the keys' names and the aggregates' parts.
    """

    source: str
    where: str
    keys: tuple[GroupingKey, ...]
    window: Window | None
    aggregates: tuple[BuiltinAggregate, ...]
    select: tuple[str, ...]
    having: str

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts of all aggregates."""
        return tuple(part for aggregate in self.aggregates for part in aggregate.parts)

    @property
    def has_states(self) -> bool:
        """Whether it calls aggregators of the query's own, which Spark's own plan cannot."""
        return any(part.aggregator is not None for part in self.parts)

    def emits_at_once(self, ahead: tuple[int | None, ...]) -> bool:
        """Whether the merge itself emits, so that no emitted row, with results of aggregators, is in the state.

        ``ahead`` is that of ``operators.emission.Emission``.
        """
        return self.has_states and ahead in ((None,), (0,))

    @property
    def inputs(self) -> list[str]:
        """What the parts reduce, as SQL over the source."""
        return list(dict.fromkeys(sql for part in self.parts for sql in (part.input, *part.arguments) if sql))

    @property
    def block_columns(self) -> tuple[tuple[str, str], ...]:
        """The columns of the blocks that workers get, each with its SQL over the source."""
        columns = [(key.name, key.sql) for key in self.keys]
        if self.window is not None:
            columns.append((AT, f"`{self.window.column}`"))
        columns.extend((f"i{index}", sql) for index, sql in enumerate(self.inputs))
        return tuple(columns) or (("one", "1"),)

    @property
    def block_filter(self) -> str:
        """The condition of the records in these blocks, as SQL over the source; empty without one."""
        if self.window is None:
            return self.where
        has_time = f"`{self.window.column}` IS NOT NULL"
        return f"({self.where}) AND {has_time}" if self.where else has_time

    def dedicated_problem(self, spec: Spec, schemas: Mapping[str, pa.Schema]) -> Problem | None:
        """Return why replicas in processes of their own cannot place the records, as far as it is known here."""
        if (problem := source_problem(spec.sources[self.source])) is not None:
            return problem
        columns, setting = [sql for _, sql in self.block_columns], deviating_setting(spec.spark_conf.get)
        where, schema = self.block_filter, schemas[self.source]
        found = setting or compile_columns(where, columns, schema, functions_of(spec.query))
        if isinstance(found, str):
            return expression_problem(found)
        calling = compile_columns(where, columns, schema)
        return own_function_problem(calling) if isinstance(calling, str) else None


def aggregation_of(
    query: ParsedQuery,
    schemas: Mapping[str, pa.Schema],
    type_of: TypeOf,
    own: Mapping[str, SqlAggregator] | None = None,
    held: Sequence[str] = (),
    after: Sequence[int | None] = (),
) -> Aggregation:
    """Translate the SQL of a query to an aggregation.

    Args:
        query: one SELECT that Spark has already accepted.
        schemas: schema of each source, by name.
        type_of: Spark's type of an expression over the one source of the query.
        own: the query's own aggregators, by name.
        held: the aggregates that the state has which the query goes on with, in the order of their columns.
        after: for each of these, the start of the last window of which it lacks records; see ``BuiltinAggregate``.

    Raises:
        NotRoutableError: the query is something else.
        MillraceError: an aggregate that only the state has can no longer be computed.
    """
    names = {field.name.lower() for schema in schemas.values() for field in schema}
    select = _plain_select(without_subqueries(query.copy(), names))
    source = _one_source(select, schemas)
    columns = {field.name.lower() for field in schemas[source]}
    select.set("expressions", list(without_lateral_aliases(select.expressions, columns)))
    group = group_expressions(select, select_aliases(select, columns))
    if group is None:
        raise NotRoutableError("it has GROUPING SETS, CUBE, ROLLUP or GROUP BY ALL")
    windows = [node for node in group if is_window(node)]
    if len(windows) > 1:
        raise NotRoutableError("it groups by more than one window")
    timestamps = {field.name.lower() for field in schemas[source] if pa.types.is_timestamp(field.type)}
    window = parse_window(windows[0], timestamps) if windows else None
    expressions = (to_sql(node) for node in group if not is_window(node))
    keys = tuple(GroupingKey(f"k{index}", sql) for index, sql in enumerate(expressions))
    for key in keys:
        if not is_scalar(type_of(key.sql)):
            raise NotRoutableError(f"its key {key.sql} is of type {type_of(key.sql)}")
    counted = [_spelled_as(parse_expression(call), (), schemas[source]) for call in held]
    split = tuple(split_aggregates(select, type_of, own=own, held=counted))
    aggregates = tuple(each.counting_after(start) for each, start in zip_longest(split, after[: len(split)]))
    if not aggregates:
        raise NotRoutableError("it has no aggregate, so there is nothing to combine")
    if not group and any(part.weight for aggregate in aggregates for part in aggregate.parts):
        raise NotRoutableError(
            "it has a deviation or variance without GROUP BY, which cannot be merged before the first record"
        )
    having = select.args.get("having")
    if having:
        grouped = {column.name.lower() for node in group for column in node.find_all(exp.Column)}
        having = without_aliases(having.this, select_aliases(select, grouped))
    where = select.args.get("where")
    return Aggregation(
        source=source,
        where=to_sql(where.this) if where else "",
        keys=keys,
        window=window,
        aggregates=aggregates,
        select=tuple(over_parts(item, keys, aggregates) for item in select.expressions),
        having=over_parts(having, keys, aggregates) if having else "",
    )


def _plain_select(query: exp.Query) -> exp.Select:
    """Return the query if it is one SELECT with only filter, groups and aggregates."""
    if not isinstance(query, exp.Select):
        raise NotRoutableError(f"it is a {query.key.upper()}, not one SELECT")
    if query.args.get("with_") or query.args.get("with"):
        raise NotRoutableError("it has a WITH clause")
    clauses = {"joins": "a JOIN", "laterals": "a LATERAL VIEW", "distinct": "SELECT DISTINCT", "order": "ORDER BY",
               "limit": "LIMIT", "offset": "OFFSET", "qualify": "QUALIFY", "pivots": "PIVOT"}  # fmt: skip
    for clause, name in clauses.items():
        if query.args.get(clause):
            raise NotRoutableError(f"it has {name}")
    if any(inner is not query for inner in query.find_all(exp.Select)):
        raise NotRoutableError("it has a subquery")
    if query.find(exp.Window):
        raise NotRoutableError("it has an OVER clause")
    if any(item.is_star for item in query.expressions):
        raise NotRoutableError("it selects *")
    return query


def _one_source(select: exp.Select, sources: Mapping[str, pa.Schema]) -> str:
    """Return the name of the only source; drop its alias from columns, and spell these as the source does."""
    clause = select.args.get("from_") or select.args.get("from")
    table = clause.this if clause else None
    (name, *others) = sources
    if not isinstance(table, exp.Table) or table.name.lower() != name.lower() or others:
        raise NotRoutableError("it does not read from one source")
    if table.alias_column_names or any(value for part, value in table.args.items() if part not in ("this", "alias")):
        raise NotRoutableError(f"it reads from {to_sql(table)}")
    _spelled_as(select, (table.name.lower(), table.alias_or_name.lower()), sources[name])
    return name


def _spelled_as(query: exp.Expr, tables: Collection[str], schema: pa.Schema) -> exp.Expr:
    """Spell columns as the source does, and drop the name of its table from them, in place."""
    names = {field.name.lower(): field for field in schema}
    for column in query.find_all(exp.Column):
        parts = list(column.parts)
        qualified = parts[0].name.lower() in tables
        if (
            qualified and len(parts) > 1 and parts[1].name.lower() in names
        ):  # otherwise a field of a column with that name
            parts = parts[1:]
        for part, spelled in zip(parts, _spelled([part.name for part in parts], names), strict=True):
            part.set("this", spelled)
        for place, part in zip_longest(("this", "table", "db", "catalog"), reversed(parts)):
            column.set(place, part)
    return query


def _spelled(parts: list[str], fields: Mapping[str, pa.Field]) -> Iterator[str]:
    """Yield the names of a column, and of its fields, as the source spells them; others as they are."""
    for part in parts:
        field = fields.get(part.lower())
        yield part if field is None else field.name
        kind = pa.null() if field is None else field.type
        fields = {each.name.lower(): each for each in kind} if pa.types.is_struct(kind) else {}
