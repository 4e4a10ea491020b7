"""A stage of operators on tables, without Spark: blocks in buckets, and their processing."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext

from millrace_jobs.pipeline.table_stages import InBuckets, TableStage, Unpacked
from millrace_jobs.tables.changes import FOREVER, changes_of
from millrace_jobs.tables.upserts import UpsertedTable

VALUES = pa.schema([("key", pa.string()), ("value", pa.int64())])


def variable(*_):
    """A state variable of one bucket."""
    held = {}
    return SimpleNamespace(getValue=held.get, updateValue=held.__setitem__, get=lambda: None)


HANDLE = SimpleNamespace(getMapState=variable, getValueState=variable)
TIMERS = SimpleNamespace(getCurrentWatermarkInMs=lambda: 0)


def blocks_of(task, value, monkeypatch):
    """The blocks that a task of this number makes of one upsert."""
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: task))
    row = {"key": "a", "value": value, "millrace_from": 5, "millrace_to": FOREVER, "millrace_weight": 1}
    schema = changes_of(VALUES)
    cut = InBuckets(schema, ("key",), number=0, partitions=2)
    (blocks,) = cut([pa.RecordBatch.from_pylist([row], schema=schema)])
    return blocks.to_pylist()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_which_of_two_upserts_is_the_last_one_does_not_depend_on_the_shuffle(monkeypatch, order):
    blocks = [blocks_of(task, value=task, monkeypatch=monkeypatch)[0] for task in (0, 1)]
    stage = TableStage(UpsertedTable(VALUES, ("key",), versions=True))
    stage.init(HANDLE)
    results = list(stage.handleInputRows((blocks[0]["bucket"],), iter([blocks[i] for i in order]), TIMERS))
    found = pa.RecordBatch.from_pylist([row.asDict() for row in results])
    (changes,) = Unpacked(changes_of(VALUES))([found])
    assert [(row["value"], row["millrace_weight"]) for row in changes.to_pylist()] == [(1, 1)]
