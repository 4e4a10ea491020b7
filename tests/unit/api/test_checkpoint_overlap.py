"""What a query writes within its own checkpoint, and checkpoint or reports among results: refused, however written."""

from __future__ import annotations

from typing import Any

import pytest

from millrace_api.errors import MillraceError
from millrace_api.validation.loading import read_query


def refused(sink: dict[str, Any], checkpoint: str | None, **spec: Any) -> str:
    """Return why a query is refused; an empty text if it is not."""
    parts: dict[str, Any] = {
        "sources": {"trips": {"rate": {}}},
        "query": {"sql": "SELECT key FROM trips"},
        "sink": sink,
    }
    if checkpoint is not None:
        parts["checkpoint"] = {"uri": checkpoint}
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "trips"}}
    try:
        read_query(document | {"spec": parts | spec})
    except MillraceError as error:
        return str(error)
    return ""


def sinks(place: str) -> list[tuple[str, dict[str, Any]]]:
    iceberg = {"catalog": {"rest": {"uri": "http://catalog"}}, "table": "a.b", "location": place}
    return [
        ("files.path", {"files": {"path": place}}),
        ("delta.path", {"delta": {"path": place}}),
        ("iceberg.location", {"iceberg": iceberg}),
    ]


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        ("s3a://lake/trips", "s3a://lake/trips"),
        ("s3a://lake/trips/", "s3a://lake/trips"),
        ("s3a://lake/trips", "s3a://lake/trips/results/"),
        ("s3a://lake/trips", "s3a://lake/trips/spark/state"),
        ("file:///data/trips", "/data/trips"),
        ("file:/data/trips", "//data/trips/out/"),
        ("file:///data/a%20b/", "/data/./x/../a b/out"),
        (None, ".millrace/trips/out"),
        (None, "x/../.millrace/trips"),
    ],
)
def test_results_within_the_checkpoint_are_refused(checkpoint: str | None, place: str) -> None:
    for field, sink in sinks(place):
        message = f'spec.sink.{field}: "{place}" is within the query\'s own checkpoint; write a folder outside of it'
        assert message in refused(sink, checkpoint)


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        ("s3a://lake/trips/checkpoint", "s3a://lake/trips"),
        ("s3a://lake/trips/a/b/", "s3a://lake/trips/"),
        ("s3a://lake/trips/_millrace/own", "s3a://lake/trips"),
        ("file:///data/trips/_delta_log", "/data/trips"),
        ("file:///data/trips/checkpoint", "/data/./trips/"),
        ("file:///data/trips/day=1/_own", "/data/trips"),
    ],
)
def test_a_checkpoint_among_the_results_is_refused(checkpoint: str, place: str) -> None:
    for field, sink in sinks(place):
        message = (
            f'spec.sink.{field}: the query\'s own checkpoint is within "{place}", among the results; write another'
        )
        assert message in refused(sink, checkpoint)


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        ("s3a://lake/trips", "s3a://lake/trips-results"),
        ("s3a://lake/trips", "s3a://other/trips"),
        ("s3a://lake/trips/_checkpoints/trips", "s3a://lake/trips"),
        ("s3a://lake/trips", "/lake/trips"),
        ("file:///data/trips", "/data/trips-results"),
        ("file:///data/trips/.millrace/trips", "/data/trips"),
        ("file:///data/trips", "data/trips"),
        (None, "."),
        (None, ".millrace/trips-results"),
    ],
)
def test_a_checkpoint_and_results_in_separate_places_are_accepted(checkpoint: str | None, place: str) -> None:
    for _, sink in sinks(place):
        assert "checkpoint" not in refused(sink, checkpoint)


def test_catalogs_and_dead_letters_within_the_checkpoint_are_refused() -> None:
    inside = "/data/trips/x"
    own = "file:///data/trips"
    iceberg = {"catalog": {"file": f"{inside}/catalog.db"}, "table": "a.b", "location": "/data/table"}
    assert "spec.sink.iceberg.catalog.file: " in refused({"iceberg": iceberg}, own)
    source = {"kafka": {"bootstrapServers": "kafka:9092", "topic": "t"}, "format": "json", "schema": "key STRING"}
    letters = {"trips": source | {"corruptRecords": {"policy": "DeadLetter", "path": inside}}}
    said = refused({"console": {}}, own, sources=letters)
    assert "spec.sources.trips.corruptRecords.path: " in said
    assert "is within the query's own checkpoint" in said
    letters["trips"]["corruptRecords"]["path"] = "/data"
    assert refused({"console": {}}, own, sources=letters) == ""


def reports(place: str) -> list[tuple[str, dict[str, Any]]]:
    return [("spec.eventLog.path", {"eventLog": {"path": place}}), ("spec.lineage.file", {"lineage": {"file": place}})]


def test_event_log_and_lineage_within_the_checkpoint_are_refused() -> None:
    for field, report in reports("/data/trips/x"):
        said = refused({"console": {}}, "file:///data/trips", **report)
        assert f'{field}: "/data/trips/x" is within the query\'s own checkpoint; write a folder outside of it' in said
        assert refused({"console": {}}, "file:///data/trips-b", **report) == ""
    said = refused({"console": {}}, "s3a://lake/cp/fares", eventLog={"path": "s3a://lake/cp/fares"})
    assert 'spec.eventLog.path: "s3a://lake/cp/fares" is within the query\'s own checkpoint' in said


@pytest.mark.parametrize("place", ["/data/trips", "/data/./trips/", "/data/trips/events", "/data/trips/_delta_log"])
def test_event_log_and_lineage_among_results_are_refused(place: str) -> None:
    for _, sink in sinks("/data/trips"):
        for field, report in reports(place):
            said = refused(sink, "file:///checkpoints", **report)
            assert f'{field}: "{place}" is among the results in "/data/trips"; write another place, or one in a' in said


@pytest.mark.parametrize("place", ["/data", "/data/trips-events", "/data/trips/_events", "/data/trips/.events/x"])
def test_event_log_and_lineage_beside_results_are_accepted(place: str) -> None:
    for _, sink in sinks("/data/trips"):
        for _, report in reports(place):
            assert refused(sink, "file:///checkpoints", **report) == ""


def test_an_event_log_among_results_is_refused_wherever_the_checkpoint_is() -> None:
    parts = {
        "checkpoint": {"claimName": "checkpoints"},
        "sources": {"trips": {"rate": {}}},
        "query": {"sql": "SELECT key FROM trips"},
        "sink": {"files": {"path": "s3a://lake/trips"}},
        "eventLog": {"path": "s3a://lake/trips/events"},
    }
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "trips"}}
    with pytest.raises(MillraceError, match="is among the results"):
        read_query(document | {"spec": parts})
