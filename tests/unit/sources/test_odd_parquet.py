"""Parquet files of other programs give the rows that they hold, or one sentence that says what to write."""

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.formats.column_types import declared_schema
from record_tables import all_rows

from .odd_parquet import KINDS

SEEN_ONLY_IN_THE_DATA = {"encrypted columns", "with a broken page", "without its beginning"}


@pytest.mark.parametrize(
    "odd", [pytest.param(odd, id=f"{kind}: {odd.name}") for kind, files in KINDS.items() for odd in files]
)
def test_odd_files_give_the_rows_of_their_writer_or_one_sentence(odd, tmp_path):
    path = tmp_path / "odd.parquet"
    odd.write(path)
    schema = declared_schema(odd.schema)
    source = FilesSource("s", str(path), "parquet", schema, str(tmp_path), timestamp_format=odd.timestamp_format)
    if isinstance(odd.expected, list):
        source.check()
        assert all_rows(source) == odd.expected
        return
    begins = ("column a (", "row", "which", "is out")
    in_the_data = odd.expected.startswith(begins) and "its type is" not in odd.expected
    in_the_data = in_the_data or odd.name in SEEN_ONLY_IN_THE_DATA
    with pytest.raises(MillraceError) as error:
        (all_rows(source) if in_the_data else source.check())
    (problem,) = error.value.problems
    assert odd.expected in str(problem)
    assert str(problem).startswith(f"{path}: ")
    assert problem.hint
    assert "\n" not in str(problem)


def test_there_are_at_least_twenty_files_of_each_kind_and_all_programs_wrote_some():
    assert min(map(len, KINDS.values())) >= 20
    writers = {odd.name.split()[0] for files in KINDS.values() for odd in files}
    assert {"arrow", "duckdb", "pandas", "polars"} <= writers


def test_a_schema_that_changes_between_files_is_reported_of_the_file_that_differs(tmp_path):
    odd = {odd.name: odd for odd in KINDS["text and bytes"]}
    (tmp_path / "in").mkdir()
    odd["pandas numbers for text"].write(tmp_path / "in" / "1.parquet")
    odd["pandas text for numbers"].write(tmp_path / "in" / "2.parquet")
    schema = declared_schema("a BIGINT")
    source = FilesSource("s", str(tmp_path / "in"), "parquet", schema, str(tmp_path / "log"))
    source.check()
    with pytest.raises(MillraceError, match=r"in/2\.parquet: column a \(BIGINT\): its type is STRING"):
        all_rows(source)
