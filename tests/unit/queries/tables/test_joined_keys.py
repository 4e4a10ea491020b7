"""What identifies the rows of joins whose keys are of different types, or have NULL on both sides."""

import pytest

from staged_queries import TABLES, StagedQuery

BY_VALUE = "(SELECT n, count(*) AS c FROM {} GROUP BY n)"
BY_TEXT = "(SELECT CAST(k AS DOUBLE) AS k, count(*) AS c FROM q GROUP BY CAST(k AS DOUBLE))"


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("SELECT k, p.n, q.n AS m FROM p FULL JOIN q USING (k)", (0,)),
        ("SELECT coalesce(p.k, q.k) AS k, p.n FROM p FULL JOIN q ON p.k = q.k", (0,)),
        (f"SELECT n, a.c FROM {BY_VALUE.format('p')} a FULL JOIN {BY_VALUE.format('q')} b USING (n)", None),
        (
            f"SELECT coalesce(a.n, b.n) AS n FROM {BY_VALUE.format('p')} a FULL JOIN {BY_VALUE.format('q')} b ON a.n = b.n",
            None,
        ),
        (f"SELECT p.k, b.c FROM p LEFT JOIN {BY_VALUE.format('q')} b ON p.n = b.n", (0,)),
        (f"SELECT p.k, b.c FROM p LEFT JOIN {BY_TEXT} b ON p.n = b.k", (0,)),
    ],
)
def test_what_can_be_equal_without_being_the_same_is_no_key(sql, key):
    assert StagedQuery(sql, TABLES).query.key == key
