"""Which sources of a query are read in turns."""

from builders import a_query
from millrace_jobs.calibration.calibration_endpoints import streams_of

TRIPS = {"files": {"path": "data", "format": "csv"}, "schema": "at TIMESTAMP, cell STRING"}
ZONES = TRIPS | {"watermark": {"column": "at", "delay": "0s"}, "table": {"keys": ["cell"]}}
NAMES = TRIPS | {"table": {"keys": ["cell"], "static": True}}


def streams(sql, **sources):
    spec = a_query("spec", "sources", value=sources).spec
    return streams_of(spec.model_copy(update={"query": spec.query.model_copy(update={"sql": sql})}))


def test_streams_that_the_query_reads_have_turns():
    sql = "SELECT * FROM Trips JOIN late ON trips.cell = late.cell"
    assert streams(sql, trips=TRIPS, late=TRIPS, unread=TRIPS) == ["trips", "late"]


def test_tables_beside_a_stream_have_none():
    sql = "SELECT * FROM trips JOIN zones USING (cell) JOIN names USING (cell)"
    assert streams(sql, trips=TRIPS, zones=ZONES, names=NAMES) == ["trips"]


def test_tables_that_change_have_turns_where_nothing_else_streams():
    sql = "SELECT count(*) FROM zones JOIN names USING (cell)"
    assert streams(sql, zones=ZONES, names=NAMES) == ["zones"]


def test_an_aggregator_reads_the_source_that_it_names():
    spec = a_query("spec", "sources", value={"trips": TRIPS, "late": TRIPS}).spec
    query = {"python": {"aggregator": "a:B", "groupBy": ["cell"], "source": "late"}}
    spec = type(spec).model_validate(spec.to_document() | {"query": query})
    assert streams_of(spec) == ["late"]
