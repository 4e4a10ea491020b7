"""A stage of operators on tables, without Spark: blocks in buckets, and their processing."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext

from millrace_jobs.changes import FOREVER, NO_TIME, changes_of
from millrace_jobs.pipeline.blocks import partitions_of
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.tables.operators.interface import stream_join_buckets
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import Contents, JoinInput
from millrace_jobs.queries.tables.operators.upserts import UpsertedTable
from millrace_jobs.queries.tables.stages import (
    ForkInBuckets,
    ForkInput,
    InBuckets,
    TableStage,
    Unpacked,
    bucket_keys,
)

VALUES = pa.schema([("key", pa.string()), ("value", pa.int64())])


def variable(*_):
    """A state variable of one bucket."""
    held = {}
    return SimpleNamespace(getValue=held.get, updateValue=held.__setitem__, get=lambda: None, update=lambda _: None)


HANDLE = SimpleNamespace(getMapState=variable, getValueState=variable, registerTimer=lambda _: None)
TIMERS = SimpleNamespace(getCurrentWatermarkInMs=lambda: 0)


def run_as(monkeypatch, task, pin=None):
    """Run what follows as a task of this number, in a batch with this plan."""
    text = json.dumps(pin.to_json()) if pin is not None else None
    context = SimpleNamespace(partitionId=lambda: task, getLocalProperty=lambda _: text)
    monkeypatch.setattr(TaskContext, "get", lambda: context)


def blocks_of(rows, schema, number=0):
    """The blocks that the running task makes of the rows of an input."""
    (blocks,) = InBuckets(schema, schema.names[:1], number, partitions=2)([pa.RecordBatch.from_pylist(rows, schema)])
    return blocks.to_pylist()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_which_of_two_upserts_is_the_last_one_does_not_depend_on_the_shuffle(monkeypatch, order):
    blocks = []
    for task in (0, 1):
        run_as(monkeypatch, task)
        row = {"key": "a", "value": task, "millrace_from": 5, "millrace_to": FOREVER, "millrace_weight": 1}
        blocks += blocks_of([row], changes_of(VALUES))
    operator = UpsertedTable(VALUES, ("key",), versions=True)
    stage = TableStage(operator, 2, splits=False)
    stage.init(HANDLE)
    results = list(stage.handleInputRows((blocks[0]["bucket"],), iter([blocks[i] for i in order]), TIMERS))
    found = pa.RecordBatch.from_pylist([row.asDict() for row in results])
    (changes,) = Unpacked(operator)([found])
    assert [(row["value"], row["millrace_weight"]) for row in changes.to_pylist()] == [(1, 1)]


def test_rows_of_a_fork_are_in_the_blocks_of_the_inputs_that_keep_them(monkeypatch):
    run_as(monkeypatch, 3)
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("one", pa.bool_()), ("two", pa.bool_())])
    keeps = [(True, False), (True, True), (False, True), (None, False)]
    rows = [dict(zip(schema.names, (str(n), n, *kept), strict=True)) for n, kept in enumerate(keeps)]
    inputs = [pa.schema([("key", pa.string())]), pa.schema([("value", pa.int64()), ("key", pa.string())])]
    cuts = [InBuckets(own, ("key",), number, partitions=2) for number, own in enumerate(inputs)]
    columns = [ForkInput("one", {"key": "a"}), ForkInput("two", {"key": "a", "value": "b"})]
    fork = ForkInBuckets(tuple(zip(columns, cuts, strict=True)))
    found = [block for each in fork([pa.RecordBatch.from_pylist(rows, schema)]) for block in each.to_pylist()]
    read = [[], []]
    for block in found:
        own = inputs[block["input"]]
        read[block["input"]] += pa.ipc.read_record_batch(pa.py_buffer(block["block"]), own).to_pylist()
    assert sorted(row["key"] for row in read[0]) == ["0", "1"]
    assert sorted((row["key"], row["value"]) for row in read[1]) == [("1", 1), ("2", 2)]
    assert {block["place"] for block in found} == {3 << 32}


SIDES = [pa.schema([(f"{name}_key", pa.string()), (f"{name}_value", pa.int64())]) for name in ("left", "right")]
JOIN = TemporalJoin(*(JoinInput(values, tuple(values.names[:1]), Contents.RECORDS) for values in SIDES), versions=False)


@pytest.mark.parametrize(("watermark", "start", "timer"), [(0, NO_TIME, 1), (0, -5_000, 1), (7, 9_500, 10)])
def test_a_timer_is_after_the_watermark_so_that_it_fires_in_a_later_batch(monkeypatch, watermark, start, timer):
    run_as(monkeypatch, 0)
    left = JoinInput(SIDES[0], ("left_key",), Contents.RECORDS, preserved=True)
    join = TemporalJoin(left, JOIN.right, versions=False, final=True)
    timers = []
    stage = TableStage(join, 2, splits=False)
    stage.init(SimpleNamespace(getMapState=variable, getValueState=variable, registerTimer=timers.append))
    (block,) = blocks_of([dict(zip(join.inputs[0].names, ("a", 1, start, start + 1, 1), strict=True))], join.inputs[0])
    clock = SimpleNamespace(getCurrentWatermarkInMs=lambda: watermark)
    assert len(list(stage.handleInputRows((block["bucket"],), iter([block]), clock))) == 1
    assert timers == [timer]


@pytest.mark.parametrize(
    ("held", "moved"),
    [
        (None, [("register", 15)]),
        (15, []),
        (9, []),
        (20, [("delete", 20), ("register", 15)]),
        (8, [("delete", 8), ("register", 15)]),
    ],
)
def test_a_timer_stays_if_it_fires_in_a_later_batch_and_early_enough(monkeypatch, held, moved):
    run_as(monkeypatch, 0)
    left = JoinInput(SIDES[0], ("left_key",), Contents.RECORDS, preserved=True)
    stage, changes, wake = TableStage(replace(JOIN, left=left, final=True), 2, splits=False), [], [held]
    stage.init(
        SimpleNamespace(
            getMapState=variable,
            getValueState=lambda *_: SimpleNamespace(get=lambda: None if held is None else (held,), update=wake.extend),
            registerTimer=lambda time: changes.append(("register", time)),
            deleteTimer=lambda time: changes.append(("delete", time)),
        )
    )
    record = dict(zip(JOIN.inputs[0].names, ("a", 1, 14_500, 14_501, 1), strict=True))
    (block,) = blocks_of([record], JOIN.inputs[0])
    clock = SimpleNamespace(getCurrentWatermarkInMs=lambda: 8)
    assert len(list(stage.handleInputRows((block["bucket"],), iter([block]), clock))) == 1
    assert changes == moved
    assert wake == ([held, 15] if moved else [held])


def test_without_timers_what_is_late_goes_by_the_watermark_of_the_batch(monkeypatch):
    stage = TableStage(JOIN, 2, splits=False, wakes=False)
    stage.init(SimpleNamespace(getMapState=variable))
    records = [dict(zip(JOIN.inputs[0].names, ("a", n, n, n + 1, 1), strict=True)) for n in (6_999, 7_000)]
    run_as(monkeypatch, 0)
    (block,) = blocks_of(records, JOIN.inputs[0])
    context = SimpleNamespace(partitionId=lambda: 0, getLocalProperty={"millrace.watermark": "7"}.get)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    (note,) = stage.handleInputRows((block["bucket"],), iter([block]), SimpleNamespace())
    assert json.loads(note["note"]) == {"bucket": block["bucket"], "late": 1, "kept": 1}


@pytest.mark.parametrize(("partitions", "least", "each"), [(2, 16, 8), (3, 16, 6), (2, 4, 2), (4, 4, 1), (64, 4, 1)])
def test_each_partition_of_the_state_has_as_many_buckets(partitions, least, each):
    keys = bucket_keys(partitions, least)
    assert Counter(partitions_of(keys, partitions).tolist()) == dict.fromkeys(range(partitions), each)
    assert len(set(keys.tolist())) == len(keys)


@pytest.mark.parametrize("partitions", range(1, 8))
def test_the_state_of_a_join_of_streams_can_be_spread_over_twice_as_many_partitions(partitions):
    keys = bucket_keys(partitions, stream_join_buckets(partitions))
    for spread, each in ((partitions, 2), (2 * partitions, 1)):
        assert Counter(partitions_of(keys, spread).tolist()) == dict.fromkeys(range(spread), each)


def joined(monkeypatch, pin, *, rows, backwards=False):
    """The results of each worker, for so many rows of one key on both sides, of two tasks each."""
    blocks = []
    for task in (0, 1):
        run_as(monkeypatch, task)
        for number, schema in enumerate(JOIN.inputs):
            records = [dict(zip(schema.names, ("hot", i, 5, 6, 1), strict=True)) for i in range(task, rows, 2)]
            blocks += blocks_of(records, schema, number)
    run_as(monkeypatch, 1, pin)
    stage = TableStage(JOIN, 2, splits=True)
    stage.init(HANDLE)
    given = iter(blocks[::-1] if backwards else blocks)
    results = [row.asDict() for row in stage.handleInputRows((blocks[0]["bucket"],), given, TIMERS)]
    workers = {row["shuffle_key"]: Counter() for row in results if row["note"] is None}
    for row in results:
        for changes in Unpacked(JOIN)([pa.RecordBatch.from_pylist([row])]):
            pairs = changes.select(["left_value", "right_value"]).to_pylist()
            workers[row["shuffle_key"]].update(tuple(pair.values()) for pair in pairs)
    return workers


def test_a_batch_that_runs_again_gives_each_worker_the_same_pairs_of_a_hot_key(monkeypatch):
    pin = Pin(1, "shuffle", 1, 3)
    workers = joined(monkeypatch, pin, rows=300)
    assert len(workers) == 3
    assert sum(workers.values(), Counter()) == Counter((i, j) for i in range(300) for j in range(300))
    assert joined(monkeypatch, pin, rows=300, backwards=True) == workers


@pytest.mark.parametrize(("pin", "rows"), [(Pin(1, "shuffle", 1, 3), 100), (Pin(1, "hash", 1, 3), 300), (None, 300)])
def test_a_key_stays_together_if_it_is_not_hot_or_the_plan_does_not_spread_it(monkeypatch, pin, rows):
    (pairs,) = joined(monkeypatch, pin, rows=rows).values()
    assert pairs == Counter((i, j) for i in range(rows) for j in range(rows))
