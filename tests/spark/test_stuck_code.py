"""A batch that waits in the user's own code: page, probe and terminal name the code, and it goes on when it returns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.waiting import wait_until

from .cli import Project, fields
from .live_pages import get

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

MODULE = """
import os
import time

import pyarrow as pa


def wait():
    while os.path.exists(os.environ["STUCK"]):
        time.sleep(0.1)  # stuck here


class Rows:
    columns = ("n",)
    state_schema = result_schema = pa.schema([("rows", pa.int64())])

    def init(self):
        return {"rows": 0}

    def update(self, state, batch):
        wait()
        return {"rows": state["rows"] + len(batch)}

    def merge(self, a, b):
        return {"rows": a["rows"] + b["rows"]}

    def finish(self, state):
        return state
"""


def test_a_batch_that_is_stuck_in_an_aggregator_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = tmp_path / "stuck"
    monkeypatch.setenv("STUCK", str(stuck))
    stuck.touch()
    project = Project(tmp_path)
    project.write("counting.py", MODULE)
    project.give("00.csv", "at,who,n\n2024-01-01T00:00:01Z,a,1\n")
    query = project.query("", query={"python": {"aggregator": "counting:Rows", "groupBy": ["who"]}})
    line = MODULE.splitlines().index("        time.sleep(0.1)  # stuck here") + 1
    said = re.compile(
        r"the method update\(\) of counting:Rows has not returned for \d+ s while reducing records by key, "
        rf"at counting\.py, line ({line - 1}|{line}), in wait"
    )
    with project.start("run", query) as run:
        base = fields(run.wait_for(r"started=.*\n"))["metrics"].removesuffix("/metrics")
        run.wait_for(r"note: the method update\(\) of counting:Rows has not returned")
        wait_until(lambda: said.search(get(f"{base}/")[1].replace("The method", "the method")))
        assert "Own code does not return" in get(f"{base}/")[1]
        status, healthy = get(f"{base}/healthz")
        assert status == 200
        assert healthy.startswith("running; ")
        assert said.search(healthy)
        stuck.unlink()
        run.wait_for(r"batch=\d+ rows=1 ")
        wait_until(lambda: get(f"{base}/healthz")[1] == "running\n")
        run.process.terminate()
        assert run.finish().status == 0
