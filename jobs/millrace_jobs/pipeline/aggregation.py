"""Translation of SQL to an aggregation that can be routed, or to Spark's own plan with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
from sqlglot import exp

from millrace_api.sql.dialect import StreamingSql, parse_expression, parse_query, to_sql
from millrace_api.sql.groups import aggregates, group_expressions, is_aggregate, is_window, select_aliases
from millrace_api.sql.intervals import LengthError, literal_text, parse_interval, window_lengths
from millrace_jobs.aggregates.builtin import BuiltinAggregate, Part, TypeOf, compile_aggregate, is_scalar
from millrace_jobs.windows import Window

_LONGEST_WINDOW = 36_500 * 86_400_000_000
"""Microseconds; the ends of longer windows may not be times that Arrow and Python can hold."""


@dataclass(frozen=True)
class GroupingKey:
    """A grouping expression: its SQL over the source, and its column name in the plan."""

    name: str
    sql: str


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


@dataclass(frozen=True)
class Native:
    """SQL that Structured Streaming runs by itself, and the reason it is not routed."""

    sql: str
    reason: str


class NotRoutableError(Exception):
    """Error that carries the reason a query stays with Spark's own plan."""


def compile_sql(sql: str, schemas: Mapping[str, pa.Schema], type_of: TypeOf) -> Aggregation | Native:
    """Translate the SQL of a query to an aggregation, or to Spark's own plan with the reason.

    Args:
        sql: one SELECT that Spark has already accepted.
        schemas: schema of each source, by name.
        type_of: Spark's type of an expression over the one source of the query.

    Raises:
        MillraceError: the SQL does not parse.
    """
    query = parse_query(sql)
    try:
        return _aggregation(query, schemas, type_of)
    except NotRoutableError as reason:
        return Native(sql, str(reason))


def has_groups(sql: str) -> bool:
    """Whether the query has groups of any kind, so that its results can change after they were emitted."""
    return aggregates(parse_query(sql))


def longest_window(sql: str) -> int:
    """Return the length in microseconds of the query's longest window, or session gap; 0 without one.

    Of a gap that depends on the record, it is the longest of the texts in its expression.
    """
    calls = [call for call in parse_query(sql).find_all(exp.Anonymous) if len(call.expressions) > 1]
    lengths = [window_lengths(call).size for call in calls if call.name.lower() == "window"]
    for call in calls:
        if call.name.lower() == "session_window":
            texts = map(literal_text, call.expressions[1].walk())
            lengths += [_micros(text) for text in texts if text is not None]
    return max(lengths, default=0)


def _micros(gap: str) -> int:
    """Return the length of a session gap, at most; 0 for a text that is none, whose records Spark drops."""
    try:
        length = parse_interval(gap)
    except LengthError:
        return 0
    return (31 * length.months + length.days) * 86_400_000_000 + length.microseconds


def _aggregation(query: exp.Query, schemas: Mapping[str, pa.Schema], type_of: TypeOf) -> Aggregation:
    select = _plain_select(query)
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
    aggregates = tuple(split_aggregates(select, type_of))
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
    names = {field.name.lower(): field for field in sources[name]}
    for column in select.find_all(exp.Column):
        parts = list(column.parts)
        qualified = parts[0].name.lower() in (table.name.lower(), table.alias_or_name.lower())
        if (
            qualified and len(parts) > 1 and parts[1].name.lower() in names
        ):  # otherwise a field of a column with that name
            parts = parts[1:]
        for part, spelled in zip(parts, _spelled([part.name for part in parts], names), strict=True):
            part.set("this", spelled)
        for place, part in zip_longest(("this", "table", "db", "catalog"), reversed(parts)):
            column.set(place, part)
    return name


def _spelled(parts: list[str], fields: Mapping[str, pa.Field]) -> Iterator[str]:
    """Yield the names of a column, and of its fields, as the source spells them; others as they are."""
    for part in parts:
        field = fields.get(part.lower())
        yield part if field is None else field.name
        kind = pa.null() if field is None else field.type
        fields = {each.name.lower(): each for each in kind} if pa.types.is_struct(kind) else {}


def without_lateral_aliases(items: list[exp.Expr], columns: Collection[str]) -> Iterator[exp.Expr]:
    """Yield the items of a SELECT list with earlier aliases replaced, unless a column has the same name."""
    aliases: dict[str, exp.Expr] = {}
    for item in items:
        resolved = without_aliases(item, aliases)
        yield resolved
        if isinstance(resolved, exp.Alias) and resolved.alias.lower() not in columns:
            aliases[resolved.alias.lower()] = resolved.this


def without_aliases(expression: exp.Expr, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return an expression with aliases replaced by what they stand for.

    The arguments of aggregates stay as they are, because Spark looks for their names among the columns only.
    """

    def replace(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.find_ancestor(exp.AggFunc, exp.Filter):
            return node
        first, *fields = node.parts
        meaning = aliases.get(first.name.lower())
        if meaning is None:
            return node
        if not fields:
            return exp.Paren(this=meaning.copy())
        result = meaning.copy()
        for field in fields:  # of what the alias stands for, such as w.start
            result = exp.Dot(this=result, expression=field.copy())
        return result

    return expression.transform(replace)


def parse_window(call: exp.Expr, timestamps: set[str]) -> Window:
    """Parse ``window(column, size[, slide[, start]])``; raises NotRoutableError for what routing does not do."""
    column = call.expressions[0]
    if not isinstance(column, exp.Column) or column.table or column.name.lower() not in timestamps:
        raise NotRoutableError(f"its window is not on a TIMESTAMP column but on {to_sql(column)}")
    try:
        found = window_lengths(call)
    except LengthError as error:
        raise NotRoutableError(f"a length of its window cannot be read: {error}") from None
    if found.size > _LONGEST_WINDOW:
        raise NotRoutableError("its window is longer than a hundred years")
    return Window(column.name, found.size, found.slide, found.start)


def _aggregate_calls(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the outermost aggregate calls below a node, each with its FILTER."""
    for found in node.find_all(exp.Func, exp.Filter):
        if isinstance(found, exp.Filter) or (is_aggregate(found) and not isinstance(found.parent, exp.Filter)):
            yield found


def split_aggregates(select: exp.Select, type_of: TypeOf, *, structs: bool = False) -> Iterator[BuiltinAggregate]:
    """Yield the distinct aggregates of the SELECT list and of HAVING, split into parts; see ``compile_aggregate``.

    Raises:
        NotRoutableError: one of them cannot be split.
    """
    items = [*select.expressions, *filter(None, [select.args.get("having")])]
    seen: set[str] = set()
    for call in (call for item in items for call in _aggregate_calls(item)):
        text = to_sql(call)
        if text in seen:
            continue
        compiled = compile_aggregate(call, len(seen), type_of, structs=structs)
        if isinstance(compiled, str):
            raise NotRoutableError(compiled)
        seen.add(text)
        yield compiled


def over_parts(item: exp.Expr, keys: tuple[GroupingKey, ...], aggregates: tuple[BuiltinAggregate, ...]) -> str:
    """Return the SQL of a SELECT item or of HAVING over the columns that merge yields.

    Raises:
        NotRoutableError: it reads something else than keys and aggregates.
    """
    known = {key.sql: key.name for key in keys} | {a.call: f"({a.finish})" for a in aggregates}
    by_text = {_quoted(parse_expression(sql)): name for sql, name in known.items()}

    def replace(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Identifier):
            return node  # part of a name, such as start in window.start
        if _quoted(node) in by_text:
            return exp.Var(this=by_text[_quoted(node)])
        return exp.column("window") if is_window(node) else node

    merged = item.unalias().copy().transform(replace)
    for column in merged.find_all(exp.Column):
        if "window" not in (column.name.lower(), column.table.lower()):
            raise NotRoutableError(f"{to_sql(item)} is not made of its GROUP BY expressions and aggregates alone")
    return to_sql(merged)


def _quoted(node: exp.Expr) -> str:
    """Return SQL in which a name looks the same with and without backquotes."""
    return node.sql(dialect=StreamingSql, identify=True)
