import fcntl
import json
import subprocess
import sys
from copy import deepcopy

import pytest

from millrace_api.errors import MillraceError
from millrace_api.streamquery import StreamQuery
from millrace_jobs.agent.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.plan.pin import Pin

DOCUMENT = {
    "apiVersion": "millrace.io/v1alpha1",
    "kind": "StreamQuery",
    "metadata": {"name": "fares"},
    "spec": {
        "sources": {
            "trips": {
                "files": {"path": "data/*.csv", "format": "csv", "maxFilesPerBatch": 2},
                "schema": "at TIMESTAMP, fare DOUBLE",
                "watermark": {"column": "at", "delay": "10 minutes"},
            }
        },
        "query": {"sql": "SELECT count(*) FROM trips"},
        "sink": {"files": {"path": "out", "format": "csv"}},
        "parallelism": {"max": 4},
    },
}


def a_query(*path, value=None):
    """The query with one thing changed."""
    document = deepcopy(DOCUMENT)
    if path:
        inner = document
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return StreamQuery.model_validate(document)


@pytest.fixture
def open_checkpoint(tmp_path):
    opened = []

    def open_one(query):
        checkpoint = Checkpoint(tmp_path / "checkpoint")
        opened.append(checkpoint)
        checkpoint.open(query)
        return checkpoint

    yield open_one
    for checkpoint in opened:
        checkpoint.close()


def reopened(open_checkpoint, query):
    open_checkpoint(a_query()).close()
    return open_checkpoint(query)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "batchInterval"), "30s"),
        (("spec", "parallelism"), {"min": 2, "max": 16}),
        (("spec", "partitioner"), {"algorithm": "pkg", "replicas": {"max": 3}}),
        (("spec", "driver"), {"memory": "4g"}),
        (("spec", "sparkConf"), {"spark.ui.enabled": "true"}),
        (("spec", "sources", "trips", "files", "maxFilesPerBatch"), 100),
        (("spec", "sources", "trips", "corruptRecords"), {"policy": "drop"}),
        (("metadata", "labels"), {"team": "a"}),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_may_change_from_run_to_run(open_checkpoint, path, value):
    reopened(open_checkpoint, a_query(*path, value=value))


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("metadata", "name"), "tips", "name"),
        (("spec", "query", "sql"), "SELECT sum(fare) FROM trips", "query"),
        (("spec", "emit"), "OnWindowClose", "emit"),
        (("spec", "sink"), {"console": {}}, "sink"),
        (("spec", "sources", "trips", "files", "path"), "other/*.csv", "sources"),
        (("spec", "sources", "trips", "schema"), "at TIMESTAMP, fare FLOAT", "sources"),
        (("spec", "sources", "trips", "watermark", "delay"), "1 hour", "sources"),
    ],
)
def test_what_has_to_stay(open_checkpoint, path, value, field):
    with pytest.raises(MillraceError) as told:
        reopened(open_checkpoint, a_query(*path, value=value))
    (problem,) = told.value.problems
    assert f"is of another query: its {field} was " in problem.message
    assert problem.field == "spec.checkpoint"
    assert problem.hint == "choose another spec.checkpoint.uri, or remove this one to begin anew"


def test_a_query_that_was_refused_has_changed_nothing(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    checkpoint.close()
    with pytest.raises(MillraceError):
        checkpoint.open(a_query("metadata", "name", value="tips"))
    checkpoint.close()
    open_checkpoint(a_query())


def test_state_partitions_are_those_of_the_first_run(open_checkpoint, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    first = open_checkpoint(a_query())
    assert first.state_partitions == 3
    first.close()
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert open_checkpoint(a_query("spec", "parallelism", value={"max": 64})).state_partitions == 3


HOLDER = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


def test_a_run_in_another_process_keeps_it(open_checkpoint, tmp_path):
    open_checkpoint(a_query()).close()
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "checkpoint" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(MillraceError, match=r"another run is using the checkpoint .*; end that run first"):
            open_checkpoint(a_query())
        holder.kill()
    open_checkpoint(a_query())


def test_closed_it_can_be_opened_again(open_checkpoint, tmp_path):
    checkpoint = open_checkpoint(a_query())
    checkpoint.close()
    with (tmp_path / "checkpoint" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_where_nothing_can_be_written_it_says_why(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(MillraceError, match="cannot be written: Not a directory") as told:
        Checkpoint(tmp_path / "file" / "checkpoint").open(a_query())
    assert told.value.problems[0].field == "spec.checkpoint"


@pytest.mark.parametrize("uri", ["s3a://bucket/prefix", "hdfs://host/folder"])
def test_a_checkpoint_elsewhere_is_refused(uri):
    with pytest.raises(MillraceError, match=f"cannot use the checkpoint {uri}"):
        checkpoint_root(a_query("spec", "checkpoint", value={"uri": uri}))


def test_the_folder_may_have_any_name(tmp_path, monkeypatch):
    uri = (tmp_path / "a b%é").as_uri()
    assert checkpoint_root(a_query("spec", "checkpoint", value={"uri": uri})) == tmp_path / "a b%é"
    monkeypatch.chdir(tmp_path)
    assert checkpoint_root(a_query()) == tmp_path / ".millrace" / "fares"


def offset(position, epoch=1, name="trips"):
    pin = Pin(epoch, "hash", 2, 4).to_json()
    return {"source": name, "position": {"files": position}, "pin": pin, "waiting": 0}


class Log:
    """Spark's own files: a version, one line of JSON, and in an offset file a line per source."""

    def __init__(self, checkpoint):
        self._spark = checkpoint.spark

    def begin(self, batch, *offsets):
        lines = ["v1", json.dumps({"batchWatermarkMs": 1000 * batch})]
        self._write("offsets", batch, [*lines, *("-" if o is None else json.dumps(o) for o in offsets)])

    def commit(self, batch):
        self._write("commits", batch, ["v1", json.dumps({"nextBatchWatermarkMs": 1000 * batch + 500})])

    def _write(self, log, batch, lines):
        folder = self._spark / log
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(batch)).write_text("\n".join(lines), encoding="utf-8")
        (folder / f".{batch}.crc").write_bytes(b"crc")


def test_before_the_first_batch_there_is_nothing(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    assert (checkpoint.committed(), checkpoint.watermark_ms(), checkpoint.begun_under()) == ({}, 0, None)


def test_what_is_committed_is_the_offset_of_the_last_finished_batch(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    log = Log(checkpoint)
    for batch in range(11):  # 10 is newer than 9, though not as text
        log.begin(batch, offset(batch, epoch=batch))
        log.commit(batch)
    assert checkpoint.committed() == {"trips": offset(10, epoch=10)}
    assert checkpoint.watermark_ms() == 10_500
    assert checkpoint.begun_under() is None
    assert checkpoint.last_pin() is not None

    log.begin(11, offset(11, epoch=7))
    assert checkpoint.committed() == {"trips": offset(10, epoch=10)}
    assert checkpoint.watermark_ms() == 10_500
    assert checkpoint.begun_under() == checkpoint.last_pin() == Pin(7, "hash", 2, 4)


def test_the_first_batch_may_be_unfinished(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    Log(checkpoint).begin(0, offset(0))
    assert (checkpoint.committed(), checkpoint.watermark_ms()) == ({}, 0)
    assert checkpoint.begun_under() == Pin(1, "hash", 2, 4)


def test_a_source_without_an_offset_is_left_out(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    log = Log(checkpoint)
    log.begin(0, None, offset(3, name="zones"))
    assert checkpoint.begun_under() == Pin(1, "hash", 2, 4)
    log.commit(0)
    assert list(checkpoint.committed()) == ["zones"]


def test_an_offset_without_a_plan_has_none(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    Log(checkpoint).begin(0, {"source": "trips", "position": {}})
    assert checkpoint.begun_under() is None
