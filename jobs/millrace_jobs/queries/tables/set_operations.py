"""Translation of UNION, EXCEPT, INTERSECT and DISTINCT over joins, tables and groups.

UNION ALL adds up the changes of both sides, so it has no state. Rows without duplicates are groups by all columns,
without aggregates. EXCEPT and INTERSECT count, for each such group, the rows of either side, and keep the groups with
the counts that they ask for: a row that is taken back is subtracted, as in any sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from pyspark.sql.types import DataType, LongType

from millrace_jobs.aggregates.builtin import is_scalar
from millrace_jobs.queries.tables.clauses import Difference
from millrace_jobs.queries.tables.grouping import TypesOf
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.relations import (
    Closing,
    Grouping,
    GroupPart,
    KeptRecords,
    Repeated,
    Selection,
    Union,
    contents_of,
)
from millrace_jobs.queries.tables.scopes import Name, NotATableQueryError, Scope

_LABELS = ("rows of the left side", "rows of the right side")


@dataclass(frozen=True)
class SetOperations:
    """The set operations of one query.

    Args:
        types: types of all internal columns; those of results are added.
        types_of: asks Spark for types.
        internal: returns a new internal name for what the query calls so.
        labels: what the query calls the internal columns.
        final: whether only rows that can no longer change are wanted.
    """

    types: dict[str, DataType]
    types_of: TypesOf
    internal: Callable[[str], str]
    labels: dict[str, str]
    final: bool

    def union(self, left: Scope, right: Scope, operation: str = "UNION") -> Scope:
        """Return all rows of both sides; a record of a stream beside rows of a table becomes such a row, and stays."""
        return self._united(left, right, operation, ())

    def distinct(self, rows: Scope) -> Scope:
        """Return the rows, each once."""
        return self._groups(rows, (), "DISTINCT")

    def difference(self, left: Scope, right: Scope, operation: Difference, *, counted: bool = False) -> Scope:
        """Return the rows of the left side that the right side does not have (EXCEPT) or has (INTERSECT), each once.

        With ALL, they are ``counted``: EXCEPT takes as many away as the right side has, and INTERSECT has as many as
        both sides have.
        """
        rows = self._united(left, right, operation, (("1L", "0L"), ("0L", "1L")))
        counts = [name.internal for name in rows.names[-2:]]
        parts = [
            GroupPart(each, self._column(label, LongType()), "sum") for each, label in zip(counts, _LABELS, strict=True)
        ]
        groups = self._groups(replace(rows, names=rows.names[:-2]), parts, operation)
        if Contents.TABLE not in (left.contents, right.contents) and not groups.bounds:
            raise NotATableQueryError(
                f"its {operation} would keep rows of streams forever: select a column of event time, or a window, too"
            )
        own, other = (part.name for part in parts)
        if counted:
            assert isinstance(groups.relation, Grouping)
            repeated = Repeated(groups.relation, (own, other), common=operation == "INTERSECT")
            return replace(groups, relation=repeated, keys=())
        where = f"{own} > 0 AND {other} {'=' if operation == 'EXCEPT' else '>'} 0"
        return replace(groups, relation=Selection(groups.relation, where))

    def _united(self, left: Scope, right: Scope, operation: str, more: Sequence[tuple[str, str]]) -> Scope:
        """Return the rows of both sides, with ``more`` columns, each given as its SQL on the left and on the right."""
        if len(left.names) != len(right.names):
            raise NotATableQueryError(
                f"the sides of its {operation} have {len(left.names)} and {len(right.names)} columns"
            )
        if left.contents is not right.contents and Contents.TABLE in (left.contents, right.contents):
            left, right = _as_rows(left), _as_rows(right)
        names, pairs = [], []
        for one, other in zip(left.names, right.names, strict=True):
            if bool(one.end) != bool(other.end):
                raise NotATableQueryError(f"its {operation} has a window on one side only, in column {one.column}")
            parts = [(one.internal, other.internal), *([(one.end, other.end)] if one.end else ())]
            internals = [self._common_column(own, its, self.labels[one.internal]) for own, its in parts]
            names.append(Name("", one.column, *internals))
            pairs += [(own, its, internal) for (own, its), internal in zip(parts, internals, strict=True)]
        for own, its in more:
            names.append(Name("", "", self._column("", LongType())))
            pairs.append((own, its, names[-1].internal))
        sides = [
            Selection(scope.relation, "", tuple((self._cast(pair[place], pair[2]), pair[2]) for pair in pairs))
            for place, scope in enumerate((left, right))
        ]
        union = Union(tuple(sides))
        closings = {name: max(left.closings[own], right.closings[its]) for own, its, name in pairs
                    if own in left.closings and its in right.closings}  # fmt: skip
        times = {name: closings[name] for own, its, name in pairs if own in left.times and its in right.times}
        lag = None if left.lag is None or right.lag is None else max(left.lag, right.lag)
        literals = {name: left.literals[own] | right.literals[its] for own, its, name in pairs
                    if own in left.literals and its in right.literals
                    and self.types.get(own) == self.types.get(its)}  # fmt: skip
        keys = tuple(self._keys_of_union(left, right, pairs))
        return Scope(
            union, tuple(names), contents_of(union), times, closings, lag=lag, other_keys=keys, literals=literals
        )

    def _keys_of_union(
        self, left: Scope, right: Scope, pairs: Sequence[tuple[str, str, str]]
    ) -> Iterator[tuple[str, ...]]:
        """Yield the keys of both sides together, with a column whose literals differ between the sides."""
        alike = {(own, its): name for own, its, name in pairs if self.types.get(own) == self.types.get(its)}
        apart = [name for (own, its), name in alike.items() if own in left.literals and its in right.literals
                 and not left.literals[own] & right.literals[its]]  # fmt: skip
        if not apart:
            return
        for key, other in product((*left.keys, *left.other_keys), (*right.keys, *right.other_keys)):
            columns = {pair: name for pair, name in alike.items() if pair[0] in key or pair[1] in other}
            if {own for own, _ in columns} >= set(key) and {its for _, its in columns} >= set(other):
                yield (apart[0], *(name for name in columns.values() if name != apart[0]))

    def _groups(self, rows: Scope, parts: Sequence[GroupPart], operation: str) -> Scope:
        """Return the groups of rows by all columns that have names."""
        names, keys, bounds = [], [], {}
        closings = rows.closings
        for name in rows.names:
            internals = []
            for column in filter(None, (name.internal, name.end)):
                kind = self.types[column]
                if not is_scalar(kind.simpleString()):
                    raise NotATableQueryError(
                        f"its {operation} compares {column}, which is of type {kind.simpleString()}"
                    )
                internals.append(self._column(self.labels[column], kind))
                keys.append((column, internals[-1]))
                if column in closings:
                    bounds[internals[-1]] = closings[column] + 1
            names.append(Name("", name.column, *internals))
        self.types.update((part.name, LongType()) for part in parts)
        found = [(closings[column], column) for column, _ in keys if column in closings]
        closing = Closing(f"unix_micros(CAST({min(found)[1]} AS TIMESTAMP)) + 1L", min(found)[0]) if found else None
        if self.final and closing is None:
            raise NotATableQueryError(f"a row of its {operation} without a window or event time is never final")
        grouping = Grouping(
            rows.relation, tuple(keys), None, closing, tuple(parts), self.final, rows.lag, replaces=not parts
        )  # fmt: skip
        primary = tuple(name for _, name in keys)
        return Scope(
            grouping, tuple(names), contents_of(grouping), bounds=bounds, keys=(primary,), lag=grouping.result_lag
        )

    def _common_column(self, one: str, other: str, label: str) -> str:
        """Return the name of a new column for the values of two, of the type that Spark gives both."""
        kinds = {name: self.types[name] for name in (one, other)}
        if kinds[one] == kinds[other]:
            return self._column(label, kinds[one])
        return self._column(label, *self.types_of(kinds, [f"coalesce({one}, {other})"]))

    def _column(self, label: str, kind: DataType) -> str:
        internal = self.internal(label)
        self.types[internal] = kind
        return internal

    def _cast(self, sql: str, internal: str) -> str:
        """Return the SQL of a value in the type of a new column."""
        kind = self.types[internal]
        return sql if self.types.get(sql, kind) == kind else f"CAST({sql} AS {kind.simpleString()})"


def _as_rows(scope: Scope) -> Scope:
    """Return the records of a stream as rows of a table, which are never final; the rows of a table as they are."""
    if scope.contents is Contents.TABLE:
        return scope
    return replace(scope, relation=KeptRecords(scope.relation), contents=Contents.TABLE)
