"""Queries of tables made at random, each of which has to run: what a table can be asked, in any composition.

The tables ``p`` and ``q`` have the key ``k``, the streams ``s`` and ``r`` records; all have the columns ``at``, ``k``
and ``n``. Where time matters, it does so in microseconds. DuckDB has the right rows of each query at any time: those
over the contents of the tables at that time and the records of the streams until then.
"""

from __future__ import annotations

from hypothesis import strategies as st

SOURCES = {"p": True, "q": True, "s": False, "r": False}
"""The sources, and whether each is a table."""

BETWEEN = "b.at BETWEEN a.at AND a.at + INTERVAL 4 MICROSECONDS"
CONDITIONS = ("{0}.n > 0", "{0}.n <> 1", "{0}.k = 'a'", "{0}.n IS NOT NULL", "{0}.k IS NOT NULL AND {0}.n < 3")
AGGREGATES = (
    "count(*)",
    "count({0}.n)",
    "sum({0}.n)",
    "min({0}.n)",
    "max({0}.n)",
    "count(DISTINCT {0}.n)",
    "max({0}.n) - min({0}.n)",
    "count(*) FILTER (WHERE {0}.n > 0)",
)
EQUAL = ("a.k = b.k", "a.n = b.n", "a.k = b.k AND a.n = b.n")
RESIDUAL = ("", "", " AND a.n > b.n", " AND b.n > 0", " AND a.n <> 1")
OUTPUTS = (
    "a.k AS k, b.n AS n",
    "b.k AS k, a.n AS n",
    "coalesce(a.k, b.k) AS k, coalesce(a.n, 0) + coalesce(b.n, 5) AS n",
)
SET_OPERATIONS = ("UNION ALL", "UNION", "EXCEPT", "INTERSECT")


@st.composite
def records(draw: st.DrawFn) -> str:
    """Draw the SQL of records: columns ``k`` and ``n``."""
    where = draw(st.sampled_from(("", *(f" WHERE {each.format('a')}" for each in CONDITIONS))))
    return draw(
        st.sampled_from(
            (
                f"SELECT a.k, a.n FROM s a{where}",
                f"SELECT a.k, a.n FROM (SELECT at, k, n FROM s UNION ALL SELECT at, k, n FROM r) a{where}",
                f"SELECT a.k, b.n FROM s a JOIN r b ON a.k = b.k AND {BETWEEN}{where}",
                f"SELECT b.k, a.n FROM s a JOIN r b ON a.n = b.n AND {BETWEEN}{where}",
            )
        )
    )


@st.composite
def rows(draw: st.DrawFn, depth: int = 3) -> str:
    """Draw the SQL of a table: columns ``k`` and ``n``, from subqueries of so many levels."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return f"SELECT k, n FROM {draw(st.sampled_from(('p', 'q')))}"
    one = f"({draw(rows(depth - 1))}) a"
    match draw(
        st.sampled_from(
            ("filter", "project", "groups", "groups", "records", "join", "join", "exists", "distinct", "set")
        )
    ):
        case "filter":
            return f"SELECT a.k, a.n FROM {one} WHERE {draw(st.sampled_from(CONDITIONS)).format('a')}"
        case "project":
            return f"SELECT {draw(st.sampled_from(('a.k, a.n + 1 AS n', 'CAST(a.n AS STRING) AS k, a.n', 'a.k, CAST(7 AS BIGINT) AS n')))} FROM {one}"
        case "groups":
            having = draw(st.sampled_from(("", "", " HAVING count(*) > 1")))
            key = draw(st.sampled_from(("a.k", "CAST(a.n AS STRING)")))
            return f"SELECT {key} AS k, {draw(aggregate())} AS n FROM {one} GROUP BY {key}{having}"
        case "records":
            return f"SELECT a.k, {draw(aggregate())} AS n FROM ({draw(records())}) a GROUP BY a.k"
        case "join":
            kind = draw(st.sampled_from(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")))
            condition = draw(st.sampled_from(EQUAL)) + draw(st.sampled_from(RESIDUAL))
            return (
                f"SELECT {draw(st.sampled_from(OUTPUTS))} FROM {one} {kind} ({draw(rows(depth - 1))}) b ON {condition}"
            )
        case "exists":
            kind = draw(st.sampled_from(("EXISTS", "NOT EXISTS")))
            condition = draw(st.sampled_from(EQUAL))
            return (
                f"SELECT a.k, a.n FROM {one} WHERE {kind} (SELECT 1 FROM ({draw(rows(depth - 1))}) b WHERE {condition})"
            )
        case "distinct":
            return f"SELECT DISTINCT {draw(st.sampled_from(('a.k, a.n', 'a.k, a.n % 2 AS n')))} FROM {one}"
        case _:
            operation = draw(st.sampled_from(SET_OPERATIONS))
            return f"SELECT k, n FROM ({draw(rows(depth - 1))}) {operation} SELECT k, n FROM ({draw(rows(depth - 1))})"


def aggregate() -> st.SearchStrategy[str]:
    """Draw an aggregate of the rows of ``a``."""
    return st.sampled_from(AGGREGATES).map(lambda each: each.format("a"))


def sources_in(sql: str) -> dict[str, bool]:
    """Return the sources that a query reads, and whether each is a table."""
    return {name: is_table for name, is_table in SOURCES.items() if f"FROM {name}" in sql or f"JOIN {name} " in sql}
