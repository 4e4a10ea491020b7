"""Queries made at random come to what DuckDB has, in every version, in any order, and with batches that are repeated.

A refusal fails the test.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from change_tables import disordered
from generated_tables import SOURCES, rows, sources_in
from millrace_jobs.changes import FOREVER
from staged_queries import GRACE, StagedQuery, contents_at, duckdb_rows

events = st.tuples(
    st.integers(1, 20), st.sampled_from(sorted(SOURCES)), st.sampled_from("abc"), st.integers(0, 3) | st.none()
).filter(lambda event: SOURCES[event[1]] or event[3] is not None)


@settings(max_examples=80)
@given(sql=rows(), batches=disordered(events, GRACE), killed=st.sets(st.integers(0, 5)))
def test_any_query_of_tables_has_duckdb_s_rows_in_every_version(sql, batches, killed):
    sources = sources_in(sql)
    last, versions, seen = StagedQuery(sql, sources), StagedQuery(sql, sources, versions=True), []
    for number, (arrived, watermark) in enumerate(batches):
        arrived = [event for event in arrived if event[1] in sources]
        seen += arrived
        for query in (last, versions):
            if number in killed:  # the batch ran, and nothing of it was committed
                query.abandoned().batch(arrived, watermark)
            query.batch(arrived, watermark)
        assert last.version(FOREVER - 1) == duckdb_rows(sql, contents_at(seen, SOURCES, FOREVER))
    for time in sorted({event[0] for event in seen}):
        assert versions.version(time) == duckdb_rows(sql, contents_at(seen, SOURCES, time)), time
