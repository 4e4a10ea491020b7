"""What the operators on tables can join, and how."""

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, TimestampType

from millrace_jobs.pipeline.table_query import translate
from millrace_jobs.pipeline.table_relations import Join
from millrace_jobs.pipeline.table_scopes import InputTraits, NotATableQueryError

COLUMNS = {
    "at": TimestampType(),
    "until": TimestampType(),
    "k": StringType(),
    "n": LongType(),
    "tags": ArrayType(StringType()),
}
STREAM, TABLE = InputTraits(COLUMNS, "at"), InputTraits(COLUMNS, "at", ("k",))
SOURCES = {"a": STREAM, "b": STREAM, "p": TABLE, "q": TABLE}


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
    ],
)
def test_what_cannot_be_joined(sql, reason):
    with pytest.raises(NotATableQueryError, match=reason):
        translated(sql)
