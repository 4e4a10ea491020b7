"""Sessions under every strategy: after each batch, the tables are those of the reference interpreter."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import MemoryStore, Replay, Replayed, changes_from, disordered
from dual_streaming.aggregation import by_value, sessions
from dual_streaming.streams import facts
from millrace_jobs.changes import BEGINNING, FOREVER, NO_TIME, OUTPUT
from millrace_jobs.queries.tables.operators.closing import CLOSING
from millrace_jobs.queries.tables.operators.emission import Emission
from millrace_jobs.queries.tables.operators.interface import OperatorChain
from millrace_jobs.queries.tables.operators.merging import MergedPart
from millrace_jobs.queries.tables.operators.sessions import START, SessionAggregate

GRACE = 4
KEYS = pa.schema([("key", pa.string())])
PARTS = (
    MergedPart("rows", "sum", pa.int64()),
    MergedPart("total", "sum", pa.float64()),
    MergedPart("most", "max", pa.int64()),
)
EVENTS = st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", None]))


def records(events, operator):
    rows = [(key, t, 1, float(t), t, t, t + 1, 1) for t, key in events]
    return changes_from(rows, operator.inputs[0])


def expected_sessions(events, gap):
    """Rows of the sessions of all events: key, first time, and the time of the last record."""
    by_last = sessions(facts((t, (key,)) for t, key in sorted(events, key=lambda e: e[0])), by_value, gap, list_of)
    return Counter(
        (key[0], start, len(found.v), float(sum(found.v)), max(found.v))
        for (key, start), found in by_last.latest.items()
    )


def list_of(members):
    return [each.t for each in members]


def shown(rows):
    """Rows without the time at which they close and their periods; the sum is exact for small integers."""
    return Counter((key, start, *parts) for key, start, _, *parts, _, _ in rows)


@given(gap=st.integers(1, 5), batches=disordered(EVENTS, GRACE))
def test_sessions_are_those_of_all_records_so_far_whatever_their_order(gap, batches):
    operator = SessionAggregate(KEYS, PARTS, gap)
    replay, arrived = Replay(operator), []
    for events, watermark in batches:
        arrived += events
        replay.batch([records(events, operator)], watermark)
        assert shown(replay.rows) == expected_sessions(arrived, gap)
        assert all(closing - gap - 1 == since for _, _, closing, *_, since, _ in replay.rows)
    replay.end()
    assert replay.late == 0
    assert replay.store.tables == {}


@given(gap=st.integers(1, 5), batches=disordered(EVENTS, GRACE))
def test_every_strategy_emits_sessions_when_it_says(gap, batches):
    """The outputs emit every update, first at the end of a session, and when it is final."""
    operator = SessionAggregate(KEYS, PARTS, gap)
    keys = (*KEYS.names, START, CLOSING)
    chain = OperatorChain(operator, Emission(operator.output, keys, (None, GRACE, 0)))
    store, outputs, arrived = MemoryStore(), [Replayed(), Replayed(), Replayed()], []
    for events, watermark in [*batches, ([], FOREVER - 1)]:
        arrived += events
        result = chain.process(store, [records(events, operator)], watermark)
        assert result.wake is None or result.wake > watermark
        for table in result.changes:
            (number,) = set(table.column(OUTPUT).to_pylist())
            assert number < 2 or min(table.column("millrace_weight").to_pylist()) > 0, "a final session was taken back"
            outputs[number].apply([table.drop_columns([OUTPUT])])
        everything = {tuple(row) for row in outputs[0].rows.values()}
        assert shown(everything) == expected_sessions(arrived, gap)
        for output, ahead in zip(outputs[1:], (GRACE, 0), strict=True):
            due = {row for row in everything if row[2] - ahead <= watermark}
            assert set(output.rows.values()) == due
    assert store.tables == {}


def test_a_late_record_is_counted_and_one_without_event_time_is_in_no_session():
    operator = SessionAggregate(KEYS, PARTS, gap=5)
    replay = Replay(operator)
    replay.batch([records([(10, "a")], operator)], BEGINNING)
    replay.batch([records([(14, "a"), (15, "a"), (NO_TIME, "a")], operator)], 20)
    assert replay.late == 1
    assert shown(replay.rows) == Counter([("a", 10, 2, 25.0, 15)])


def test_a_record_between_two_sessions_takes_both_back():
    operator = SessionAggregate(KEYS, PARTS, gap=5)
    replay = Replay(operator)
    replay.batch([records([(0, "a"), (10, "a")], operator)], BEGINNING)
    replay.emitted.clear()
    replay.batch([records([(5, "a")], operator)], BEGINNING)
    assert sorted((row[1], row[3], weight) for row, weight in replay.emitted) == [(0, 1, -1), (0, 3, 1), (10, 1, -1)]


def test_sessions_are_not_made_of_rows_that_can_go():
    operator = SessionAggregate(KEYS, PARTS, gap=5)
    with pytest.raises(ValueError, match="a session loses a record"):
        operator.process(MemoryStore(), [changes_from([("a", 1, 1, 1.0, 1, 1, 2, -1)], operator.inputs[0])], BEGINNING)
