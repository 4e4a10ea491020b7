"""``millrace run`` killed with SIGKILL at random moments, again and again: nothing is lost and nothing is double."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from lab.processes import Mark
from lab.waiting import wait_until

from .answers import assert_same, duckdb_rows, latest, rows_of, with_zones
from .killed_queries import QUESTION, Process, choose_plan, document, recording
from .streams import results_in

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


def newest(log: Path) -> int:
    """Number of the last batch in one of Spark's logs; -1 before the first."""
    return max((int(entry.name) for entry in log.glob("[0-9]*")), default=-1) if log.is_dir() else -1


def phase(run: Process, spark: Path) -> str:
    """What the killed process was doing."""
    if not run.batches():
        return "before its first batch was done"
    return "during a batch" if newest(spark / "offsets") > newest(spark / "commits") else "while idle"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("emit", "kills"), [("OnWindowClose", 12), ("OnUpdate", 6)])
def test_a_query_that_is_killed_again_and_again_writes_each_result_once(tmp_path, emit, kills):
    chance = random.Random(emit)
    events = recording(seed=len(emit))
    pq.write_table(with_zones(events), tmp_path / "recording.parquet")
    query, plan_file = tmp_path / "query.yaml", tmp_path / "plan.yaml"
    query.write_text(yaml.safe_dump(document(tmp_path, emit)), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "millrace"), "run", str(query), "--plan", str(plan_file)]
    phases: Counter[str] = Counter()
    mark = Mark()
    for number in range(kills):
        choose_plan(plan_file, chance, number)
        run = Process(*command, log=tmp_path / f"{number}.log", mark=mark)
        if number % 3 == 2:
            run.sleep(chance.uniform(0, 8))
        else:
            run.wait_for_batch()
            run.sleep(chance.uniform(0, 2.5))
        run.kill()
        phases[phase(run, tmp_path / "checkpoint" / "spark")] += 1
    print(f"\n{emit}: killed {dict(phases)}; batches committed {newest(tmp_path / 'checkpoint/spark/commits') + 1}")
    assert phases.total() == kills
    last = Process(*command, "--once", log=tmp_path / "last.log", mark=mark)
    assert last.wait() == 0, last.output
    wait_until(lambda: not mark.processes(), "all processes of the killed runs have ended")
    results = results_in(tmp_path)
    actual = latest(results, QUESTION.key_columns) if emit == "OnUpdate" else rows_of(results)
    assert_same(actual, duckdb_rows(events, QUESTION.duckdb), QUESTION.key_columns)
