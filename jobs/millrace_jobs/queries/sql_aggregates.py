"""Groups and aggregates in SQL, as routed queries and operators on tables read them alike: keys, windows and parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from sqlglot import exp

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_api.sql.dialect import StreamingSql, parse_expression, to_sql
from millrace_api.sql.groups import is_aggregate, is_window
from millrace_api.sql.intervals import LengthError, literal_text, parse_interval, window_lengths
from millrace_api.sql.merged_parts import LONGEST_WINDOW
from millrace_api.sql.outline import aggregate_text
from millrace_api.sql.parsed_query import ParsedQuery
from millrace_jobs.aggregates.builtin import BuiltinAggregate, TypeOf, compile_aggregate
from millrace_jobs.aggregates.in_sql import SqlAggregator
from millrace_jobs.windows import Window


@dataclass(frozen=True)
class GroupingKey:
    """A grouping expression: its SQL over the source, and its column name in the plan."""

    name: str
    sql: str


class NotRoutableError(Exception):
    """Error that carries the reason a query stays with Spark's own plan; ``part`` of the query is that reason."""

    def __init__(self, reason: str, part: exp.Expr | None = None) -> None:
        super().__init__(reason)
        self.part = part


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
    if found.size > LONGEST_WINDOW:
        raise NotRoutableError("its window is longer than a hundred years")
    return Window(column.name, found.size, found.slide, found.start)


def _aggregate_calls(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the outermost aggregate calls below a node, each with its FILTER."""
    for found in node.find_all(exp.Func, exp.Filter):
        if isinstance(found, exp.Filter) or (is_aggregate(found) and not isinstance(found.parent, exp.Filter)):
            yield found


def split_aggregates(
    select: exp.Select,
    type_of: TypeOf,
    *,
    tables: bool = False,
    own: Mapping[str, SqlAggregator] | None = None,
    held: Sequence[exp.Expr] = (),
) -> Iterator[BuiltinAggregate]:
    """Yield the distinct aggregates of the SELECT list and of HAVING, split into parts; see ``compile_aggregate``.

    Those in ``held``, which a state has, come first and in its order, also where the query no longer has them.

    Raises:
        NotRoutableError: one of them cannot be split.
        MillraceError: one that only the state has can no longer be computed.
    """
    items = [*select.expressions, *filter(None, [select.args.get("having")])]
    calls: dict[str, exp.Expr] = {}
    for call in (call for item in items for call in _aggregate_calls(item)):
        calls.setdefault(_canonical(call), call)
    for index, (text, counted) in enumerate(_held_first(calls, held)):
        if text not in calls:
            yield _only_held(counted, index, type_of)
            continue
        compiled = compile_aggregate(calls[text], index, type_of, tables=tables, own=own)
        if isinstance(compiled, str):
            raise NotRoutableError(compiled, calls[text])
        yield compiled


def _held_first(calls: Mapping[str, exp.Expr], held: Sequence[exp.Expr]) -> list[tuple[str, exp.Expr]]:
    """Return the calls with their spelling, those of the state first.

    A state of an earlier version can have columns for each of two spellings of one call. All of them keep their places.
    """
    counted = [(_canonical(call), call) for call in held]
    known = {text for text, _ in counted}
    return [*counted, *((text, call) for text, call in calls.items() if text not in known)]


def _canonical(call: exp.Expr) -> str:
    return aggregate_text(to_sql(call))


def _only_held(call: exp.Expr, index: int, type_of: TypeOf) -> BuiltinAggregate:
    """Split an aggregate that the state has and the query does not."""
    with suppress(AnalysisException):
        compiled = compile_aggregate(call, index, type_of)
        if isinstance(compiled, BuiltinAggregate):
            return compiled
    message = f"the state goes on counting {to_sql(call)}, and a column or a function that it needs is gone"
    hint = f"declare what it needs, or start over with {ANOTHER_CHECKPOINT}"
    raise MillraceError(Problem(message, hint, field="spec.query.sql"))


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
    """Return SQL in which a name looks the same with and without backquotes, in upper and in lower case."""
    copied = node.copy()
    for name in copied.find_all(exp.Identifier):
        name.set("this", name.name.lower())
    return copied.sql(dialect=StreamingSql, identify=True, copy=False)


def longest_window(query: ParsedQuery) -> int:
    """Return the length in microseconds of the query's longest window, or session gap; 0 without one.

    Of a gap that depends on the record, it is the longest of the texts in its expression.
    """
    calls = [call for call in query.tree.find_all(exp.Anonymous) if len(call.expressions) > 1]
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
