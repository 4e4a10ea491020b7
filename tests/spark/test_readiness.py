"""When a running query counts as ready: once it has computed, not once Spark has started."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.waiting import wait_until

from .cli import Project, fields
from .live_pages import get

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

WAITING = (503, "waiting for the first batch\n")


def test_a_query_is_ready_when_its_first_batch_has_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv("MILLRACE_GATE", str(gate))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    project = Project(tmp_path)
    project.give("00.csv", "at,who,n\n2024-01-01T00:00:01Z,a,1\n")
    query = project.query(query={"python": {"aggregator": "spark.aggregators:Gated", "groupBy": ["who"]}})
    with project.start("run", query) as run:
        started = fields(run.wait_for(r"started=.*\n"))
        base = started["metrics"].removesuffix("/metrics")
        begun = tmp_path / "checkpoint" / "spark" / "offsets" / "0"
        wait_until(begun.exists, seconds=120.0)
        assert get(f"{base}/readyz") == WAITING
        assert get(f"{base}/healthz") == (200, "running\n")
        assert ">Starting</h2>" in get(started["page"])[1]
        gate.touch()
        run.wait_for(r"rows=1 ")
        assert get(f"{base}/readyz") == (200, "running\n")


def test_a_query_without_any_record_becomes_ready(tmp_path: Path) -> None:
    """As one whose upstream has not written anything yet."""
    project = Project(tmp_path)
    query = project.query("SELECT who, count(*) AS n FROM events GROUP BY who")
    with project.start("run", query) as run:
        base = fields(run.wait_for(r"started=.*\n"))["metrics"].removesuffix("/metrics")
        wait_until(lambda: get(f"{base}/readyz")[0] == 200, seconds=120.0)
        assert not project.results()
