"""Conditions on pairs of rows, as Arrow evaluates them."""

import pyarrow as pa
import pytest

from millrace_jobs.queries.tables.pair_conditions import compiled_condition
from millrace_jobs.queries.tables.relations import PairFilter
from millrace_jobs.queries.tables.scopes import NotATableQueryError

PAIRS = pa.record_batch({"l": pa.array([1, 2, None, 4], pa.int64()), "r": pa.array([2.0, 1.0, 5.0, float("nan")])})


def condition(sql):
    found = PairFilter(sql, sql, {"left": (("a.v", "l"),), "right": (("b.v", "r"),)})
    return compiled_condition(found, PAIRS.schema)


@pytest.mark.parametrize(
    ("sql", "holds"),
    [
        ("l < r", [True, False, False, True]),  # NULL is less than nothing, and NaN more than any number
        ("NOT l < r", [False, True, False, False]),
        ("l < r OR l IS NULL", [True, False, True, True]),
        ("1 > 2", [False] * 4),
        ("1 < 2 OR l < r", [True] * 4),
    ],
)
def test_a_pair_fulfils_what_is_true_for_it_and_not_null(sql, holds):
    assert condition(sql)(PAIRS).tolist() == holds


def test_a_condition_that_is_none_is_refused():
    with pytest.raises(NotATableQueryError, match=r"in a way that only Spark can evaluate: l \+ r"):
        condition("l + r")
