"""What a run reports beside metrics: Spark's event log, as the history server shows it, and lineage to a receiver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.history_server import running_history_server
from lineage_receiver import Receiver, receiver
from millrace_jobs import event_log
from millrace_jobs.event_log import compact, event_files

from .cli import Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = """
SELECT window.start AS since, who, count(*) AS rows, sum(n) AS total
FROM events GROUP BY window(at, '1 minute'), who
"""
PERSON, NUMBER = "Sentinel-of-a-record", 771177117711
RECORDS = f"""at,who,n
2024-01-01T00:00:01Z,{PERSON},{NUMBER}
2024-01-01T00:00:30Z,b,2
2024-01-01T00:02:59Z,{PERSON},{NUMBER}
"""
SECRETS = ("hunter2", "hunter3", "hunter4")
SCHEMA = "at TIMESTAMP, who STRING, n BIGINT"


@pytest.fixture
def marquez():
    with receiver() as found:
        yield found


def run_of(tmp_path: Path, marquez: Receiver, **more: object) -> Project:
    """A run over three records, which reports to the receiver and in ``logs``."""
    project = Project(tmp_path)
    project.give("one.csv", RECORDS)
    (tmp_path / "key").write_text(SECRETS[0])
    lineage = {"http": {"url": marquez.url, "apiKey": {"file": str(tmp_path / "key")}}, "interval": "1ms"}
    conf = {"spark.hadoop.fs.x.passphrase": SECRETS[1], "spark.hadoop.fs.x.account_key": SECRETS[2]}
    spec = {"eventLog": {"path": "logs"}, "lineage": lineage, "sparkConf": conf} | more
    query = project.query(SQL, source={"schema": SCHEMA}, emit="OnWindowClose", **spec)
    done = project.millrace("run", query, "--once")
    assert done.status == 0, done
    assert (done.summary["rows"], done.summary["results"], done.err) == ("3", "3", "")
    return project


def events_in(folder: Path) -> list[bytes]:
    """The lines of a log, as a history server reads them."""
    found = event_files(each.name for each in folder.iterdir())
    return [line for each in found for line in event_log._lines((folder / each.name).read_bytes())]


def test_a_run_reports_its_datasets_and_a_log_without_records_and_secrets(tmp_path, marquez):
    project = run_of(tmp_path, marquez, partitioner={"algorithm": "pkg"})
    check_lineage(marquez, tmp_path)
    logs = project.folder / "logs"
    (folder,) = [each for each in logs.iterdir() if each.is_dir()]
    text = b"".join(events_in(folder)).decode()
    assert '"Event":"SparkListenerApplicationEnd"' in text
    assert "QueryProgressEvent" in text
    assert "spark.hadoop.fs.x.passphrase" in text
    for hidden in (PERSON, str(NUMBER), *SECRETS):
        assert hidden not in text
        assert hidden not in json.dumps(marquez.events)
    check_history(folder, tmp_path)


def check_lineage(marquez: Receiver, folder: Path) -> None:
    """The events of the run: its datasets, their columns, and how many rows."""
    assert marquez.states[0] == "START"
    assert marquez.states[-1] == "COMPLETE"
    assert set(marquez.states[1:-1]) <= {"RUNNING"}
    assert {login for _, login in marquez.requests} == {f"Bearer {SECRETS[0]}"}
    last = marquez.events[-1]
    assert len({event["run"]["runId"] for event in marquez.events}) == 1
    assert (last["job"]["namespace"], last["job"]["name"]) == ("default", "query")
    (read,), (written,) = last["inputs"], last["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(folder / "in"))
    assert (written["namespace"], written["name"]) == ("file", str(folder / "out"))
    columns = [(each["name"], each["type"]) for each in read["facets"]["schema"]["fields"]]
    assert columns == [("at", "TIMESTAMP"), ("who", "STRING"), ("n", "BIGINT")]
    assert [each["name"] for each in written["facets"]["schema"]["fields"]] == ["since", "who", "rows", "total"]
    derived = written["facets"]["columnLineage"]["fields"]
    assert {name: [f["field"] for f in each["inputFields"]] for name, each in derived.items()} == {
        "since": ["at"],
        "who": ["who"],
        "total": ["n"],
    }
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 3
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3


def check_history(folder: Path, work: Path) -> None:
    """The history server shows a log, and a copy of it whose old files were replaced."""
    logs = folder.parent
    application = folder.name.removeprefix("eventlog_v2_")
    other = f"{application}-2"
    small = logs / event_log.folder_name(other)
    small.mkdir()
    lines = [line.replace(application.encode(), other.encode()) for line in events_in(folder)]
    for number in range(6):  # as Spark would have written them at a smaller size
        part = lines[number * len(lines) // 6 : (number + 1) * len(lines) // 6]
        (small / f"events_{number + 1}_{other}.zstd").write_bytes(event_log._compressed(part))
    (small / f"appstatus_{other}").write_text("")
    assert compact(small, 2)
    assert len(events_in(small)) < len(lines) * 2 // 3

    with running_history_server(work, logs.as_uri()) as server:
        shown = server.wait_for(application, other)
        assert {each["name"] for each in shown.values()} == {"query"}
        assert all(each["attempts"][0]["completed"] for each in shown.values())
        for each in (application, other):
            assert [executor["id"] for executor in server.get(f"applications/{each}/allexecutors")] == ["driver"]
            properties = dict(server.get(f"applications/{each}/environment")["sparkProperties"])
            assert properties["spark.hadoop.fs.x.passphrase"] == "*********(redacted)"
        assert len(server.get(f"applications/{application}/jobs")) > len(server.get(f"applications/{other}/jobs"))


def test_neither_a_log_that_cannot_be_written_nor_a_receiver_that_fails_ends_a_run(tmp_path, marquez):
    (tmp_path / "logs").write_text("a file")
    marquez.statuses = [401] * 100
    project = run_of(tmp_path, marquez)
    assert not project.results() - project.results()
    assert marquez.events == []
