"""Translation of SQL with joins and tables to a tree of relations, which ``build`` turns into Spark stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql.types import DataType
from sqlglot import exp

from millrace_api.sql.dialect import to_sql
from millrace_api.sql.join_conditions import JoinCondition, Side, conjuncts, take_apart
from millrace_api.sql.parsed_query import ParsedQuery
from millrace_api.sql.top_rows import row_numbers
from millrace_jobs.queries.tables.clauses import plain_select, set_operation, within_parentheses
from millrace_jobs.queries.tables.existence import Existence, correlated, equalities, existence_of
from millrace_jobs.queries.tables.grouping import GroupTranslation, TypesOf, has_extremes, without_sessions
from millrace_jobs.queries.tables.join_inputs import (
    as_input,
    as_table,
    check_kept_rows,
    enriched,
    filtered_input,
    filtered_rows,
    passing,
)
from millrace_jobs.queries.tables.join_order import has_free_order, has_key
from millrace_jobs.queries.tables.join_scopes import (
    check_keys,
    equal_columns,
    join_type,
    using_columns,
    windows_by_ends,
    with_first,
    with_merged_columns,
)
from millrace_jobs.queries.tables.joined_keys import either_keys, joint_keys
from millrace_jobs.queries.tables.needs import own_aggregates, own_sessions
from millrace_jobs.queries.tables.operators.interface import stream_join_buckets
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.pair_conditions import pair_filter
from millrace_jobs.queries.tables.relations import (
    Enriched,
    Existing,
    Join,
    JoinType,
    Selection,
    Static,
    contents_of,
    emits_at_once,
    grouping_of,
)
from millrace_jobs.queries.tables.scopes import (
    InputTraits,
    Name,
    NotATableQueryError,
    Scope,
    Scopes,
    bounds_of,
    columns_read,
    either_in,
    literal_in,
    located,
    match_of,
    renamed,
    scope_of_source,
    times_of,
    unstarred,
    with_labels,
    with_names,
)
from millrace_jobs.queries.tables.set_operations import SetOperations
from millrace_jobs.queries.tables.shared_reads import CommonRead, Form, check_materialized, common_read, form_of
from millrace_jobs.queries.tables.table_query import TableQuery
from millrace_jobs.queries.tables.top_rows import TopRowsTranslation, numbered_select

_EXISTS: dict[bool, Existing] = {False: "semi", True: "anti"}


def translate(
    query: ParsedQuery,
    sources: Mapping[str, InputTraits],
    types_of: TypesOf,
    *,
    partitions: int,
    final_joins: bool,
    final_groups: bool,
    exact: bool = False,
) -> TableQuery:
    """Translate the SQL of a query that Spark has accepted.

    Args:
        query: one SELECT.
        sources: the sources by name, in lower case.
        types_of: asks Spark for types.
        partitions: number of state partitions.
        final_joins: whether only results of joins that can no longer change are emitted.
        final_groups: whether only groups that can no longer change are emitted.
        exact: whether Spark's own plan cannot run the query, so that approximate functions of records that are only
            added are computed exactly, and a semi join of streams is one of these operators.

    Raises:
        NotATableQueryError: the query has something that these operators do not do.
    """
    translation = _Translation(sources, types_of, final_joins, final_groups, exact)
    try:
        scope = translation.select(query.tree)
    except NotATableQueryError as reason:
        raise NotATableQueryError(with_labels(str(reason), translation.labels), reason.hint, reason.start) from None
    items = tuple(name.sql for name in scope.names)
    places = {part: place for place, name in enumerate(scope.names) for part in (name.internal, name.end)}
    keys = [tuple(dict.fromkeys(places[name] for name in key)) for key in (*scope.keys, *scope.other_keys)]
    return TableQuery(
        sql=to_sql(query.tree),
        relation=scope.relation,
        items=items,
        contents=scope.contents,
        waits=translation.waits,
        longest=translation.longest,
        labels=translation.labels,
        columns=tuple(columns_read(scope.relation, items, translation.labels, translation._types)),
        partitions=partitions,
        stream_join_buckets=stream_join_buckets(partitions),
        wakes=not emits_at_once(scope.relation),
        key=keys[0] if keys else None,
        other_keys=tuple(keys[1:]),
        common=tuple(translation.common.values()),
    )


class _Translation:
    def __init__(
        self, sources: Mapping[str, InputTraits], types_of: TypesOf, final_joins: bool, final_groups: bool, exact: bool
    ) -> None:
        self._sources = sources
        self._types_of = types_of
        self._final_joins = final_joins
        self._final_groups = final_groups
        self._exact = exact
        self._types: dict[str, DataType] = {}
        self.labels: dict[str, str] = {}
        self.longest = 0
        self.waits = False
        self.common: dict[Form, CommonRead] = {}
        self._first: dict[Form, tuple[Scope, int]] = {}

    def select(self, query: exp.Query) -> Scope:
        """Return the scope of the result of a SELECT, or of a set operation."""
        with located(query):
            return self._select(query)

    def _select(self, query: exp.Query) -> Scope:
        inner = within_parentheses(query)
        if isinstance(inner, exp.SetOperation):
            return self._combined(inner)
        select = plain_select(inner)
        numbered = numbered_select(select)
        if numbered is None:
            return self._rows_of(select)
        top = TopRowsTranslation(self._types, self._internal, self.labels, self._final_groups)
        rows = self._waiting(top.result(self._rows_of(numbered.plain), numbered))
        return self._distinct(rows) if select.args.get("distinct") else rows

    def _rows_of(self, select: exp.Select) -> Scope:
        """Return the scope of the rows of a SELECT that does not number them."""
        groups = select.args.get("group") is not None or bool(own_aggregates(select))
        before = self._final_joins, self._final_groups
        if groups and own_sessions(select):  # what is below must not change any more
            self._final_joins = self._final_groups = True
        elif groups and has_extremes(select):  # where a sink cannot show changes, few values are kept of final groups
            self._final_groups |= self._final_joins
        scope, wheres = self._rows(select)
        self._final_joins, self._final_groups = before
        rows = self._grouped(scope, select, wheres) if groups else self._selected(scope, select, wheres)
        return self._distinct(rows) if select.args.get("distinct") else rows

    def _combined(self, query: exp.SetOperation) -> Scope:
        """Return the scope of a UNION, EXCEPT or INTERSECT."""
        operation = set_operation(query)
        left, right = self.select(query.this), self.select(query.expression)
        if operation != "UNION":
            counted = not query.args.get("distinct")
            return self._waiting(self._sets.difference(left, right, operation, counted=counted))
        rows = self._sets.union(left, right)
        return self._distinct(rows) if query.args.get("distinct") else rows

    def _distinct(self, rows: Scope) -> Scope:
        """Return the scope of the rows without duplicates; rows with a key have none."""
        return rows if rows.keys else self._waiting(self._sets.distinct(rows))

    @property
    def _sets(self) -> SetOperations:
        return SetOperations(self._types, self._types_of, self._internal, self.labels, self._final_groups)

    def _waiting(self, groups: Scope) -> Scope:
        """Return the scope of rows that are made of new groups, for which a row may wait."""
        grouping = grouping_of(groups.relation)
        assert grouping is not None
        self.waits |= self._final_groups
        self.longest += grouping.window.size if grouping.window is not None else 0
        self.longest += grouping.closing.lag if grouping.closing is not None else 0
        return groups

    def _rows(self, select: exp.Select, *, asked: bool = False) -> tuple[Scope, list[exp.Expr]]:
        """Return the scope of FROM with its joins, and the conditions of WHERE that are left over.

        ``asked``: the SELECT is only asked whether it has a row, so that it can be that of a static table alone.
        """
        conditions = conjuncts(select.args["where"].this if select.args.get("where") else None)
        found = [(part, existence_of(part)) for part in conditions]
        wheres = [part for part, existence in found if existence is None]
        first = self._read(select.args["from_"].this)
        scope, wheres = self._joins(first, select.args.get("joins") or (), wheres)
        existences = [existence for _, existence in found if existence is not None]
        if existences:  # rows that do not pass WHERE need no state
            scope, wheres = passing(scope, wheres), []
        for existence in existences:
            with located(existence.query):
                scope = self._having_partner(scope, existence)
        if isinstance(scope.relation, Static) and not asked:
            raise NotATableQueryError(f"it reads the static table {scope.relation.source} without a join")
        return scope, wheres

    def _joins(self, scope: Scope, joins: Sequence[exp.Join], wheres: list[exp.Expr]) -> tuple[Scope, list[exp.Expr]]:
        """Return the scope of several joins, and the conditions of WHERE that are left over.

        Inner joins are made in the order in which each has a key, whatever the order in FROM.
        """
        waiting = [(join, self._joined_relation(join)) for join in joins]
        scopes = (scope, *(right for _, right in waiting))
        names = [name.internal for each in scopes for name in each.names]
        is_free = has_free_order(joins, scopes)
        if is_free:
            wheres = [*(part for join in joins for part in conjuncts(join.args.get("on"))), *wheres]
        while waiting:
            keyed = (place for place, (_, right) in enumerate(waiting) if is_free and has_key(scope, right, wheres))
            join, right = waiting.pop(next(keyed, 0))
            parts = [] if is_free else conjuncts(join.args.get("on"))
            kept = any(later.side.upper() in ("RIGHT", "FULL") for later, _ in waiting)  # these add rows to filter
            with located(join):
                scope, left = self._join(scope, right, join, parts, [] if kept else wheres)
            wheres = wheres if kept else left
        if is_free:
            scope = replace(scope, names=tuple(sorted(scope.names, key=lambda name: names.index(name.internal))))
        return scope, wheres

    def _joined_relation(self, join: exp.Join) -> Scope:
        with located(join):
            return self._read(join.this)

    def _internal(self, label: str) -> str:
        """Return a new internal name for what the query calls ``label``."""
        internal = f"c{len(self.labels) + 1}"
        self.labels[internal] = label
        return internal

    def _read(self, table: exp.Expr) -> Scope:
        """Return the scope of a table, a subquery or joins in parentheses in FROM."""
        if table.args.get("joins"):
            alone = table.copy()
            alone.set("joins", None)
            scope, _ = self._joins(self._read(alone), table.args["joins"], [])
            return scope
        alias = table.alias_or_name.lower()
        if isinstance(table, exp.Subquery):
            inner = self._subquery(table) if isinstance(table.unnest(), exp.Query) else self._read(table.this)
            visible = [name for name in inner.names if not name.merged]
            return replace(inner, names=renamed(visible, table)) if alias else inner
        source = self._sources.get(table.name.lower()) if isinstance(table, exp.Table) else None
        if source is None or any(value for part, value in table.args.items() if part not in ("this", "alias")):
            raise NotATableQueryError(f"it reads from {to_sql(table)}")
        return scope_of_source(source, table, self._types, self._internal)

    def _subquery(self, table: exp.Subquery) -> Scope:
        """Return the scope of a subquery; one that is read again is the same relation, with names of its own."""
        query = table.this
        form = form_of(table, self._final_joins, self._final_groups)
        if form is None:  # it has values of its own
            return self.select(query)
        check_materialized(table, form, self._first)
        if form not in self._first:
            before = self.longest
            scope = self.select(query)
            self._first[form] = (scope, self.longest - before)
            return scope
        scope, longest = self._first[form]
        self.longest += longest
        read = self.common.get(form) or common_read(table, scope.relation, self.common.values())
        self.common[form] = replace(read, readers=read.readers + 1)
        own = {name: self._internal(self.labels[name]) for name in scope.internals}
        self._types.update((new, self._types[name]) for name, new in own.items())
        return with_names(scope, own)

    def _join(
        self, left: Scope, right: Scope, join: exp.Join, parts: list[exp.Expr], wheres: list[exp.Expr]
    ) -> tuple[Scope, list[exp.Expr]]:
        """Return the scope of a join with the ``parts`` of its ON, and the conditions of WHERE that are left over."""
        kind = join_type(join)
        both = Scopes(left, right)
        using = using_columns(both, join)
        if kind in ("semi", "anti"):
            has_table = any(source.keys and not source.static for source in self._sources.values())
            if kind == "semi" and not (self._exact or has_table):  # Spark's own plan has it
                raise NotATableQueryError(f"it has a {f'{join.side} {join.kind}'.strip().upper()} JOIN")
            equal = [*(both.resolved(part) for part in parts), *(equal_columns(both, name) for name in using)]
            found = self._semi_joined(left, right, kind, equal)
            return replace(found, names=with_first(found.names, using)), wheres
        if kind == "inner":  # ON and WHERE mean the same
            here = [part for part in wheres if both.knows(part)]
            wheres = [part for part in wheres if part not in here]
            parts = [*parts, *here]
        equal = [*(both.resolved(part) for part in parts), *(equal_columns(both, name) for name in using)]
        resolved = [each for part in equal for each in windows_by_ends(both, part)]
        condition = take_apart(resolved, both.side_of, both.lag_of)
        if isinstance(left.relation, Static) or isinstance(right.relation, Static):
            scope = enriched(both, kind, resolved, condition)
            return self._merged(scope, both, kind, using), wheres
        if not condition.keys and Contents.TABLE in (left.contents, right.contents):
            one = exp.Literal.number(1)  # each row meets each row of the table
            condition.keys.append((one, one.copy()))
        if not condition.keys:
            raise NotATableQueryError(f"its {kind.upper()} JOIN has no key", "write ON a.key = b.key")
        check_keys(both, condition, self._types, self._types_of)
        scope = self._merged(self._joined(both, kind, condition), both, kind, using)
        if condition.others and kind == "inner":
            where = " AND ".join(f"({to_sql(part)})" for part in condition.others)
            scope = replace(scope, relation=Selection(scope.relation, where))
        return scope, wheres

    def _having_partner(self, scope: Scope, existence: Existence) -> Scope:
        """Return the scope of the rows for which a subquery has a row, or has none."""
        select, kind = plain_select(existence.query), _EXISTS[existence.negated]
        wheres: list[exp.Expr] = []
        items: list[exp.Expr]
        if select.args.get("group") is not None or own_aggregates(select) or row_numbers(select):
            inner = self.select(select)
            items = [exp.column(name.internal) for name in inner.names]
        else:
            inner, wheres = self._rows(select, asked=True)
            stars = unstarred(select.expressions, inner.names) if existence.value is not None else ()
            items = [correlated(item.unalias(), scope, inner) for item in stars]
        parts = [correlated(part, scope, inner) for part in wheres] + equalities(existence, scope, items)
        return self._semi_joined(scope, inner, kind, parts)

    def _semi_joined(self, left: Scope, right: Scope, kind: Existing, parts: Sequence[exp.Expr]) -> Scope:
        """Return the scope of the left rows that have a partner or, in an anti join, that have none."""
        both = Scopes(left, right)
        if isinstance(left.relation, Static):
            raise NotATableQueryError(f"its {kind.upper()} JOIN, IN or EXISTS is of rows of a static table")
        if isinstance(right.relation, Static):
            on = " AND ".join(f"({to_sql(part)})" for part in parts) or "true"
            return replace(left, relation=Enriched(as_table(left), right.relation, on, kind))
        if left.contents is Contents.TABLE and right.contents is not Contents.TABLE:
            raise NotATableQueryError(
                "it asks whether a stream has a record for each row of a table, but only records of the stream look up "
                "rows",
                "group the stream by the key in a subquery, and compare with that",
            )
        condition = take_apart(
            [each for part in parts for each in windows_by_ends(both, part)], both.side_of, both.lag_of
        )
        if not condition.keys:
            reason = "its EXISTS, IN, SEMI JOIN or ANTI JOIN has no key"
            raise NotATableQueryError(reason, "compare a.key = b.key in it")
        check_keys(both, condition, self._types, self._types_of)
        joined = self._joined(both, kind, condition)
        times = {name: lag for name, lag in joined.times.items() if name in left.internals}
        return replace(joined, names=left.names, times=times, keys=left.keys, other_keys=left.other_keys)

    def _merged(self, scope: Scope, both: Scopes, kind: JoinType, using: Sequence[str]) -> Scope:
        """Return the scope of a join with the columns of USING, or of NATURAL, once."""
        return with_merged_columns(scope, both, kind, using, self._types, self._types_of, self._internal)

    def _joined(self, both: Scopes, kind: JoinType, condition: JoinCondition) -> Scope:
        preserved: dict[Side, bool] = {"left": kind not in ("inner", "right"), "right": kind in ("right", "full")}
        keys: dict[Side, list[str]] = {"left": [], "right": []}
        for pair in condition.keys:
            for side, expression in zip(keys, pair, strict=True):
                keys[side].append(to_sql(expression))
        inputs: dict[Side, Scope] = {"left": both.left, "right": both.right}
        for side, parts in condition.one_sided.items():
            where = " AND ".join(f"({to_sql(part)})" for part in parts)
            if where and preserved[side]:  # such a row stays in the result, without a partner
                keys[side][0] = f"CASE WHEN {where} THEN {keys[side][0]} END"
            elif where:
                inputs[side] = replace(inputs[side], relation=filtered_input(inputs[side].relation, where))
        both = Scopes(inputs["left"], inputs["right"])
        match = match_of(condition.range) if both.are_streams else None
        self.longest += match.longest if match is not None else 0
        check_kept_rows(both, preserved, bounded=match is not None, ranged=condition.range is not None, kind=kind)
        lag: dict[Side, int | None] = {"left": both.left.lag, "right": both.right.lag}
        filtered = None
        if condition.others and kind != "inner":
            types = {name: self._types[name] for scope in inputs.values() for name in scope.internals}
            filtered = pair_filter(condition.others, condition.one_sided, both.side_of, types, self._types_of)
        of_tables = both.left.contents is both.right.contents is Contents.TABLE
        # rows of two tables have no end at which they are final, and a record with a partner is so at once
        final = self._final_joins and not of_tables and not (kind == "semi" and both.are_streams)
        relation = Join(
            as_input(both.left, keys["left"]), as_input(both.right, keys["right"]), kind,
            {side: tuple(texts) for side, texts in keys.items()}, match, final, lag, filtered,
        )  # fmt: skip
        self.waits |= final and (kind != "inner" or not both.are_streams)
        contents = contents_of(relation)
        times = dict(times_of(both, match, condition.range, preserved))
        bounds = bounds_of(match, condition.range) if kind == "inner" else {}
        names = (*both.left.names, *both.right.names)
        keys_of_rows = joint_keys(both, kind, condition, self._types, self._types_of)
        others = either_keys(both, kind, condition, self._types)
        return Scope(relation, names, contents, times, bounds, keys_of_rows, relation.result_lag, others)

    def _grouped(self, scope: Scope, select: exp.Select, wheres: Sequence[exp.Expr]) -> Scope:
        """Return the scope of the groups of the rows that pass WHERE."""
        rows = filtered_rows(scope, wheres)
        plain, session = without_sessions(select)
        made = GroupTranslation(
            plain, scope, rows, self._types, self._types_of, self.labels, self._internal,
            final=self._final_groups, exact=self._exact, session=session,
        )  # fmt: skip
        result = made.result()
        self.waits |= self._final_groups
        self.longest += made.longest
        return result

    def _selected(self, scope: Scope, select: exp.Select, wheres: Sequence[exp.Expr]) -> Scope:
        """Return the scope of the SELECT list over the rows that pass WHERE."""
        both = Scopes(scope)
        names, items, renamed, literals = [], [], {}, {}
        for item in unstarred(select.expressions, scope.names):
            resolved = both.resolved(item.unalias())
            internals = []
            for text in both.window_in(resolved) or (to_sql(resolved),):
                internals.append(self._internal(item.alias_or_name or with_labels(text, self.labels)))
                items.append((text, internals[-1]))
                renamed[text] = internals[-1]
            renamed[either_in(resolved)] = internals[0]
            if found := scope.literals.get(items[-1][0], literal_in(resolved)):
                literals[internals[0]] = found
            names.append(Name("", item.alias_or_name.lower(), *internals))
        types = self._types_of({name: self._types[name] for name in scope.internals}, [text for text, _ in items])
        self._types.update((internal, kind) for (_, internal), kind in zip(items, types, strict=True))
        relation = Selection(filtered_rows(scope, wheres), "", tuple(items))
        times, bounds = (
            {name: each[text] for text, name in items if text in each} for each in (scope.times, scope.bounds)
        )
        keys, others = (
            tuple(tuple(renamed[name] for name in key) for key in each if renamed.keys() >= set(key))
            for each in (scope.keys, scope.other_keys)
        )
        return Scope(relation, tuple(names), scope.contents, times, bounds, keys, scope.lag, others, literals)
