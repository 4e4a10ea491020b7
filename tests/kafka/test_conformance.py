"""A few cases of the conformance suite in Millrace, as its runner has them; the whole suite runs by hand."""

import pytest

from conformance.cases import all_queries, by_id, expected
from conformance.engines.millrace import outcome

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CASES = [
    "stream-left-join/late-partner",
    "stream-table-left-join/tombstone-out-of-order",
    "table-full-join/both-are-deleted",
    "tumbling-windows/after-the-grace",
]


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_rows_and_versions_of_the_interpreter(broker, spark, tmp_path, name):
    ((query, case),) = [each for each in by_id(all_queries([name.partition("/")[0]])) if each[1].id == name]
    found, right = outcome(spark, broker, tmp_path / "run", query, case), expected(query)[name]
    assert found.error is None
    assert found.has_rows_of(right)
    assert found.has_versions_of(right) is (True if query.result == "table" else None)
