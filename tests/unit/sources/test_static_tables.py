"""The keys of static tables: one row for each, as Spark's joins compare them."""

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.static_tables import read_static_table


@pytest.fixture
def read(tmp_path):
    """Reads the lines of a CSV file as a static table with the key ``k``."""

    def read(kind, *lines, **options):
        (tmp_path / "rows.csv").write_text("\n".join(["k,n", *lines, ""]))
        places = (str(tmp_path / "rows.csv"), "csv", declared_schema(f"k {kind}, n INT"), str(tmp_path / "log"))
        return read_static_table(FilesSource("rows", *places, **options), ["k"])

    return read


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
@pytest.mark.parametrize(("one", "other"), [("-0.0", "0.0"), ("0", "-0.0"), ("NaN", "NaN")])
def test_floats_that_are_equal_are_one_key(read, kind, one, other):
    with pytest.raises(MillraceError, match="source rows: the static table has 2 rows with the key k = "):
        read(kind, f"{one},1", f"{other},2")


def test_records_without_a_key_are_counted(read):
    table = read("DOUBLE", "1.0,1", ",2", ",3", "x,4", corrupt=CorruptRecords("Drop"))
    assert (table.rows.num_rows, table.incomplete, table.rejected) == (1, 2, 1)


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_other_floats_are_keys_of_their_own(read, kind):
    table = read(kind, "0.0,1", "NaN,2", "Infinity,3", "-Infinity,4", "1.0,5", "-1.0,6")
    assert table.rows.column("n").to_pylist() == [1, 2, 3, 4, 5, 6]
