"""Where a comparison begins: with a snapshot that both versions can go on from, or at the beginning of the sources."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.snapshots import Snapshot, place_of_snapshot
from millrace_jobs.comparison.start import start_of

from .compared_queries import SQL, query


@pytest.fixture
def checkpoint(tmp_path: Path) -> dict[str, str]:
    """A checkpoint with two snapshots, of which only the manifests are read."""
    for day, name in enumerate(("zeroth", "first"), 1):
        place = place_of_snapshot(tmp_path, name)
        assert isinstance(place, Path)
        place.mkdir(parents=True)
        Snapshot(name, "trips", "id", day, datetime(2024, 1, day, tzinfo=UTC), None, ()).write(place)
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


def test_a_query_without_snapshots_in_reach_begins_at_the_beginning(tmp_path: Path) -> None:
    on_volume = query({"claimName": "trips"})
    assert start_of(on_volume, on_volume, None) == (None, "")
    without = query({"uri": (tmp_path / "none").as_uri()})
    assert start_of(without, without, None) == (None, "")
