"""Tables of a lakehouse as sinks: places, keys, maintenance, and which results they take."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from builders import a_query
from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query
from millrace_api.validation.places import bucket_and_prefix, table_uri_problem

GROUPS = "SELECT window.start AS since, count(*) AS n FROM trips GROUP BY window(at, '1 minute')"
ROWS = "SELECT at, fare FROM trips"


def sink(path: str = "out/trips", **fields: Any) -> SinkSpec:
    return SinkSpec.model_validate({"delta": {"path": path} | fields})


def problems(sql: str, emit: str, **fields: Any) -> list[str]:
    document = a_query("spec", "query", value={"sql": sql}).to_document()
    document["spec"] |= {"sink": {"delta": {"path": "out/trips"} | fields}, "emit": emit}
    return [str(each) for each in check_query(StreamQuery.model_validate(document))]


def test_the_same_table_is_the_same_place():
    assert sink().is_place_of(sink("out/trips/", key=["since"]))
    assert not sink().is_place_of(sink("out/others"))
    assert not sink().is_place_of(SinkSpec.model_validate({"files": {"path": "out/trips"}}))


def test_only_a_key_lets_results_replace_rows():
    assert sink(key=["since"]).replaces_rows
    assert not sink().replaces_rows


def test_files_stay_for_an_hour_at_least():
    with pytest.raises(ValidationError, match="retention is shorter than an hour"):
        DeltaSinkSpec.model_validate({"path": "out", "maintenance": {"retention": "59m"}})
    assert DeltaSinkSpec.model_validate({"path": "out", "maintenance": {"retention": "1h"}}).is_local


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3a://lake/trips", "s3a://lake/trips"),
        ("s3a://lake/a/b.c/", "s3a://lake/a/b.c"),
        ("s3a://lake", None),
        ("s3a://lake/a/../b", None),
        ("s3a://lake/./b", None),
        ("s3a://lake/a?b", None),
        ("s3://lake/a", None),
    ],
)
def test_a_place_in_an_object_store_is_a_bucket_and_a_prefix(uri, place):
    found = bucket_and_prefix(uri)
    assert (found and f"{found[0]}://{found[1]}/{found[2]}") == place
    assert (table_uri_problem(uri) is None) == (place is not None)


@pytest.mark.parametrize(
    ("sql", "emit", "fields", "problem"),
    [
        (GROUPS, "OnUpdate", {"key": ["since"]}, None),
        (GROUPS, "OnWindowClose", {}, None),
        (ROWS, "OnUpdate", {}, None),
        (ROWS, "OnUpdate", {"path": "s3a://lake/trips"}, None),
        (GROUPS, "OnUpdate", {}, "spec.sink.delta: results change after they were emitted, and without a key they are"),
        (GROUPS, "OnUpdate", {"key": ["n"]}, "spec.sink.delta.key: the key leaves out since, so rows of the table"),
        (ROWS, "OnUpdate", {"path": "s3a://lake"}, 'spec.sink.delta.path: "s3a://lake" is not a bucket and a prefix'),
        (ROWS, "OnUpdate", {"path": "gs://lake/trips"}, "spec.sink.delta.path: the scheme gs: is not supported"),
        (ROWS, "OnUpdate", {"path": "~/trips"}, "spec.sink.delta.path: "),
    ],
)
def test_the_table_has_to_suit_the_results(sql, emit, fields, problem):
    found = problems(sql, emit, **fields)
    assert len(found) == (problem is not None), found
    assert not problem or found[0].startswith(problem)
