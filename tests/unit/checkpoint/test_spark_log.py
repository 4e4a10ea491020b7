"""What is read of the logs that Spark keeps in a checkpoint, whole and damaged."""

from pathlib import Path

import pytest

from builders import a_query
from millrace_api.errors import MillraceError
from millrace_jobs.plan.control import Pin
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from spark_logs import Log, offset, with_checksums


def test_before_the_first_batch_there_is_nothing(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    assert checkpoint.last_batch() == LastBatch(None, None)
    assert (checkpoint.committed(), checkpoint.watermark_ms(), checkpoint.unfinished_pin()) == ({}, 0, None)


def test_what_is_committed_is_the_offset_of_the_last_finished_batch(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    log = Log(checkpoint)
    for batch in range(11):  # 10 is newer than 9, though not as text
        log.begin(batch, offset(batch, epoch=batch))
        log.commit(batch)
    assert checkpoint.committed() == {"trips": offset(10, epoch=10)}
    assert checkpoint.watermark_ms() == 10_500
    assert checkpoint.unfinished_pin() is None
    assert checkpoint.last_pin() is not None
    assert checkpoint.last_batch() == LastBatch(begun=10, committed=10)
    assert checkpoint.batch(9) == ResultBatch(9, epoch=9, watermark=9000)

    log.begin(11, offset(11, epoch=7))
    assert checkpoint.committed() == {"trips": offset(10, epoch=10)}
    assert checkpoint.watermark_ms() == 10_500
    assert checkpoint.unfinished_pin() == checkpoint.last_pin() == Pin(7, "hash", 2, 4)
    assert checkpoint.last_batch() == LastBatch(begun=11, committed=10)


def test_the_first_batch_may_be_unfinished(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    Log(checkpoint).begin(0, offset(0))
    assert (checkpoint.committed(), checkpoint.watermark_ms()) == ({}, 0)
    assert checkpoint.unfinished_pin() == Pin(1, "hash", 2, 4)


def test_a_source_without_an_offset_is_left_out(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    log = Log(checkpoint)
    log.begin(0, None, offset(3, name="zones"))
    assert checkpoint.unfinished_pin() == Pin(1, "hash", 2, 4)
    log.commit(0)
    assert list(checkpoint.committed()) == ["zones"]


def test_the_plan_of_a_batch_is_that_of_a_source_which_it_reads(open_checkpoint):
    """One that had nothing to offer keeps the offset of an earlier batch."""
    checkpoint = open_checkpoint(a_query())
    log = Log(checkpoint)
    quiet = offset(3, epoch=1, name="users")
    log.begin(0, quiet, offset(5, epoch=1))
    log.commit(0)
    log.begin(1, quiet, offset(6, epoch=2))
    assert checkpoint.unfinished_pin() == Pin(2, "hash", 2, 4)
    log.commit(1)
    log.begin(2, offset(4, epoch=3, name="users"), offset(6, epoch=2))
    assert checkpoint.unfinished_pin() == Pin(3, "hash", 2, 4)


def test_the_readers_of_a_source_that_is_read_twice_have_an_offset_each(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    log = Log(checkpoint)
    assert checkpoint.committed_offsets() == []
    log.begin(0, offset(3), offset(5))
    log.commit(0)
    assert [each["position"] for each in checkpoint.committed_offsets()] == [
        each["position"] for each in (offset(3), offset(5))
    ]


def test_an_offset_without_a_plan_leaves_no_plan_to_finish(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    Log(checkpoint).begin(0, {"source": "trips", "position": {}})
    assert checkpoint.unfinished_pin() is None


def three_batches(open_checkpoint):
    """The last of them begun only."""
    checkpoint = open_checkpoint(a_query())
    log = Log(checkpoint)
    for batch in range(3):
        log.begin(batch, offset(batch))
    log.commit(0)
    log.commit(1)
    checkpoint.close()
    return checkpoint.spark


DAMAGES = [
    "",
    "v1",
    'v1\n{"nextBatch',
    'v1\n{"batchWatermarkMs":\n{}',
    'v1\n{}\n{"source": "tri',
    'v1\n{}\n{"source": "trips"}',
    'v1\n{}\n{"source": "trips", "position": {}, "pin": {"epoch": 1}}',
    'v1\n{}\n{"source": "trips", "position": {}, "pin": 7}',
    "v1\n[]\n7",
    "\0" * 80,
]


@pytest.mark.parametrize("text", DAMAGES)
@pytest.mark.parametrize("batch", [1, 2])
def test_a_damaged_offset_is_named_before_anything_runs(open_checkpoint, batch, text):
    damaged = three_batches(open_checkpoint) / "offsets" / str(batch)
    damaged.write_text(text, encoding="utf-8")
    with pytest.raises(MillraceError) as raised:
        open_checkpoint(a_query())
    (problem,) = raised.value.problems
    assert problem.message.startswith(f"the checkpoint is damaged: {damaged}: ")
    assert problem.hint == (
        "put back a copy of the whole checkpoint, or start over with another metadata.name "
        "(or spec.checkpoint.uri, where the query has one)"
    )
    assert damaged.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("text", ["", "v1", 'v1\n{"nextBatch', "\0" * 60])
def test_a_damaged_commit_is_named_before_anything_runs(open_checkpoint, text):
    damaged = three_batches(open_checkpoint) / "commits" / "1"
    damaged.write_text(text, encoding="utf-8")
    with pytest.raises(MillraceError, match=f"the checkpoint is damaged: {damaged}: "):
        open_checkpoint(a_query())


@pytest.mark.parametrize("gone", [["offsets/2", "offsets/1"], ["commits/1"], ["offsets/2", "offsets/1", "offsets/0"]])
def test_logs_that_do_not_belong_together_are_refused(open_checkpoint, gone):
    spark = three_batches(open_checkpoint)
    for name in gone:
        (spark / name).unlink()
    with pytest.raises(MillraceError, match=r"its offsets end with .* and its commits with"):
        open_checkpoint(a_query())


def test_a_commit_that_was_never_written_means_that_the_batch_is_run_again(open_checkpoint):
    spark = three_batches(open_checkpoint)
    (spark / "offsets" / "2").unlink()
    (spark / "commits" / "1").unlink()
    assert open_checkpoint(a_query()).last_batch() == LastBatch(begun=1, committed=0)


@pytest.mark.parametrize("name", ["offsets/1", "offsets/2", "commits/1", "metadata"])
def test_a_file_with_a_changed_digit_or_nothing_in_it_is_named(open_checkpoint, name):
    damaged = three_batches(open_checkpoint) / name
    text = damaged.read_text(encoding="utf-8")
    for changed in (text.replace("5", "6"), text.replace("1", "2"), ""):
        if changed != text:
            damaged.write_text(changed, encoding="utf-8")
            with pytest.raises(MillraceError, match=f"the checkpoint is damaged: {damaged}: "):
                open_checkpoint(a_query())
    damaged.write_text(text, encoding="utf-8")
    open_checkpoint(a_query())


def test_a_log_without_spark_s_own_identity_is_refused(open_checkpoint):
    metadata = three_batches(open_checkpoint) / "metadata"
    metadata.unlink()
    with pytest.raises(MillraceError, match=f"{metadata}: No such file or directory"):
        open_checkpoint(a_query())


def test_damaged_state_is_named(open_checkpoint):
    checkpoint = open_checkpoint(a_query())
    state = checkpoint.spark / "state" / "0" / "1"
    state.mkdir(parents=True)
    for version in range(3):
        with_checksums(state / f"{version}.changelog", "x" * (500 * version + 1))
    assert checkpoint.damaged_state("") is None
    (state / "2.changelog").write_bytes(b"x" * 700)
    assert f"{state / '2.changelog'}: it is not as Spark wrote it" in str(checkpoint.damaged_state(""))


def test_checksums_whose_file_has_gone_are_no_damage(open_checkpoint, monkeypatch):
    checkpoint = open_checkpoint(a_query())
    state = checkpoint.spark / "state" / "0" / "1"
    state.mkdir(parents=True)
    with_checksums(state / "1.changelog", "x" * 700)
    with_checksums(state / "2.changelog", "x" * 700)
    (state / "1.changelog").unlink()
    assert checkpoint.damaged_state("") is None

    opened = Path.open

    def gone(path, *arguments, **options):
        if path.name == "2.changelog":  # Spark's maintenance has deleted it since it was listed
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return opened(path, *arguments, **options)

    (state / "2.changelog").write_bytes(b"x" * 600)
    monkeypatch.setattr(Path, "open", gone)
    assert checkpoint.damaged_state("") is None


def test_a_file_of_the_state_that_spark_misses_is_named(open_checkpoint):
    said = (
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state. Error "
        "reading streaming state file of file:/c p/spark/state/0/0/2.changelog does not exist. If the stream job is"
    )
    raised = str(open_checkpoint(a_query()).damaged_state(said))
    assert "the checkpoint is damaged: /c p/spark/state/0/0/2.changelog: it is gone; put back a copy" in raised
