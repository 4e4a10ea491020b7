"""What a comparison makes of two specs: the fields that differ, whether they read the same, and what is run of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.evolution import compare
from millrace_jobs.comparison.changed_fields import changed_fields, require_same_records
from millrace_jobs.comparison.scratch_query import scratch_query

SQL = "SELECT window.start AS since, city, count(*) AS n FROM trips GROUP BY window(at, '1 minute'), city"


def query(sql: str = SQL, topic: str = "trips", **fields: Any) -> StreamQuery:
    source = {
        "kafka": {"topic": topic, "bootstrapServers": "localhost:9092", "startingOffsets": "Latest"},
        "schema": "at TIMESTAMP, city STRING, fare DOUBLE",
        "format": "json",
        "watermark": {"column": "at", "delay": fields.pop("delay", "10s")},
        "corruptRecords": {"policy": "DeadLetter", "topic": "dead"},
    }
    spec = {"sources": {"trips": source}, "query": {"sql": sql}, "sink": {"console": {}}} | fields
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "trips"},
        "spec": spec,
    }
    return StreamQuery.model_validate(document)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (query(SQL.replace("1 minute", "61 seconds")), "the new one has WINDOW(at, '61 seconds'), city"),
        (query(SQL.replace("GROUP", "WHERE fare > 1 GROUP")), "the filter has changed"),
        (query(SQL.replace("since, city", "since, upper(city) AS city")), "another text, with the same groups"),
        (query(delay="1s"), "spec.sources.trips.watermark.delay: 1s, and was 10s"),
        (query(batchInterval="7s"), "spec.batchInterval: 7s, and was 2s"),
    ],
)
def test_each_field_that_differs_is_named(new: StreamQuery, said: str) -> None:
    (line,) = changed_fields(query(), new)
    assert said in line
    require_same_records(query(), new)


def test_versions_that_read_other_records_are_refused() -> None:
    with pytest.raises(MillraceError, match=r"topic: the new version reads journeys, and the old one trips"):
        require_same_records(query(), query(topic="journeys"))
    other = query().model_copy(deep=True)
    other.spec.sources["more"] = other.spec.sources["trips"]
    with pytest.raises(MillraceError, match="the old version has no stream more"):
        require_same_records(query(), other)
    with pytest.raises(MillraceError, match="the new version has no stream more"):
        require_same_records(other, query())


@pytest.mark.parametrize("from_beginning", [True, False])
def test_what_runs_writes_to_no_place_beside_its_sink_and_can_go_on_from_the_state(
    tmp_path: Path, from_beginning: bool
) -> None:
    fields: dict[str, Any] = {
        "eventLog": {"path": "log"},
        "lineage": {"file": "events.jsonl"},
        "snapshots": {"every": "6h"},
        "sink": {"table": {"topic": "out", "bootstrapServers": "localhost:9092"}},
        "lookups": {"tokens": {"secretKeyRef": {"name": "readers", "key": "tokens"}}},
        "partitioner": {"algorithm": "pkg", "placement": "Dedicated"},
    }
    given = query(**fields)
    found = scratch_query(given, "trips", tmp_path, from_beginning=from_beginning)
    document = found.to_document()["spec"]
    assert not {"eventLog", "lineage", "lookups", "snapshots"} & document.keys()
    assert document["sources"]["trips"]["corruptRecords"] == {"policy": "Drop"}
    assert document["partitioner"]["placement"] == "Inline"
    assert document["checkpoint"] == {"uri": tmp_path.as_uri()}
    assert document["sink"] == given.to_document()["spec"]["sink"]
    starting = document["sources"]["trips"]["kafka"]["startingOffsets"]
    assert starting == ("Earliest" if from_beginning else "Latest")
    forbidden, _ = compare(given, found)
    assert [each.field for each in forbidden] == (
        ["spec.sources.trips.kafka.startingOffsets"] if from_beginning else []
    )


@pytest.mark.parametrize("from_beginning", [True, False])
def test_a_table_that_a_new_query_reads_from_its_end_is_read_from_the_beginning(
    tmp_path: Path, from_beginning: bool
) -> None:
    table = {"delta": {"path": "trips", "startFrom": "Latest"}, "schema": "at TIMESTAMP, city STRING"}
    given = query(sources={"trips": table})
    document = scratch_query(given, "trips", tmp_path, from_beginning=from_beginning).to_document()["spec"]
    assert document["sources"]["trips"]["delta"]["startFrom"] == ("Table" if from_beginning else "Latest")
