"""Large results of a table, netted by the tasks of many partitions, are what the driver nets of few."""

import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.changes import FOREVER, FROM, TO, WEIGHT
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.kafka.table_results import KeptParts, TableResults

WEIGHTED, VERSIONED = ResultKeys(("k",), weighted=True), ResultKeys(("k",), weighted=True, versioned=True)
TWICE = 'two rows of the result have the key {"k":1}'

ROWS = st.dictionaries(st.integers(0, 9), st.integers(0, 3))
"""A table of one batch: a value for each key."""


def changes_of(before, after, *, versioned):
    """The changes from one table to the other; with versions, each row that goes has a version that ended at 7."""
    added = [(key, value, 1, 7, FOREVER) for key, value in after.items()]
    removed = [(key, value, -1, 3, FOREVER) for key, value in before.items()]
    earlier = [(key, value, 1, 3, 7) for key, value in before.items()]
    rows = added + removed + (earlier if versioned else [])
    columns = {
        "key": pa.array([f'{{"k":{key}}}' for key, *_ in rows], pa.string()),
        "value": pa.array([f'{{"v":{value}}}' for _, value, *_ in rows], pa.string()),
        "end": pa.array([key for key, *_ in rows], pa.int64()),
    }
    if versioned:
        columns |= {
            FROM: pa.array([row[3] for row in rows], pa.int64()),
            TO: pa.array([row[4] for row in rows], pa.int64()),
        }
    return pa.table(columns | {WEIGHT: pa.array([row[2] for row in rows], pa.int64())})


def by_tasks(results, changes, partitions=3):
    """The parts that the driver gets of what tasks make of changes that were divided by key."""
    numbers = pa.array([zlib.crc32(key.encode()) % partitions for key in changes.column("key").to_pylist()], pa.int64())
    for number in range(partitions):
        own = changes.filter(pa.compute.equal(numbers, number))
        made = list(results._net_of_task(iter(own.to_batches(max_chunksize=2))))
        if made:
            few = pa.Table.from_batches(made).to_batches(max_chunksize=3)
            yield from (results.part_of(pa.Table.from_batches([each])) for each in few)


def sorted_rows(tables):
    return sorted((row for table in tables for row in table.to_pylist()), key=str)


@pytest.mark.parametrize("keys", [WEIGHTED, VERSIONED], ids=["newest", "versions"])
@given(before=ROWS, after=ROWS)
def test_parts_of_tasks_are_the_part_of_the_driver(keys, before, after):
    results, changes = TableResults(keys), changes_of(before, after, versioned=keys.versioned)
    whole, parts = results.part_of(changes), list(by_tasks(results, changes))
    assert sorted_rows([part.rows for part in parts]) == sorted_rows([whole.rows])
    assert {row["key"]: row["value"] for row in whole.rows.to_pylist()} == {
        f'{{"k":{key}}}': f'{{"v":{after[key]}}}' if key in after else None
        for key in before | after
        if keys.versioned or before.get(key) != after.get(key)
    }
    if keys.versioned:
        assert sorted_rows([part.earlier for part in parts]) == sorted_rows([whole.earlier])
    else:
        assert whole.earlier is None
        assert all(part.earlier is None for part in parts)


@pytest.mark.parametrize("keys", [WEIGHTED, VERSIONED], ids=["newest", "versions"])
def test_a_key_of_two_rows_is_refused_wherever_it_is_netted(keys):
    results = TableResults(keys)
    made = [changes_of({}, {1: value, 5: value}, versioned=keys.versioned) for value in (1, 2)]
    twice = pa.concat_tables([made[0], made[1].slice(0, 1)])
    with pytest.raises(MillraceError, match=TWICE):
        results.part_of(twice)
    with pytest.raises(MillraceError, match=TWICE):
        list(by_tasks(results, twice))


def test_parts_are_kept_while_they_are_few():
    part = TableResults(WEIGHTED).part_of(changes_of({}, {1: 1}, versioned=False))
    kept = KeptParts(2 * part.bytes)
    for _ in range(2):
        kept.add(part)
    assert kept.parts == [part, part]
    kept.add(part)
    assert kept.parts is None
    kept.add(part)
    assert kept.parts is None
