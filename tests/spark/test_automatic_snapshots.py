"""Snapshots that a driver takes, by itself and as asked, while it is killed and changed, and what others make of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from lab.processes import Mark
from lab.waiting import wait_until
from millrace_api.model.snapshots import SnapshotRequest, SnapshotRequestState, SnapshotsReport
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.marker import Marker
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot, SnapshotReason
from millrace_jobs.checkpoint.snapshots import place_of_snapshot, remove, restore, snapshots_of, take, verify
from millrace_jobs.places import write_durably
from millrace_jobs.sinks.files.sink import BATCH_ID

from .answers import Row, assert_same, duckdb_rows, latest, with_zones
from .killed_queries import MAINTAINED, QUESTION, Process, document, recording
from .streams import results_in

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

MILLRACE = str(Path(sys.executable).parent / "millrace")


@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(900)
def test_a_query_that_is_killed_and_changed_goes_on_from_each_kind_of_snapshot(tmp_path: Path) -> None:
    events, mark, root = recording(seed=5), Mark(), tmp_path / "checkpoint"
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    made = document(tmp_path, "OnUpdate")
    made["spec"] |= {"batchInterval": "1s", "sparkConf": MAINTAINED, "snapshots": {"every": "1s", "keep": 3}}
    root.mkdir()
    (root / "snapshots").touch()  # as with a damaged disk, no snapshot can be written

    run = _started(tmp_path, made, "first.log", mark)
    try:
        _wait_for(run, "no snapshot was taken, and the query goes on: ")
        run.wait_for_batch()
        (root / "snapshots").unlink()
        _wait_for(run, "snapshot periodic-")
        take(root, "by-hand")
        _wait_for(run, "; removed periodic-")
    finally:
        run.kill()
    wait_until(lambda: not mark.processes(), "all processes of the run have ended")
    found = _automatic(root)
    if found[-1].batch == Checkpoint(root).last_batch().committed:  # the change is to come after a newer batch
        remove(place_of_snapshot(root, found.pop().name))
    assert [each.reason for each in found] == [SnapshotReason.SCHEDULE] * len(found)
    assert 2 <= len(found) <= 4  # it may have been killed before it removed one

    made["spec"] |= {"batchInterval": "2s", "snapshots": {"every": "6h"}}
    run = _started(tmp_path, made, "second.log", mark)
    try:
        _wait_for(run, "before the change of spec.batchInterval: batch ")
        run.wait_for_batch()
    finally:
        run.kill()
    wait_until(lambda: not mark.processes(), "all processes of the run have ended")
    *earlier, last = _automatic(root)
    assert [each.name for each in earlier] == [each.name for each in found]
    assert last.reason is SnapshotReason.CHANGE
    before = Marker.read(place_of_snapshot(root, last.name))
    assert before is not None
    assert before.query.spec.batch_interval == "1s"
    verify(place_of_snapshot(root, "by-hand"))

    expected = duckdb_rows(events, QUESTION.duckdb)
    for snapshot in (earlier[-1], last):
        _assert_leads_to(expected, snapshot, tmp_path, made, mark)


@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(900)
def test_a_snapshot_that_is_asked_for_is_taken_once_and_a_query_goes_on_from_it(tmp_path: Path) -> None:
    events, mark, root = recording(seed=6), Mark(), tmp_path / "checkpoint"
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    made = document(tmp_path, "OnUpdate")
    made["spec"] |= {"batchInterval": "1s", "sparkConf": MAINTAINED}
    (tmp_path / "query.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")

    run = _asked_run(tmp_path, "first.log", mark)
    try:
        run.wait_for_batch()
        first = _answer(run, tmp_path, SnapshotRequest(name="monday", time="2026-01-31T12:00:00Z"))
        assert first.state is SnapshotRequestState.DONE
        (taken,) = snapshots_of(root)
        while Checkpoint(root).last_batch().committed == taken.batch:
            run.sleep(0.2)
    finally:
        run.kill()
    (tmp_path / "report.json").unlink()  # its driver died before the operator saw it
    run = _asked_run(tmp_path, "second.log", mark)
    try:
        assert _answer(run, tmp_path, first).message == first.message
        assert snapshots_of(root) == [verify(place_of_snapshot(root, "monday"))] == [taken]
        again = _answer(run, tmp_path, first.model_copy(update={"time": "2026-01-31T13:00:00Z"}))
        assert f"there is a snapshot monday of batch {taken.batch} already" in again.message
    finally:
        run.kill()
    wait_until(lambda: not mark.processes(), "all processes of the run have ended")
    _assert_leads_to(duckdb_rows(events, QUESTION.duckdb), taken, tmp_path, made, mark)


def _asked_run(folder: Path, log: str, mark: Mark) -> Process:
    program = Path(__file__).with_name("asked_for_snapshots.py")
    files = (str(folder / name) for name in ("query.yaml", "request.json", "report.json"))
    return Process(sys.executable, str(program), *files, log=folder / log, mark=mark)


def _answer(run: Process, folder: Path, asked: SnapshotRequest) -> SnapshotRequest:
    """Ask, and wait for the last answer."""
    asked = SnapshotRequest(name=asked.name, time=asked.time)
    write_durably(folder / "request.json", asked.to_json().encode())
    while True:
        run.sleep(0.2)
        report = folder / "report.json"
        answer = SnapshotsReport.from_json(report.read_text()).request if report.exists() else None
        if answer is not None and answer.identity == asked.identity and answer.state.is_final:
            return answer


def _automatic(root: Path) -> list[Snapshot]:
    return [each for each in snapshots_of(root) if each.reason.is_automatic]


def _started(folder: Path, made: dict[str, Any], log: str, mark: Mark) -> Process:
    (folder / "query.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
    return Process(MILLRACE, "run", str(folder / "query.yaml"), log=folder / log, mark=mark)


def _wait_for(run: Process, text: str) -> None:
    """Until a run has printed a text; it must not end by itself before."""
    run.sleep(0.2)
    while text not in run.output:
        run.sleep(0.2)


def _assert_leads_to(
    expected: Sequence[Row], snapshot: Snapshot, original: Path, made: dict[str, Any], mark: Mark
) -> None:
    """Check what the original has written up to a snapshot, together with what another query writes from there on."""
    folder = original / snapshot.name
    folder.mkdir()
    restore(place_of_snapshot(original / "checkpoint", snapshot.name), folder / "checkpoint")
    spec = made["spec"] | {
        "sink": {"files": {"path": str(folder / "results")}},
        "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
    }
    (folder / "query.yaml").write_text(yaml.safe_dump(made | {"spec": spec}), encoding="utf-8")
    run = Process(MILLRACE, "run", str(folder / "query.yaml"), "--once", log=folder / "log", mark=mark)
    assert run.wait() == 0, run.output
    wait_until(lambda: not mark.processes(), "all processes of the run have ended")
    first, rest = results_in(original), results_in(folder)
    assert min(rest.column(BATCH_ID).to_pylist()) > snapshot.batch
    whole = pa.concat_tables([first.filter(pc.field(BATCH_ID) <= snapshot.batch), rest.select(first.column_names)])
    assert_same(latest(whole, QUESTION.key_columns), expected, QUESTION.key_columns)
