"""docs/formats.md, the text formats: each row about what the sinks write."""

import re
from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sinks.base import ResultBatch, ResultKeys
from millrace_jobs.sinks.files.formats import require_csv
from millrace_jobs.sinks.files.sink import FilesSink
from millrace_jobs.sinks.kafka.messages import encoded, fetched_rows

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs/formats.md").read_text("utf-8")
TABLE = PAGE.partition("| SQL | in CSV | in JSON |")[2].partition("\n\n")[0]
ROWS = re.findall(r"^\| `(.*?)` \|(?: `?(.*?)`?)? \| `(.*)` \|$", TABLE, re.M)


def test_every_row_of_the_table_is_tested():
    assert len(ROWS) == TABLE.count("\n") - 1


def test_values_are_written_as_the_table_says(spark, tmp_path):
    columns = [f"{sql} AS c{place}" for place, (sql, _, _) in enumerate(ROWS)]
    results = spark.sql(f"SELECT {', '.join(columns)}")
    ((_, value, _),) = fetched_rows(encoded(results, ResultKeys()).toArrow())
    assert value == "{" + ",".join(f'"c{place}":{json}' for place, (_, _, json) in enumerate(ROWS)) + "}"
    refused = {f"c{place}" for place, (_, csv, _) in enumerate(ROWS) if csv == "refused"}
    for name in results.columns:
        if name in refused:
            with pytest.raises(MillraceError, match="cannot be written to csv"):
                require_csv(results.select(name).schema, "spec.sink.files")
    (tmp_path / "_staging").mkdir()
    FilesSink(str(tmp_path), "csv", "one", updates=False).write(results.drop(*refused), ResultBatch(0, 0, 0))
    (file,) = tmp_path.glob("*.csv")
    assert file.read_text("utf-8").split("\n")[1] == ",".join(csv for _, csv, _ in ROWS if csv != "refused")
