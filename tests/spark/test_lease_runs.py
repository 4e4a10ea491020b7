"""Two drivers and one checkpoint: the second is refused, whoever comes after a killed one goes on at once."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from millrace_jobs.checkpoint.lease import Holder

from .cli import Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = "SELECT who, sum(n) AS total FROM events GROUP BY who"
HEAD = "at,who,n\n"
FAST = {"batchInterval": "500ms", "partitioner": {"algorithm": "hash"}}


def totals(project: Project) -> dict[str, int]:
    """The newest update of each group."""
    newest: dict[str, tuple[int, int]] = {}
    for who, total, batch in project.results():
        newest[who] = max(newest.get(who, (-1, 0)), (int(batch), int(total)))
    return {who: total for who, (_, total) in newest.items()}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_second_driver_is_refused_and_one_after_a_killed_one_goes_on(project: Project) -> None:
    query = project.query(SQL, **FAST)
    project.give("1.csv", HEAD + "2024-01-01T00:00:01Z,a,1\n")
    with project.start("run", query) as first:
        first.wait_for("batch=0 rows=1")
        refused = project.millrace("run", query, "--once")
        refused.assert_failed(
            f"another run is using the checkpoint {project.folder / 'checkpoint'}", "end that run first"
        )
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        project.give("2.csv", HEAD + "2024-01-01T00:00:02Z,a,2\n")
        second = project.millrace("run", query, "--once")
    assert second.status == 0, second
    assert totals(project) == {"a": 3}


def test_a_driver_that_was_replaced_ends_before_another_batch(project: Project) -> None:
    query = project.query(SQL, **FAST)
    project.give("1.csv", HEAD + "2024-01-01T00:00:01Z,a,1\n")
    lease = project.folder / "checkpoint" / "lease.json"
    with project.start("run", query) as run:
        run.wait_for("batch=0 rows=1")
        mine = Holder(**json.loads(lease.read_text(encoding="utf-8")))
        other = replace(mine, holder="other", host="far-away", pid=7, renewed=time.time())
        project.write("checkpoint/lease.json", json.dumps(asdict(other)))
        project.give("2.csv", HEAD + "2024-01-01T00:00:02Z,a,2\n")
        ended = run.finish()
        run.assert_gone()
    ended.assert_failed("this driver ends: process 7 on far-away has taken over ")
    assert project.results() == Counter({("a", "1", "0"): 1})
    assert json.loads(lease.read_text(encoding="utf-8")) == asdict(other)

    refused = project.millrace("run", query, "--once")
    refused.assert_failed(
        "another run is using the checkpoint ", ": process 7 on far-away; ", "its lease runs out at 20"
    )
    lease.unlink()
    assert project.millrace("run", query, "--once").status == 0
    assert totals(project) == {"a": 3}


def test_a_driver_that_was_replaced_while_it_computed_publishes_nothing(project: Project) -> None:
    began, go = project.folder / "began", project.folder / "go"
    project.write(
        "held.py",
        "import time\n"
        "from pathlib import Path\n"
        "from spark.aggregators import Spread\n"
        "class Held(Spread):\n"
        "    def update(self, state, batch):\n"
        f"        Path({str(began)!r}).touch()\n"
        f"        while not Path({str(go)!r}).exists():\n"
        "            time.sleep(0.05)\n"
        "        return super().update(state, batch)\n",
    )
    python = {"options": {"column": "n"}, "groupBy": ["who"], "aggregator": "held:Held"}
    schema = {"schema": "at TIMESTAMP, who STRING, n BIGINT"}
    project.give("1.csv", HEAD + "2024-01-01T00:00:01Z,a,1\n2024-01-01T00:00:01Z,a,4\n")
    query = project.query(source=schema, query={"python": python}, **FAST)
    lease = project.folder / "checkpoint" / "lease.json"
    with project.start("run", query) as run:
        run.wait_for("started=")
        while not began.exists():
            assert run.process.poll() is None
            time.sleep(0.05)
        mine = Holder(**json.loads(lease.read_text(encoding="utf-8")))
        other = replace(mine, holder="other", host="far-away", pid=7, renewed=time.time())
        project.write("checkpoint/lease.json", json.dumps(asdict(other)))
        go.touch()
        ended = run.finish()
        run.assert_gone()
    ended.assert_failed("this driver ends: process 7 on far-away has taken over ")
    assert not project.results()

    lease.unlink()
    with project.start("run", query, "--once") as again:  # its processes find the module in the folder
        assert again.finish().status == 0
    assert [row[:-1] for row in project.results()] == [("a", "3", "2")]


def test_a_batch_that_outlasts_the_grace_is_abandoned_and_nothing_is_lost(project: Project) -> None:
    project.write(
        "slow.py",
        "import time\n"
        "from spark.aggregators import Spread\n"
        "class Slow(Spread):\n"
        "    def update(self, state, batch):\n"
        "        time.sleep(600)\n"
        "        return super().update(state, batch)\n",
    )
    python = {"options": {"column": "n"}, "groupBy": ["who"]}
    schema = {"schema": "at TIMESTAMP, who STRING, n BIGINT"}
    project.give("1.csv", HEAD + "2024-01-01T00:00:01Z,a,1\n2024-01-01T00:00:01Z,a,4\n")
    query = project.query(source=schema, query={"python": python | {"aggregator": "slow:Slow"}}, **FAST)
    offsets = project.folder / "checkpoint" / "spark" / "offsets" / "0"
    with project.start("run", query, "--grace", "1") as run:
        run.wait_for("started=")
        while not offsets.exists():
            assert run.process.poll() is None
            time.sleep(0.1)
        run.process.send_signal(signal.SIGTERM)
        ended = run.finish()
        run.assert_gone()
    ended.assert_failed("the running batch did not end within 1 s and was abandoned; run the same command again")
    assert not project.results()

    project.write("slow.py", "from spark.aggregators import Spread as Slow\n")
    result = project.millrace("run", query, "--once")
    assert result.status == 0, result
    assert [row[:-1] for row in project.results()] == [("a", "3", "2")]
