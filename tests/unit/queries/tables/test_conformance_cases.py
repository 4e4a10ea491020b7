"""The operators on tables have the right results in each case of the conformance suite, without Spark and a broker."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlglot import parse_one

from conformance.cases import Outcome, all_queries, expected, version
from conformance.engines.common import last_rounds, own_rows, time_of, with_seconds
from millrace_api.sql.dialect import StreamingSql
from millrace_jobs.changes import FOREVER
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.sources.base import CHANGED
from staged_queries import MOMENT, StagedQuery

COLUMNS = pa.schema([("k", pa.string()), ("f", pa.string()), ("v", pa.int64()), ("ts", MOMENT)])
NOT_HERE = {
    "stream-median": "percentiles of a stream are Spark's",
    "stream-left-join-window-end": "the stage that delays outer rows is behind those of the query",
    "stream-top": "DuckDB, which stands in for Spark between operators, has no named_struct",
    "table-top": "as before",
}
QUERIES = [query for query in all_queries() if query.name not in NOT_HERE and "window" not in query.name]
"""Queries whose SQL between operators DuckDB knows; it has no windows."""


class StagedCase(StagedQuery):
    """A case as a query without Spark: a batch for each round, after the watermark of the rounds before."""

    def __init__(self, query, case):
        emit = query.engines["millrace"].get("emit", "OnUpdate")
        final = query.result == "stream" or emit == "OnWindowClose"
        is_table = {name: kind == "table" for name, kind in query.inputs.items()}
        super().__init__(
            query.engines["millrace"]["sql"],
            is_table,
            final=final,
            versions=query.result == "table",
            columns=COLUMNS,
            time="ts",
        )
        self._names = parse_one(query.engines["millrace"]["sql"], read=StreamingSql).named_selects
        self._times = query.times
        self._delay = query.grace * 1_000_000
        newest = dict.fromkeys(is_table, -(10**9) * 1_000_000)
        watched = [name for name in is_table if not is_table[name]] or list(is_table)
        for arrivals in [*case.rounds, *last_rounds(query)]:
            self.batch(arrivals, min(newest[name] for name in watched) - self._delay)
            for each in arrivals:
                newest[each.to] = max(newest[each.to], micros(each.at))

    def _records(self, source, events):
        arrived = [each for each in events if each.to == source]
        rows = [(each.k, each.f, each.v, time_of(each.at)) for each in arrived]
        columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(COLUMNS.types)]
        if not self._sources[source]:
            return pa.Table.from_arrays(columns, schema=COLUMNS)
        first, self._position = self._position, self._position + len(rows)
        positions = range(first, first + len(rows))
        changed = [[each.delete for each in arrived], [not each.exact for each in arrived], positions]
        columns += [pa.array(values, kind) for values, kind in zip(changed, CHANGED.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=pa.schema([*COLUMNS, *CHANGED]))

    def named(self, row):
        return with_seconds(dict(zip(self._names, row, strict=True)), self._times)

    def version_at(self, time):
        """The rows at an event time in microseconds."""
        return [self.named(row) for row, number in self.version(time).items() for _ in range(number)]


def micros(at):
    return int(time_of(at).timestamp()) * 1_000_000


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_a_case_has_the_rows_and_versions_of_the_interpreter(query):
    right = expected(query)
    for case in query.cases:
        staged, meant = StagedCase(query, case), right[case.id]
        if staged.query.contents is not Contents.TABLE:
            rows = [row for row, number in staged.results.items() for _ in range(number)]
            found = Outcome(own_rows(staged.named(row) for row in rows))
        else:
            found = Outcome(own_rows(staged.version_at(FOREVER - 1)))
        assert found.has_rows_of(meant), (case.id, found.rows)
        is_table = staged.query.contents is Contents.TABLE
        for time in sorted({at for at, _, _ in meant.changelog or ()} if is_table else ()):
            rows = own_rows(staged.version_at(micros(time)))
            assert Outcome(rows).has_rows_of(Outcome(version(meant.changelog, time))), (case.id, time, rows)
