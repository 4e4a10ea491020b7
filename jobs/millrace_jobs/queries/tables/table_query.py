"""A query by operators on tables; see ``docs/tables.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import StructType

from millrace_api.errors import Problem
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.groups import Group
from millrace_jobs.changes import CHANGE, WEIGHT
from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.registry import NATIVE, is_routed
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.dedicated_needs import unrouted_problem
from millrace_jobs.queries.execution import AlgorithmChoice, Execution, ResultTraits, outputs, seconds, source_step
from millrace_jobs.queries.reading import RunContext, records
from millrace_jobs.queries.results import window_in_key
from millrace_jobs.queries.state_layout import PARTITIONS, STAGES
from millrace_jobs.queries.tables.build import RelationBuilder
from millrace_jobs.queries.tables.needs import keeps_times, timed_sources
from millrace_jobs.queries.tables.operators.interface import BUCKETS
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.operators.result_emission import Hold
from millrace_jobs.queries.tables.operators.state import SLOTS
from millrace_jobs.queries.tables.read_costs import BATCH, ReadCosts, read_costs
from millrace_jobs.queries.tables.relations import (
    WINDOW,
    Enriched,
    Grouping,
    Join,
    KeptRecords,
    Relation,
    Repeated,
    Scan,
    Selection,
    TopRows,
    Union,
    Upserted,
    below,
    contents_of,
    groups_of,
    joins_streams,
    lag_of,
    top_rows_of,
    wrong_in_spark,
)
from millrace_jobs.queries.tables.scopes import NotATableQueryError, internals_in, with_labels
from millrace_jobs.queries.tables.shared_reads import CommonInput, CommonRead, common_input, common_inputs
from millrace_jobs.selection.costs import Resources
from millrace_jobs.selection.join_forecast import JOIN_CANDIDATES, JOIN_MARGIN, JoinForecaster
from millrace_jobs.selection.selector import Selector
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sources.base import Source

_STREAM_JOIN_BUCKETS = "buckets of joins of streams"
"""Entry of the state layout of a query with such a join; earlier checkpoints have as many of them as other stages."""

_VALUES = "columns whose values are counted"
"""Entry of the state layout of a query with minima or maxima that can take rows back."""

_VERSIONS = {True: "kept for the table's history", False: "kept for the changelog"}
"""Entry of the state layout of a query with all versions, by whether its rows end with their windows."""

_ONCE = "subqueries that are computed once"
"""Entry of the state layout of a query in which both sides of a join read one."""

_WAKES = "timers"
"""Entry of the state layout of a query that has no timers; earlier checkpoints have some."""


@dataclass(frozen=True)
class TableQuery(Execution):
    """A query by operators on tables: its SQL as text in one form, the relation, and its columns as SQL over that.

    ``ahead``: how long before its group closes a row of the result is emitted first, for each output, as in
    ``operators.emission``; empty if changes are emitted as they are made. ``holds``: what each output holds back of
    results that are no groups, as in ``operators.result_emission``; empty for one output that holds back nothing.
    ``waits``: some results wait for the watermark. ``longest`` is how long, in microseconds, a result can wait for it
    after the event time of its records.
    ``labels`` are what the query calls the internal columns. ``columns`` are the columns of sources that it reads, with
    their types, in the order in which its state has them. ``key`` has the places of the result's columns that identify
    a row; None if nothing does. ``other_keys`` are further ones that do, too.
    ``versions``: all versions of the result are emitted, rather than the latest. ``ends``:
    the row of a window's group ends with the window, as look-ups in a history show it; otherwise it stays.
    ``functions`` are the types of the user's own functions that the SQL calls, by name: their values are in the state.
    ``common`` are the subqueries that it reads more than once, and ``once`` the names of those that are computed once
    for both sides of a join.

    Four things are as they were when the state began: ``once``, and these. ``partitions`` is the number of state
    partitions, which decides into which buckets rows are cut; ``stream_join_buckets`` is their least number in joins of
    two streams. ``wakes`` is whether Spark's timers have buckets processed without input, as the watermark moves.
    """

    sql: str
    relation: Relation
    items: tuple[str, ...]
    contents: Contents
    waits: bool
    longest: int
    labels: Mapping[str, str]
    columns: tuple[str, ...]
    partitions: int
    key: tuple[int, ...] | None
    other_keys: tuple[tuple[int, ...], ...] = ()
    ahead: tuple[int | None, ...] = ()
    holds: tuple[Hold | None, ...] = ()
    versions: bool = False
    ends: bool = False
    functions: Mapping[str, str] = field(default_factory=dict)
    stream_join_buckets: int = BUCKETS
    wakes: bool = True
    common: tuple[CommonRead, ...] = ()
    once: tuple[str, ...] = ()

    @cached_property
    def meeting(self) -> Mapping[str, CommonInput]:
        """The subqueries that could be computed once, since two sides of one join are all that reads them, by name."""
        if not self.common or any(hold is not None for hold in self.holds):
            return {}  # results that wait have columns that the rows of both sides would share
        # Spark calls Python functions for all rows, also behind CASE: those of the other reader, too
        found = [each for each in common_inputs(self.relation) if not (self.functions and each.mixes_rows)]
        pairs = (
            (read.name, each)
            for read in self.common
            for each in found
            if each.relation == read.relation and read.readers == 2
        )
        return dict(pairs)

    def shared_input(self, join: Join) -> CommonInput | None:
        """Return what both sides of a join read, if it is computed once."""
        found = common_input(join) if self.once else None
        computed_once = (each.relation for each in self.common if each.name in self.once)
        return found if found is not None and found.relation in computed_once else None

    def with_reads_by_cost(self) -> TableQuery:
        """Return the query that computes once what the SQL asks for, or else what takes less time so.

        Raises:
            NotATableQueryError: the SQL asks for what cannot be done.
        """
        asked = {each.name: each.materialized for each in self.common}
        stray = next((name for name, is_once in asked.items() if is_once and name not in self.meeting), None)
        if stray is not None:
            reason = f"{stray} is AS MATERIALIZED, and its readers are not the two sides of one join"
            hint = "leave MATERIALIZED out, or read it on both sides of one join, or on one and below a GROUP BY there"
            raise NotATableQueryError(reason, hint)
        once = (
            name
            for name, found in self.meeting.items()
            if (read_costs(found, self.partitions).prefers_once if asked[name] is None else asked[name])
        )
        return replace(self, once=tuple(sorted(once)))

    @property
    def groups(self) -> Grouping | None:
        """The grouping of which each row of the result is a group; None if they are no groups."""
        return groups_of(self.relation)

    @property
    def has_join(self) -> bool:
        """Whether rows are matched by key, in state."""
        return any(isinstance(each, Join) for each in below(self.relation))

    @property
    def has_pairs(self) -> bool:
        """Whether a join makes pairs of rows, which workers can list; a semi or an anti join makes none."""
        return any(isinstance(each, Join) and each.type not in ("semi", "anti") for each in below(self.relation))

    @property
    def replaces(self) -> bool:
        """Whether a row of the result is taken back only by a newer one of its group, which sessions merge."""
        groups, top = self.groups, top_rows_of(self.relation)
        if top is not None and top.limit == 1:
            return contents_of(top.groups.input) is Contents.RECORDS
        if groups is None or groups.session:
            return False
        return groups.replaces and contents_of(groups.input) is Contents.RECORDS

    def build(self, result: StructType, spec: Spec, context: RunContext, *, routed: bool) -> DataFrame:
        """Return the changes of the result; ``routed``: the hot keys of joins are matched by the plan's workers."""
        timed = timed_sources(spec)
        names = {name.lower(): name for name in spec.sources}

        @cache  # Spark takes the notes of a source that is read twice for one, if they are of the same DataFrame
        def read(source: str) -> DataFrame:
            name = names[source]
            if spec.sources[name].is_static:
                return context.spark.table(source)
            since_epoch = name in timed and spec.sources[name].table is None
            return records(name, spec, context, has_watermark=name in timed, since_epoch=since_epoch)

        changes = RelationBuilder(self, read, context.spark, has_watermark=bool(timed), splits=routed).result()
        columns = [
            F.expr(item).cast(field.dataType).alias(field.name) for item, field in zip(self.items, result, strict=True)
        ]
        marks = self.marks(spec)
        if not marks and self.contents is not Contents.RECORDS:
            changes = changes.where(F.col(WEIGHT) > 0)  # a sink without keys shows rows that are new or replace another
        return changes.select(*columns, *marks)

    def marks(self, spec: Spec) -> list[str]:
        """Return the columns that the sink needs beside the results; those of changes if it keeps the rows' times."""
        has_times = keeps_times(spec) or (spec.sink.has_changelog and spec.additional_outputs is None)
        return list(CHANGE.names) if has_times else super().marks(spec)

    def explain(
        self, result: StructType, spec: Spec, sources: Mapping[str, Source], pin: Pin, partitions: int | None
    ) -> tuple[str, list[str]]:
        """Return where rows of joins are matched, and a step for each relation."""
        how = "runs by operators on tables"
        reason = wrong_in_spark(self.relation) if pin.algorithm == NATIVE else None
        if reason is not None:
            how += with_labels(f", as Spark's own {reason}", self.labels)
        if self.is_routed(pin.algorithm):
            how += f"; rows of hot keys are matched by n={pin.workers} workers, placed by {pin.algorithm}"
        elif self.has_join:
            how += "; rows are matched in the bucket of their key"
        return how, list(self._steps(spec, partitions))

    def _steps(self, spec: Spec, partitions: int | None) -> Iterator[str]:
        yield from (source_step(name, source) for name, source in spec.sources.items())
        yield from self._compute_steps()
        once = [self.meeting[name].relation for name in self.once]
        yield from (with_labels(step, self.labels) for step in _relation_steps(self.relation, once, []))
        for when, sink in outputs(spec, partitions):
            if self.contents is Contents.RECORDS:
                when = "when final" if self.waits else "every result"
            yield f"emit     {when} -> {sink}"
        table = spec.sink.table
        if table is not None and table.history is not None:
            yield f"emit     earlier versions, for {table.history.retention} -> topic {table.history.topic}"

    def _compute_steps(self) -> Iterator[str]:
        """Yield how what both sides of a join read is computed."""
        asked = {each.name: each.materialized for each in self.common}
        for name, found in self.meeting.items():
            yield _compute_step(name, read_costs(found, self.partitions), asked[name], is_once=name in self.once)

    def layout(self) -> dict[str, Any]:
        """Return the SQL, the columns, and how rows are cut into buckets."""
        buckets = self.stream_join_buckets
        counted = sum(
            part.counted for each in below(self.relation) if isinstance(each, Grouping) for part in each.parts
        )
        differs = buckets != BUCKETS and any(map(joins_streams, below(self.relation)))
        return {
            STAGES: self.sql,
            "columns": list(self.columns),
            "waits for the watermark": self.waits,
            "buckets": BUCKETS,
            "slots": SLOTS,
            PARTITIONS: self.partitions,
            **({_STREAM_JOIN_BUCKETS: buckets} if differs else {}),
            **({} if self.wakes else {_WAKES: False}),
            **({"versions": _VERSIONS[self.ends]} if self.versions else {}),
            **({_VALUES: counted} if counted else {}),
            **({"functions": dict(self.functions)} if self.functions else {}),
            **({_ONCE: sorted(self.once)} if self.once else {}),
        }

    def continued(self, before: Mapping[str, Any]) -> TableQuery:
        """Return the query with the buckets and timers that its state began with, and what it computes once.

        What the SQL asks to compute once, or for each reader, stays as it asks.
        """
        if PARTITIONS not in before:
            return self
        once = {name for name in before.get(_ONCE, ()) if name in self.meeting}
        for each in self.common:
            if each.materialized is not None and each.name in self.meeting:
                once = once | {each.name} if each.materialized else once - {each.name}
        return replace(
            self,
            partitions=before[PARTITIONS],
            stream_join_buckets=before.get(_STREAM_JOIN_BUCKETS, BUCKETS),
            wakes=before.get(_WAKES, True),
            once=tuple(sorted(once)),
        )

    @property
    def results(self) -> ResultTraits:
        """The changes of the last relation."""
        return ResultTraits(
            key=self.key,
            other_keys=self.other_keys,
            emits_changes=True,
            takes_back=self.contents is not Contents.RECORDS or bool(self.ahead),
            waits=self.waits,
            longest=self.longest,
            versions=self.versions,
        )

    @property
    def result_names(self) -> Sequence[str]:
        """What the query calls the items, each of which is an internal column, or a window whose start is the first."""
        first = (min(internals_in(item), key=lambda internal: int(internal[1:])) for item in self.items)
        return [self.labels[internal] for internal in first]

    def result_keys(
        self, columns: tuple[str, ...] | None, names: Sequence[str], groups: Sequence[Group], spec: Spec
    ) -> ResultKeys:
        """Return the keys of rows that end where the operators end them, or when the watermark passes their group."""
        if keeps_times(spec):
            return ResultKeys(columns, weighted=True, versioned=self.versions, lag=lag_of(self.relation) or 0)
        weighted, grouping = self.is_weighted(spec), self.groups
        has_window = grouping is not None and grouping.window is not None and not grouping.session
        closing = grouping.closing if grouping is not None and has_window else None
        if closing is None or not weighted or spec.emit is not Emit.ON_UPDATE:
            return ResultKeys(columns, weighted=weighted)
        return ResultKeys(columns, window_in_key(columns, names, groups, closing.lag), weighted=True)

    def result_partitions(self, state: int) -> int | None:
        """Return the number of partitions for rows that are groups; matched rows may be shuffled to workers."""
        return None if self.groups is None else state

    def is_routed(self, algorithm: str) -> bool:
        """Whether the algorithm places the units of a join's hot keys; ``hash`` leaves them in their buckets."""
        return self.has_pairs and is_routed(algorithm) and algorithm != Hash.NAME

    @property
    def choice(self) -> HotKeysChoice | None:
        """The algorithms for the hot keys of a join; None without a join."""
        return HotKeysChoice() if self.has_pairs else None

    @property
    def unplaced(self) -> str:
        """Without a join, whose hot keys an algorithm could place."""
        return "by operators on tables without a join"

    def dedicated_problem(self, spec: Spec, schemas: Mapping[str, pa.Schema]) -> Problem:
        """Return that nothing is routed before the operators."""
        return unrouted_problem("it runs by operators on tables")


class HotKeysChoice(AlgorithmChoice):
    """The choice among algorithms that place the hot keys of a join."""

    def candidates(self, placement: Placement) -> tuple[str, ...]:
        """Return the algorithms that need not learn over batches."""
        return JOIN_CANDIDATES

    def first(self, placement: Placement, *, slices_fill_cores: bool = False) -> Algorithm:
        """Return ``hash``, under which nothing is sent a second time."""
        return Algorithm.HASH

    def selector(self, resources: Resources, first: str, placement: Placement) -> Selector:
        """Return a selector that goes by the pairs which each key has."""
        return Selector(JoinForecaster(), resources, first, apart=Hash.NAME, margin=JOIN_MARGIN)


def _relation_steps(relation: Relation, once: Sequence[Relation], shown: list[Relation]) -> Iterator[str]:
    """Yield the steps of a relation; ``shown`` are those of ``once`` whose steps have come."""
    if relation in once:
        if relation in shown:
            return
        shown.append(relation)
    if isinstance(relation, Join):
        yield from _relation_steps(relation.left, once, shown)
        yield from _relation_steps(relation.right, once, shown)
        keys = " AND ".join(f"{one} = {other}" for one, other in zip(*relation.keys.values(), strict=True))
        where = "" if relation.where is None else f" AND {relation.where.text}"
        yield f"join     {relation.type} on {keys}{where}; {_join_state(relation)}"
    elif isinstance(relation, Enriched):
        yield from _relation_steps(relation.input, once, shown)
        yield f"Spark    {relation.type} join with the static table {relation.table.source} on {relation.on}"
    elif isinstance(relation, Grouping):
        yield from _relation_steps(relation.input, once, shown)
        keys = ", ".join(sql for sql, _ in relation.keys if not sql.startswith(WINDOW)) or "nothing (one group)"
        kind = "session with a gap" if relation.session else "window"
        window = f" and {kind} of {seconds(relation.window.size)}" if relation.window is not None else ""
        state = "state forever" if relation.closing is None else "state until the watermark passes the group"
        counted = dict.fromkeys(part.sql for part in relation.parts if part.counted)
        values = f", with all values of {', '.join(counted)}" if counted else ""
        yield f"group    by {keys}{window}; {state}{values}"
    elif isinstance(relation, TopRows):
        yield from _relation_steps(relation.groups.input, once, shown)
        keys = ", ".join(sql for sql, _ in relation.groups.keys if not sql.startswith(WINDOW))
        if relation.groups.window is not None:
            keys = f"{keys}{' and ' if keys else ''}window of {seconds(relation.groups.window.size)}"
        kept = "these rows" if contents_of(relation.groups.input) is Contents.RECORDS else "all rows"
        until = "forever" if relation.groups.closing is None else "until the watermark passes them"
        rows = "first row" if relation.limit == 1 else f"first {relation.limit} rows"
        yield f"top      {rows}{f' of each {keys}' if keys else ''}, by {relation.order}; state of {kept}, {until}"
    elif isinstance(relation, Repeated):
        yield from _relation_steps(relation.groups, once, shown)
        of_both = "as both counts have" if relation.common else "as the first count is more than the second"
        yield f"repeat   rows as often {of_both}: {', '.join(relation.counts)}"
    elif isinstance(relation, Scan):
        if relation.where:
            yield f"filter   {relation.where}; over the changelog of {relation.source}, before its rows are kept"
    elif isinstance(relation, Union):
        for each in relation.inputs:
            yield from _relation_steps(each, once, shown)
        yield f"union    of the rows of {len(relation.inputs)} relations"
    elif isinstance(relation, KeptRecords):
        yield from _relation_steps(relation.input, once, shown)
        yield "table    of records, each from its time on"
    elif isinstance(relation, Upserted):
        yield from _relation_steps(relation.input, once, shown)
        yield f"table    {relation.input.source} by {', '.join(relation.input.keys)}; state of its rows"
    elif isinstance(relation, Selection):
        yield from _relation_steps(relation.input, once, shown)
        if relation.where:
            yield f"filter   {relation.where}"


def _compute_step(name: str, costs: ReadCosts, asked: bool | None, *, is_once: bool) -> str:
    """Return how a relation that both sides of a join read is computed, why, and what both ways cost."""
    ways = {"once": costs.once, "for each side": costs.twice}
    chosen, other = ways if is_once else reversed(ways)
    if asked is not None:
        why = "AS MATERIALIZED" if asked else "AS NOT MATERIALIZED"
    else:
        why = "by cost" if is_once is costs.prefers_once else "as its state began"
    texts = {way: f"{cost.seconds * 1e6:.3g} us a record" for way, cost in ways.items()}
    if costs.once.state:
        texts = {way: f"{texts[way]} and {cost.state} B of state a row" for way, cost in ways.items()}
    estimated = f"estimated for batches of {BATCH:,} records"
    return f"compute  {name} {chosen}, {why}: {texts[chosen]}; {other}, {texts[other]} ({estimated})"


def _join_state(join: Join) -> str:
    if join.match is None:
        streams = [side for side in (join.left, join.right) if contents_of(side) is not Contents.TABLE]
        if join.keeps_versions:
            return "state until the watermark, the table, and the last record that each of its rows has met"
        return "state until the watermark, and the tables" if streams else "state of both tables"
    if join.match.end:
        return f"state until the watermark passes {join.match.end}"
    return f"state for {seconds(join.match.longest)} of event time"
