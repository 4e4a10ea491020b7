"""Where the comparison of an upgrade begins, and what it leaves in the checkpoint: nothing, whatever interrupts it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint import snapshots
from millrace_jobs.checkpoint.marker import Marker
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot, SnapshotReason
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, place_of_snapshot, remove, take, verify
from millrace_jobs.comparison import upgrade
from millrace_jobs.comparison.compare import ComparedVersion, VersionsRequest
from millrace_jobs.comparison.own_snapshot import has_state, own_snapshot, remove_left_over, usable_snapshot
from millrace_jobs.comparison.start import continue_from, copy_snapshot
from millrace_jobs.places import Place, write_durably
from unit.checkpoint.stored import Stored

from . import compared_queries
from .compared_queries import SQL, UNBOUNDED

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """A checkpoint of a query that runs: two batches with state, and a third one that has begun."""
    made = Stored(tmp_path / "checkpoint")
    for step in (made.begin, made.commit, made.upload, made.begin, made.commit, made.begin):
        step()
    return made


def taken(age: timedelta, reason: SnapshotReason = SnapshotReason.SCHEDULE) -> Snapshot:
    return Snapshot(f"{age.total_seconds():g}", "trips", "id", 1, NOON - age, None, (), reason)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("ages", "duration", "chosen"),
    [
        ([], 10 * MINUTE, None),
        ([9 * MINUTE], 10 * MINUTE, None),
        ([10 * MINUTE], 10 * MINUTE, 10 * MINUTE),
        ([5 * HOUR, 2 * HOUR, 9 * MINUTE], 10 * MINUTE, 2 * HOUR),
        ([24 * HOUR], 10 * MINUTE, 24 * HOUR),
        ([25 * HOUR], 10 * MINUTE, None),
        ([25 * HOUR], 20 * HOUR, 25 * HOUR),
        ([41 * HOUR], 20 * HOUR, None),
    ],
)
def test_the_newest_snapshot_counts_that_is_old_enough_and_not_too_old(
    ages: list[timedelta], duration: timedelta, chosen: timedelta | None
) -> None:
    found = usable_snapshot([taken(age) for age in ages], duration, NOON)
    assert (None if found is None else NOON - found.taken) == chosen


def test_a_snapshot_of_another_comparison_does_not_count() -> None:
    found = [taken(2 * HOUR), taken(HOUR, SnapshotReason.COMPARISON)]
    assert usable_snapshot(found, MINUTE, NOON) == found[0]


def test_a_checkpoint_has_state_once_a_batch_is_finished(tmp_path: Path) -> None:
    assert not has_state(tmp_path / "none")
    made = Stored(tmp_path / "checkpoint")
    made.begin()
    assert not has_state(made.root)
    made.commit()
    assert has_state(made.root)


def test_an_own_snapshot_is_whole_and_gone_afterwards(stored: Stored) -> None:
    before = content(stored.root)
    with own_snapshot(stored.root, NOON) as made:
        assert made.name == "comparison-20240301-120000"
        assert verify(place_of_snapshot(stored.root, made.name)).reason is SnapshotReason.COMPARISON
    assert content(stored.root) == before


@pytest.mark.parametrize("written", range(6))
def test_a_signal_while_it_is_taken_leaves_nothing(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    before, left, real = content(stored.root), iter([True] * written), write_durably

    def interrupted(*arguments: Any) -> None:
        if not next(left, False):
            raise SystemExit(128 + signal.SIGTERM)
        real(*arguments)

    monkeypatch.setattr(snapshots, "write_durably", interrupted)
    with suppress(SystemExit), own_snapshot(stored.root, NOON):
        raise SystemExit
    assert content(stored.root) == before


@pytest.mark.parametrize("removed", range(4))
def test_a_signal_while_it_is_removed_leaves_nothing(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    before, real, steps = content(stored.root), Path.unlink, iter(range(100))

    def interrupted(file: Path, *arguments: Any, **options: Any) -> None:
        if "comparison-" in str(file) and next(steps) == removed:
            raise SystemExit(128 + signal.SIGTERM)
        real(file, *arguments, **options)

    with suppress(SystemExit), own_snapshot(stored.root, NOON):
        monkeypatch.setattr(Path, "unlink", interrupted)
    assert content(stored.root) == before


def test_what_a_killed_comparison_has_left_is_removed_and_nothing_else(stored: Stored) -> None:
    for name, reason in {
        "mine": SnapshotReason.REQUEST,
        "comparison-mine": SnapshotReason.REQUEST,
        "periodic-1": SnapshotReason.SCHEDULE,
        "whole": SnapshotReason.COMPARISON,
        "comparison-half-removed": SnapshotReason.COMPARISON,
    }.items():
        take(stored.root, name, NOON, reason)
    (place_of_snapshot(stored.root, "comparison-half-removed") / "snapshot.json").unlink()
    for name, reason in {"being-taken": SnapshotReason.REQUEST, "cut-off": SnapshotReason.COMPARISON}.items():
        (stored.root / "snapshots" / name).mkdir()
        (stored.root / "snapshots" / name / "taking").write_text(reason)
    assert sorted(remove_left_over(stored.root)) == ["comparison-half-removed", "cut-off", "whole"]
    assert sorted(names_of_snapshots(stored.root)) == ["being-taken", "comparison-mine", "mine", "periodic-1"]


def test_no_snapshot_is_taken_that_could_fill_the_volume(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 0})())
    with pytest.raises(MillraceError, match="could become full"), own_snapshot(stored.root, NOON):
        pass
    assert names_of_snapshots(stored.root) == []


def query(root: Path, sql: str = SQL, **upgrade: Any) -> StreamQuery:
    return compared_queries.query({"uri": root.as_uri()}, sql, **upgrade)


class ComparedError(Exception):
    """The end of a comparison that is not run."""


class Recorded:
    """Comparisons that are not run: what they were asked for, and which snapshots there were."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.waited: list[float] = []
        self.said: list[str] = []
        self.requests: list[VersionsRequest] = []
        self.starts: Iterator[None] = iter(())
        monkeypatch.setattr(upgrade, "compare", self._compare)

    def _compare(self, request: VersionsRequest, say: Any) -> Any:
        self.requests.append(request)
        if request.start != "beginning":
            assert request.start is not None
            next(self.starts, None)
            copy_snapshot(request.old.query, request.start, self.root.parent / f"copy-{len(self.requests)}")
        raise ComparedError

    def run(self, new: StreamQuery, sql: str = SQL) -> str | None:
        versions = [ComparedVersion(Path(f"{at}.yaml"), each) for at, each in enumerate((query(self.root, sql), new))]
        with suppress(ComparedError):
            upgrade.compare_upgrade(versions[0], versions[1], ["run"], self.said.append, self.waited.append)
        return self.requests[-1].start


@pytest.fixture
def recorded(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    marker = Marker.read(stored.root)
    assert marker is not None
    replace(marker, query=query(stored.root)).write(stored.root)
    return Recorded(stored.root, monkeypatch)


def test_without_an_old_snapshot_it_takes_one_waits_and_removes_it(recorded: Recorded) -> None:
    start = recorded.run(query(recorded.root, duration="90s", records=5, slowerThan=2, ignore=["n"]))
    assert (start or "").startswith("comparison-")
    assert recorded.waited == [90.0]
    assert names_of_snapshots(recorded.root) == []
    (request,) = recorded.requests
    assert (request.records, request.bound, request.ignored, request.tolerance) == (5, 2, frozenset({"n"}), 1e-9)
    assert request.within is not None
    assert request.within.seconds == 90


def test_a_snapshot_that_retention_removes_is_followed_by_another_start(recorded: Recorded) -> None:
    for hours in (3, 2):
        take(recorded.root, f"periodic-{hours}", datetime.now(UTC) - hours * HOUR, SnapshotReason.SCHEDULE)

    def retention() -> Iterator[None]:
        remove(place_of_snapshot(recorded.root, "periodic-2"))
        yield

    recorded.starts = retention()
    assert recorded.run(query(recorded.root)) == "periodic-3"
    assert [each.start for each in recorded.requests] == ["periodic-2", "periodic-3"]
    assert recorded.waited == []


def test_a_version_whose_driver_would_refuse_the_state_is_not_run(recorded: Recorded) -> None:
    take(recorded.root, "periodic", datetime.now(UTC) - HOUR, SnapshotReason.SCHEDULE)
    with pytest.raises(MillraceError, match=r"cannot go on from the state of the old one \(spec.query.sql: "):
        recorded.run(query(recorded.root, SQL.replace("1 minute", "61 seconds")))
    assert recorded.requests == []
    assert names_of_snapshots(recorded.root) == ["periodic"]


def note_held(place: Place, *aggregates: str) -> None:
    """Let a marker be that of the query without a window, on a state with these aggregates."""
    marker = Marker.read(place)
    assert marker is not None
    assert isinstance(place, Path)
    replace(
        marker,
        query=query(place, UNBOUNDED),
        layout={"columns": "in the order of the aggregates", "aggregates": [*aggregates]},
    ).write(place)


def test_an_aggregate_may_return_that_the_state_has(recorded: Recorded) -> None:
    returned = query(recorded.root, UNBOUNDED.replace("AS n", "AS n, max(at) AS newest"))
    note_held(recorded.root, "count(*)")
    with pytest.raises(MillraceError, match=r"the state has no values of MAX\(at\)"):
        recorded.run(returned, UNBOUNDED)
    take(recorded.root, "before", datetime.now(UTC) - HOUR, SnapshotReason.SCHEDULE)
    note_held(recorded.root, "count(*)", "max(at)")
    start = recorded.run(returned, UNBOUNDED)
    assert (start or "").startswith("comparison-"), "the older snapshot has no values of it"
    take(recorded.root, "since", datetime.now(UTC) - HOUR, SnapshotReason.SCHEDULE)
    assert recorded.run(returned, UNBOUNDED) == "since"


def test_other_sources_are_refused_before_anything_is_stored(recorded: Recorded) -> None:
    other = query(recorded.root)
    moved = other.spec.sources["trips"].model_copy(update={"files": None, "rate": None})
    changed = other.model_copy(update={"spec": other.spec.model_copy(update={"sources": {"others": moved}})})
    with pytest.raises(MillraceError, match="has no stream"):
        recorded.run(changed)
    assert not recorded.requests


def test_each_run_continues_from_the_copy_and_none_changes_it_for_the_next(stored: Stored, tmp_path: Path) -> None:
    take(stored.root, "one")
    copy_snapshot(query(stored.root), "one", tmp_path / "start")
    before = content(tmp_path / "start")
    for name in ("old", "new"):
        continue_from(tmp_path / "start", tmp_path / name)
        assert content(tmp_path / name) == before
        with (tmp_path / name / "sources/trips/files.jsonl").open("a") as file:
            file.write("seen\n")
    assert content(tmp_path / "start") == before
    state = Path("spark/state/0/0")
    (zipped,) = (tmp_path / "start" / state).glob("*.zip")
    assert zipped.samefile(tmp_path / "new" / state / zipped.name), "state is not stored once for each run"
