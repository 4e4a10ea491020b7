import pytest

from millrace_jobs.selection.forecast import COLLOCATING, by_rule, starting_algorithm


@pytest.mark.parametrize(
    ("groups", "rows", "workers", "expected"),
    [
        (4, 100_000, 16, "shuffle"),  # TPC-H Query 1 of the paper has 4 groups
        (625, 100_000, 16, "shuffle"),
        (626, 100_000, 16, COLLOCATING),
        (8_000, 10_000, 16, COLLOCATING),
        (0, 0, 1, "shuffle"),
    ],
)
def test_few_groups_are_shuffled_and_many_collocated(groups, rows, workers, expected):
    assert by_rule(groups, rows, workers) == expected


@pytest.mark.parametrize(
    ("sql", "windows", "grouped", "expected"),
    [
        (True, 1, True, "native"),
        (True, 3, False, "native"),
        (True, 4, True, COLLOCATING),
        (True, 60, False, "shuffle"),
        (False, 1, True, COLLOCATING),
        (False, 1, False, "shuffle"),
    ],
)
def test_the_starting_algorithm_follows_windows_and_groups(sql, windows, grouped, expected):
    assert starting_algorithm(sql=sql, windows=windows, grouped=grouped) == expected


@pytest.mark.parametrize(("sql", "windows", "expected"), [(False, 60, "native"), (True, 60, COLLOCATING)])
def test_an_aggregator_in_python_is_not_routed_at_first_where_slices_fill_the_cores(sql, windows, expected):
    assert starting_algorithm(sql=sql, windows=windows, grouped=True, slices_fill_cores=True) == expected
