import json

import numpy as np
import pyarrow as pa
import pytest

from millrace_jobs.aggregates.reducing import RECORDS, ColumnarReduction, PartColumn
from millrace_jobs.pipeline import combine
from millrace_jobs.pipeline.blocks import note, split
from millrace_jobs.pipeline.combine import REPORT, Combiner
from millrace_jobs.sketches import key_profile
from millrace_jobs.windows import AT, Window

BLOCK = pa.schema([("k0", pa.string()), (AT, pa.timestamp("us", tz="UTC")), ("i0", pa.int64())])
PARTS = (PartColumn("a0", "sum", "i0", pa.int64()), PartColumn("a1", "rows", "", pa.int64()))
COMBINER = Combiner(BLOCK, ColumnarReduction((pa.field("k0", pa.string()),), Window("at", 10, 10), PARTS))
RECORDS_OF_A_SLICE = [("a", 1, 1), ("b", 2, 10), ("a", 11, 100), ("a", 3, 1000)]


def blocks(records, workers, n=4):
    batch = pa.RecordBatch.from_pylist([dict(zip(BLOCK.names, record, strict=True)) for record in records], BLOCK)
    return split(batch, np.array(workers, np.int32), n)


def run(*stream, **arguments):
    """Partial results as rows, and the report row, of which there is one at most."""
    rows = [row for batch in COMBINER(stream, **arguments) for row in batch.cast(COMBINER.schema).to_pylist()]
    reports = [row for row in rows if row[REPORT] is not None]
    assert len(reports) <= 1
    partials = [(row["k0"], micros(row[AT]), row["a0"], row["a1"]) for row in rows if row[REPORT] is None]
    return sorted(partials), reports[0] if reports else None


def partial_bytes(*stream):
    """The size of the partial results, by the batches that hold them, without the column of reports."""
    batches = [batch.drop_columns([REPORT]) for batch in COMBINER(stream) if batch.column(REPORT).null_count]
    return sum(batch.nbytes for batch in batches)


def micros(at):
    return None if at is None else pa.scalar(at, BLOCK.field(AT).type).cast(pa.int64()).as_py()


def test_a_worker_combines_its_records_by_key_and_window():
    partials, report = run(blocks(RECORDS_OF_A_SLICE, [2, 2, 2, 2]))
    assert partials == [("a", 0, 1001, 2), ("a", 10, 100, 1), ("b", 0, 10, 1)]
    (worker,) = json.loads(report[REPORT])["workers"]
    assert (worker["worker"], worker["rows"], worker["keys"], worker["groups"]) == (2, 4, 2, 3)
    assert worker["seconds"] >= 0
    assert worker["sent"] == partial_bytes(blocks(RECORDS_OF_A_SLICE, [2, 2, 2, 2]))
    keys = key_profile.decode(worker["profile"])
    assert (keys.distinct, keys.rows, sorted(keys.sample.counts.tolist())) == (2, 4, [1, 3])


def test_several_workers_in_one_task_report_apart():
    partials, report = run(blocks(RECORDS_OF_A_SLICE, [0, 3, 3, 3]), blocks([("c", 5, 7)], [1]))
    assert partials == [("a", 0, 1, 1), ("a", 0, 1000, 1), ("a", 10, 100, 1), ("b", 0, 10, 1), ("c", 0, 7, 1)]
    workers = {worker["worker"]: (worker["rows"], worker["keys"]) for worker in json.loads(report[REPORT])["workers"]}
    assert workers == {0: (1, 1), 3: (3, 2), 1: (1, 1)}


def test_a_replica_that_combines_alone_reports_under_its_own_number():
    _, report = run(blocks(RECORDS_OF_A_SLICE, [0, 0, 0, 0], 1), blocks([("c", 5, 7)], [0], 1), worker=5)
    assert [(worker["worker"], worker["rows"]) for worker in json.loads(report[REPORT])["workers"]] == [(5, 5)]


def test_notes_are_handed_on():
    said = [{"replica": 0, "read": 3}, {"replica": 1, "read": 4}]
    partials, report = run(note(said[0]), blocks([("c", 5, 7)], [0]), note(said[1]))
    assert partials == [("c", 0, 7, 1)]
    assert json.loads(report[REPORT])["replicas"] == said
    assert [report[name] for name in ("k0", "a0", "a1")] == [None, None, None]


def test_notes_come_also_without_records():
    partials, report = run(note({"replica": 0, "read": 0}))
    assert (partials, report[AT]) == ([], None)
    assert json.loads(report[REPORT]) == {"workers": [], "replicas": [{"replica": 0, "read": 0}]}


@pytest.mark.parametrize(
    ("notes", "at"),
    [
        ([{"latest": 7}, {"latest": 9}, {}], 9),
        ([{"latest": -7}], -7),
        ([{"latest": 9}, {"close": 99}], 99),
        ([{"close": 5}], 5),
        ([{}], None),
    ],
)
def test_the_report_carries_the_latest_event_time(notes, at):
    _, report = run(*(note(content) for content in notes))
    assert micros(report[AT]) == at


def test_nothing_comes_of_nothing():
    assert run() == ([], None)
    assert run(blocks([], [])) == ([], None)


def test_partial_results_come_in_batches_of_bounded_size(monkeypatch):
    monkeypatch.setattr(combine, "MAX_ROWS", 10)
    records = [(f"key {i}", i, i) for i in range(35)]
    *partials, _ = COMBINER([blocks(records, [0] * 35)])
    assert [batch.num_rows for batch in partials] == [10, 10, 10, 5]
    assert all(batch.schema == COMBINER.schema for batch in partials)


def test_the_number_of_records_stays_with_the_worker():
    assert RECORDS not in COMBINER.schema.names


def test_a_worker_puts_the_panes_of_hopping_windows_together():
    hopping = Combiner(BLOCK, ColumnarReduction((pa.field("k0", pa.string()),), Window("at", 10, 5), PARTS))
    rows = [row for batch in hopping([blocks(RECORDS_OF_A_SLICE, [2, 2, 2, 2])]) for row in batch.to_pylist()]
    (report,) = (json.loads(row[REPORT]) for row in rows if row[REPORT])
    partials = sorted((row["k0"], micros(row[AT]), row["a0"], row["a1"]) for row in rows if not row[REPORT])
    assert partials == [("a", -5, 1001, 2), ("a", 0, 1001, 2), ("a", 5, 100, 1), ("a", 10, 100, 1), ("b", -5, 10, 1),
                        ("b", 0, 10, 1)]  # fmt: skip
    assert [(worker["rows"], worker["groups"]) for worker in report["workers"]] == [(4, 3)]
