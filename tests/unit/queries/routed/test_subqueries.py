"""An aggregation of a CTE or subquery that filters and projects one source is routed as if it read the source itself."""

import pyarrow as pa
import pytest

from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.routed.aggregation import aggregation_of
from millrace_jobs.queries.sql_aggregates import NotRoutableError

EVENT = pa.struct([("kind", pa.string()), ("size", pa.int64())])
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("n", pa.int64()), ("m", pa.int64()), ("event", EVENT)]
)


def routed(sql):
    kinds = {"k": "string", "UPPER(k)": "string", "(UPPER(k))": "string", "event.kind": "string"}
    return aggregation_of(parsed_query(sql).written_out, {"t": SCHEMA}, lambda text: kinds.get(text, "bigint"))


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        (
            "WITH w AS (SELECT * FROM t WHERE n > 0) SELECT k, count(*) AS c FROM w GROUP BY k HAVING c > 1",
            "SELECT k, count(*) AS c FROM t WHERE n > 0 GROUP BY k HAVING c > 1",
        ),
        (
            "SELECT s.j, sum(s.x) AS x FROM (SELECT upper(k) AS j, n AS x FROM t) s WHERE s.x < 9 GROUP BY s.j",
            "SELECT UPPER(k) AS j, sum(n) AS x FROM t WHERE n < 9 GROUP BY UPPER(k)",
        ),
        (
            "SELECT x * 2 AS y, count(*) FROM (SELECT n + 1 AS x FROM t WHERE m > 0) WHERE x < 9 GROUP BY y",
            "SELECT (n + 1) * 2 AS y, count(*) FROM t WHERE m > 0 AND (n + 1) < 9 GROUP BY (n + 1) * 2",
        ),
        (
            "WITH a AS (SELECT x.k, x.n FROM t AS x WHERE n > 0), b AS (SELECT k, n FROM a WHERE n < 5) "
            "SELECT k, max(n) FROM b GROUP BY 1",
            "SELECT k, max(n) FROM t WHERE n > 0 AND n < 5 GROUP BY k",
        ),
        (
            "SELECT window.start, e.kind, count(*) FROM (SELECT at AS time, event AS e FROM t) "
            "GROUP BY window(time, '1 minute'), e.kind",
            "SELECT window.start, event.kind, count(*) FROM t GROUP BY window(at, '1 minute'), event.kind",
        ),
    ],
)
def test_a_filter_or_projection_in_from_is_that_of_the_select(sql, same):
    found, expected = routed(sql), routed(same)
    texts = [(each.where.replace("(", "").replace(")", ""), each.keys, each.window, each.select, each.having) for each in
             (found, expected)]  # fmt: skip
    assert texts[0] == texts[1]
    assert [part.input for part in found.parts] == [part.input for part in expected.parts]


@pytest.mark.parametrize(
    "inner",
    [
        "SELECT DISTINCT k FROM t",
        "SELECT k, count(*) AS n FROM t GROUP BY k",
        "SELECT k FROM t LIMIT 3",
        "SELECT k, uuid() AS u FROM t",
        "SELECT k, own_function(n) AS n FROM t",
        "SELECT k, explode(array(1, 2)) AS n FROM t",
        "SELECT k, row_number() OVER (ORDER BY n) AS n FROM t",
        "SELECT k FROM t UNION ALL SELECT k FROM t",
        "SELECT k FROM t WHERE n IN (SELECT 1)",
        "SELECT * EXCEPT (n) FROM t",
    ],
)
def test_what_does_more_than_filter_and_project_stays_a_subquery(inner):
    with pytest.raises(NotRoutableError, match="it has a subquery"):
        routed(f"SELECT k, count(*) AS c FROM ({inner}) GROUP BY k")


def test_an_alias_that_a_column_of_the_source_would_hide_keeps_the_subquery():
    with pytest.raises(NotRoutableError, match="it has a subquery"):
        routed("SELECT n AS m, count(*) AS c FROM (SELECT n FROM t) GROUP BY m")
