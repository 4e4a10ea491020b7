"""Queries that may not run: each is refused in words, by validate, explain and run alike, or runs by every plan alike."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .queries import Question

_WINDOW = "SELECT window.start AS ws, count(*) AS n FROM t0 GROUP BY window({0})"
TEXTS = (
    *(_WINDOW.format(f"ts, {length}") for length in (
        "'1 dya'", "'0 seconds'", "'-5 seconds'", "'1 month'", "'PT1H'", "'1:30'", "INTERVAL 1 HOUR", "''", "'hour'", "1.5", "NULL",
        "'5 seconds', '10 seconds'", "'10 seconds', '5 seconds', '5 seconds'", "'10 seconds', '0 seconds'", "CAST('1 hour' AS STRING)",
        "'1 hour 1 month'", "'9999999999999 days'", "'1 nanosecond'", "'10 seconds', '-5 seconds'", "'1.5 minutes'", "true",
    )),
    *(_WINDOW.format(f"{column}, '10 seconds'") for column in (
        "k0", "x0", "missing", "ts + INTERVAL 1 HOUR", "CAST(ts AS DATE)", "CAST(x0 AS TIMESTAMP)", "date_trunc('hour', ts)", "now()",
    )),
    "SELECT sum(s) AS v FROM t0", "SELECT avg(s) AS v FROM t0", "SELECT sum(ts) AS v FROM t0", "SELECT max(sum(x0)) AS v FROM t0",
    "SELECT k0, x0, count(*) AS v FROM t0 GROUP BY k0", "SELECT missing FROM t0", "SELECT k0 FROM missing", "SELECT nope(k0) AS v FROM t0",
    "SELECT k0 AS c, x0 AS c FROM t0", "SELECT k0, K0 FROM t0", "SELECT x0 AS _batch_id FROM t0", "SELECT count(*) FROM t0", "SELECT 1",
    "SELECT k0, count(*) FROM t0 GROUP BY k0", "SELECT k0 AS `a b`, x0 AS `größe` FROM t0", "SELECT k0 AS `a.b` FROM t0", "SELECT x0 AS `` FROM t0",
    "SELECT k0 FROM t0 ORDER BY ts", "SELECT k0 FROM t0 LIMIT 3", "SELECT k0, row_number() OVER (PARTITION BY k0 ORDER BY ts) AS r FROM t0",
    "SELECT count(DISTINCT x0) AS v FROM t0", "SELECT k0 FROM t0 EXCEPT SELECT k0 FROM t0", "SELECT k0 FROM t0 INTERSECT SELECT k0 FROM t0",
    "SELECT k0 FROM t0 WHERE k0 IN (SELECT k0 FROM t0)", "SELECT k0 FROM t0 UNION SELECT k0 FROM t0", "SELECT (SELECT max(x0) FROM t0) AS v FROM t0",
    "SELECT k0 FROM t0 UNION ALL SELECT 1", "SELECT k0 FROM t0 UNION ALL SELECT CAST(NULL AS STRING)",
    "WITH w AS (SELECT k0, x0 FROM t0) SELECT k0, sum(x0) AS v FROM w GROUP BY k0", "WITH w AS (SELECT * FROM t0) SELECT k0 FROM w",
    "SELECT a.k0 FROM t0 a JOIN t0 b ON a.x0 = b.x0", "SELECT a.k0 FROM t0 a, t0 b", "SELECT a.k0 FROM t0 a CROSS JOIN t0 b",
    "SELECT a.k0 FROM t0 a LEFT ANTI JOIN t0 b ON a.x0 = b.x0 AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND",
    "SELECT a.k0 FROM t0 a JOIN t0 b ON b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND",
    "SELECT k0 FROM t0 a JOIN t0 b ON a.x0 = b.x0 AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND",
    "SELECT session_window.start AS ws, count(*) AS n FROM t0 GROUP BY session_window(ts, '5 seconds')",
    "SELECT session_window.start AS ws, count(*) AS n FROM t0 GROUP BY session_window(ts, 5)",
    "SELECT session_window.start AS ws, count(*) AS n FROM t0 GROUP BY session_window(ts, concat(x0, ' seconds'))",
    "SELECT window.start AS ws, session_window.start AS ss, count(*) AS n FROM t0 GROUP BY window(ts, '5 seconds'), session_window(ts, '5 seconds')",
    "SELECT window.start AS ws, count(*) AS n FROM t0 GROUP BY window(ts, '5 seconds'), window(ts, '7 seconds')",
    "SELECT window(ts, '5 seconds').start AS ws, x0 FROM t0", "SELECT window(ts, '5 seconds') AS w, k0 FROM t0",
    "SELECT k0, count(*) AS n FROM t0 GROUP BY k0, window(ts, '5 seconds')", "SELECT k0, n FROM (SELECT k0, count(*) AS n FROM t0 GROUP BY k0)",
    "SELECT n, count(*) AS m FROM (SELECT k0, count(*) AS n FROM t0 GROUP BY k0) GROUP BY n", "SELECT k0, count(*) AS n FROM t0 GROUP BY ROLLUP (k0)",
    "SELECT count(*) AS n FROM t0 GROUP BY ALL", "SELECT k0, count(*) AS n FROM t0 GROUP BY ALL", "SELECT k0, count(*) AS n FROM t0 GROUP BY 1",
    "SELECT k0, count(*) AS n FROM t0 GROUP BY 3", "SELECT collect_list(x0) AS v FROM t0", "SELECT map(k0, x0) AS v FROM t0", "SELECT array(x0) AS v FROM t0",
    "SELECT * FROM t0", "SELECT DISTINCT * FROM t0", "SELECT t0.* FROM t0", "SELECT explode(array(1, 2)) AS v FROM t0", "SELECT x0 / 0 AS v FROM t0",
    "SELECT CAST(s AS INT) AS v FROM t0", "SELECT sum(x0 / 0) AS v FROM t0", "SELECT first(x0) AS v FROM t0", "SELECT rand() AS v FROM t0", "SELEC k0 FROM t0",
    "SELECT k0 FROM t0 WHERE", "SELECT k0 FROM t0;", "SELECT k0 FROM t0; SELECT k0 FROM t0", "INSERT INTO t0 SELECT * FROM t0", "DROP TABLE t0", "SHOW TABLES",
    "SELECT k0 FROM t0 TABLESAMPLE (50 PERCENT)", "SELECT k0 FROM t0 PIVOT (count(*) FOR x0 IN (1, 2))", "SELECT interval '1' hour AS v FROM t0",
    "SELECT current_date() AS v, k0 FROM t0", "SELECT s || NULL AS v FROM t0", "SELECT NULL AS v FROM t0", "SELECT x0 FROM t0 HAVING x0 > 1",
    "SELECT count(*) AS n FROM t0 WHERE count(*) > 1", "SELECT count(*) AS n FROM t0 HAVING n > 0", "SELECT 'x' AS v, count(*) AS n FROM t0 GROUP BY 'x'",
)  # fmt: skip
EMITS = ("OnUpdate", "OnUpdate", "OnWindowClose", "OnWindowEnd")
SETTINGS: tuple[Mapping[str, Any], ...] = (
    *[{}] * 8,
    {"sparkConf": {"spark.master": "yarn"}},
    {"sparkConf": {"spark.sql.session.timeZone": "Europe/Oslo"}},
    {"sparkConf": {"spark.sql.ansi.enabled": "false"}},
    {"batchInterval": "1 week"},
)


@dataclass(frozen=True)
class Doubtful:
    """SQL that may be wrong."""

    sql: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def question(self) -> Question:
        return Question(self.sql, "", None)

    def smaller(self) -> Iterator[Doubtful]:
        if self.settings:
            yield Doubtful(self.sql)


def draw_doubtful(chance: random.Random) -> Doubtful:
    """Return a query that may not run."""
    return Doubtful(chance.choice(TEXTS), chance.choice(SETTINGS))
