"""``millrace run`` with its checkpoint in S3: killed, disturbed and refused; nothing is lost and nothing is double."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from lab.s3_server import ACCESS, SECRET, S3Server
from lab.store_proxy import Disturbance
from lab.waiting import wait_until
from millrace_jobs.stores.objects import ObjectPath
from spark.answers import with_zones

from .store_runs import MILLRACE, RECORDS, Run, batches, millrace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def run(tmp_path: Path, place: ObjectPath) -> Run:
    return Run(tmp_path, place)


@pytest.mark.in_turn
def test_a_run_uses_the_store_and_the_login_that_the_query_names(
    tmp_path: Path, place: ObjectPath, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3.environment:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    (tmp_path / "access key").write_text(f"{ACCESS}\n", encoding="utf-8")
    keys = {"accessKeyId": {"file": str(tmp_path / "access key")}, "secretAccessKey": {"env": "LAKE_SECRET"}}
    run = Run(tmp_path, place, s3={"endpoint": s3.url, **keys})
    said = run.finish()
    run.check()
    assert SECRET not in said
    shown = subprocess.run([MILLRACE, "state", "show", run.file], capture_output=True, text=True, check=True)
    assert "last batch" in shown.stdout


@pytest.mark.in_turn
def test_operators_on_tables_upload_snapshots_of_their_state(tmp_path: Path, place: ObjectPath, s3: S3Server) -> None:
    final = {"emit": "OnWindowClose", "sink": {"files": {"path": str(tmp_path / "final"), "format": "parquet"}}}
    run = Run(tmp_path, place, additionalOutputs={"final": final})
    run.finish()
    run.check()
    objects = s3.folder / "objects" / str(place).removeprefix("s3a://")
    assert list(objects.glob("spark/state/**/*.zip"))


@pytest.mark.in_turn
@pytest.mark.parametrize("algorithm", ["pkg", "native"])
def test_a_query_that_is_killed_again_and_again_writes_each_result_once(
    tmp_path: Path, place: ObjectPath, algorithm: str
) -> None:
    chance = random.Random(algorithm)
    run = Run(tmp_path, place, partitioner={"algorithm": algorithm})
    for _ in range(2):
        process = run.start()
        wait_until(lambda process=process: batches(process) >= 1, "it finishes a batch", seconds=300)
        time.sleep(chance.uniform(0, 1.5))
        process.kill()
    run.finish()
    run.check()
    assert "nothing new" in run.finish()


@pytest.mark.in_turn
def test_a_store_that_is_slow_refuses_and_loses_answers_costs_no_result(s3: S3Server, run: Run) -> None:
    chance = random.Random(5)

    def disturb(_: object) -> Disturbance | None:
        drawn = chance.random()
        if drawn < 0.02:
            return Disturbance(status=503)
        if drawn < 0.04:
            return Disturbance(loses_answer=True)
        return Disturbance(seconds=2.0 if drawn < 0.045 else 0.0)

    with s3.disturbed(disturb):
        process = run.start()
        wait_until(lambda: batches(process) >= 8, "it goes on", seconds=300)
        process.kill()
    run.finish()
    run.check()


@pytest.mark.in_turn
def test_a_store_that_is_away_for_a_while_is_waited_for(
    tmp_path: Path, place: ObjectPath, s3: S3Server, run: Run
) -> None:
    process = run.start()
    wait_until(lambda: batches(process) >= 2, "it runs", seconds=300)
    with s3.disturbed(lambda _: Disturbance(status=503)):
        time.sleep(20)
    before = batches(process)
    wait_until(lambda: batches(process) >= before + 2, "it goes on, or starts again by itself", seconds=300)
    process.kill()
    run.finish()
    run.check()


@pytest.mark.in_turn
def test_files_are_read_once(tmp_path: Path, place: ObjectPath) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    run = Run(tmp_path, place)
    query = yaml.safe_load(run.file.read_text(encoding="utf-8"))
    source = query["spec"]["sources"]["events"]
    del source["replay"]
    source["files"] = {"path": str(inbox), "format": "parquet"}
    source["watermark"]["delay"] = "30000d"
    run.file.write_text(yaml.safe_dump(query), encoding="utf-8")
    table = with_zones(run.events)
    for part in range(2):
        pq.write_table(table.slice(part * RECORDS // 2, RECORDS // 2), inbox / f"{part}.parquet")
        run.finish()
    assert "nothing new" in run.finish()
    run.check()


def test_a_second_run_is_refused_and_a_drained_one_continues(run: Run) -> None:
    first = run.start()
    wait_until(lambda: batches(first) >= 1, "it finishes a batch", seconds=300)
    second = run.start()
    assert second.wait(300) == 1
    assert f"another run is using the checkpoint {run.place}: process {first.pid} on " in second.said.replace("\n", " ")
    assert first.end() == 0, first.said
    said = run.finish()
    assert f"checkpoint={run.place}" in said
    run.check()
    shown = subprocess.run([MILLRACE, "state", "show", run.file], capture_output=True, text=True, check=True).stdout
    assert f"checkpoint        {run.place}\nstate partitions  2\n" in shown


@pytest.mark.in_turn
def test_a_repartitioned_state_goes_on_in_the_store_and_as_a_copy(tmp_path: Path, run: Run) -> None:
    process = run.start()
    wait_until(lambda: batches(process) >= 3, "it runs", seconds=300)
    assert process.end() == 0, process.said
    for partitions in (3, 5):
        assert millrace("state", "repartition", run.file, "--partitions", str(partitions)).returncode == 0
        assert f"state partitions  {partitions}\n" in millrace("state", "show", run.file).stdout
    folders = {name.partition("/")[0] for name, _ in run.place.objects()} - {"sources", "lease.json", "millrace.json"}
    assert len(folders) == 1, "what was replaced is removed"
    copied = tmp_path / "copy"
    assert millrace("checkpoint", "copy", str(run.place), str(copied)).returncode == 0
    assert "state partitions  5\n" in millrace("checkpoint", "show", str(copied)).stdout
    run.finish()
    run.check()


@pytest.mark.in_turn
def test_a_copy_goes_on_when_the_original_is_gone(tmp_path: Path, run: Run) -> None:
    copies = [(tmp_path / "copy").as_uri(), f"{run.place}-again"]
    for source, target in itertools.pairwise([str(run.place), *copies]):
        process = run.start()
        wait_until(lambda process=process: batches(process) >= 2, "it runs", seconds=300)
        assert process.end() == 0, process.said
        for command in (["copy", source, target], ["rm", source]):
            done = millrace("checkpoint", *command)
            assert done.returncode == 0, done.stderr
        run.move_checkpoint(target)
    run.finish()
    run.check()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "hunter2"}, "cannot be used: SignatureDoesNotMatch: "),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "cannot be used: "),
        ({"AWS_REGION": "eu-central-1"}, 'the region "eu-central-1" is wrong'),
        ({"MILLRACE_S3_JARS": "/nowhere"}, "Spark has no client for S3, which the checkpoint"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_sentence(run: Run, environment: dict[str, str], said: str) -> None:
    ended = subprocess.run(
        [MILLRACE, "run", run.file], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    text = " ".join(ended.stderr.split())
    assert ended.returncode == 1
    assert f"{run.file}:" in text
    assert said in text
    assert "Traceback" not in text
    assert "hunter2" not in text
    assert not run.place.is_dir()
