"""Construction of a table query's streaming DataFrame: each relation as the changes of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.join_conditions import Side
from millrace_jobs.changes import CHANGE, FOREVER, FROM, NO_TIME, OUTPUT, TO, WEIGHT, changes_of
from millrace_jobs.queries.tables.forks import fork_of
from millrace_jobs.queries.tables.operators.aggregate import (
    CountedPart,
    DeviationPart,
    GroupedAggregate,
    GroupPartColumn,
    MergedPart,
)
from millrace_jobs.queries.tables.operators.closing import CLOSING, CLOSINGS
from millrace_jobs.queries.tables.operators.emission import Emission
from millrace_jobs.queries.tables.operators.interface import BUCKETS, OperatorChain, TableOperator
from millrace_jobs.queries.tables.operators.join import Kept, TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import HIDDEN, Contents, JoinInput
from millrace_jobs.queries.tables.operators.on_time import OnTimeRecords
from millrace_jobs.queries.tables.operators.result_emission import ResultEmission
from millrace_jobs.queries.tables.operators.sessions import START, SessionAggregate
from millrace_jobs.queries.tables.operators.unfolding import ListedRows, RepeatedRows
from millrace_jobs.queries.tables.operators.upserts import DELETE, ESTIMATED_DELETE, UpsertedTable
from millrace_jobs.queries.tables.pair_conditions import ArrowCondition, compiled_condition
from millrace_jobs.queries.tables.relations import (
    WINDOW,
    Enriched,
    Grouping,
    GroupPart,
    Join,
    KeptRecords,
    PairFilter,
    Relation,
    Repeated,
    Scan,
    Selection,
    Static,
    TopRows,
    Union,
    Upserted,
    contents_of,
    joins_streams,
)
from millrace_jobs.queries.tables.scopes import NotATableQueryError, columns_in
from millrace_jobs.queries.tables.stage_columns import (
    group_columns,
    key_names,
    keyed_columns,
    not_null,
    required_columns,
)
from millrace_jobs.queries.tables.stages import Inputs, run_stage, values_schema
from millrace_jobs.sources.base import CHANGED, DELETED, ESTIMATED, POSITION

if TYPE_CHECKING:
    from millrace_jobs.queries.tables.table_query import TableQuery

_IN_SPARK = {"semi": "left_semi", "anti": "left_anti"}
_KEPT = {"semi": Kept.WITH_PARTNER, "anti": Kept.WITHOUT_PARTNER}

_SIDES: tuple[Side, Side] = ("left", "right")


@dataclass(frozen=True)
class RelationBuilder:
    """Builds the relations of a query: their changes, with the columns of ``changes.CHANGE``.

    Args:
        query: the query.
        read: returns the records of a source, or the rows of a static table.
        spark: the session.
        has_watermark: whether a source has a watermark that counts.
        splits: whether the hot keys of joins are matched by the workers of the plan.
    """

    query: TableQuery
    read: Callable[[str], DataFrame]
    spark: SparkSession
    has_watermark: bool
    splits: bool
    _numbers: Iterator[int] = field(default_factory=count)
    """Numbers for the stages of the query."""

    def result(self) -> DataFrame:
        """Return the changes of the query's result, with the columns in ``query.items``, for each of its outputs."""
        needed, holds = frozenset(columns_in(self.query.items)), self.query.holds
        waits = any(hold is not None for hold in holds)
        closings = frozenset(CLOSINGS.names) if waits else frozenset[str]()
        rows = self.rows(self.query.relation, needed | closings, versions=self.query.versions)
        if waits:
            return self.stage(ResultEmission(changes_of(values_schema(rows)), holds), [rows], [[FROM]])
        if not holds:
            return rows
        numbers = F.array(*(F.lit(number) for number in range(len(holds))))
        return rows.withColumn(OUTPUT, F.explode(numbers))  # all are emitted as they are made

    def rows(self, relation: Relation, needed: frozenset[str], *, versions: bool) -> DataFrame:
        """Return the changes of a relation with the columns that are needed; of all ``versions``, or of the latest."""
        if isinstance(relation, Scan):
            return self._scan(relation, needed)
        if isinstance(relation, Upserted):
            return self._upserted(relation, needed, versions=versions)
        if isinstance(relation, Selection):
            return self._selection(relation, needed, versions=versions)
        if isinstance(relation, Enriched):
            return self._enriched(relation, needed, versions=versions)
        if isinstance(relation, Grouping) and relation.session:
            return self._sessions(relation)
        if isinstance(relation, Grouping):
            return self._grouping(relation, versions=versions and not relation.final)
        if isinstance(relation, TopRows):
            name, number = relation.groups.parts[0].name, relation.number if relation.number in needed else ""
            listed = partial(ListedRows, rows=name, columns=relation.columns, number=number)
            return self._grouping(relation.groups, versions=versions and not relation.groups.final, unfolded=listed)
        if isinstance(relation, Repeated):
            repeated = partial(RepeatedRows, counts=relation.counts, common=relation.common)
            return self._grouping(relation.groups, versions=versions and not relation.groups.final, unfolded=repeated)
        if isinstance(relation, Union):
            return self._union(relation, needed, versions=versions)
        if isinstance(relation, KeptRecords):
            rows = self.rows(relation.input, needed, versions=versions)
            columns = [name for name in rows.columns if name not in CHANGE.names]
            return rows.selectExpr(*columns, FROM, f"{FOREVER}L AS {TO}", WEIGHT)
        assert not isinstance(relation, Static)  # nothing but ``Enriched`` reads it
        return self._join(relation, needed, versions=versions)

    def _scan(self, scan: Scan, needed: frozenset[str]) -> DataFrame:
        needed |= {*scan.keys, *columns_in([scan.where])}
        micros = f"unix_micros(CAST({scan.time} AS TIMESTAMP))"
        # event time is read even if nothing needs it: no filter may be pushed below the watermark
        rows = self.read(scan.source)
        changed = [name for name in CHANGED.names if name in rows.columns]
        named = rows.selectExpr(*(f"`{column}` AS {internal}" for column, internal in scan.columns), *changed)
        kept = [internal for _, internal in scan.columns if internal in needed]
        if not scan.keys:
            start = f"coalesce({micros}, {NO_TIME}L)"
            return named.selectExpr(*kept, f"{start} AS {FROM}", f"{start} + 1L AS {TO}", f"1L AS {WEIGHT}")
        weight = f"CASE WHEN {scan.where} THEN 1L ELSE {DELETE}L END" if scan.where else "1L"
        position = f"{FOREVER}L"
        if changed:
            deletes = f"WHEN {DELETED} AND {ESTIMATED} THEN {ESTIMATED_DELETE}L WHEN {DELETED} THEN {DELETE}L"
            weight, position = f"CASE {deletes} ELSE {weight} END", POSITION
        keyed = named.where(" AND ".join(f"{column} IS NOT NULL" for column in (*scan.keys, scan.time)))
        return keyed.selectExpr(*kept, f"{micros} AS {FROM}", f"{position} AS {TO}", f"{weight} AS {WEIGHT}")

    def _upserted(self, relation: Upserted, needed: frozenset[str], *, versions: bool) -> DataFrame:
        keys = relation.input.keys
        rows = self._scan(relation.input, needed | set(keys))
        operator = UpsertedTable(values_schema(rows), keys, versions=versions)
        return self.stage(operator, [rows], [keys])

    def _selection(self, selection: Selection, needed: frozenset[str], *, versions: bool) -> DataFrame:
        items = [(sql, name) for sql, name in selection.items if name in needed]
        below = frozenset(columns_in([selection.where, *(sql for sql, _ in items)])) | needed.intersection(
            CLOSINGS.names
        )
        rows = self.rows(selection.input, below if selection.items else needed | below, versions=versions)
        if selection.where:
            rows = rows.where(selection.where)
        if not selection.items:
            return rows
        marks = [name for name in (OUTPUT, *CLOSINGS.names) if name in rows.columns and name in {OUTPUT, *needed}]
        return rows.selectExpr(*(f"{sql} AS {name}" for sql, name in items), *marks, *CHANGE.names)

    def _enriched(self, relation: Enriched, needed: frozenset[str], *, versions: bool) -> DataFrame:
        rows = self.rows(relation.input, needed | columns_in([relation.on]), versions=versions)
        columns = (f"`{column}` AS {internal}" for column, internal in relation.table.columns)
        table = self.read(relation.table.source).selectExpr(*columns)
        joined = rows.join(table, F.expr(relation.on), _IN_SPARK.get(relation.type, relation.type))
        return joined.select(*(name for name in joined.columns if name in needed or name in CHANGE.names))

    def _union(self, union: Union, needed: frozenset[str], *, versions: bool) -> DataFrame:
        inputs = [self.rows(each, needed, versions=versions) for each in union.inputs]
        from_sources = [_is_source(each) for each in union.inputs]
        if not all(from_sources):  # what reads the rows can look for late ones only if all of them can be late
            inputs = [
                self.stage(OnTimeRecords(values_schema(rows)), [rows], [[FROM]]) if from_source else rows
                for rows, from_source in zip(inputs, from_sources, strict=True)
            ]
        return reduce(lambda one, other: one.unionByName(other), inputs)

    def _grouping(
        self, grouping: Grouping, *, versions: bool, unfolded: Callable[[pa.Schema], TableOperator] | None = None
    ) -> DataFrame:
        """Return the changes of groups, or what the operator that ``unfolded`` makes for them makes of these."""
        columns, closing = group_columns(grouping), grouping.closing
        rows = self._windowed(grouping, columns_in(sql for sql, _ in columns), versions=versions)
        rows = rows.selectExpr(*(f"{sql} AS {name}" for sql, name in columns), *CHANGE.names)
        groups = self.groups(grouping, values_schema(rows), versions=versions)
        operator: TableOperator = groups
        if self.query.ahead and grouping is self.query.groups:
            operator = OperatorChain(groups, Emission(groups.output, tuple(groups.keys.names), self.query.ahead))
        if unfolded is not None:
            operator = OperatorChain(groups, unfolded(groups.output))
        changes = self.stage(operator, [rows], [[name for _, name in grouping.keys]])
        if not grouping.final or closing is None:
            return changes
        at = f"{CLOSING} - {closing.lag + 1}L"  # a group is a record at the last instant of its window
        return changes.selectExpr(*changes.columns[: -len(CHANGE)], f"{at} AS {FROM}", f"{at} + 1L AS {TO}", WEIGHT)

    def groups(self, grouping: Grouping, values: pa.Schema, *, versions: bool) -> GroupedAggregate:
        """Return the operator of a grouping, whose input has these values."""
        of_table, closing = contents_of(grouping.input) is Contents.TABLE, grouping.closing
        # where versions are kept, the operator takes the watermark back by the lag
        settles_after = None if of_table or grouping.lag is None else 0 if versions else grouping.lag
        keys = [name for _, name in grouping.keys] + ([CLOSING] if closing is not None else [])
        return GroupedAggregate(
            pa.schema([values.field(name) for name in keys]),
            tuple(_parts(grouping.parts, values, settles_after)),
            window_end=CLOSING if closing is not None else None,
            of_table=of_table,
            versions=versions,
            final=grouping.final,
            checked=not _is_source(grouping.input),
            input_lag=(grouping.lag or 0) if versions else 0,
            ends=self.query.ends
            and grouping is self.query.groups
            and grouping.window is not None
            and closing is not None,
        )

    def _sessions(self, grouping: Grouping) -> DataFrame:
        window, closing, is_last = grouping.window, grouping.closing, grouping is self.query.groups
        assert window is not None
        assert closing is not None
        (_, start), (_, end), *keys = grouping.keys
        columns = [*keys, (f"unix_micros({window.column})", START), *((part.sql, part.name) for part in grouping.parts)]
        rows = self.rows(grouping.input, frozenset(columns_in(sql for sql, _ in columns)), versions=False)
        rows = rows.selectExpr(*(f"{sql} AS {name}" for sql, name in columns), *CHANGE.names)
        values = values_schema(rows)
        sessions = SessionAggregate(
            pa.schema([values.field(name) for _, name in keys]),
            tuple(_merged_parts(grouping.parts, values)),
            window.size,
            checked=not _is_source(grouping.input),
            input_lag=closing.lag,
        )
        operator: TableOperator = sessions
        ahead: tuple[int | None, ...] = (0,) if grouping.final else ()
        if is_last and self.query.ahead:
            ahead = self.query.ahead
        if ahead:
            operator = OperatorChain(sessions, Emission(sessions.output, (*sessions.keys.names, START, CLOSING), ahead))
        changes = self.stage(operator, [rows], [sessions.keys.names])
        last = f"{CLOSING} - {sessions.closes_after - sessions.gap}L"  # the end of a session
        periods = [f"{last} AS {FROM}", f"{last} + 1L AS {TO}"] if grouping.final else [FROM, TO]
        marks = [OUTPUT] if OUTPUT in changes.columns and not grouping.final else []
        return changes.selectExpr(
            *(name for _, name in keys),
            f"timestamp_micros({START}) AS {start}",
            f"timestamp_micros({last}) AS {end}",
            *(part.name for part in grouping.parts),
            *marks,
            *periods,
            WEIGHT,
        )

    def _windowed(self, grouping: Grouping, needed: set[str], *, versions: bool) -> DataFrame:
        """Return the rows of a grouping's input, each once for every window that it is in."""
        if grouping.window is None:
            return self.rows(grouping.input, frozenset(needed), versions=versions)
        column = grouping.window.column
        lengths = (grouping.window.size, grouping.window.slide, grouping.window.offset)
        rows = self.rows(grouping.input, frozenset({*needed, column} - {WINDOW}), versions=versions)
        texts = ", ".join(f"'{length} microseconds'" for length in lengths)
        return rows.selectExpr("*", f"window({column}, {texts}) AS {WINDOW}")

    def _join(self, join: Join, needed: frozenset[str], *, versions: bool) -> DataFrame:
        # a stream looks up the versions of a table by event time
        versions |= any(contents_of(side) is not Contents.TABLE for side in (join.left, join.right))
        periods = join.match.periods if join.match is not None else {}
        operands = {side: [sql for sql, _ in join.operands(side)] for side in _SIDES}
        read = {side: columns_in([*join.keys[side], *periods.get(side, ()), *operands[side]]) for side in _SIDES}
        # a row keeps the columns that its keys and periods are made of only if something else needs them
        kept: dict[Side, frozenset[str]] = {
            "left": needed,
            "right": needed if join.type not in _KEPT else frozenset(),
        }
        for side in _SIDES:  # until when a result can change follows from the records of streams alone
            if contents_of(getattr(join, side)) is Contents.TABLE:
                kept[side] = kept[side].difference(CLOSINGS.names)
        needed_of = {side: kept[side].union(*read.values()) for side in _SIDES}
        shared = self.query.shared_input(join)
        inputs: Inputs
        if shared is not None:
            fork = fork_of(self, join, shared, needed_of, kept, versions=versions)
            values, inputs = [fork.values(number) for number in range(len(_SIDES))], fork
        else:
            rows = {side: self.rows(getattr(join, side), needed_of[side], versions=versions) for side in _SIDES}
            rows = {side: self._keyed(rows[side], join, side, kept[side]) for side in _SIDES}
            rows = self._with_common_types(rows, len(join.keys["left"]))
            values, inputs = [values_schema(rows[side]) for side in _SIDES], [rows["left"], rows["right"]]
        left, right = (self._input(join, side, own) for side, own in zip(_SIDES, values, strict=True))
        condition = None if join.where is None else _condition(join.where, [*left.values, *right.values])
        operator = TemporalJoin(
            left,
            right,
            versions=versions,
            final=join.final,
            condition=condition,
            kept=_KEPT.get(join.type, Kept.PAIRS),
            closes=needed.issuperset(CLOSINGS.names),
        )
        keys = [operator.left.keys, operator.right.keys]
        buckets = self.query.stream_join_buckets if joins_streams(join) else BUCKETS
        return self.stage(operator, inputs, keys, buckets)

    def _keyed(self, rows: DataFrame, join: Join, side: Side, needed: frozenset[str]) -> DataFrame:
        """Return one side's rows with their keys and matching periods; without rows that cannot be in the result."""
        columns = (f"{sql} AS {name}" for sql, name in keyed_columns(join, side))
        kept = [name for name in rows.columns if name in needed or name in CHANGE.names]
        keyed = rows.selectExpr(*columns, *kept)
        required = required_columns(join, side, keyed.columns)
        return keyed.where(not_null(required)) if required else keyed

    def _with_common_types(self, rows: dict[Side, DataFrame], keys: int) -> dict[Side, DataFrame]:
        """Return both sides with keys of the same types, as Spark compares them."""
        for number in range(keys):
            name = f"{HIDDEN}key{number}"
            one, other = (rows[side].schema[name].dataType for side in _SIDES)
            if one != other:
                common = self.common_type(one, other)
                rows = {side: each.withColumn(name, F.col(name).cast(common)) for side, each in rows.items()}
        return rows

    def common_type(self, one: DataType, other: DataType) -> DataType:
        """Return the type in which Spark compares values of two types."""
        nulls = (f"CAST(NULL AS {kind.simpleString()})" for kind in (one, other))
        return self.spark.sql(f"SELECT coalesce({', '.join(nulls)})").schema[0].dataType

    def _input(self, join: Join, side: Side, values: pa.Schema) -> JoinInput:
        relation = getattr(join, side)
        return JoinInput(
            values,
            key_names(join, side),
            contents_of(relation),
            upserted=isinstance(relation, Scan) and bool(relation.keys),
            preserved=join.preserved(side),
            lag=join.lag[side],
            reach=join.reach(side),
            span=join.span(side),
            checked=not _is_source(relation),
        )

    def stage(
        self,
        operator: TableOperator,
        inputs: Inputs,
        keys: Sequence[Sequence[str]],
        buckets: int = BUCKETS,
    ) -> DataFrame:
        """Return the changes that an operator makes of its inputs; ``keys`` bring their rows together."""
        traits = {"has_watermark": self.has_watermark, "splits": self.splits, "wakes": self.query.wakes}
        number, partitions = next(self._numbers), self.query.partitions
        return run_stage(operator, inputs, keys, partitions, number=number, buckets=buckets, **traits)


def _parts(parts: Iterable[GroupPart], values: pa.Schema, settles_after: int | None) -> Iterator[GroupPartColumn]:
    """Yield the columns of parts; of those that need all values of one expression, the first one has them."""
    first: dict[str, str] = {}
    for part in parts:
        column = _part(part, values.field(part.name).type, settles_after)
        if isinstance(column, CountedPart) and not column.settles:
            owner = first.setdefault(part.sql, part.name)
            column = column if owner == part.name else replace(column, values_of=owner)
        yield column


def _part(part: GroupPart, kind: pa.DataType, settles_after: int | None) -> GroupPartColumn:
    match part.merge:
        case "stddev_samp" | "stddev_pop" | "var_samp" | "var_pop":
            return DeviationPart(part.name, part.merge)
        case "count_distinct" | "sum_distinct" | "percentile" | "percentile_approx":
            return CountedPart(part.name, part.merge, kind, fraction=part.fraction)
        case "top" | "bottom":
            return CountedPart(part.name, part.merge, kind, settles_after, limit=part.limit, orders=part.orders)
        case "min" | "max" if part.counted:
            return CountedPart(part.name, part.merge, kind, settles_after)
        case "sum" | "min" | "max":
            return MergedPart(part.name, part.merge, kind)


def _merged_parts(parts: Iterable[GroupPart], values: pa.Schema) -> Iterator[MergedPart]:
    for part in parts:
        column = _part(part, values.field(part.name).type, None)
        assert isinstance(column, MergedPart), "the translation refuses other aggregates of sessions"
        yield column


def _is_source(relation: Relation) -> bool:
    """Whether a relation's rows come from a source, without an operator between that has removed late ones."""
    if isinstance(relation, Selection | Enriched | KeptRecords):
        return _is_source(relation.input)
    if isinstance(relation, Union):
        return all(map(_is_source, relation.inputs))
    return isinstance(relation, Scan)


def _condition(where: PairFilter, fields: Sequence[pa.Field]) -> ArrowCondition:
    try:
        return compiled_condition(where, pa.schema([field for field in fields if field.name in where.columns]))
    except NotATableQueryError as reason:
        message = f"the query cannot be run with tables: {reason}"
        raise MillraceError(Problem(message, "change the condition of the join", field="spec.query.sql")) from None
