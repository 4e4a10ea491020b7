"""Translation of SQL with joins and tables to a tree of relations, which ``build`` turns into Spark stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql.types import ArrayType, DataType, MapType, StructType
from sqlglot import exp

from millrace_api.sql.dialect import to_sql
from millrace_api.sql.join_conditions import JoinCondition, Side, conjuncts, take_apart
from millrace_api.sql.parsed_query import ParsedQuery
from millrace_jobs.queries.tables.existence import Existence, correlated, equalities, existence_of
from millrace_jobs.queries.tables.grouping import GroupTranslation, TypesOf, takes_rows_back
from millrace_jobs.queries.tables.join_scopes import (
    equal_columns,
    join_type,
    joint_keys,
    using_columns,
    windows_by_ends,
    with_merged_columns,
)
from millrace_jobs.queries.tables.needs import own_aggregates
from millrace_jobs.queries.tables.operators.interface import stream_join_buckets
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.pair_conditions import pair_filter
from millrace_jobs.queries.tables.relations import (
    Enriched,
    Existing,
    Join,
    JoinType,
    Relation,
    Scan,
    Selection,
    Static,
    Upserted,
    below,
    contents_of,
    emits_at_once,
    texts_of,
)
from millrace_jobs.queries.tables.scopes import (
    InputTraits,
    Name,
    NotATableQueryError,
    Scope,
    Scopes,
    bounds_of,
    internals_in,
    match_of,
    times_of,
    with_labels,
)
from millrace_jobs.queries.tables.table_query import TableQuery

_EXISTS: dict[bool, Existing] = {False: "semi", True: "anti"}


def translate(
    query: ParsedQuery,
    sources: Mapping[str, InputTraits],
    types_of: TypesOf,
    *,
    partitions: int,
    final_joins: bool,
    final_groups: bool,
) -> TableQuery:
    """Translate the SQL of a query that Spark has accepted.

    Args:
        query: one SELECT.
        sources: the sources by name, in lower case.
        types_of: asks Spark for types.
        partitions: number of state partitions.
        final_joins: whether only results of joins that can no longer change are emitted.
        final_groups: whether only groups that can no longer change are emitted.

    Raises:
        NotATableQueryError: the query has something that these operators do not do.
    """
    translation = _Translation(sources, types_of, final_joins, final_groups)
    try:
        scope = translation.select(query.tree)
    except NotATableQueryError as reason:
        raise NotATableQueryError(with_labels(str(reason), translation.labels)) from None
    items = tuple(name.sql for name in scope.names)
    places = {part: place for place, name in enumerate(scope.names) for part in (name.internal, name.end)}
    return TableQuery(
        sql=to_sql(query.tree),
        relation=scope.relation,
        items=items,
        contents=scope.contents,
        waits=translation.waits,
        longest=translation.longest,
        labels=translation.labels,
        columns=tuple(translation.columns_read(scope.relation, items)),
        partitions=partitions,
        stream_join_buckets=stream_join_buckets(partitions),
        wakes=not emits_at_once(scope.relation),
        key=next((tuple(dict.fromkeys(places[name] for name in key)) for key in scope.keys), None),
    )


class _Translation:
    def __init__(
        self, sources: Mapping[str, InputTraits], types_of: TypesOf, final_joins: bool, final_groups: bool
    ) -> None:
        self._sources = sources
        self._types_of = types_of
        self._final_joins = final_joins
        self._final_groups = final_groups
        self._types: dict[str, DataType] = {}
        self.labels: dict[str, str] = {}
        self.longest = 0
        self.waits = False

    def select(self, query: exp.Query) -> Scope:
        """Return the scope of a SELECT's result."""
        select = _plain_select(query)
        groups = select.args.get("group") is not None or bool(own_aggregates(select))
        before = self._final_joins, self._final_groups
        if groups and not takes_rows_back(select):  # what is below must not change any more
            self._final_joins = self._final_groups = True
        scope, wheres = self._rows(select)
        self._final_joins, self._final_groups = before
        return self._grouped(scope, select, wheres) if groups else self._selected(scope, select, wheres)

    def columns_read(self, relation: Relation, items: Sequence[str]) -> Iterator[str]:
        """Yield the columns of sources that a result needs, with their types."""
        relations = list(below(relation))
        read = {name for text in (*items, *(text for each in relations for text in texts_of(each)))
                for name in internals_in(text)}  # fmt: skip
        for source in relations:
            if isinstance(source, Scan | Static):
                internals = (internal for _, internal in source.columns if internal in read)
                yield from (f"{self.labels[each]} {self._types[each].simpleString()}" for each in internals)

    def _rows(self, select: exp.Select, *, asked: bool = False) -> tuple[Scope, list[exp.Expr]]:
        """Return the scope of FROM with its joins, and the conditions of WHERE that are left over.

        ``asked``: the SELECT is only asked whether it has a row, so that it can be that of a static table alone.
        """
        scope = self._read(select.args["from_"].this)
        conditions = conjuncts(select.args["where"].this if select.args.get("where") else None)
        found = [(part, existence_of(part)) for part in conditions]
        wheres = [part for part, existence in found if existence is None]
        for join in select.args.get("joins") or ():
            scope, wheres = self._join(scope, join, wheres)
        for existence in (existence for _, existence in found if existence is not None):
            scope = self._having_partner(scope, existence)
        if isinstance(scope.relation, Static) and not asked:
            raise NotATableQueryError(f"it reads the static table {scope.relation.source} without a join")
        return scope, wheres

    def _internal(self, label: str) -> str:
        """Return a new internal name for what the query calls ``label``."""
        internal = f"c{len(self.labels) + 1}"
        self.labels[internal] = label
        return internal

    def _read(self, table: exp.Expr) -> Scope:
        """Return the scope of a table or a subquery in FROM."""
        alias = table.alias_or_name.lower()
        if isinstance(table, exp.Subquery):
            inner = self.select(table.this)
            return replace(inner, names=tuple(replace(name, table=alias) for name in inner.names))
        source = self._sources.get(table.name.lower()) if isinstance(table, exp.Table) else None
        if source is None or any(value for part, value in table.args.items() if part not in ("this", "alias")):
            raise NotATableQueryError(f"it reads from {to_sql(table)}")
        if source.time is None and not source.static:
            kind = "a table" if source.keys else "a stream"
            raise NotATableQueryError(f"{table.name} is {kind} without a watermark, whose column is the event time")
        names = tuple(Name(alias, column.lower(), self._internal(f"{alias}.{column}")) for column in source.columns)
        internal = {name.column: name.internal for name in names}
        self._types.update((internal[column.lower()], kind) for column, kind in source.columns.items())
        columns = tuple((column, internal[column.lower()]) for column in source.columns)
        primary = tuple(internal[key.lower()] for key in source.keys)
        keys = (primary,) if primary else ()
        if source.time is None:
            return Scope(Static(table.name.lower(), columns), names, Contents.TABLE, keys=keys)
        time = internal[source.time.lower()]
        scan = Scan(table.name.lower(), columns, time, primary)
        if primary:
            return Scope(scan, names, Contents.TABLE, keys=keys)
        return Scope(scan, names, Contents.RECORDS, {time: 0})

    def _join(self, left: Scope, join: exp.Join, wheres: list[exp.Expr]) -> tuple[Scope, list[exp.Expr]]:
        """Return the scope of a join, and the conditions of WHERE that are left over."""
        kind = join_type(join)
        right = self._read(join.this)
        both = Scopes(left, right)
        using = using_columns(both, join)
        parts = conjuncts(join.args.get("on"))
        if kind in ("semi", "anti"):
            if not any(source.keys and not source.static for source in self._sources.values()):
                raise NotATableQueryError(f"it has a {f'{join.side} {join.kind}'.strip().upper()} JOIN")
            equal = [*(both.resolved(part) for part in parts), *(equal_columns(both, name) for name in using)]
            return self._semi_joined(left, right, kind, equal), wheres
        if kind == "inner":  # ON and WHERE mean the same
            here = [part for part in wheres if both.knows(part)]
            wheres = [part for part in wheres if part not in here]
            parts += here
        equal = [*(both.resolved(part) for part in parts), *(equal_columns(both, name) for name in using)]
        resolved = [each for part in equal for each in windows_by_ends(both, part)]
        condition = take_apart(resolved, both.side_of, both.lag_of)
        if isinstance(left.relation, Static) or isinstance(right.relation, Static):
            scope = _enriched(both, kind, resolved, condition)
            return self._merged(scope, both, kind, using), wheres
        if not condition.keys:
            raise NotATableQueryError(f"its {kind.upper()} JOIN has no key: write ON a.key = b.key")
        self._check_keys(both, condition)
        scope = self._merged(self._joined(both, kind, condition), both, kind, using)
        if condition.others and kind == "inner":
            where = " AND ".join(f"({to_sql(part)})" for part in condition.others)
            scope = replace(scope, relation=Selection(scope.relation, where))
        return scope, wheres

    def _having_partner(self, scope: Scope, existence: Existence) -> Scope:
        """Return the scope of the rows for which a subquery has a row, or has none."""
        select, kind = _plain_select(existence.query), _EXISTS[existence.negated]
        wheres: list[exp.Expr] = []
        items: list[exp.Expr]
        if select.args.get("group") is not None or own_aggregates(select):
            inner = self.select(select)
            items = [exp.column(name.internal) for name in inner.names]
        else:
            inner, wheres = self._rows(select, asked=True)
            stars = _unstarred(select.expressions, inner.names) if existence.value is not None else ()
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
            return replace(left, relation=Enriched(_as_table(left), right.relation, on, kind))
        if left.contents is Contents.TABLE and right.contents is not Contents.TABLE:
            raise NotATableQueryError(
                "it asks whether a stream has a record for each row of a table, but only records of the stream look up "
                "rows: group the stream by the key, and compare with that table"
            )
        condition = take_apart(
            [each for part in parts for each in windows_by_ends(both, part)], both.side_of, both.lag_of
        )
        if not condition.keys:
            raise NotATableQueryError("its EXISTS, IN, SEMI JOIN or ANTI JOIN has no key: compare a.key = b.key in it")
        self._check_keys(both, condition)
        joined = self._joined(both, kind, condition)
        times = {name: lag for name, lag in joined.times.items() if name in left.internals}
        return replace(joined, names=left.names, times=times, keys=left.keys)

    def _merged(self, scope: Scope, both: Scopes, kind: JoinType, using: Sequence[str]) -> Scope:
        """Return the scope of a join with the columns of USING, or of NATURAL, once."""
        return with_merged_columns(scope, both, kind, using, self._types, self._types_of, self._internal)

    def _check_keys(self, both: Scopes, condition: JoinCondition) -> None:
        for scope, nodes in zip((both.left, both.right), zip(*condition.keys, strict=True), strict=True):
            texts = [to_sql(node) for node in nodes]
            types = {name: self._types[name] for name in scope.internals}
            for text, kind in zip(texts, self._types_of(types, texts), strict=True):
                if isinstance(kind, ArrayType | MapType | StructType):
                    raise NotATableQueryError(f"its JOIN compares {text}, which is of type {kind.simpleString()}")

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
                inputs[side] = replace(inputs[side], relation=_filtered(inputs[side].relation, where))
        both = Scopes(inputs["left"], inputs["right"])
        match = match_of(condition.range) if both.are_streams else None
        self.longest += match.longest if match is not None else 0
        if not both.are_streams and condition.range is not None:
            raise NotATableQueryError("it compares event time with a column of a table, which has versions instead")
        tables = [side for side, scope in inputs.items() if scope.contents is Contents.TABLE]
        if len(tables) == 1 and preserved[tables[0]] and not _is_source_table(inputs[tables[0]].relation):
            raise NotATableQueryError(
                f"its {kind.upper()} JOIN with a stream keeps rows of a computed table, whose versions are no "
                "upserts of their own: keep the rows of a source that is a table"
            )
        lag: dict[Side, int | None] = {"left": both.left.lag, "right": both.right.lag}
        if match is None and None in lag.values():
            raise NotATableQueryError(
                "it joins a table with the result of an outer join that keeps rows of a table, or whose range of event "
                "time does not end an interval after an event time, so that all versions of the table would be kept "
                "forever"
            )
        filtered = None
        if condition.others and kind != "inner":
            types = {name: self._types[name] for scope in inputs.values() for name in scope.internals}
            filtered = pair_filter(condition.others, condition.one_sided, both.side_of, types, self._types_of)
        final = self._final_joins and len(tables) < 2  # rows of two tables have no end at which they are final
        relation = Join(
            _as_input(both.left, keys["left"]), _as_input(both.right, keys["right"]), kind,
            {side: tuple(texts) for side, texts in keys.items()}, match, final, lag, filtered,
        )  # fmt: skip
        self.waits |= final and (kind != "inner" or not both.are_streams)
        contents = contents_of(relation)
        times = dict(times_of(both, match, condition.range, preserved))
        bounds = bounds_of(match, condition.range) if kind == "inner" else {}
        names = (*both.left.names, *both.right.names)
        keys_of_rows = joint_keys(both, kind, condition)
        return Scope(relation, names, contents, times, bounds, keys_of_rows, relation.result_lag)

    def _grouped(self, scope: Scope, select: exp.Select, wheres: Sequence[exp.Expr]) -> Scope:
        """Return the scope of the groups of the rows that pass WHERE."""
        rows = _where(scope, wheres)
        made = GroupTranslation(
            select, scope, rows, self._types, self._types_of, self.labels, self._internal, final=self._final_groups
        )
        result = made.result()
        self.waits |= self._final_groups
        self.longest += made.longest
        return result

    def _selected(self, scope: Scope, select: exp.Select, wheres: Sequence[exp.Expr]) -> Scope:
        """Return the scope of the SELECT list over the rows that pass WHERE."""
        both = Scopes(scope)
        names, items, renamed = [], [], {}
        for item in _unstarred(select.expressions, scope.names):
            resolved = both.resolved(item.unalias())
            internals = []
            for text in both.window_in(resolved) or (to_sql(resolved),):
                internals.append(self._internal(item.alias_or_name or with_labels(text, self.labels)))
                items.append((text, internals[-1]))
                renamed[text] = internals[-1]
            names.append(Name("", item.alias_or_name.lower(), *internals))
        types = self._types_of({name: self._types[name] for name in scope.internals}, [text for text, _ in items])
        self._types.update((internal, kind) for (_, internal), kind in zip(items, types, strict=True))
        relation = Selection(_where(scope, wheres), "", tuple(items))
        times, bounds = (
            {name: each[text] for text, name in items if text in each} for each in (scope.times, scope.bounds)
        )
        keys = tuple(tuple(renamed[name] for name in key) for key in scope.keys if renamed.keys() >= set(key))
        return Scope(relation, tuple(names), scope.contents, times, bounds, keys, scope.lag)


def _plain_select(query: exp.Query) -> exp.Select:
    if not isinstance(query, exp.Select):
        raise NotATableQueryError(f"it is a {query.key.upper()}, not one SELECT")
    clauses = {"with_": "a WITH clause", "laterals": "a LATERAL VIEW", "distinct": "SELECT DISTINCT",
               "order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET", "qualify": "QUALIFY", "pivots": "PIVOT",
               "sort": "SORT BY", "cluster": "CLUSTER BY", "windows": "a WINDOW clause"}  # fmt: skip
    for clause, name in clauses.items():
        if query.args.get(clause):
            raise NotATableQueryError(f"it has {name}")
    if query.args.get("from_") is None:
        raise NotATableQueryError("it has no FROM")
    if query.find(exp.Window):
        raise NotATableQueryError("it has an OVER clause")
    return query


def _enriched(both: Scopes, kind: JoinType, parts: Sequence[exp.Expr], condition: JoinCondition) -> Scope:
    """Return the scope of the join of rows with a static table."""
    side: Side = "right" if isinstance(both.right.relation, Static) else "left"
    static, rows = (both.right, both.left) if side == "right" else (both.left, both.right)
    table = static.relation
    assert isinstance(table, Static)
    if isinstance(rows.relation, Static):
        raise NotATableQueryError(f"it joins the static tables {rows.relation.source} and {table.source} first")
    if kind in (side, "full"):
        raise NotATableQueryError(f"its {kind.upper()} JOIN keeps rows of {table.source}, which is static")
    on = " AND ".join(f"({to_sql(part)})" for part in parts) or "true"
    compared = {to_sql(pair[0 if side == "left" else 1]) for pair in condition.keys}
    (primary,) = static.keys
    keys = rows.keys if compared.issuperset(primary) else tuple((*key, *primary) for key in rows.keys)
    relation = Enriched(_as_table(rows), table, on, "inner" if kind == "inner" else "left")
    return replace(rows, relation=relation, names=(*both.left.names, *both.right.names), keys=keys)


def _is_source_table(relation: Relation) -> bool:
    """Whether the versions of a relation's rows are the upserts of a source."""
    while isinstance(relation, Selection | Upserted):
        relation = relation.input
    return isinstance(relation, Scan)


def _where(scope: Scope, wheres: Sequence[exp.Expr]) -> Relation:
    """Return the rows of a relation that pass the conditions."""
    rows, both = _as_table(scope), Scopes(scope)
    where = " AND ".join(f"({to_sql(both.resolved(part))})" for part in wheres)
    return Selection(rows, where) if where else rows


def _filtered(relation: Relation, where: str) -> Relation:
    """Return the rows of a join's input that pass a filter."""
    if isinstance(relation, Scan) and relation.keys:
        return replace(relation, where=f"{relation.where} AND {where}" if relation.where else where)
    return Selection(relation, where)


def _as_table(scope: Scope) -> Relation:
    """Return the relation with the changes of its rows; upserts cannot be filtered before they are a table."""
    return Upserted(scope.relation) if isinstance(scope.relation, Scan) and scope.relation.keys else scope.relation


def _as_input(scope: Scope, keys: Sequence[str]) -> Relation:
    """Return the relation as a join reads it: upserts only where the key of the join is the table's own."""
    own = isinstance(scope.relation, Scan) and sorted(keys) == sorted(scope.relation.keys)
    return scope.relation if own else _as_table(scope)


def _unstarred(items: Iterable[exp.Expr], names: Sequence[Name]) -> Iterator[exp.Expr]:
    """Yield the items of a SELECT list, with the columns that a star stands for."""
    for item in items:
        if not item.is_star:
            yield item
            continue
        table = item.table.lower() if isinstance(item, exp.Column) else ""
        if isinstance(item, exp.Star) and (item.args.get("except_") or item.args.get("replace")):
            raise NotATableQueryError(f"it selects {to_sql(item)}")
        for name in names:
            if table == name.table if table else not name.merged:
                yield exp.column(name.column, table=name.table or None)
