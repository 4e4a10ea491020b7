"""Snapshots of a real query, taken while it runs in another process, and what a second query makes of one."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from lab.processes import Mark
from lab.waiting import wait_until
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot
from millrace_jobs.checkpoint.snapshots import take, verify
from millrace_jobs.sinks.files.sink import BATCH_ID

from .answers import assert_same, duckdb_rows, latest, with_zones
from .killed_queries import MAINTAINED, QUESTION, Process, document, recording
from .streams import results_in

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


@pytest.mark.timeout(600)
def test_a_second_query_comes_to_the_same_from_a_snapshot_of_one_that_runs(tmp_path: Path) -> None:
    events = recording(seed=3)
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    made = document(tmp_path, "OnUpdate")
    made["spec"]["batchInterval"] = "1s"
    made["spec"]["sparkConf"] = MAINTAINED
    (tmp_path / "query.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
    millrace, mark, root = str(Path(sys.executable).parent / "millrace"), Mark(), tmp_path / "checkpoint"
    run = Process(millrace, "run", str(tmp_path / "query.yaml"), log=tmp_path / "first.log", mark=mark)
    snapshots: list[Snapshot] = []
    try:
        for number in range(3):
            run.wait_for_batch()
            snapshots.append(take(root, f"s{number}"))
    finally:
        run.kill()
    assert [each.batch for each in snapshots] == sorted({each.batch for each in snapshots})
    assert any(file.name.startswith("spark/state/") for file in snapshots[-1].files)

    batch = snapshots[1].batch
    for number in range(3):
        verify(root / "snapshots" / f"s{number}")
    second = tmp_path / "second"
    second.mkdir()
    moved = root.rename(tmp_path / "elsewhere")  # nothing is read where the original was
    made["metadata"]["name"] = "second"
    made["spec"]["sink"]["files"]["path"] = str(second / "results")
    snapshot = (moved / "snapshots" / "s1").as_uri()
    made["spec"]["checkpoint"] = {"uri": (second / "checkpoint").as_uri(), "fromSnapshot": snapshot}
    (second / "query.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
    last = Process(millrace, "run", str(second / "query.yaml"), "--once", log=second / "log", mark=mark)
    assert last.wait() == 0, last.output
    wait_until(lambda: not mark.processes(), "all processes of the runs have ended")

    first, rest = results_in(tmp_path), results_in(second)
    assert min(rest.column(BATCH_ID).to_pylist()) > batch
    whole = pa.concat_tables([first.filter(pc.field(BATCH_ID) <= batch), rest.select(first.column_names)])
    assert_same(latest(whole, QUESTION.key_columns), duckdb_rows(events, QUESTION.duckdb), QUESTION.key_columns)
