"""The first rows of groups whose rows are taken back, in every version, against sorted lists."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import MemoryStore, changes_from
from millrace_jobs.changes import BEGINNING, FOREVER
from millrace_jobs.queries.tables.operators.aggregate import CountedPart, GroupedAggregate

PAIR = pa.struct([("by", pa.int64()), ("what", pa.string())])
NO_KEYS = pa.schema([])
ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.none() | st.tuples(st.integers(0, 3), st.none() | st.sampled_from("abc"))),
    max_size=7,
)
LIMIT = 3


def operator(versions, settles_after=None):
    parts = [CountedPart(each, each, PAIR, settles_after, limit=LIMIT) for each in ("top", "bottom")]
    of_table = settles_after is None
    return GroupedAggregate(NO_KEYS, tuple(parts), None, of_table, versions, False, slots=1, checked=not of_table)


def changes(aggregate, rows, weight):
    def pair(value):
        return value and dict(zip(("by", "what"), value, strict=True))

    return changes_from([(pair(v), pair(v), t, FOREVER, weight) for t, v in rows], aggregate.inputs[0])


def lists(row):
    """Both lists of a row; as in Spark, one of no rows is NULL."""
    assert [] not in (row["top"], row["bottom"])
    return tuple(row["top"] or ()), tuple(row["bottom"] or ())


def expected(rows):
    pairs = sorted((v for _, v in rows if v is not None), key=lambda v: (v[0], v[1] is not None, v[1] or ""))
    return {(tuple(w for _, w in pairs[::-1][:LIMIT]), tuple(w for _, w in pairs[:LIMIT]))} if rows else set()


@pytest.mark.parametrize("versions", [False, True])
@given(batches=st.lists(ROWS, min_size=1, max_size=4), data=st.data())
def test_the_first_rows_are_those_of_the_rows_that_remain(versions, batches, data):
    aggregate, rows = operator(versions), []
    store, held = MemoryStore(), {}
    for batch in batches:
        removed = [each for each in rows if data.draw(st.booleans())]
        for each in removed:
            rows.remove(each)
        rows += batch
        both = pa.concat_tables([changes(aggregate, batch, 1), changes(aggregate, removed, -1)])
        for table in aggregate.process(store, [both], BEGINNING).changes:
            for row in table.to_pylist():
                key = (*lists(row), row["millrace_from"], row["millrace_to"])
                held[key] = held.get(key, 0) + row["millrace_weight"]
        assert set(held.values()) <= {0, 1}
        for time in range(10) if versions else (9,):
            found = {key[:2] for key, weight in held.items() if weight and key[2] <= time < key[3]}
            assert found == expected([row for row in rows if row[0] <= time])
    if not rows:
        assert not store.tables


@given(batches=st.lists(ROWS, min_size=1, max_size=4))
def test_of_rows_that_cannot_be_taken_back_only_the_first_ones_are_kept(batches):
    aggregate, store, rows, found = operator(False, settles_after=0), MemoryStore(), [], set()
    for number, batch in enumerate(batches):
        rows += batch
        batch = [(time + 10 * number, value) for time, value in batch]
        for arrived, watermark in ((batch, 10 * number), ([], 10 * number + 10)):
            made = aggregate.process(store, [changes(aggregate, arrived, 1)], watermark).changes
            added = [row for table in made for row in table.to_pylist() if row["millrace_weight"] > 0]
            found = set(map(lists, added)) or found
        assert found == expected(rows)
    for part in ("top", "bottom"):
        kept = sum(map(len, store.all_rows(f"{part}/slot").values()))
        assert kept <= LIMIT + sum(value is not None for _, value in batches[-1])


def test_a_list_is_of_pairs_and_has_a_row():
    with pytest.raises(ValueError, match="structs of two fields: not of int64"):
        CountedPart("p", "top", pa.int64())
    with pytest.raises(ValueError, match="has at least one: 0"):
        CountedPart("p", "top", PAIR, limit=0)
