"""Which files of a changelog are merged, and when: a table has few files, and a row is rewritten few times."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, StructType

from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import result_file
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, WindowColumn
from millrace_jobs.sinks.files.compaction import MOST_FOLDERS, CompactionPlan, Merge, first_to_merge, newest_rows

MINUTE = 60_000


def name(batch: int, index: int = 0) -> str:
    return result_file(batch, index, "parquet")


def plan(every: int = 4, window: int | None = None) -> CompactionPlan:
    column = None if window is None else WindowColumn("since", "start", window * 1000)
    return CompactionPlan(every, ResultKeys(("k",), column))


def after(files: CompactionPlan, number: int, watermark: int = 0, size: int = 1, folder: str = ".") -> list[Merge]:
    """Add a file of a batch, and return what is to be merged."""
    files.add([(folder, name(number), size)])
    return files.due(ResultBatch(number, 1, watermark), name(number))


@pytest.mark.parametrize(
    ("sizes", "first"),
    [([], 0), ([3], 1), ([1, 1], 0), ([2, 1], 2), ([9, 1, 1], 1), ([9, 1, 5, 2], 1), ([9, 4, 5], 0), ([9, 0, 0], 1)],
)
def test_files_are_merged_from_the_first_on_that_is_no_larger_than_all_newer_ones(sizes, first):
    assert first_to_merge(sizes) == (first if sizes[first:] else len(sizes))


@given(st.lists(st.integers(1, 1000), max_size=200), st.integers(1, 20))
def test_a_table_has_few_files_and_each_byte_is_rewritten_as_often_as_sizes_double(written, every):
    """Nothing is removed here, which is the worst case."""
    files: list[int] = []
    rewritten = 0
    for number, size in enumerate(written, start=1):
        files.append(size)
        if number % every == 0:
            first = first_to_merge(files)
            rewritten += sum(files[first:])
            files[first:] = [sum(files[first:])] if files[first:] else []
            assert len(files) <= math.log2(sum(files)) + 1
    assert sum(files) == sum(written)
    assert rewritten <= sum(written) * (math.log2(sum(written) + 1) + 1)


def test_files_are_merged_after_so_many_batches_and_never_those_of_the_batch_itself():
    files = plan()
    merges = [after(files, number) for number in range(4)]
    assert merges == [[], [], [], [Merge(".", (name(0), name(1), name(2)), has_oldest=True)]]
    (merge,) = merges[-1]
    assert (merge.target, merge.removed) == (name(2), (name(0), name(1)))
    files.replace(merge, {name(2): 9})
    assert [after(files, number) for number in (4, 5, 6)] == [[], [], []]
    assert after(files, 7) == [Merge(".", (name(3), name(4), name(5), name(6)), has_oldest=False)]


def test_nothing_is_merged_without_a_number_of_batches():
    files = plan(0)
    assert [after(files, number) for number in range(300)] == [[]] * 300


def test_the_close_of_a_window_is_followed_by_a_compaction_after_a_tenth_of_the_batches():
    files = plan(40, MINUTE)
    assert [number for number in range(39) if after(files, number, watermark=number * MINUTE)] == [4, 8, 12, 16, 20, 24, 28, 32, 36]  # fmt: skip
    late = plan(40, 20 * MINUTE)
    assert [number for number in range(39) if after(late, number, watermark=number * MINUTE)] == [20]
    assert not any(after(plan(40), number, watermark=number * MINUTE) for number in range(39))


def test_folders_with_most_files_come_first_and_others_after_the_next_batches():
    files = plan(100)
    folders = [f"day={day}" for day in range(MOST_FOLDERS + 2)]
    for number in range(99):
        files.add((folder, name(number), 1) for folder in folders if number < 50 or folder != "day=0")
    first = files.due(ResultBatch(99, 1, 0), name(99))
    then = files.due(ResultBatch(100, 1, 0), name(100))
    assert (len(first), len(then)) == (MOST_FOLDERS, 2)
    assert {merge.folder for merge in (*first, *then)} == set(folders)
    assert "day=0" in {merge.folder for merge in then}
    assert files.due(ResultBatch(101, 1, 0), name(101)) == []


def test_deleted_rows_stay_where_folders_are_of_another_layout():
    files = CompactionPlan(4, ResultKeys(("day", "k")), ("day",))
    files.begin([(".", name(0), 9)])
    merges = [merge for number in range(1, 5) for merge in after(files, number, folder="day=1")]
    assert [(merge.folder, merge.has_oldest) for merge in merges] == [("day=1", False)]


def test_numbers_within_a_column_of_the_key_are_not_compared_as_json():
    schema = StructType().add("k", StructType().add("x", DoubleType()))
    with pytest.raises(ValueError, match="k cannot be compared"):
        newest_rows(None, schema, ["k"], FileFormat.JSON)
