import fcntl
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import pytest

from builders import a_query
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.checkpoint.lease import FolderLease, Holder, Lease
from millrace_jobs.sinks.base import LastBatch
from spark_logs import Log, offset


def begun(checkpoint):
    """Let the checkpoint have a batch."""
    log = Log(checkpoint)
    log.begin(0, offset(0))
    log.commit(0)
    return checkpoint


def test_a_checkpoint_has_an_id_of_its_own_that_stays(open_checkpoint, tmp_path):
    first = open_checkpoint(a_query())
    first.close()
    again = open_checkpoint(a_query("spec", "batchInterval", value="30s"))
    assert again.id == first.id
    other = Checkpoint(tmp_path / "other")
    other.open(a_query())
    other.close()
    assert other.id != first.id


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "\0" * 40, '{"name": "fares"}', '{"id": "x"}', '{"id": "x", "query": {}}']
)
def test_a_damaged_marker_is_named(open_checkpoint, tmp_path, text):
    open_checkpoint(a_query()).close()
    marker = tmp_path / "checkpoint" / "millrace.json"
    marker.write_text(text, encoding="utf-8")
    with pytest.raises(MillraceError) as raised:
        open_checkpoint(a_query())
    (problem,) = raised.value.problems
    assert problem.message.startswith(f"the checkpoint is damaged: {marker}: ")
    assert marker.read_text(encoding="utf-8") == text


def test_a_marker_that_is_gone_is_not_recreated_over_state(open_checkpoint, tmp_path):
    first = open_checkpoint(a_query())
    Log(first).begin(0, offset(0))
    first.close()
    (tmp_path / "checkpoint" / "millrace.json").unlink()
    with pytest.raises(MillraceError, match=r"the checkpoint is damaged: .*millrace\.json: it is gone"):
        open_checkpoint(a_query())


def test_a_query_that_was_refused_has_changed_nothing(open_checkpoint):
    checkpoint = begun(open_checkpoint(a_query()))
    checkpoint.close()
    with pytest.raises(MillraceError):
        checkpoint.open(a_query("metadata", "name", value="tips"))
    checkpoint.close()
    open_checkpoint(a_query())


def test_state_partitions_are_those_of_the_first_run(open_checkpoint, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    first = begun(open_checkpoint(a_query()))
    assert first.state_partitions == 3
    first.close()
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert open_checkpoint(a_query("spec", "parallelism", value={"max": 64})).state_partitions == 3


HOLDER = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


def test_a_run_in_another_process_keeps_the_checkpoint(open_checkpoint, tmp_path):
    open_checkpoint(a_query()).close()
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "checkpoint" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(MillraceError, match=r"another run is using the checkpoint .*; end that run first"):
            open_checkpoint(a_query())
        holder.kill()
    open_checkpoint(a_query())


def test_a_closed_checkpoint_can_be_opened_again(open_checkpoint, tmp_path):
    checkpoint = open_checkpoint(a_query())
    checkpoint.close()
    with (tmp_path / "checkpoint" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_place_that_cannot_be_written_is_an_error_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(MillraceError, match="cannot be written: Not a directory") as raised:
        Checkpoint(tmp_path / "file" / "checkpoint").open(a_query())
    assert raised.value.problems[0].field == "spec.checkpoint"


@pytest.mark.parametrize("uri", ["s3a://bucket", "gs://bucket/prefix", "hdfs://host/folder"])
def test_a_checkpoint_elsewhere_is_refused(uri):
    with pytest.raises(MillraceError, match=f"cannot use the checkpoint {uri}"):
        checkpoint_root(a_query("spec", "checkpoint", value={"uri": uri}))


def test_the_folder_may_have_any_name(tmp_path, monkeypatch):
    uri = (tmp_path / "a b%é").as_uri()
    assert checkpoint_root(a_query("spec", "checkpoint", value={"uri": uri})) == tmp_path / "a b%é"
    twice = a_query("spec", "checkpoint", value={"uri": f"file:///{tmp_path}"})
    assert str(checkpoint_root(twice)) == str(tmp_path)  # Hadoop would take the first name after // for a host
    monkeypatch.chdir(tmp_path)
    assert checkpoint_root(a_query()) == tmp_path / ".millrace" / "fares"


def test_a_folder_whose_name_is_not_utf_8_is_refused(tmp_path, monkeypatch):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(
        MillraceError, match=r"a\\xff/.millrace/fares' is not UTF-8, and Spark cannot use it; rename it"
    ):
        checkpoint_root(a_query())
    assert not list(folder.iterdir())


def stored(checkpoint):
    return json.loads((checkpoint.root / "millrace.json").read_text(encoding="utf-8"))["query"]["spec"]


def test_a_changed_query_has_the_checkpoint_only_when_it_was_made_ready(open_checkpoint):
    old, new = a_query(), a_query("spec", "query", value={"sql": "SELECT count(*) FROM trips WHERE fare > 1"})
    begun(open_checkpoint(old)).close()
    for _ in range(2):  # the first time it fails after that
        checkpoint = open_checkpoint(new)
        checkpoint.record_layout({"keys": []})
        checkpoint.note_state_partitions(2)
        assert stored(checkpoint)["query"] == {"sql": "SELECT count(*) FROM trips"}
        checkpoint.close()
    checkpoint = open_checkpoint(new)
    (remark,) = checkpoint.adopt(new)
    assert "the filter has changed" in remark
    assert stored(checkpoint)["query"] == {"sql": "SELECT count(*) FROM trips WHERE fare > 1"}
    assert checkpoint.adopt(new) == ()
    checkpoint.close()
    assert open_checkpoint(new).adopt(new) == ()


def to_topic(topic, servers="a:9092,b:9092", kind="kafka"):
    return a_query("spec", "sink", value={kind: {"bootstrapServers": servers, "topic": topic, "key": ["n"]}})


@pytest.mark.parametrize(
    ("before", "now", "elsewhere"),
    [
        (a_query(), a_query("spec", "sink", value={"console": {}}), False),
        (a_query(), to_topic("new"), True),
        (to_topic("old"), to_topic("new"), True),
        (to_topic("old"), to_topic("old", servers="c:9092"), True),
        (to_topic("old"), to_topic("old", servers="c:9092, b:9092"), False),
        (to_topic("old"), to_topic("old", kind="table"), False),
        (to_topic("old"), a_query(), False),
    ],
)
def test_a_sink_learns_that_earlier_runs_had_another_topic(open_checkpoint, before, now, elsewhere):
    begun(open_checkpoint(before)).close()
    for _ in range(2):
        checkpoint = open_checkpoint(now)
        assert checkpoint.last_batch() == LastBatch(0, 0, elsewhere=elsewhere)
        checkpoint.close()
    checkpoint = open_checkpoint(now)
    checkpoint.adopt(now)
    assert checkpoint.last_batch() == LastBatch(0, 0)
    checkpoint.close()
    assert open_checkpoint(now).last_batch() == LastBatch(0, 0)


def test_the_marker_and_its_name_are_on_the_disk_before_it_counts(open_checkpoint, tmp_path, monkeypatch):
    synced = []

    def note(descriptor):
        named = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        synced.append((named, (tmp_path / "checkpoint" / "millrace.json").exists()))

    monkeypatch.setattr("os.fsync", note)
    open_checkpoint(a_query())
    root = str(tmp_path / "checkpoint")
    assert synced == [(f"{root}/millrace.new", False), (root, True)]


def test_the_lock_is_let_go_whatever_happens_to_the_lease(open_checkpoint, tmp_path, monkeypatch):
    checkpoint = open_checkpoint(a_query())
    release = Lease.release

    def fail_at_last(lease):
        release(lease)
        raise ZeroDivisionError

    monkeypatch.setattr(Lease, "release", fail_at_last)
    with pytest.raises(ZeroDivisionError):
        checkpoint.close()
    with (tmp_path / "checkpoint" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


OTHER = {"files": {"path": "other/*.csv", "format": "csv"}, "schema": "at TIMESTAMP, fare DOUBLE"}


def changed_in_every_way():
    query = a_query("metadata", "name", value="tips")
    document = query.to_document()
    document["spec"] |= {"emit": "OnWindowClose", "parallelism": {"max": 1}}
    document["spec"]["sources"] = {"trips": OTHER | {"watermark": {"column": "at", "delay": "1h"}}}
    document["spec"]["query"] = {"sql": "SELECT window(at, '1 hour').start AS s, max(fare) AS m FROM trips GROUP BY 1"}
    return type(query).model_validate(document)


def test_where_no_batch_has_begun_nothing_is_compared(open_checkpoint):
    first = open_checkpoint(a_query())
    first.record_layout({"keys": ["a"]})
    first.close()
    again = open_checkpoint(changed_in_every_way())
    again.record_layout({"keys": ["b"]})
    assert (again.id, again.state_partitions) == (first.id, 1)
    assert again.adopt(changed_in_every_way()) == ()
    begun(again).close()
    with pytest.raises(MillraceError, match="was made with 'tips', not with 'fares'"):
        open_checkpoint(a_query())


@pytest.mark.parametrize(("now", "kept"), [(a_query("spec", "emit", value="OnUpdate"), True), (None, False)])
def test_only_a_source_that_is_the_same_goes_on_with_what_it_remembers(open_checkpoint, now, kept):
    first = open_checkpoint(a_query())
    first.source_folder("trips").mkdir(parents=True)
    first.close()
    again = open_checkpoint(now or changed_in_every_way())
    assert again.source_folder("trips").exists() == kept


def test_batches_in_a_copy_that_has_yet_to_take_its_place_count(open_checkpoint):
    first = begun(open_checkpoint(a_query()))
    first.close()
    first.spark.rename(first.spark.with_name("spark.new"))
    with pytest.raises(MillraceError, match="not with 'tips'"):
        open_checkpoint(changed_in_every_way())


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def withdrawn(root):
    checkpoint = Checkpoint(root)
    checkpoint.open(a_query())
    for name in ("spark", "policies", "sources/trips"):
        (root / name).mkdir(parents=True)
    assert checkpoint.may_be_withdrawn()
    checkpoint.withdraw()
    checkpoint.close()


def test_a_withdrawn_checkpoint_leaves_nothing_behind(tmp_path):
    withdrawn(tmp_path / "new" / "checkpoint")
    assert files_in(tmp_path) == []
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    withdrawn(tmp_path / "volume")
    assert files_in(tmp_path) == ["volume", "volume/lost+found"]


def test_an_earlier_run_s_checkpoint_is_not_withdrawn(open_checkpoint, tmp_path):
    open_checkpoint(a_query()).close()
    checkpoint = open_checkpoint(a_query())
    before = files_in(tmp_path)
    checkpoint.withdraw()
    assert files_in(tmp_path) == before
    assert not begun(checkpoint).may_be_withdrawn()


def test_a_checkpoint_that_another_driver_has_taken_over_may_not_be_withdrawn(open_checkpoint, tmp_path):
    checkpoint = open_checkpoint(a_query())
    other = FolderLease(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "lease.json").unlink()
    other.take()
    assert not checkpoint.may_be_withdrawn()
    other.release()


def test_a_lock_that_was_removed_while_it_was_waited_for_is_not_held(open_checkpoint, tmp_path, monkeypatch):
    flock, removed = fcntl.flock, []

    def remove_first(lock, how):
        if not removed:
            removed.append((tmp_path / "checkpoint" / "lock").unlink())
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    open_checkpoint(a_query())
    with (tmp_path / "checkpoint" / "lock").open() as lock, pytest.raises(BlockingIOError):
        flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_checkpoint_that_another_machine_holds_is_refused_and_left_to_it(tmp_path):
    root = tmp_path / "checkpoint"
    first = Checkpoint(root)
    first.open(a_query())
    first.close()
    held = replace(Holder.this_process(30.0), host="far-away", boot="another", pid=7, started=1)
    (root / "lease.json").write_text(json.dumps(asdict(held)), encoding="utf-8")
    with pytest.raises(MillraceError, match="process 7 on far-away"):
        Checkpoint(root).open(a_query())
    assert json.loads((root / "lease.json").read_text(encoding="utf-8")) == asdict(held)


def versions(tmp_path: Path, **changed: object) -> None:
    """Change the versions in the marker; None removes them."""
    file = tmp_path / "checkpoint" / "millrace.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["versions"] = content["versions"] | changed if changed else None
    file.write_text(json.dumps(content), encoding="utf-8")


def adopted(checkpoint: Checkpoint) -> None:
    """Let a query continue the checkpoint, and end."""
    checkpoint.adopt(a_query())
    checkpoint.close()


def recorded(tmp_path: Path) -> dict[str, object]:
    return json.loads((tmp_path / "checkpoint" / "millrace.json").read_text(encoding="utf-8"))["versions"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"format": 99, "millrace": "9.1.0"},
            "Millrace 9.1.0 has continued the checkpoint .*, in a format that .* does not",
        ),
        (
            {"spark": "4.4.1"},
            "Spark 4.4.1 has continued the checkpoint .*, and Spark 4.3.0 does not read what it writes",
        ),
        ({"spark": "5.0.0"}, "Spark 5.0.0 has continued"),
    ],
)
def test_a_checkpoint_of_a_later_version_is_refused_and_stays_as_it_is(open_checkpoint, tmp_path, changed, message):
    adopted(begun(open_checkpoint(a_query())))
    versions(tmp_path, **changed)
    before = recorded(tmp_path)
    with pytest.raises(MillraceError, match=message) as raised:
        open_checkpoint(a_query())
    (problem,) = raised.value.problems
    assert problem.hint.startswith(f"run the query with Millrace {changed.get('millrace', version('millrace'))}")
    assert recorded(tmp_path) == before


@pytest.mark.parametrize(
    "changed", [{}, {"format": 0, "millrace": "0.0.1"}, {"spark": "3.5.1"}, {"spark": "4.3.9", "millrace": "9.0.0"}]
)
def test_a_checkpoint_of_an_earlier_version_is_continued_and_has_the_present_versions_from_then_on(
    open_checkpoint, tmp_path, changed
):
    adopted(begun(open_checkpoint(a_query())))
    present = recorded(tmp_path)
    versions(tmp_path, **changed)
    again = open_checkpoint(a_query())
    assert recorded(tmp_path) != present  # a query that fails before its first batch has changed nothing
    adopted(again)
    assert recorded(tmp_path) == present
