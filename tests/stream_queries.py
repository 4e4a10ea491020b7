"""SQL that Structured Streaming accepts or refuses, for checks without Spark and for Spark itself.

The sources are ``e (at TIMESTAMP, who STRING, n INT)`` and ``c`` with the same columns. A query is marked by what it
runs under: ``update`` (OnUpdate), ``close`` (OnWindowClose), both with watermarks, and ``bare`` (OnUpdate without).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Setting = Literal["update", "close", "bare"]
COLUMNS = "at TIMESTAMP, who STRING, n INT"
NEAR = "c.at BETWEEN e.at AND e.at + INTERVAL 1 MINUTE"
PER_MINUTE = "SELECT window, who, count(*) AS k FROM e GROUP BY window(at, '1 minute'), who"


class Refused(NamedTuple):
    """A query, the position of its error, and parts of the error message and of the hint."""

    sql: str
    at: str
    said: str
    hint: str
    setting: Setting = "update"
    when_planned: bool = False
    """Whether Spark refuses the query only when it plans the first batch."""


RUNS: list[tuple[Setting, str]] = [
    ("update", "SELECT who, n FROM e DISTRIBUTE BY n"),
    ("update", "SELECT who, n FROM e LIMIT 3"),
    ("close", "SELECT who, count(*) AS k FROM e GROUP BY window(at, '1 minute'), who LIMIT 3"),
    ("update", "SELECT DISTINCT who FROM e"),
    ("update", "SELECT n FROM e UNION SELECT n FROM c"),
    ("update", "SELECT n FROM e UNION ALL SELECT n FROM c UNION ALL SELECT n FROM e"),
    ("update", "SELECT mean(n) AS m, try_sum(n) AS s FROM e"),
    ("update", "SELECT n, (SELECT max(x) FROM VALUES (1), (2) AS t(x)) AS m FROM e"),
    ("update", "SELECT n FROM e WHERE n IN (SELECT id FROM range(5))"),
    ("update", "SELECT n FROM e JOIN (SELECT x FROM VALUES (1), (2) AS t(x) ORDER BY x LIMIT 1) ON n > x"),
    ("update", "SELECT n FROM e JOIN (SELECT x, row_number() OVER (ORDER BY x) AS r FROM VALUES (1) AS t(x)) ON n > x"),
    ("update", "SELECT n FROM e JOIN (SELECT count(DISTINCT x) AS x FROM VALUES (1), (2) AS t(x)) ON n > x"),
    ("update", "WITH c AS (SELECT 1 AS n) SELECT n FROM e EXCEPT SELECT n FROM c"),
    ("update", "WITH C AS (SELECT 1 AS n) SELECT n FROM e EXCEPT SELECT n FROM c"),
    ("update", "WITH c AS (SELECT * FROM c WHERE n > 1) SELECT n FROM c"),
    ("update", f"SELECT e.n FROM e LEFT JOIN c ON e.n = c.n AND {NEAR}"),
    ("update", f"SELECT e.n FROM e FULL JOIN c ON e.n = c.n AND {NEAR}"),
    ("update", f"SELECT e.n FROM e LEFT SEMI JOIN c ON e.n = c.n AND {NEAR}"),
    ("update", f"SELECT e.n, c.who FROM e LEFT JOIN c ON e.n = c.n AND {NEAR} WHERE c.n IS NULL"),
    ("update", "SELECT e.n FROM e JOIN c ON e.n = c.n AND c.at >= e.at - INTERVAL '1:30' HOUR TO MINUTE "
               "AND c.at <= e.at + INTERVAL '1 hour 30 minutes'"),
    ("update", "SELECT e.n FROM e JOIN c ON e.n = c.n AND c.at >= e.at - make_dt_interval(0, 1) AND c.at <= e.at + "
               "INTERVAL 2 SECONDS * 5"),
    ("update", "SELECT e.n FROM e JOIN c USING (at)"),
    ("update", "SELECT e.n FROM e LEFT JOIN c USING (at)"),
    ("update", "SELECT e.n FROM e LEFT JOIN c ON e.at = c.at"),
    ("update", "WITH x AS (SELECT at AS t, n FROM e) SELECT x.n FROM x LEFT JOIN c ON x.n = c.n AND x.t = c.at"),
    ("update", "SELECT e.n FROM e LEFT JOIN (SELECT x FROM VALUES (1) AS t(x)) ON n = x"),
    ("update", "SELECT e.n FROM range(5) t RIGHT JOIN e ON e.n = t.id"),
    ("update", "SELECT e.n FROM e LEFT ANTI JOIN range(5) t ON e.n = t.id"),
    ("update", "SELECT e.n, l.m FROM e LEFT JOIN LATERAL (SELECT e.n + 1 AS m) l"),
    ("update", f"SELECT /*+ BROADCAST(x) */ x.n FROM e x JOIN c ON x.n <=> c.n AND {NEAR.replace('e.', 'x.')}"),
    ("update", f"SELECT e.n FROM e, c WHERE e.n = c.n AND {NEAR}"),
    ("update", f"SELECT e.n FROM e JOIN c ON NOT e.n <> c.n AND {NEAR}"),
    ("update", f"SELECT e.who, count(*) AS k FROM e JOIN c ON e.n = c.n AND {NEAR} GROUP BY e.who"),
    ("update", "SELECT who, count(*) AS k FROM e GROUP BY who UNION ALL SELECT who, count(*) FROM c GROUP BY who"),
    ("update", "SELECT session_window(at, '30 seconds') AS s FROM e"),
    ("close", "SELECT session_window.start AS s, who, count(*) AS k FROM e GROUP BY session_window(at, '30 seconds'), who"),
    ("close", f"SELECT window, max(k) AS m FROM ({PER_MINUTE}) GROUP BY window"),
    ("close", f"SELECT x.k, y.n FROM ({PER_MINUTE}) x JOIN c y ON x.who = y.who"),
    ("update", "SELECT * FROM e TABLESAMPLE (5 ROWS)"),
    ("update", "SELECT e.n FROM e LEFT JOIN c ON e.n = c.n AND c.at < e.at"),
    ("update", "SELECT e.n FROM e RIGHT JOIN c ON e.n = c.n AND c.at > e.at"),
    ("update", "SELECT listagg(who) WITHIN GROUP (ORDER BY who) AS l, sort_array(collect_list(n)) AS s FROM e"),
    ("update", "SELECT who, n, count(*) AS k FROM e GROUP BY GROUPING SETS ((who), (n))"),
    ("update", "SELECT try_cast(who AS INT) AS a, timestampadd(MINUTE, 1, at) AS b, extract(HOUR FROM at) AS c, "
               "trim(BOTH 'a' FROM who) AS d, n::string AS f, `upper`(who) AS g, system.builtin.upper(who) AS h FROM e"),
]  # fmt: skip
"""Queries that Spark accepts, and that the checks must accept."""

REFUSED = [
    Refused("SELECT who, n\nFROM e\nORDER BY n", "line 3, column 1", "ORDER BY needs", "QUALIFY row_number()"),
    Refused("SELECT who FROM e ORDER BY ALL", "line 1, column 19", "ORDER BY needs", "leave it out"),
    Refused("SELECT who, n FROM e ORDER BY n LIMIT 101", "line 1, column 22", "first 101 rows", "a LIMIT of 100 or less"),
    Refused("SELECT who FROM e ORDER BY ALL LIMIT 3", "line 1, column 19", "has no columns", "write the columns"),
    Refused("SELECT * FROM e ORDER BY 2 LIMIT 3", "line 1, column 17", "that * stands for", "name of the column"),
    Refused("SELECT n FROM (SELECT n FROM e SORT BY n)", "line 1, column 32", "SORT BY needs", "leave it out"),
    Refused("SELECT n FROM e CLUSTER BY n", "line 1, column 17", "CLUSTER BY needs", "leave it out"),
    Refused("(SELECT n FROM e) ORDER BY n", "line 1, column 19", "ORDER BY needs", "leave it out"),
    Refused("SELECT n FROM e UNION ALL SELECT n FROM c ORDER BY n", "line 1, column 43", "ORDER BY needs", "leave it out"),
    Refused("WITH c AS (SELECT * FROM c) SELECT n FROM c ORDER BY n", "line 1, column 45", "ORDER BY", "leave it out"),
    Refused("SELECT n FROM e LIMIT 3 OFFSET 2", "line 1, column 25", "OFFSET has no order", "ORDER BY y DESC LIMIT N"),
    Refused("SELECT who, count(*) AS k FROM e GROUP BY who LIMIT 3", "line 1, column 47", "LIMIT", "top N"),
    Refused("SELECT who, row_number() OVER (PARTITION BY who ORDER BY at) AS r FROM e", "line 1, column 13",
            "numbers all rows of a partition", "add QUALIFY row_number()"),
    Refused("SELECT who, sum(n) OVER (PARTITION BY who) AS r FROM e", "line 1, column 13", "OVER", "write GROUP BY"),
    Refused("SELECT n FROM e QUALIFY rank() OVER (ORDER BY n) = 1", "line 1, column 25", "OVER", "write QUALIFY row_number()"),
    Refused("SELECT count(DISTINCT who) AS k FROM e", "line 1, column 8", "DISTINCT", "give each source a watermark",
            "bare"),
    Refused("SELECT who, stddev(DISTINCT n) AS k FROM e GROUP BY who", "line 1, column 13", "DISTINCT", "leave DISTINCT out"),
    Refused("SELECT n, (SELECT max(n) FROM e) AS m FROM e", "line 1, column 12", "subquery outside of FROM", "JOIN"),
    Refused("SELECT n FROM e WHERE n IN (SELECT n FROM c)", "line 1, column 29", "range of event time", "INTERVAL 1 MINUTE"),
    Refused("SELECT n FROM e WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.n = e.n)", "line 1, column 35", "kept forever",
            "INTERVAL 1 MINUTE"),
    Refused("SELECT e.n, l.m FROM e, LATERAL (SELECT max(n) AS m FROM c WHERE c.n = e.n) l", "line 1, column 34",
            "subquery", "JOIN"),
    Refused("SELECT n FROM e EXCEPT SELECT n FROM c", "line 1, column 17", "EXCEPT", "LEFT JOIN"),
    Refused("SELECT 5 AS n MINUS SELECT n FROM e", "line 1, column 15", "EXCEPT", "LEFT JOIN"),
    Refused("SELECT n FROM e INTERSECT SELECT 5", "line 1, column 17", "no INTERSECT", "LEFT SEMI JOIN"),
    Refused("SELECT n FROM e UNION ALL SELECT 5", "line 1, column 17", "one side of UNION", "both sides"),
    Refused("SELECT e.n FROM e LEFT JOIN c ON e.n = c.n", "line 1, column 24", "needs watermarks, and c and e have none",
            "add watermark", "bare"),
    Refused(f"SELECT e.n FROM e LEFT JOIN c ON e.n = c.n AND {NEAR}", "line 1, column 24", "needs watermarks",
            "add watermark", "bare"),
    Refused("SELECT e.n FROM e FULL JOIN c ON (e.n = c.n AND e.who = c.who)", "line 1, column 24", "needs a range of event",
            "INTERVAL 1 MINUTE"),
    Refused("SELECT e.n FROM e LEFT SEMI JOIN c ON e.n = c.n", "line 1, column 29", "needs a range of event time",
            "INTERVAL 1 MINUTE"),
    Refused("SELECT e.n FROM e LEFT JOIN c ON e.n = c.n AND c.at > e.at", "line 1, column 24", "with no upper end", "INTERVAL"),
    Refused("SELECT e.n FROM e RIGHT JOIN c ON e.n = c.n AND c.at < e.at", "line 1, column 25", "with no lower end", "INTERVAL"),
    Refused("SELECT who, count(*) AS k FROM e TABLESAMPLE (5 ROWS) GROUP BY who", "line 1, column 34", "TABLESAMPLE of ROWS",
            "rand()"),
    Refused("SELECT e.n FROM e LEFT JOIN c ON e.n = c.n AND e.n < c.n + 1", "line 1, column 24",
            "needs a range of event time", "INTERVAL 1 MINUTE"),
    Refused(f"SELECT who, max(k) AS m FROM ({PER_MINUTE}) GROUP BY who", f"line 1, column {42 + len(PER_MINUTE)}",
            "groups by who have no event time", "add a window", "close"),
    Refused("SELECT count(*) AS k FROM e GROUP BY window(at + INTERVAL 1 HOUR, '1 minute')", "line 1, column 38",
            "which is not the column of a watermark", "calculate with window.start", "close"),
    Refused("SELECT e.n FROM e LEFT ANTI JOIN c ON e.n = c.n", "line 1, column 29", "needs a range of event",
            "INTERVAL 1 MINUTE"),
    Refused("SELECT e.n FROM e RIGHT JOIN range(5) t ON e.n = t.id", "line 1, column 25", "a RIGHT JOIN needs all", "write JOIN"),
    Refused("SELECT e.n FROM range(5) t LEFT JOIN e ON e.n = t.id", "line 1, column 33", "a LEFT JOIN needs all", "write JOIN"),
    Refused("SELECT e.n FROM e CROSS JOIN c", "line 1, column 25", "has no key", "a.key = b.key", when_planned=True),
    Refused("SELECT e.n FROM e CROSS JOIN c WHERE e.n = c.n", "line 1, column 25", "has no key", "a.key = b.key",
            when_planned=True),
    Refused("SELECT e.n FROM e CROSS JOIN c ON e.n = c.n", "line 1, column 25", "has no key", "a.key = b.key",
            when_planned=True),
    Refused("SELECT e.n FROM e JOIN c ON e.n < c.n", "line 1, column 19", "needs a key", "a.key = b.key",
            when_planned=True),
    Refused(f"SELECT DISTINCT e.n FROM e LEFT JOIN c ON e.n = c.n AND {NEAR}", "line 1, column 33", "under emit OnUpdate",
            "OnWindowClose"),
    Refused(f"SELECT window, max(k) AS m FROM ({PER_MINUTE}) GROUP BY window", "line 1, column 1",
            "an aggregate of an aggregate", "examples/15-nexmark-q5-hot-items.yaml"),
    Refused("SELECT DISTINCT count(*) AS k FROM e GROUP BY who", "line 1, column 1", "aggregate of an aggregate",
            "OnWindowClose"),
    Refused("SELECT count(*) AS k FROM (SELECT who FROM e UNION SELECT who FROM c)", "line 1, column 1",
            "aggregate of an aggregate", "OnWindowClose"),
    Refused("SELECT c.n FROM c JOIN (SELECT who, count(*) AS k FROM e GROUP BY who) x ON c.who = x.who",
            "line 1, column 19", "a JOIN with an aggregate", "examples/17-nexmark-q8-new-sellers.yaml"),
    Refused(f"SELECT max(k) AS m FROM ({PER_MINUTE})", "line 1, column 1", "no window of its own", "GROUP BY window",
            "close"),
    Refused("SELECT DISTINCT who FROM e WHERE at IS NOT NULL", "line 1, column 1", "DISTINCT has no event time", "add at",
            "close"),
    Refused("SELECT n FROM e TABLESAMPLE (50 PERCENT)", "line 1, column 17", "no TABLESAMPLE", "rand()"),
    Refused("SELECT monotonically_increasing_id() AS i FROM e", "line 1, column 8", "monotonically", "uuid()"),
    Refused("SELECT who,\n  frobnicate(n) AS f FROM e", "line 2, column 3", 'no function "frobnicate"', "Spark's functions"),
    Refused("SELECT uper(who) AS u FROM e", "line 1, column 8", 'no function "uper"', 'did you mean "upper"?'),
    Refused("SELECT strpos(who, 'a') AS u FROM e", "line 1, column 8", 'no function "strpos"', ""),
    Refused("SELECT * FROM (SELECT who, n FROM e) PIVOT (sum(n) FOR who IN ('a', 'b'))", "line 1, column 38", "no PIVOT",
            "FILTER (WHERE"),
    Refused("SELECT n FROM e QUALIFY n > 1", "line 1, column 17", "QUALIFY filters by OVER", "write WHERE"),
    Refused("SELECT who, n FROM e QUALIFY row_number() OVER (PARTITION BY who) = 1", "line 1, column 30", "has no order",
            "ORDER BY"),
    Refused("SELECT who, n FROM e QUALIFY row_number() OVER (ORDER BY n) <= 101", "line 1, column 30", "at most 100",
            "100 rows or less"),
    Refused("SELECT who, n AS m, row_number() OVER (ORDER BY at) AS n FROM e QUALIFY n = 1", "line 1, column 73",
            "is a column of e and an alias", "another name"),
    Refused("SELECT who, n + 1 AS m, row_number() OVER (ORDER BY m) AS r FROM e QUALIFY r = 1", "line 1, column 53",
            "has no aliases of this list", "QUALIFY"),
    Refused("SELECT who FROM e GROUP BY who QUALIFY row_number() OVER (ORDER BY at DESC) = 1", "line 1, column 68",
            "at is not in GROUP BY", "any_value"),
    Refused("SELECT who, count(*) AS k FROM e GROUP BY who QUALIFY row_number() OVER (ORDER BY count(*)) = 1",
            "line 1, column 47", "no aggregates in QUALIFY", "an alias"),
    Refused("SELECT n FROM e FETCH FIRST 3 ROWS ONLY", "line 1, column 17", "no FETCH", "write LIMIT"),
    Refused("SELECT DISTINCT ON (who) who, n FROM e", "line 1, column 8", "no DISTINCT ON", "GROUP BY"),
    Refused("SELECT who, n FROM e UNION ALL BY NAME SELECT n, who FROM e", "line 1, column 47", "no UNION BY NAME",
            "in one order"),
    Refused("SELECT n FROM e VERSION AS OF 1", "line 1, column 15", "AS OF a version or a time", "leave AS OF out"),
    Refused("SELECT window_time(window) AS t, count(*) AS k FROM e GROUP BY window(at, '1 minute')", "line 1, column 8",
            "stands in the SELECT that makes the window", "FROM (...) around it", "close"),
]  # fmt: skip
"""Queries that Spark refuses, and that the checks refuse first."""

ONLY_SPARK = [
    Refused("SELECT stack(2, who, n) AS s FROM e", "", "do not have the same type", ""),
]
"""Queries that only Spark's own check of its plan refuses."""


UNBOUNDED = [
    ("SELECT e.n FROM e JOIN c ON e.n = c.n", "line 1, column 19", "no range of event time"),
    ("SELECT e.n FROM e, c WHERE e.n = c.n", "line 1, column 20", "no range of event time"),
    ("SELECT e.n FROM e JOIN c USING (n)", "line 1, column 19", "no range of event time"),
    ("SELECT e.n FROM e JOIN c ON e.n = c.n AND c.at >= e.at", "line 1, column 19", "with no upper end"),
    ("SELECT e.n FROM e JOIN c ON e.n = c.n AND c.at < e.at", "line 1, column 19", "with no lower end"),
    ("SELECT count(*) AS k FROM e JOIN c ON e.n = c.n GROUP BY e.who", "line 1, column 29", "no range of event time"),
    (
        "SELECT e.n FROM e JOIN c ON e.n = c.n AND c.at >= timestamp_seconds(e.n) + make_dt_interval(0, 1) AND c.at <= e.at",
        "line 1, column 19",
        "not event time",
    ),
]
"""SQL that Spark runs, with a state that grows forever: its place, and what is said of it."""
