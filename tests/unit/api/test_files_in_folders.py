"""``files`` with folders of partitions and in object stores: what is valid, and what is refused with what to write instead."""

from typing import Any

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_api.model.files import FilesSourceSpec
from millrace_api.model.sinks import FilesSinkSpec, SinkSpec
from millrace_api.validation.loading import read_query

DOCUMENT = """
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips}
spec:
  sources:
    trips:
      files: {path: "in/*/*.json", format: json}
      schema: "cell STRING, fare DOUBLE, day DATE, tags ARRAY<STRING>"
  query: {sql: "SELECT cell, fare, day FROM trips"}
  sink: {console: {}}
"""


def problems(source: dict[str, Any] | None = None, sink: dict[str, Any] | None = None, sql: str = "") -> list[str]:
    document = yaml.safe_load(DOCUMENT)
    document["spec"]["query"]["sql"] = sql or document["spec"]["query"]["sql"]
    document["spec"]["sources"]["trips"]["files"] |= source or {}
    if sink is not None:
        document["spec"]["sink"] = {"files": {"path": "out"} | sink}
    try:
        read_query(document)
    except MillraceError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ({"partitionColumns": ["day"]}, None),
        ({"partitionColumns": ["cell", "day"], "order": "ByName"}, {"partitionBy": ["day"]}),
        ({"path": "s3a://lake/in/day=*/*.json"}, {"path": "s3a://lake/out", "filesPerPartition": 3}),
        (None, {"path": "s3a://lake/out/", "format": "csv"}),
    ],
)
def test_folders_of_partitions_and_prefixes_are_accepted(
    source: dict[str, Any] | None, sink: dict[str, Any] | None
) -> None:
    assert problems(source, sink) == []


@pytest.mark.parametrize(
    ("source", "sink", "said"),
    [
        ({"partitionColumns": ["hour"]}, None, "spec.sources.trips.files.partitionColumns[0]: "),
        ({"partitionColumns": ["tags"]}, None, "partitionColumns[0]: \"tags\" is ARRAY<STRING>, which no path can hold; name"),
        ({"partitionColumns": ["day", "day"]}, None, 'partitionColumns[1]: "day" is listed twice; leave one out'),
        ({"partitionColumns": ["cell", "fare", "day", "tags"]}, None, "partitionColumns: all columns are in the path"),
        ({"order": "ByDate"}, None, "spec.sources.trips.files.order"),
        (None, {"path": "s3a://lake"}, 'spec.sink.files.path: "s3a://lake" is not a bucket and a prefix'),
        (None, {"path": "s3a://lake/a*"}, 'spec.sink.files.path: "s3a://lake/a*" is not a bucket and a prefix'),
        (None, {"filesPerPartition": 0}, "spec.sink.files.filesPerPartition"),
        (None, {"filesPerPartition": 1001}, "spec.sink.files.filesPerPartition"),
        ({"path": "s3a://lake/out/*"}, {"path": "s3a://lake/out", "format": "json"}, "every result would come back as a record"),
        ({"path": "out/*/*"}, {"format": "json", "partitionBy": ["day"]}, "every result would come back as a record"),
    ],
)  # fmt: skip
def test_options_of_folders_that_do_not_fit_are_refused(
    source: dict[str, Any] | None, sink: dict[str, Any] | None, said: str
) -> None:
    found = problems(source, sink)
    assert any(said in each for each in found), found


def test_a_query_that_reads_folders_of_partitions_is_seen_to_read_another_ones_results() -> None:
    written = FilesSinkSpec.model_validate({"path": "s3a://lake/out/", "partitionBy": ["day", "hour"]}).first_file
    for path, reads in (
        ("s3a://lake/out/day=*/*/*.parquet", True),
        ("s3a://lake/out/*/*/*", True),
        ("s3a://lake/out", False),
    ):
        assert FilesSourceSpec.model_validate({"path": path, "format": "parquet"}).reads(written) == reads


def test_only_a_prefix_has_a_record_of_its_batches() -> None:
    assert SinkSpec.model_validate({"files": {"path": "s3a://lake/out"}}).records_batches
    assert not SinkSpec.model_validate({"files": {"path": "out"}}).records_batches


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT cell AS batch_id, fare FROM trips", []),
        (
            "SELECT cell AS _Batch_Id, fare FROM trips",
            ["spec.sink.files: files of results have a column _batch_id of their "],
        ),
        (
            "SELECT day, count(*) AS _batch_id FROM trips GROUP BY day",
            ["spec.sink.files: files of results have a column "],
        ),
    ],
)
def test_a_result_cannot_have_the_name_of_the_column_that_files_add(sql: str, said: list[str]) -> None:
    found = problems(sink={}, sql=sql)
    assert len(found) == len(said)
    assert all(one.startswith(other) for one, other in zip(found, said, strict=True)), found
