"""How far results of joins and groups can be behind the watermark, and what no operator on tables can join."""

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, TimestampType

from millrace_jobs.pipeline.table_query import translate
from millrace_jobs.pipeline.table_relations import Join
from millrace_jobs.pipeline.table_scopes import InputTraits, NotATableQueryError

SECOND = 1_000_000
COLUMNS = {
    "at": TimestampType(),
    "until": TimestampType(),
    "k": StringType(),
    "n": LongType(),
    "tags": ArrayType(StringType()),
}
STREAM, TABLE = InputTraits(COLUMNS, "at"), InputTraits(COLUMNS, "at", ("k",))
SOURCES = {"a": STREAM, "b": STREAM, "c": STREAM, "d": STREAM, "p": TABLE, "q": TABLE}


def translated(sql, *, final_joins=False, final_groups=False):
    def types_of(columns, expressions):
        """Spark's types of columns; every other expression is a number."""
        return [columns.get(text, LongType()) for text in expressions]

    return translate(sql, SOURCES, types_of, partitions=4, final_joins=final_joins, final_groups=final_groups)


def relations(relation, kind):
    """Return the relations of a kind, the last one of the query first."""
    inputs = [getattr(relation, name) for name in ("input", "left", "right") if hasattr(relation, name)]
    return [relation] * isinstance(relation, kind) + [found for each in inputs for found in relations(each, kind)]


def joins(sql, **options):
    return relations(translated(sql, **options).relation, Join)


def within(seconds, left="a", right="b"):
    return f"{left}.k = {right}.k AND {right}.at BETWEEN {left}.at AND {left}.at + INTERVAL {seconds} SECONDS"


@pytest.mark.parametrize(("kind", "lag"), [("", 0), ("LEFT", 60), ("RIGHT", 0), ("FULL", 60)])
def test_the_versions_of_a_table_are_kept_for_outer_results_that_are_behind(kind, lag):
    outer, inner = joins(f"SELECT a.n FROM a {kind} JOIN b ON {within(60)} JOIN p ON p.k = coalesce(a.k, b.k)")
    assert (outer.lag, outer.reach("left"), outer.reach("right")) == (
        {"left": lag * SECOND, "right": 0},
        lag * SECOND,
        0,
    )
    assert inner.lag == {"left": 0, "right": 0}
    assert outer.result_lag == lag * SECOND


@pytest.mark.parametrize("selected", ["a.k, a.n", "*"])
def test_the_lag_of_a_selection_is_that_of_its_rows(selected):
    outer, _ = joins(
        f"SELECT x.n FROM (SELECT {selected} FROM a LEFT JOIN (SELECT b.k AS k2, b.at AS at2 FROM b) b "
        f"ON a.k = b.k2 AND b.at2 BETWEEN a.at AND a.at + INTERVAL 60 SECONDS) x JOIN p ON p.k = x.k"
    )
    assert outer.lag == {"left": 60 * SECOND, "right": 0}


def test_a_lag_adds_up_over_joins():
    outer, middle, _ = joins(
        f"SELECT a.n FROM a LEFT JOIN b ON {within(60)} LEFT JOIN c ON {within(10, 'a', 'c')} JOIN p ON p.k = a.k"
    )
    # a record waits for c as long as its own time can be behind, and then ten seconds
    assert middle.lag == {"left": 60 * SECOND, "right": 0}
    assert middle.match.reach == {"left": 60 * SECOND, "right": 0}
    assert outer.reach("left") == 60 * SECOND


@pytest.mark.parametrize(("final", "lag"), [(False, 60), (True, 60)])
def test_the_lag_of_groups_is_that_of_their_rows(final, lag):
    groups = f"(SELECT a.k, window(a.at, '10 seconds') AS w, count(*) AS n FROM a LEFT JOIN b ON {within(60)} GROUP BY 1, 2) g"
    outer, *_ = joins(f"SELECT g.n FROM {groups} JOIN p ON p.k = g.k", final_joins=final, final_groups=final)
    assert outer.lag == {"left": lag * SECOND, "right": 0}


def test_a_join_of_tables_has_all_changes_even_below_final_results():
    outer, inner = joins(
        "SELECT a.n FROM a JOIN (SELECT p.k, p.n, q.n AS m FROM p JOIN q ON p.k = q.k) x ON x.k = a.k", final_joins=True
    )
    assert (outer.final, inner.final) == (True, False)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT p.n FROM a RIGHT JOIN p ON a.k = p.k", "its RIGHT JOIN keeps rows of a table"),
        ("SELECT p.n FROM p LEFT JOIN a ON a.k = p.k", "its LEFT JOIN keeps rows of a table"),
        ("SELECT p.n FROM p JOIN q ON p.tags = q.tags", "compares p.tags, which is of type array<string>"),
        (
            "SELECT a.n FROM a LEFT JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.until JOIN p ON p.k = a.k",
            "does not end an interval after an event time",
        ),
    ],
)
def test_what_cannot_be_joined(sql, reason):
    with pytest.raises(NotATableQueryError, match=reason):
        translated(sql)
