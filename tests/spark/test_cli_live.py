"""A run that goes on: files arrive, the plan changes, late records are counted, and metrics agree with all of it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.waiting import wait_until
from millrace_jobs.run.metrics_contract import CONTRACT

from .cli import Project, fields
from .live_pages import get, metrics

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = """
SELECT window.start AS since, who, count(*) AS rows, sum(n) AS total
FROM events GROUP BY window(at, '1 minute'), who
"""


def plan(algorithm: str, m: int, n: int) -> str:
    return f"{{algorithm: {algorithm}, replicas: {m}, parallelism: {n}}}\n"


def undeclared(base: str) -> list[str]:
    """What is exported and not in the contract, or with labels that the contract does not have."""
    declared = {metric.name.removesuffix("_total"): metric for metric in CONTRACT}
    parsed = text_string_to_metric_families(get(f"{base}/metrics")[1])
    families = [family for family in parsed if not family.name.endswith("_created")]
    wrong = [family.name for family in families if family.name not in declared]
    wrong += [name for name in declared if name not in {family.name for family in families}]
    samples = [(family.name, sample) for family in families if family.name in declared for sample in family.samples]
    return wrong + [each for name, sample in samples for each in declared[name].violations(sample.labels)]


def assert_page_agrees(page: tuple[int, str], printed: list[dict[str, str]]) -> None:
    """The live page has the figures of the batches that were printed, and asks for nothing but its own files."""
    status, text = page
    assert status == 200
    assert set(re.findall(r'(?:src|href)="([^"]*)"', text)) == {"data:,", "page.css", "page.js", "#charts"}
    plain = re.sub(r"<[^>]*>", " ", text)
    for batch in printed:
        figures = rf" {batch['batch']} +\d\d:\d\d:\d\d +{batch['rows']} .* {batch['late']} +{batch['rejected']} +"
        assert re.search(figures + batch["plan"].partition("/")[0], plain)
    assert "Records are rejected" in plain
    assert "Records are late" in plain


def assert_report_agrees(project: Project, printed: list[dict[str, str]]) -> None:
    """The report of the run's record has every batch, every plan and the end."""
    result = project.millrace("report", "run.jsonl", "-o", "-")
    assert result.status == 0, result
    plain = re.sub(r"<[^>]*>", " ", result.out)
    for batch in printed:
        assert re.search(rf" {batch['batch']} +\d\d:\d\d:\d\d +{batch['rows']} ", plain)
    assert re.search(r"hash, n=2, m=2, epoch \d+ became pkg, n=7, m=1, epoch \d+\.", plain)
    assert "The plan stays as it is: plan.yaml:1: parallelism" in plain.replace("the plan stays", "The plan stays")
    assert "The run has ended after it was asked to." in plain
    assert "End of the record" not in plain


def test_a_live_run_follows_files_and_plans_and_its_metrics_agree(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.give("00.csv", "at,who,n\n2024-01-01T00:00:01Z,a,1\n2024-01-01T00:00:02Z,b,2\n")
    project.write("plan.yaml", plan("hash", 2, 2))
    query = project.query(
        SQL, emit="OnWindowClose", source={"corruptRecords": {"policy": "Drop"}}, batchInterval="100ms"
    )
    with project.start("run", query, "--plan", "plan.yaml", "--record", "run.jsonl") as run:
        started = run.wait_for(r"started=.*\n")
        base = fields(started)["metrics"].removesuffix("/metrics")
        assert get(f"{base}/healthz")[0] == 200
        run.wait_for("plan=hash/2/2")
        assert get(f"{base}/readyz") == (200, "running\n")

        project.write("plan.yaml", plan("pkg", 1, 7))
        run.wait_for(r"plan 2: pkg, m=1, n=7, from the next batch on\n")
        # no records come, and yet the operator can see which plan they would run under, and that the query lives
        before = metrics(base)
        wait_until(lambda: metrics(base)["millrace_plan_workers"] == 7, "the idle query reports its plan")
        idle = metrics(base)
        assert idle["millrace_input_rows_total"] == before["millrace_input_rows_total"]
        assert idle["millrace_last_progress_time_seconds"] > before["millrace_last_progress_time_seconds"]
        assert idle["millrace_source_lag_rows"] == 0
        project.give("01.csv", "at,who,n\n2024-01-01T00:05:00Z,a,1\n2024-01-01T00:05:01Z,b,none\n")
        run.wait_for(r"rows=1 .*plan=pkg/1/7 late=0 rejected=1\n")

        project.write("plan.yaml", "{algorithm: pkg, replicas: 1, parallelism: none}\n")
        run.wait_for(r"the plan stays as it is: plan.yaml:1: parallelism: .*none.*\n")
        project.write("plan.yaml", "{algorithm: pkg, replicas: 1, parallelism: 2, parameters: {choice: 3}}\n")
        run.wait_for(r"the plan stays as it is: .*pkg has no parameter 'choice'.*\n")

        # the batch after this one is the first to know of the watermark
        project.give("02.csv", "at,who,n\n2024-01-01T00:06:00Z,c,6\n")
        run.wait_for(r"rows=1 .*plan=pkg/1/7 .*rejected=0\n")
        project.write("plan.yaml", plan("native", 1, 2))
        run.wait_for(r"plan \d+: native, m=1, n=2, from the next batch on\n")
        project.give("03.csv", "at,who,n\n2024-01-01T00:00:03Z,late,1\n2024-01-01T00:06:30Z,c,7\n")
        run.wait_for(r"rows=2 .*plan=native/1/2 late=1 rejected=0\n")

        said, wrong = metrics(base), undeclared(base)
        page = get(fields(started)["page"])
        printed = [fields(line) for line in run.wait_for("batch=").splitlines() if line.startswith("batch=")]
        run.process.terminate()
        result = run.finish()
        run.assert_gone()

    assert result.status == 0, result
    assert not result.err
    summary = result.summary
    assert (summary["rows"], summary["late"], summary["rejected"], summary["plan_changes"]) == ("6", "1", "1", "2")
    assert said["millrace_input_rows_total"] == 6
    assert said["millrace_rejected_rows_total"] == 1
    assert said["millrace_late_rows_total"] == 1
    assert said["millrace_batches_total"] == len(printed) == said["millrace_batch_processing_seconds_count"]
    assert said["millrace_batch_interval_seconds"] == 0.1
    assert said["millrace_plan_info native"] == 1
    assert (said["millrace_plan_workers"], said["millrace_plan_replicas"]) == (2, 1)
    wanted = ["millrace_source_lag_rows", "millrace_plan_epoch", "millrace_watermark_delay_seconds"]
    wanted += ["millrace_state_bytes", "millrace_stage_task_seconds_count combine"]
    assert set(wanted) <= said.keys()
    assert wrong == []
    assert_page_agrees(page, printed)
    assert_report_agrees(project, printed)
    assert said["millrace_record_latency_seconds_count"] == 6  # the files' times are those of this test
    assert said["millrace_record_latency_seconds_bucket 600.0"] == 6
    assert said["millrace_checkpoint_write_seconds_count"] == len(printed)
    assert said["millrace_checkpoint_write_seconds_sum"] > 0
    assert said["millrace_checkpoint_failures_total"] == 0
    assert said["millrace_gc_seconds_total driver"] > 0
    assert said["millrace_gc_seconds_total executors"] == 0
    assert 0 < said["millrace_checkpoint_volume_free_bytes"] <= said["millrace_checkpoint_volume_size_bytes"]
    assert said["millrace_last_progress_time_seconds"] > 0

    status, out, err = project.outputs("run", query, "--once")
    assert (status, out) == (0, ""), err  # progress is no result
    assert "\nbatch=" in err
    assert project.results() == Counter(
        {
            ("2024-01-01T00:00:00.000000Z", "a", "1", "1"): 1,
            ("2024-01-01T00:00:00.000000Z", "b", "1", "2"): 1,
            ("2024-01-01T00:05:00.000000Z", "a", "1", "1"): 1,
            ("2024-01-01T00:06:00.000000Z", "c", "2", "13"): 1,
        }
    )


def test_a_terminal_shows_frames_and_a_summary_and_nothing_else(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.give("00.csv", "at,who,n\n2024-01-01T00:00:01Z,a,1\n2024-01-01T00:00:02Z,b,2\n")
    query = project.query(SQL, sink={"console": {}}, emit="OnWindowClose", partitioner={"algorithm": "hash"})
    with project.start("run", query, "--once", terminal=True) as run:
        result = run.finish()
    assert result.status == 0, result
    assert re.search(r"metrics +http://127.0.0.1:\d+/metrics", result.out)
    assert re.search(r"batch +rows +rows/s +results +W +lag +imbalance +plan +late +rejected", result.out)
    assert re.search(r"\n +0 +2 +\d+ +0 +[\d.]+ +0 +[\d.]+ +hash m=2 n=2 +0 +0\r", result.out)
    assert "results of batch" in result.out
    assert re.search(r"2024-01-01 00:00:00.* a +1 +1 ", result.out)
    assert "query finished: 2 rows in " in result.out
    for noise in ("Traceback", "WARN", "ERROR", "Exception", "org.apache", "{"):
        assert noise not in result.out
