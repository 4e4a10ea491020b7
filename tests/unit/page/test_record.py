"""Records of runs: they survive files, kills and bounds, and make the page that the run had."""

import errno
import resource
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_batch, a_native_batch, a_query
from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.page.history import RunHistory
from millrace_jobs.page.rendering import render
from millrace_jobs.page.view import page_view
from millrace_jobs.run.record_file import RecordFile
from millrace_jobs.selection.switch import Switch
from millrace_support.run_record import BatchLine, MessageLine, encode, halved, read_record

from .recorded import a_start, recording, write
from .runs import BEGAN, a_join_batch, a_late_batch, a_skewed_batch, candidate, facts, latencies

BATCHES = st.builds(
    lambda kind, changes, seen: kind(**changes, latencies=latencies(*seen)),
    st.sampled_from([a_batch, a_late_batch, a_skewed_batch, a_native_batch, a_join_batch]),
    st.fixed_dictionaries(
        {"rows": st.integers(0, 10**9), "late": st.integers(0, 3), "waiting": st.integers(0, 10**12)},
        optional={
            "behind": st.dictionaries(st.tuples(st.text(), st.text()), st.integers(0, 9)),
            "watermark": st.datetimes(timezones=st.just(UTC)),
            "state_rows": st.none() | st.integers(0, 10**9),
        },
    ),
    st.lists(st.floats(0, 1e6), max_size=3),
)
PREDICTED = {name: candidate(name, 0.8) for name in ("pkg", "hash")}
EVENTS = st.one_of(
    BATCHES.map(lambda each: ("batch", each)),
    st.text().map(lambda each: ("message", each)),
    st.just(("idle",)),
    st.text().map(lambda each: ("failing", TransientError(Problem(each, "wait")))),
    st.text().map(lambda each: ("failed", ValueError(each))),
    st.just(("predicted", PREDICTED)),
    st.just(("switched", Switch(1, PREDICTED["hash"], PREDICTED["pkg"]))),
    st.sampled_from(["finished", "drained", "failed"]).map(lambda each: ("ended", each)),
)


def happen(kept, clock, events):
    for number, (what, *given_) in enumerate(events):
        clock.now += 2
        if what == "batch":
            began = datetime.fromtimestamp(clock.now - given_[0].seconds, UTC)
            given_ = [replace(given_[0], batch=number, began=began)]
        getattr(kept, what)(*given_)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=30))
def test_the_page_made_of_a_record_is_the_page_that_the_run_had(tmp_path_factory, events):
    kept, clock, lines = recording()
    happen(kept, clock, events)
    again = RunHistory(clock=lambda: BEGAN)
    for line in read_record(write(tmp_path_factory.mktemp("record") / "run.jsonl", lines)):
        again.add(line)
    pages = [render(page_view(each.snapshot(), facts(), clock.now)) for each in (kept, again)]
    assert pages[0] == pages[1]


def a_record(batches=3):
    kept, clock, lines = recording()
    happen(kept, clock, [("batch", a_batch())] * batches)
    return lines


def test_what_a_killed_process_left_of_its_last_line_is_left_out(tmp_path):
    lines = a_record()
    whole = b"".join(map(encode, lines))
    path = tmp_path / "run.jsonl"
    last = len(encode(lines[-1]))
    for cut in (1, last // 2, last - 1):
        path.write_bytes(whole[:-cut])
        assert read_record(path) == lines[:-1]


def test_a_run_continues_the_record_of_one_that_was_killed(tmp_path):
    lines = a_record()
    path = write(tmp_path / "run.jsonl", lines)
    path.write_bytes(path.read_bytes()[:-10])
    record = RecordFile(path, "fares", pytest.fail)
    record.write(a_start(time=BEGAN + 100))
    record.close()
    assert read_record(path) == [*lines[:-1], a_start(time=BEGAN + 100)]


@pytest.mark.parametrize("lines", [a_record(400), [a_start(), *(MessageLine(BEGAN, "x" * 300) for _ in range(400))]])
def test_a_record_stays_within_its_bound_and_keeps_its_start_and_its_end_in_full(tmp_path, lines):
    path, limit = tmp_path / "run.jsonl", 40_000
    record = RecordFile(path, "fares", pytest.fail, limit)
    for line in lines:
        record.write(line)
        assert path.stat().st_size <= limit
    record.close()
    kept = read_record(path)
    assert kept[0] == lines[0]
    assert kept[-10:] == lines[-10:]
    if isinstance(lines[-1], BatchLine):
        figures = [each.figures for each in kept if isinstance(each, BatchLine)]
        assert sum(each.batches for each in figures) == 400
        assert sum(each.rows for each in figures) == 400 * 5000


def test_batches_that_are_combined_keep_their_sums_and_the_worse_of_all_else():
    kept, clock, lines = recording()
    happen(kept, clock, [("batch", a_late_batch(rows=10, waiting=5)), ("batch", a_batch(rows=7, waiting=900))])
    combined = halved(lines)[-1]
    figures = combined.figures
    assert (figures.batch, figures.batches, figures.rows, figures.seconds, figures.waiting) == (1, 2, 17, 3.0, 900)
    assert combined.details == lines[-1].details


def test_batches_are_combined_across_triggers_and_predictions():
    kept, clock, lines = recording()
    predicted = [{"pkg": candidate("pkg", seconds)} for seconds in (0.5, 0.6, 0.7, 0.8)]
    for each in predicted:
        happen(kept, clock, [("batch", a_batch(rows=10)), ("predicted", each), ("idle",), ("idle",), ("idle",)])
    once, idle = halved(lines), ["idle", "idle"]
    assert [each.line for each in once] == ["run", *["predictions", "batch", "predictions", *idle] * 2]
    assert [each.line for each in halved(once)] == ["run", "predictions", "batch", "predictions", *idle]
    assert [each.figures.rows for each in halved(once) if isinstance(each, BatchLine)] == [40]


def test_of_idle_triggers_in_a_row_the_first_and_the_last_are_kept():
    kept, clock, lines = recording()
    happen(kept, clock, [("batch", a_batch()), *[("idle",)] * 5])
    assert halved(lines) == [lines[0], lines[1], lines[2], lines[-1]]


def test_a_record_counts_the_batches_that_it_had_to_drop(tmp_path):
    path = tmp_path / "run.jsonl"
    kept, clock, lines = recording()
    happen(kept, clock, [("batch", a_batch()), ("message", "again")] * 100)  # nothing to combine
    record = RecordFile(path, "fares", pytest.fail, 40_000)
    for line in lines:
        record.write(line)
    record.close()
    first, *rest = read_record(path)
    assert first.dropped > 0
    assert first.dropped + sum(each.figures.batches for each in rest if isinstance(each, BatchLine)) == 100


def test_a_record_that_a_run_writes_is_refused_to_another_also_after_it_was_made_smaller(tmp_path):
    path = tmp_path / "run.jsonl"
    record = RecordFile(path, "fares", pytest.fail, limit=4000)
    for line in a_record(10):
        with pytest.raises(
            MillraceError, match=r"--record: another run writes the record .*; write the name of another"
        ):
            RecordFile(path, "fares", pytest.fail)
        record.write(line)
    record.close()
    RecordFile(path, "fares", pytest.fail).close()


@contextmanager
def files_of_at_most(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_that_does_not_fit_leaves_no_half_of_it(tmp_path):
    path, said = tmp_path / "run.jsonl", []
    lines = a_record(3)
    record = RecordFile(path, "fares", said.append)
    for line in lines[:2]:
        record.write(line)
    with files_of_at_most(path.stat().st_size + 100):
        record.write(lines[2])
    record.write(lines[3])
    assert path.read_bytes() == b"".join(map(encode, lines[:2]))
    assert said == [f"the record {path} ends here, and the run goes on: File too large"]


def test_a_record_that_cannot_be_made_smaller_leaves_no_part_of_the_new_file(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    said = []
    record = RecordFile(tmp_path / "run.jsonl", "fares", said.append, limit=2000)
    monkeypatch.setattr(Path, "replace", fail)
    for line in a_record(10):
        record.write(line)
    assert len(said) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_run_goes_on_when_its_record_cannot_be_written_any_more(tmp_path):
    said = []
    record = RecordFile(tmp_path / "run.jsonl", "fares", said.append, limit=2000)
    (tmp_path / "run.jsonl.new").mkdir()  # what it shrinks into
    for line in a_record(10):
        record.write(line)
    assert len(said) == 1
    assert said[0].startswith(f"the record {tmp_path}/run.jsonl ends here, and the run goes on: ")


def test_a_run_goes_on_when_another_has_written_into_its_record(tmp_path):
    said = []
    record = RecordFile(tmp_path / "run.jsonl", "fares", said.append, limit=2000)
    record.write(a_start())
    with (tmp_path / "run.jsonl").open("a", encoding="utf-8") as other:
        other.write("a note\n")
    for line in a_record(10):
        record.write(line)
    assert len(said) == 1
    assert "run.jsonl:2: this line is no event of a record" in said[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "{path} has no event of a run; make a record with millrace run --record FILE"),
        (b"kind: StreamQuery\n", "{path} is not a record of a run; make one with millrace run --record FILE"),
        (
            b'{"line":"run","millrace":"9.1","version":2}\n',
            "{path} is a record of version 2, made by millrace 9.1; this one reads version 1: use the millrace that made "
            "it",
        ),
        (
            encode(a_start()) + b'{"line":"idle"}\n',
            "{path}:2: this line is no event of a record: idle.time: Field required; remove the line, or use the version "
            "of millrace that wrote it",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_why_and_what_to_do(tmp_path, content, message):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(MillraceError) as error:
        read_record(path)
    assert str(error.value) == message.format(path=path)


def test_a_record_that_does_not_exist_says_what_writes_one(tmp_path):
    with pytest.raises(
        MillraceError, match="cannot be read: No such file or directory; write the file that millrace run"
    ):
        read_record(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"kind: StreamQuery", "is not a record of a run"),
        (encode(a_start(a_query("metadata", "name", value="other"))), "is the record of other, not of fares"),
    ],
)
def test_a_run_records_into_no_file_that_is_something_else(tmp_path, content, message):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(MillraceError, match=message):
        RecordFile(path, "fares", pytest.fail)
    assert path.read_bytes() == content


def test_a_record_in_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(MillraceError, match=r"--record: the record .* cannot be written: No such file or directory"):
        RecordFile(tmp_path / "none" / "run.jsonl", "fares", pytest.fail)
