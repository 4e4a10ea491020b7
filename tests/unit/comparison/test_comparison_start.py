"""Where a comparison begins: with a snapshot that both versions can go on from, or at the beginning of the sources."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.marker import Marker
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot
from millrace_jobs.checkpoint.snapshots import place_of_snapshot
from millrace_jobs.comparison.start import start_of

from .compared_queries import SQL, UNBOUNDED, query

LAYOUT = {"columns": "in the order of the aggregates", "aggregates": ["count(*)", "max(at)"]}
"""The layout of a state with an aggregate that the version of today does not select."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> dict[str, str]:
    """A checkpoint with two snapshots, of which only the manifests and the markers are read."""
    for day, name in enumerate(("zeroth", "first"), 1):
        place = place_of_snapshot(tmp_path, name)
        assert isinstance(place, Path)
        place.mkdir(parents=True)
        Snapshot(name, "trips", "id", day, datetime(2024, 1, day, tzinfo=UTC), None, ()).write(place)
        Marker("id", query({"uri": tmp_path.as_uri()}), 2, LAYOUT).write(place)
    return {"uri": tmp_path.as_uri()}


@pytest.mark.parametrize(
    ("wanted", "expected"), [(None, "first"), ("zeroth", "zeroth"), ("first", "first"), ("beginning", None)]
)
def test_the_newest_snapshot_is_taken_unless_another_start_is_named(
    checkpoint: dict[str, str], wanted: str | None, expected: str | None
) -> None:
    new = query(checkpoint, SQL.replace("city, count", "upper(city) AS city, count"), name="other")
    assert start_of(query(checkpoint), new, wanted) == (expected, "")


def test_a_version_that_cannot_go_on_from_the_state_begins_at_the_beginning(checkpoint: dict[str, str]) -> None:
    new = query(checkpoint, SQL.replace("1 minute", "61 seconds"))
    snapshot, note = start_of(query(checkpoint), new, None)
    assert snapshot is None
    assert "spec.query.sql: with GROUP BY WINDOW(at, '1 minute'), city" in note
    assert "windows that began before are not compared" in note
    with pytest.raises(MillraceError, match="so both cannot begin with the snapshot first; write --from beginning"):
        start_of(query(checkpoint), new, "first")


@pytest.mark.parametrize(("aggregate", "goes_on"), [("max(at)", True), ("min(at)", False)])
def test_an_aggregate_that_has_left_may_return_where_another_one_may_not_be_added(
    checkpoint: dict[str, str], tmp_path: Path, aggregate: str, goes_on: bool
) -> None:
    old, new = query(checkpoint, UNBOUNDED), query(checkpoint, UNBOUNDED.replace("AS n", f"AS n, {aggregate} AS added"))
    Marker("id", old, 2, LAYOUT).write(place_of_snapshot(tmp_path, "first"))
    snapshot, note = start_of(old, new, None)
    assert (snapshot == "first", note == "") == (goes_on, goes_on)
    assert goes_on or "the state has no values of MIN(at)" in note


def test_a_snapshot_of_an_earlier_version_is_asked_with_that_version(checkpoint: dict[str, str]) -> None:
    """A column was added since, and now WHERE changes: not in one step."""
    more = SQL.replace("AS n", "AS n, min(at) AS added")
    snapshot, note = start_of(
        query(checkpoint, more), query(checkpoint, more.replace("GROUP", "WHERE n > 1 GROUP")), None
    )
    assert snapshot is None
    assert "WHERE changes with it" in note


def test_a_query_without_snapshots_in_reach_begins_at_the_beginning(tmp_path: Path) -> None:
    on_volume = query({"claimName": "trips"})
    assert start_of(on_volume, on_volume, None) == (None, "")
    without = query({"uri": (tmp_path / "none").as_uri()})
    assert start_of(without, without, None) == (None, "")
