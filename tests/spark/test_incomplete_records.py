"""Records without a key or an event time are in no result, and are counted under each plan."""

import pytest

from .cli import Project
from .streams import Stream

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

RECORDS = b"at,who,n\n2024-01-01T00:00:01Z,a,1\n,a,2\n,,3\n2024-01-01T00:00:02Z,,4\n"


@pytest.mark.parametrize("filtered", ["n > 0", "who LIKE 'a%' OR who IS NULL"])  # Spark evaluates LIKE
def test_records_without_an_event_time_are_counted_and_in_no_window(spark, tmp_path, filtered):
    sql = f"SELECT window.start AS s, count(*) AS c FROM events WHERE {filtered} GROUP BY window(at, '1 minute')"
    schema = "at TIMESTAMP, who STRING, n INT"
    stream = Stream(spark, tmp_path, schema=schema, sql=sql, watermark=("at", "1m"), format="csv")
    reports = stream.feed([(placing, RECORDS) for placing in (("native", 2, 1), ("pkg", 2, 1), ("hash", 1, 2))])
    assert [report.incomplete for report in reports if report.rows] == [2, 2, 2]
    assert max(stream.results().column("c").to_pylist()) == 6


@pytest.mark.parametrize("algorithm", ["hash", "native"])
def test_groups_that_close_leave_out_and_count_incomplete_records(tmp_path, algorithm):
    """A NULL is never past, so its group, too, stays with the records that are in no result."""
    project = Project(tmp_path)
    for name, content in (("l", RECORDS), ("r", b"at,who,n\n2024-01-01T00:00:02Z,a,1\n,a,2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.csv").write_bytes(content)
    timed = {"schema": "at TIMESTAMP, who STRING, n INT", "watermark": {"column": "at", "delay": "10s"}}
    sources = {name: {"files": {"path": name, "format": "csv"}, **timed} for name in ("l", "r")}
    within = "r.who = l.who AND r.at BETWEEN l.at AND l.at + INTERVAL 5 SECONDS"
    sql = f"SELECT l.at, count(*) AS c, count(r.n) AS joined FROM l LEFT JOIN r ON {within} GROUP BY l.at"
    query = project.query(sql, sources=sources, emit="OnWindowClose", partitioner={"algorithm": algorithm})
    result = project.millrace("run", query, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert sorted(project.results()) == [
        ("2024-01-01T00:00:01.000000Z", "1", "1"),
        ("2024-01-01T00:00:02.000000Z", "1", "0"),
    ]
    assert "incomplete=2: these records are in no result: those of source l without a value in at" in result.out


def test_rows_of_tables_are_named_at_the_end(tmp_path):
    project = Project(tmp_path)
    project.give("events.csv", "at,who,n\n2024-01-01T00:00:05Z,a,1\n,a,2\n")
    (tmp_path / "prices").mkdir()
    project.write("prices/1.csv", "at,who,price\n2024-01-01T00:00:01Z,a,10\n,a,20\n2024-01-01T00:00:02Z,,30\n,,40\n")
    project.write("towns.csv", "who,town\na,here\n,nowhere\n")
    timed = {"watermark": {"column": "at", "delay": "10s"}}
    sources = {
        "events": {"files": {"path": "in", "format": "csv"}, "schema": "at TIMESTAMP, who STRING, n INT", **timed},
        "prices": {
            "files": {"path": "prices", "format": "csv"},
            "schema": "at TIMESTAMP, who STRING, price INT",
            "table": {"keys": ["who"]},
            **timed,
        },
        "towns": {
            "files": {"path": "towns.csv", "format": "csv"},
            "schema": "who STRING, town STRING",
            "table": {"keys": ["who"], "static": True},
        },
    }
    sql = """SELECT e.n, p.price, t.town FROM events e JOIN prices p ON p.who = e.who JOIN towns t ON t.who = e.who"""
    result = project.millrace("run", project.query(sql, sources=sources), "--once")
    assert (result.status, result.err) == (0, ""), result
    assert [row[:3] for row in project.results()] == [("1", "10", "here")]
    assert "source towns: 1 records of the static table are no rows: they have no who\n" in result.out
    said = (
        "incomplete=3: these records are in no result: those of source prices without a value in who or at are no rows"
    )
    assert said in result.out
