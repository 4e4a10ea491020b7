"""What the SQL of a table query may name: the columns of its relations, each by an internal name of its own.

The event times of a join of two streams follow from the range of event time in its condition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.sql.types import DataType
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression, start_of, to_sql
from millrace_api.sql.join_conditions import Bound, Side, TimeRange
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.relations import Match, Relation, Scan, Selection, Static, below, texts_of

_INTERNAL = re.compile(r"\bc\d+\b")
_EITHER = ("coalesce", "nvl", "ifnull")


def with_labels(text: str, labels: Mapping[str, str]) -> str:
    """Return a text with what the query calls its columns in place of their internal names."""
    return _INTERNAL.sub(lambda found: labels.get(found[0], found[0]), text)


def internals_in(text: str) -> set[str]:
    """Return the internal names in a text."""
    return set(_INTERNAL.findall(text))


def columns_in(texts: Iterable[str]) -> set[str]:
    """Return the internal columns in SQL texts, also those of which only a field is read."""
    found = (column for text in texts if text for column in parse_expression(text).find_all(exp.Column))
    return {column.parts[0].name for column in found}


def columns_read(
    relation: Relation, items: Sequence[str], labels: Mapping[str, str], types: Mapping[str, DataType]
) -> Iterator[str]:
    """Yield the columns of sources that a result needs, with their types; ``items`` are its columns as SQL."""
    relations = list(below(relation))
    texts = (*items, *(text for each in relations for text in texts_of(each)))
    read = {name for text in texts for name in internals_in(text)}
    for source in relations:
        if isinstance(source, Scan | Static):
            internals = (internal for _, internal in source.columns if internal in read)
            yield from (f"{labels[each]} {types[each].simpleString()}" for each in internals)


class NotATableQueryError(Exception):
    """Error that carries the reason a query cannot be run by the operators on tables.

    ``hint`` says what to write instead, where that is more than to leave something out. ``start`` is the place of the
    reason in the SQL, in characters from 0; None if it is the whole text. See ``located``.
    """

    def __init__(self, reason: str, hint: str = "", start: int | None = None) -> None:
        super().__init__(reason)
        self.hint = hint
        self.start = start


@contextmanager
def located(part: exp.Expr) -> Iterator[None]:
    """Give errors in this block the place of a part of the query, unless a smaller part around them has given one."""
    try:
        yield
    except NotATableQueryError as error:
        if error.start is None:
            error.start = start_of(part)
        raise


@dataclass(frozen=True)
class InputTraits:
    """What the translation has to know of a source: columns, event-time column, and the primary key of a table.

    ``static``: it is a table that was read once.
    """

    columns: Mapping[str, DataType]
    time: str | None
    keys: tuple[str, ...] = ()
    static: bool = False


@dataclass(frozen=True)
class Name:
    """A column of a relation: the table it is found under in the query, its name there, and its internal name.

    A window is two columns, ``internal`` for its start and ``end`` for its end. ``merged``: a join has made it one with
    another column, by USING, for which ``*`` stands.
    """

    table: str
    column: str
    internal: str
    end: str = ""
    merged: bool = field(default=False, kw_only=True)

    @property
    def sql(self) -> str:
        """The column over internal names."""
        return f"named_struct('start', {self.internal}, 'end', {self.end})" if self.end else self.internal


@dataclass(frozen=True)
class Scope:
    """A relation with what the query may name in it.

    ``times`` are the internal names of event-time columns, each with how far, in microseconds, it may be behind the
    event time of its row. ``bounds`` are other columns that say until when a row can come or change: until the
    watermark has passed the column by so many microseconds. ``keys`` are the primary keys that a table has, each as
    internal names; without one nothing identifies its rows. ``other_keys`` are those of a FULL JOIN, as the SQL of
    ``either``, and those of a UNION ALL whose sides have other ``literals``: columns that have one of some literals in
    all rows, with the SQL of these. DISTINCT has groups over rows with ``other_keys``, as states of earlier versions
    have. ``lag`` is how far, in microseconds, changes of the relation can be behind the watermark; None without limit.
    """

    relation: Relation
    names: tuple[Name, ...]
    contents: Contents
    times: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    keys: tuple[tuple[str, ...], ...] = ()
    lag: int | None = 0
    other_keys: tuple[tuple[str, ...], ...] = ()
    literals: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def closings(self) -> dict[str, int]:
        """All columns that say until when a row can come or change; see ``bounds``."""
        return {**self.bounds, **self.times}

    @property
    def internals(self) -> tuple[str, ...]:
        """Internal names of all columns."""
        return tuple(each for name in self.names for each in (name.internal, name.end) if each)


class Scopes:
    """One or two relations whose columns an expression may name."""

    def __init__(self, left: Scope, right: Scope | None = None) -> None:
        self.left = left
        self.right = right if right is not None else replace(left, names=())
        self._sides: dict[str, Side] = dict.fromkeys(self.left.internals, "left")
        self._sides |= dict.fromkeys(self.right.internals, "right")
        windows = [name for name in (*self.left.names, *self.right.names) if name.end]
        self._windows = {to_sql(parse_expression(name.sql)): (name.internal, name.end) for name in windows}

    @property
    def are_streams(self) -> bool:
        """Whether none of the relations is a table."""
        return Contents.TABLE not in (self.left.contents, self.right.contents)

    def knows(self, expression: exp.Expr) -> bool:
        """Whether all columns of an expression are columns of these relations."""
        return all(self._found(column) is not None for column in expression.find_all(exp.Column))

    def resolved(self, expression: exp.Expr, keep: str | None = None) -> exp.Expr:
        """Return an expression over internal columns; ``keep`` is a name that is not theirs, and stays."""
        if expression.find(exp.Query) is not None:
            raise NotATableQueryError(f"it has a subquery in {to_sql(expression)}, which is not a condition of WHERE")

        def replaced(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            found = self._found(node)
            if found is None and keep in (node.table.lower(), node.name.lower()):
                return node
            if found is None:
                reason = f"it reads {to_sql(node)}, which is a column of none of its tables"
                raise NotATableQueryError(reason, start=start_of(node))
            name, fields = found
            if name.end and fields:
                result: exp.Expr = exp.column(name.end if fields[0].name.lower() == "end" else name.internal)
            else:
                result = parse_expression(name.sql)
                for each in fields:
                    result = exp.Dot(this=result, expression=each.copy())
            result.meta.update(node.parts[0].meta)  # its place in the query's SQL
            return result

        return expression.copy().transform(replaced)

    def window_in(self, resolved: exp.Expr) -> tuple[str, str] | None:
        """Return the internal names of start and end, if a resolved expression is a window of these relations."""
        return self._windows.get(to_sql(resolved))

    def side_of(self, expression: exp.Expr) -> Side | None:
        """Return the side that all columns of a resolved expression belong to."""
        sides = {self._sides[column.name] for column in expression.find_all(exp.Column)}
        return sides.pop() if len(sides) == 1 else None

    def lag_of(self, expression: exp.Expr) -> int | None:
        """Return how far a resolved column may be behind the event time of its row; None if it is not event time."""
        if not isinstance(expression, exp.Column):
            return None
        return {**self.left.times, **self.right.times}.get(expression.name)

    def _found(self, column: exp.Column) -> tuple[Name, list[exp.Expr]] | None:
        """Return the name that a column refers to, and the fields that are read from it."""
        parts = list(column.parts)
        names = [*self.left.names, *self.right.names]
        first = parts[0].name.lower()
        if len(parts) > 1:
            for name in names:
                if name.table == first and name.column == parts[1].name.lower():
                    return name, parts[2:]
        for name in names:
            if name.column == first:
                return name, parts[1:]
        return None


def renamed(names: Sequence[Name], table: exp.Expr) -> tuple[Name, ...]:
    """Return the columns of what FROM reads, by the names that its alias gives them."""
    alias, columns = table.alias_or_name.lower(), [column.lower() for column in table.alias_column_names]
    columns = columns or [name.column for name in names]
    if len(columns) != len(names):
        raise NotATableQueryError(f"its alias {alias} names {len(columns)} of {len(names)} columns", "name all of them")
    return tuple(replace(name, table=alias, column=column) for name, column in zip(names, columns, strict=True))


def with_names(scope: Scope, own: Mapping[str, str]) -> Scope:
    """Return the scope of the same rows with other internal names, by those that its columns have."""
    names = tuple(
        replace(name, internal=own[name.internal], end=own[name.end] if name.end else "") for name in scope.names
    )
    times, bounds = (
        {own[name]: lag for name, lag in each.items() if name in own} for each in (scope.times, scope.bounds)
    )
    keys, others = (
        tuple(tuple(own[name] for name in key) for key in each if own.keys() >= set(key))
        for each in (scope.keys, scope.other_keys)
    )
    literals = {own[name]: found for name, found in scope.literals.items() if name in own}
    relation = Selection(scope.relation, "", tuple(own.items()))
    return Scope(relation, names, scope.contents, times, bounds, keys, scope.lag, others, literals)


def scope_of_source(
    source: InputTraits, table: exp.Expr, types: dict[str, DataType], internal: Callable[[str], str]
) -> Scope:
    """Return the scope of a source in FROM.

    Args:
        source: the source.
        table: its name in FROM, with an alias if it has one.
        types: types of the internal columns, to which those of the source are added.
        internal: returns a new internal name for a label.

    Raises:
        NotATableQueryError: it has no watermark.
    """
    alias = table.alias_or_name.lower()
    if source.time is None and not source.static:
        kind = "a table" if source.keys else "a stream"
        reason = f"{table.name} is {kind} without a watermark, whose column is the event time"
        hint = f"add watermark: {{column: ..., delay: 30s}} to spec.sources.{table.name.lower()}"
        raise NotATableQueryError(reason, hint)
    names = tuple(Name(alias, column.lower(), internal(f"{alias}.{column}")) for column in source.columns)
    own = {name.column: name.internal for name in names}
    names = renamed(names, table)
    types.update((own[column.lower()], kind) for column, kind in source.columns.items())
    columns = tuple((column, own[column.lower()]) for column in source.columns)
    primary = tuple(own[key.lower()] for key in source.keys)
    keys = (primary,) if primary else ()
    if source.time is None:
        return Scope(Static(table.name.lower(), columns), names, Contents.TABLE, keys=keys)
    time = own[source.time.lower()]
    scan = Scan(table.name.lower(), columns, time, primary)
    if primary:
        return Scope(scan, names, Contents.TABLE, keys=keys)
    return Scope(scan, names, Contents.RECORDS, {time: 0})


def unstarred(items: Iterable[exp.Expr], names: Sequence[Name]) -> Iterator[exp.Expr]:
    """Yield the items of a SELECT list, with the columns that a star stands for."""
    for item in items:
        if not item.is_star:
            yield item
            continue
        table = item.table.lower() if isinstance(item, exp.Column) else ""
        if isinstance(item, exp.Star) and (item.args.get("except_") or item.args.get("replace")):
            raise NotATableQueryError(f"it selects {to_sql(item)}", "write the columns one by one")
        chosen = [name for name in names if (table == name.table if table else not name.merged)]
        twice = Counter((name.table, name.column.lower()) for name in chosen)
        for name in chosen:
            if twice[name.table, name.column.lower()] > 1:
                message = f"its {to_sql(item)} stands for several columns with the name {name.column}"
                raise NotATableQueryError(message, "give them different names")
            yield exp.column(name.column, table=name.table or None)


def either(one: str, other: str) -> str:
    """Return the SQL of the first of two columns that is not NULL, where both have the same value if none is."""
    return f"coalesce({', '.join(sorted((one, other)))})"


def either_in(resolved: exp.Expr) -> str:
    """Return what ``either`` returns for an expression that is the first of two columns; else its own SQL."""
    name = resolved.name if isinstance(resolved, exp.Anonymous) else resolved.key
    parts = resolved.expressions if isinstance(resolved, exp.Anonymous) else [resolved.this, *resolved.expressions]
    is_either = name.lower() in _EITHER and len(parts) == 2 and all(isinstance(part, exp.Column) for part in parts)
    return either(*map(to_sql, parts)) if is_either else to_sql(resolved)


def literal_in(resolved: exp.Expr) -> frozenset[str]:
    """Return the SQL of an expression if it is a literal that equals no other one of its type; else nothing."""
    is_one = isinstance(resolved, exp.Boolean) or (isinstance(resolved, exp.Literal) and (
        resolved.is_string or re.fullmatch(r"0|[1-9][0-9]*", resolved.name)
    ))  # fmt: skip
    return frozenset({to_sql(resolved)} if is_one else ())


def match_of(found: TimeRange | None) -> Match:
    """Return the matching periods of two streams, from the range of event time in their condition."""
    if found is None or found.lower is None or found.upper is None:
        missing = "range" if found is None else "lower end" if found.lower is None else "upper end"
        raise NotATableQueryError(
            f"its join of two streams has no {missing} of event time, so their records would be kept forever",
            "add AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE to the condition, with their event times",
        )
    if found.reach is None:
        begin = to_sql(found.lower.expression)
        raise NotATableQueryError(f"the range of event time in its join begins at {begin}, which is not event time")
    ranged: Side = "left" if found.point == "right" else "right"
    time = _micros(to_sql(found.time))
    periods = {
        found.point: (time, f"{time} + 1L"),
        ranged: (_end(found.lower, open_end=1), _end(found.upper, open_end=0, closed_end=1)),
    }
    longest = found.reach + found.lag + (found.span or 0)
    end = "" if found.span is not None else to_sql(found.upper.expression)
    reach, span = {found.point: found.lag, ranged: found.reach}, {found.point: 0, ranged: found.span}
    return Match(periods, reach, span, longest, end)


def times_of(
    both: Scopes, match: Match | None, found: TimeRange | None, preserved: Mapping[Side, bool]
) -> Iterator[tuple[str, int]]:
    """Yield the event-time columns of a join's result; the time of a result of two streams is the later one."""
    sides: tuple[tuple[Side, Scope, Side, Scope], ...] = (
        ("left", both.left, "right", both.right), ("right", both.right, "left", both.left),
    )  # fmt: skip
    for side, scope, other, partner in sides:
        if preserved[other] or scope.contents is Contents.TABLE:
            continue  # the column is NULL in results of the other side alone
        if match is None or found is None:
            yield from ((name, max(lag, partner.lag or 0)) for name, lag in scope.times.items())
            continue
        # a ranged record may be found by one whose own column is behind, too
        behind = match.reach[other] if side == found.point else None if found.span is None else found.span + found.lag
        if behind is not None:
            yield from ((name, lag + behind) for name, lag in scope.times.items())


def bounds_of(match: Match | None, found: TimeRange | None) -> dict[str, int]:
    """Return the column that the range of event time ends with: no result comes after it."""
    if match is None or found is None or found.upper is None or not isinstance(found.upper.expression, exp.Column):
        return {}
    return {found.upper.expression.name: max(0, found.upper.offset) + max(match.reach.values())}


def _micros(sql: str) -> str:
    return f"unix_micros(CAST({sql} AS TIMESTAMP))"


def _end(bound: Bound, *, open_end: int, closed_end: int = 0) -> str:
    """Return the SQL of an end of a period, which contains its start but not its end."""
    offset = bound.offset + (closed_end if bound.inclusive else open_end)
    return f"{_micros(to_sql(bound.expression))} + {offset}L"
