"""Translation of GROUP BY over joins and tables: keys, windows, mergeable parts, and when a group is final."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, LongType, StructType, TimestampType
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression, start_of, to_sql
from millrace_api.sql.groups import SESSION, group_expressions, is_session, is_window, select_aliases
from millrace_jobs.aggregates.builtin import BuiltinAggregate, Part, is_scalar, part_type
from millrace_jobs.queries.sql_aggregates import (
    GroupingKey,
    NotRoutableError,
    over_parts,
    parse_window,
    split_aggregates,
    without_aliases,
    without_lateral_aliases,
)
from millrace_jobs.queries.tables.needs import own_aggregates, own_sessions
from millrace_jobs.queries.tables.operators.counted_values import CountedFunction
from millrace_jobs.queries.tables.operators.deviations import Deviation
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.operators.merging import Merge, sum_type
from millrace_jobs.queries.tables.relations import (
    WINDOW,
    Closing,
    Grouping,
    GroupPart,
    Relation,
    Selection,
    contents_of,
)
from millrace_jobs.queries.tables.scopes import Name, NotATableQueryError, Scope, Scopes, with_labels
from millrace_jobs.windows import Window

TypesOf = Callable[[Mapping[str, DataType], Sequence[str]], list[DataType]]
"""Function that returns Spark's types of expressions over columns of these types."""

_EXTREMES: tuple[Merge, ...] = ("min", "max")
_MERGES: Mapping[str, Merge] = {"sum": "sum", "min": "min", "max": "max"}
_DEVIATIONS: Mapping[str, Deviation] = {
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
}
_LISTS: Mapping[str, CountedFunction] = {"top": "top", "bottom": "bottom"}
_APPROXIMATE: Mapping[str, CountedFunction] = {
    "approx_count_distinct": "count_distinct",
    "percentile": "percentile",
    "percentile_approx": "percentile_approx",
}
"""Functions whose state is smaller in Spark, as long as rows are only added."""


def has_extremes(select: exp.Select) -> bool:
    """Whether a SELECT has aggregates that take rows back only from values that they keep."""
    return any(isinstance(call, exp.Min | exp.Max | exp.ArgMin | exp.ArgMax) for call in own_aggregates(select))


def is_mergeable(part: Part) -> bool:
    """Whether partial results of workers for a part are merged by the operators on tables."""
    return not part.weight and _function(part) in _MERGES


def without_sessions(select: exp.Select) -> tuple[exp.Select, bool]:
    """Return a SELECT with its sessions written as windows of the length of their gap, and whether it has some."""
    if not own_sessions(select):
        return select, False
    written = select.copy().transform(_as_window)
    assert isinstance(written, exp.Select)
    return written, True


def _as_window(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Identifier) and node.name.lower() == SESSION and isinstance(node.parent, exp.Column):
        return exp.to_identifier("window")
    if is_session(node):
        return exp.Anonymous(this="window", expressions=node.expressions)
    return node


def merge_of(part: Part, aggregate: BuiltinAggregate) -> Merge:
    """Return how the operators on tables merge a part; raises NotATableQueryError if they cannot."""
    if not is_mergeable(part):
        raise NotATableQueryError(f"{aggregate.call} is not made of sums, minima and maxima")
    return _MERGES[_function(part)]


def _function(part: Part) -> str:
    return part.merge.partition("(")[0]


@dataclass(frozen=True)
class GroupTranslation:
    """The translation of one SELECT with groups.

    Args:
        select: the SELECT; its FROM and WHERE are not read.
        scope: the rows that are grouped, and the names of their columns.
        input: the relation of these rows.
        types: types of all internal columns; those of the result are added.
        types_of: asks Spark for types.
        labels: what the query calls the internal columns.
        internal: returns a new internal name for what the query calls so.
        final: whether only groups that can no longer change are wanted.
        exact: whether approximate functions of records that are only added are computed here, exactly; Spark has
            smaller states of them.
        session: whether the window in ``select`` is a session with a gap of this length.
    """

    select: exp.Select
    scope: Scope
    input: Relation
    types: dict[str, DataType]
    types_of: TypesOf
    labels: Mapping[str, str]
    internal: Callable[[str], str]
    final: bool
    exact: bool
    session: bool = False

    def result(self) -> Scope:
        """Return the groups as rows; raises NotATableQueryError for what the operators on tables do not do."""
        try:
            return self._result()
        except NotRoutableError as reason:
            start = None if reason.part is None else start_of(reason.part)
            raise NotATableQueryError(str(reason), start=start) from None

    @property
    def longest(self) -> int:
        """How long, in microseconds, a row can wait for its group to be final."""
        return (self._window.size if self._window else 0) + (self._closing.lag if self._closing else 0)

    def _result(self) -> Scope:
        keys, aggregates = self._keys, self._aggregates
        if self.final and self._closing is None:
            reason = "a group without a window or event time in its key is never final"
            raise NotATableQueryError(reason, "add window(...) or the event time to GROUP BY")
        if self.session:
            self._check_sessions()
        grouping = Grouping(
            self.input, tuple((key.sql, key.name) for key in keys), self._window, self._closing,
            tuple(self._parts(aggregates)), self.final, self.scope.lag, session=self.session,
        )  # fmt: skip
        contents = contents_of(grouping)
        names, items, closings = [], [], {}
        key_closings = dict(self._key_closings())
        for item, resolved in zip(self._items, self._resolved_items, strict=True):
            internals = []
            for text in self._columns_of(resolved):
                internal = self.internal(self._result_name(item) or to_sql(item))
                internals.append(internal)
                items.append((text, internal))
                if text in key_closings:
                    closings[internal] = key_closings[text]
            names.append(Name("", self._result_name(item), *internals))
        self.types.update(self._types_of_items(grouping, items))
        having = self._over_groups(self._having) if self._having is not None else ""
        renamed = dict(items)
        primary = tuple(renamed.get(key.name, "") for key in keys)
        return Scope(
            Selection(grouping, having, tuple(items)),
            tuple(names),
            contents,
            times=closings if self.final and self._window is not None else {},
            bounds=closings,
            keys=(primary,) if all(primary) else (),
            lag=grouping.result_lag,
        )

    def _check_sessions(self) -> None:
        if self.scope.contents is not Contents.RECORDS:
            raise NotATableQueryError("the rows of its sessions can change, and one that goes could split a session")
        if self._closing is None:
            raise NotATableQueryError("its sessions are not over event time, so they never close")

    def _result_name(self, item: exp.Expr) -> str:
        name = "window" if is_window(item) else item.alias_or_name.lower()
        return SESSION if self.session and name == "window" else name

    @cached_property
    def _items(self) -> list[exp.Expr]:
        """The SELECT list without aliases of earlier items."""
        if any(item.is_star for item in self.select.expressions):
            raise NotATableQueryError("it selects * from groups", "write its grouping expressions and aggregates")
        columns = {name.column for name in self.scope.names}
        return list(without_lateral_aliases(self.select.expressions, columns))

    @cached_property
    def _scopes(self) -> Scopes:
        return Scopes(self.scope)

    @cached_property
    def _group_by(self) -> list[exp.Expr]:
        """The expressions of GROUP BY, over the names in the query."""
        select = self.select.copy()
        select.set("expressions", [item.copy() for item in self._items])
        columns = {name.column for name in self.scope.names}
        expressions = group_expressions(select, select_aliases(select, columns))
        if expressions is None:
            reason = "it has GROUPING SETS, CUBE, ROLLUP or GROUP BY ALL"
            raise NotATableQueryError(reason, "write the expressions of one GROUP BY")
        return expressions

    @cached_property
    def _grouped(self) -> list[exp.Expr]:
        """The expressions of GROUP BY, over internal names; a window of an inner SELECT as its start and its end."""
        resolved: list[exp.Expr] = []
        for node in map(self._scopes.resolved, self._group_by):
            window = self._scopes.window_in(node)
            resolved += [exp.column(end) for end in window] if window else [node]
        return resolved

    @cached_property
    def _window(self) -> Window | None:
        windows = [node for node in self._grouped if is_window(node)]
        if len(windows) > 1:
            raise NotATableQueryError("it groups by more than one window", "group by one of them")
        timestamps = {name for name in self.scope.internals if isinstance(self.types[name], TimestampType)}
        return parse_window(windows[0], timestamps) if windows else None

    @cached_property
    def _keys(self) -> list[GroupingKey]:
        """The keys; those of a window are its start and its end, as the first ones."""
        found = []
        if self._window is not None:
            for end in ("start", "end"):
                key = GroupingKey(self.internal(f"window.{end}"), f"{WINDOW}.{end}")
                self.types[key.name] = TimestampType()
                found.append(key)
        texts = [to_sql(node) for node in self._grouped if not is_window(node)]
        for text, kind in zip(texts, self.types_of(self._scope_types, texts), strict=True):
            if not is_scalar(kind.simpleString()):
                raise NotATableQueryError(f"its key {text} is of type {kind.typeName()}")
            key = GroupingKey(self.internal(with_labels(text, self.labels)), text)
            self.types[key.name] = kind
            found.append(key)
        return found

    @cached_property
    def _closing(self) -> Closing | None:
        """When groups can no longer change: by the end of their window, or by a time in their key."""
        if self._window is not None:
            lag = self.scope.closings.get(self._window.column)
            return None if lag is None else Closing(f"unix_micros({WINDOW}.end)", lag)
        closings = self.scope.closings
        found = [(closings[key.sql], key.sql) for key in self._keys if key.sql in closings]
        if not found:
            return None
        lag, column = min(found)
        return Closing(f"unix_micros(CAST({column} AS TIMESTAMP)) + 1L", lag)

    def _key_closings(self) -> Iterator[tuple[str, int]]:
        """Yield the keys that say until when a group can come or change; see ``Scope.bounds``."""
        if self._window is None:
            closings = self.scope.closings
            yield from ((key.name, closings[key.sql] + 1) for key in self._keys if key.sql in closings)
        elif self._closing is not None:
            start, end = self._keys[:2]
            if not self.session:  # which can grow for any time after its start
                yield start.name, self._window.size + self._closing.lag
            yield end.name, self._closing.lag + self.session

    @cached_property
    def _resolved_items(self) -> list[exp.Expr]:
        return [self._resolved(item.unalias()) for item in self._items]

    @cached_property
    def _having(self) -> exp.Expr | None:
        having = self.select.args.get("having")
        if having is None:
            return None
        columns = {column.name.lower() for node in self._group_by for column in node.find_all(exp.Column)}
        return self._resolved(without_aliases(having.this, select_aliases(self.select, columns)))

    @cached_property
    def _aggregates(self) -> tuple[BuiltinAggregate, ...]:
        def type_of(expression: str) -> str:
            return self.types_of(self._scope_types, [expression])[0].simpleString()

        having = [exp.Having(this=self._having)] if self._having is not None else []
        calls = exp.Select(expressions=[item.copy() for item in self._resolved_items])
        calls.set("having", having[0] if having else None)
        return tuple(split_aggregates(calls, type_of, tables=True))

    @property
    def _scope_types(self) -> dict[str, DataType]:
        return {name: self.types[name] for name in self.scope.internals}

    def _resolved(self, expression: exp.Expr) -> exp.Expr:
        return self._scopes.resolved(expression, keep="window" if self._window is not None else None)

    def _parts(self, aggregates: Sequence[BuiltinAggregate]) -> Iterator[GroupPart]:
        for aggregate in aggregates:
            for part in aggregate.parts:
                merge, counted = self._merge_of(part, aggregate)
                (kind,) = self.types_of(self._scope_types, [part.initial])
                merged = from_arrow_type(part_type(part.reduce, to_arrow_type(kind, timezone="UTC")))
                self.types[part.name] = _result_type(merge, merged)
                sql = f"CAST({part.initial} AS {merged.simpleString()})"
                yield GroupPart(sql, part.name, merge, counted, part.fraction, part.limit)

    def _merge_of(self, part: Part, aggregate: BuiltinAggregate) -> tuple[Merge | Deviation | CountedFunction, bool]:
        """Return how a part is merged, and whether its values are counted."""
        function, changes = _function(part), self.scope.contents is not Contents.RECORDS
        if self.session:
            return merge_of(part, aggregate), False
        if function in _DEVIATIONS:
            return _DEVIATIONS[function], False
        if function == "count_distinct" or (function in _APPROXIMATE and (changes or self.exact)):
            return _APPROXIMATE.get(function, "count_distinct"), True
        if function == "sum_distinct":
            return "sum_distinct", True
        if function in _LISTS:
            return _LISTS[function], True
        merge = merge_of(part, aggregate)
        return merge, merge in _EXTREMES and changes

    def _columns_of(self, resolved: exp.Expr) -> list[str]:
        """Return the SQL of an item over the groups; a window is its start and its end."""
        is_own = self._window is not None and (is_window(resolved) or _is_named_window(resolved))
        window = (f"{WINDOW}.start", f"{WINDOW}.end") if is_own else self._scopes.window_in(resolved)
        if window:
            by_sql = {key.sql: key.name for key in self._keys}
            return [by_sql.get(text, text) for text in window]
        return [self._over_groups(resolved)]

    def _over_groups(self, expression: exp.Expr) -> str:
        """Return the SQL of an expression over the columns of the groups."""
        keys = tuple(key for key in self._keys if not key.sql.startswith(WINDOW))
        text = over_parts(expression, keys, self._aggregates)
        if self._window is None:
            return text
        start, end = (key.name for key in self._keys[:2])
        return to_sql(parse_expression(text).transform(lambda node: _over_window(node, start, end)))

    def _types_of_items(self, grouping: Grouping, items: Sequence[tuple[str, str]]) -> dict[str, DataType]:
        names = [*(name for _, name in grouping.keys), *(part.name for part in grouping.parts)]
        found = self.types_of({name: self.types[name] for name in names}, [text for text, _ in items])
        return {internal: kind for (_, internal), kind in zip(items, found, strict=True)}


def _result_type(merge: Merge | Deviation | CountedFunction, kind: DataType) -> DataType:
    """Return the type of a part of groups; ``kind`` is that of the part of a row."""
    if merge in _LISTS and isinstance(kind, StructType):
        return ArrayType(kind.fields[1].dataType)
    if merge == "sum_distinct":
        return from_arrow_type(sum_type(to_arrow_type(kind, timezone="UTC")))
    return LongType() if merge == "count_distinct" else kind


def _is_named_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == "window" and not node.table


def _over_window(node: exp.Expr, start: str, end: str) -> exp.Expr:
    """Replace the window of a group, or its start or end, by columns of the group."""
    ends = {"start": start, "end": end}
    if isinstance(node, exp.Dot) and _is_named_window(node.this):
        return exp.column(ends[node.expression.name.lower()])
    if isinstance(node, exp.Column) and node.table.lower() == "window":
        return exp.column(ends[node.name.lower()])
    if _is_named_window(node):
        return parse_expression(f"named_struct('start', {start}, 'end', {end})")
    return node
