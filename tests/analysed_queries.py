"""SQL over ``e`` and ``f (at TIMESTAMP, k STRING, n INT, v DOUBLE, b BOOLEAN)`` that Spark accepts, or refuses."""

COLUMNS = "at TIMESTAMP, k STRING, n INT, v DOUBLE, b BOOLEAN"
_ON = "ON e.k = f.k AND f.at BETWEEN e.at AND e.at + INTERVAL 1 MINUTE"

SOUND = [
    "SELECT k, sum(at) AS s, avg(at) AS a FROM e GROUP BY k",
    "SELECT upper(k) AS u, count(*) AS c FROM e GROUP BY upper(k)",
    "SELECT n + 1 AS m, count(*) AS c FROM e GROUP BY n",
    "SELECT 1 + n AS m, count(*) AS c FROM e GROUP BY n + 1",
    "SELECT E.K, count(*) AS c FROM e GROUP BY k",
    "SELECT k AS key, count(*) AS c FROM e GROUP BY key HAVING c > 1 AND key <> 'x'",
    "SELECT k, any_value(n) AS n, 5 AS five FROM e GROUP BY k",
    "SELECT window.start AS since, window.end AS until, count(*) AS c FROM e GROUP BY window(at, '1 week')",
    "SELECT window(at, '1 hour 30 minutes') AS w, w.start AS since, count(*) AS c FROM e GROUP BY w",
    "SELECT count(*) AS c FROM e HAVING count(*) > 1",
    "SELECT max(v) FILTER (WHERE k = 'x') AS m FROM e",
    "SELECT count_if(b) AS c, bool_or(n > 1) AS o FROM e",
    "SELECT n + 0.5 AS a, k || n AS t, at - at AS i, at + INTERVAL 1 HOUR AS later, -n AS m FROM e",
    "SELECT CASE WHEN b THEN n ELSE v END AS x, coalesce(n, v) AS y, n IN (1, 2.5) AS z FROM e",
    "SELECT n = k AS a, at > '2020-01-01' AS c FROM e WHERE b AND NOT b",
    f"SELECT e.k, f.n FROM e JOIN f {_ON}",
    "SELECT k, e.n FROM e JOIN f USING (k) WHERE f.at BETWEEN e.at AND e.at + INTERVAL 1 MINUTE",
    f"SELECT n FROM e LEFT SEMI JOIN f {_ON}",
]  # fmt: skip

REFUSED = {
    "SELECT k, stddev(at) AS s FROM e GROUP BY k": "STDDEV(at) is over a time (line 1, column 11 of the SQL)",
    "SELECT k, count(*) AS c FROM e GROUP BY k HAVING collect_list(n) > 1": "mixes a collection and a number (line 1, column",
    "SELECT k, n FROM e UNION ALL SELECT k FROM f": "the sides of UNION have 2 and 1 columns (line 1, column 37 of the SQL)",
    "SELECT n, count(*) AS c FROM e GROUP BY k": "n is not in GROUP BY (line 1, column 8 of the SQL)",
    "SELECT k,\n  n + v AS m, count(*) AS c FROM e GROUP BY k, n": "v is not in GROUP BY (line 2, column 7",
    "SELECT k, count(*) AS c FROM e GROUP BY upper(k)": "k is not in GROUP BY (line 1, column 8",
    "SELECT n, count(*) AS c FROM e": "n stands beside an aggregate (line 1, column 8",
    "SELECT *, count(*) AS c FROM e GROUP BY k": 'the SELECT list has *, and "at" is not grouped',
    "SELECT k FROM e GROUP BY k HAVING n > 1": "n is not in GROUP BY (line 1, column 35",
    "SELECT sum(max(n)) AS s FROM e": "SUM(MAX(n)) aggregates an aggregate (line 1, column 8",
    "SELECT k, sum(1 + count(*)) AS s FROM e GROUP BY k": "aggregates an aggregate (line 1, column 11",
    "SELECT k FROM e WHERE sum(n) > 1": "WHERE has the aggregate SUM(n) (line 1, column 23",
    "SELECT count(*) AS c FROM e GROUP BY c": "GROUP BY has the aggregate COUNT(*)",
    "SELECT window.start AS s, count(*) AS c FROM e GROUP BY window(at, '1 hour'), window(at, '2 hours')":
        "the query groups by two windows",
    f"SELECT n FROM e JOIN f {_ON}": '"n" is a column of e and of f (line 1, column 8',
    f"SELECT f.n FROM e LEFT SEMI JOIN f {_ON}": '"f" is the right side of a LEFT SEMI JOIN',
    "SELECT sum(b) AS s FROM e": "SUM(b) is over a boolean (line 1, column 8",
    "SELECT k FROM e WHERE n": "the condition n is a number, not true or false (line 1, column 23",
    "SELECT k FROM e WHERE k": "the condition k is a text, not true or false",
    "SELECT NOT n AS m FROM e": "the condition n is a number",
    "SELECT CASE WHEN n THEN 1 END AS c FROM e": "the condition n is a number",
    "SELECT count_if(n) AS c FROM e": "the condition n is a number",
    "SELECT b + 1 AS m FROM e": "b + 1 calculates with a boolean and a number (line 1, column 8",
    "SELECT at + 1 AS m FROM e": "at + 1 calculates with a time and a number",
    "SELECT at = n AS m FROM e": "at = n mixes a time and a number",
    "SELECT b = 1 AS m FROM e": "b = 1 mixes a boolean and a number",
    "SELECT coalesce(at, 0) AS m FROM e": "COALESCE(at, 0) mixes a time and a number",
    "SELECT CASE WHEN b THEN 1 ELSE at END AS m FROM e": "mixes a number and a time",
    "SELECT n IN (at) AS m FROM e": "mixes a number and a time",
    "SELECT count(*) AS c FROM e GROUP BY window(at, '1 dya')": '"1 dya" is not a length of time (line 1, column 49',
    "SELECT count(*) AS c FROM e GROUP BY window(at, '1 hour', '2 hours')": "the slide '2 hours' is longer",
    "SELECT count(*) AS c FROM e GROUP BY window(at, INTERVAL 1 HOUR)": "is not a text in quotes",
    "SELECT count(*) AS c FROM e GROUP BY window(at, '1 month')": "has months",
}  # fmt: skip
"""Queries that Spark refuses, each with what is said of it."""
