"""Runs of a query over a table that are killed and go on."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from lab.processes import Mark
from lab.waiting import wait_until
from spark.killed_queries import Process, choose_plan

CITIES = ("Oslo", "Rome", "a b%", "é/z")


def document(folder: Path, source: dict[str, Any], sql: str) -> dict[str, Any]:
    """Return a query from a table into files."""
    spec = {
        "sources": {"trips": source | {"schema": "id BIGINT, city STRING"}},
        "query": {"sql": sql},
        "sink": {"files": {"path": str(folder / "out")}},
        "emit": "OnUpdate",
        "batchInterval": "200ms",
        "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
    }
    return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "trips"}, "spec": spec}


def killed_and_killed(folder: Path, query: dict[str, Any], write: Callable[[int], None], seed: int) -> pa.Table:
    """Run a query that is killed twice while its table grows, and then ends; return all that it has written."""
    chance = random.Random(seed)
    file, plan_file, mark = folder / "query.yaml", folder / "plan.yaml", Mark()
    file.write_text(yaml.safe_dump(query), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "millrace"), "run", str(file), "--plan", str(plan_file)]
    for number in range(2):
        choose_plan(plan_file, chance, number)
        write(3 * number)  # the run before may have read all there was
        run = Process(*command, log=folder / f"{number}.log", mark=mark)
        run.wait_for_batch()
        for turn in (1, 2):
            write(3 * number + turn)
            run.sleep(chance.uniform(0, 0.8))
        run.kill()
    write(6)
    last = Process(*command, "--once", log=folder / "last.log", mark=mark)
    assert last.wait() == 0, last.output
    wait_until(lambda: not mark.processes(), "all processes of the killed runs have ended")
    return pa.concat_tables(pq.read_table(each) for each in sorted((folder / "out").glob("*.parquet")))
