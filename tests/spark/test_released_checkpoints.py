"""A checkpoint that a release has left in the middle of its input is continued as if this version had written it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

from .answers import assert_same, latest, rows_of, without_zones
from .cli import Project
from .released_checkpoints import FOLDER, QUERIES, RELEASED, ReleasedQuery, records, unpack

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

VERSIONS = sorted(folder.name for folder in RELEASED.iterdir())


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_checkpoint_of_a_release_is_continued(tmp_path: Path, version: str, name: str) -> None:
    query = QUERIES[name]
    project = unpack(version, name, tmp_path)
    begun = len(list((project.folder / "out").glob("batch-*")))
    project.give("1.csv", records(1))
    result = project.millrace("run", query.write(project), "--once")
    assert (result.status, result.err) == (0, ""), result
    assert (result.summary["rows"], result.summary["late"]) == ("120", "0")  # the first half is not read again
    assert len(list((project.folder / "out").glob("batch-*"))) > begun
    assert_results(project, query)
    assert not FOLDER.exists()  # nothing is looked for where the checkpoint was written


def assert_results(project: Project, query: ReleasedQuery) -> None:
    """Check that the results of both halves are those that DuckDB has of all records."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE events AS SELECT * FROM read_csv('{project.folder}/in/*.csv')")
        expected = rows_of(without_zones(connection.sql(query.expected).to_arrow_table()))
        found = without_zones(
            connection.sql(f"SELECT * FROM read_csv('{project.folder}/out/batch-*.csv')").to_arrow_table()
        )
    assert expected
    if query.keys:
        assert_same(latest(found, query.keys), expected, query.keys)
    else:
        rows = rows_of(found.select(found.column_names[:-1]))  # without the number of the batch
        assert Counter(rows) == Counter(expected)
