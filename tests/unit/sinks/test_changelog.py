"""The changelog of a table in files: the columns that its objects have, and the names that a result cannot use."""

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from millrace_api.errors import MillraceError
from millrace_api.model.sinks import BATCH_ID, FilesSinkSpec
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.files.changelog import OPERATION, TIME, require_names
from millrace_jobs.sinks.files.object_sink import ObjectFilesSink

RESULT = StructType().add("who", StringType()).add("n", LongType())


@pytest.mark.parametrize("name", [OPERATION, TIME, BATCH_ID, "_Batch_ID"])
def test_a_column_of_the_result_cannot_have_the_name_of_one_that_the_changelog_adds(name):
    require_names(["who", "batch_id", "time"], is_changelog=True)
    with pytest.raises(MillraceError) as raised:
        require_names(["who", name], is_changelog=True)
    said = f"the changelog has a column {name.lower()} of its own; give the result's column another name"
    assert str(raised.value) == f"spec.sink.files.key: {said}"


def test_files_that_are_no_changelog_have_the_number_of_the_batch_alone():
    require_names(["who", OPERATION, TIME], is_changelog=False)
    with pytest.raises(MillraceError) as raised:
        require_names(["who", BATCH_ID], is_changelog=False)
    said = "files of results have a column _batch_id of their own; give the result's column another name"
    assert str(raised.value) == f"spec.sink.files: {said}"


@pytest.mark.parametrize("parts", [[], ["who"]])
def test_objects_of_a_changelog_have_its_columns_between_the_values_and_the_batch(parts):
    spec = FilesSinkSpec.model_validate({"path": "s3a://lake/out", "key": ["who"], "partitionBy": parts})
    sink = ObjectFilesSink(spec, RESULT, "a", updates=True, keys=ResultKeys(("who",), weighted=True))
    values = [name for name in RESULT.names if name not in parts]
    assert sink._parquet_schema().names == [*values, OPERATION, TIME, BATCH_ID]
