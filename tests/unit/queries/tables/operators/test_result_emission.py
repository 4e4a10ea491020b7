"""Emission of results of joins by every strategy: after each batch, every output has what the interpreter says."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import disordered
from dual_streaming.emission import Strategy, shown
from dual_streaming.joins import Band, JoinType, of_stream_and_table, of_streams
from dual_streaming.streams import Record, facts
from dual_streaming.tables import EvolvingTable
from millrace_jobs.changes import BEGINNING, values_of
from millrace_jobs.queries.tables.operators.closing import CLOSING, LONELY_UNTIL
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import Contents, JoinInput
from millrace_jobs.queries.tables.operators.result_emission import Hold, ResultEmission
from staged_tables import END, Stage, records, upserts, values

GRACE, SIZE = 4, 2
HOLDS = {Strategy.EVERY_UPDATE: None, Strategy.WINDOW_END: Hold(LONELY_UNTIL, GRACE), Strategy.FINAL: Hold(CLOSING)}
LEFT, RIGHT = values("lk", "lv", banded=True), values("rk", "rv")
BY_KEY = Band(lambda record: record.v[0], lambda record: record.v[0], SIZE)
EVENTS = st.tuples(st.integers(0, 12), st.sampled_from("lr"), st.sampled_from([*"AB", None]))
TABLE_EVENTS = st.tuples(
    st.integers(0, 12), st.sampled_from("lr"), st.sampled_from("AB"), st.none() | st.integers(0, 3)
)


def numbered(batches):
    """Give every record a value of its own, so that results tell which records they join."""
    number = iter(range(10**6))
    return [([(*event, next(number)) for event in events], watermark) for events, watermark in batches]


def stream_join(join_type):
    left = JoinInput(LEFT, ("lk",), Contents.RECORDS, preserved=join_type.of_left, reach=SIZE)
    right = JoinInput(RIGHT, ("rk",), Contents.RECORDS, preserved=join_type.of_right)
    return TemporalJoin(left, right, versions=False, closes=True)


def stream_of(events, which):
    of_side = sorted((event for event in events if event[1] == which), key=lambda event: event[0])
    return facts((t, (key, value)) for t, _, key, value in of_side)


def is_outer(result):
    return None in result.v


def expected_rows(results):
    none = (None, None)
    return Counter((*(one or none), *(other or none), t, t + 1) for _, t, _, (one, other) in results)


class Outputs:
    """The rows of each output of a join, of which no final one is ever taken back."""

    def __init__(self, join, *inputs):
        self.stage = Stage(ResultEmission(join.output, tuple(HOLDS.values())), Stage(join, *inputs))

    def batch(self, sources, watermark):
        changes = self.stage.batch(sources, watermark)
        places = zip(
            changes.column("millrace_output").to_pylist(), changes.column("millrace_weight").to_pylist(), strict=True
        )
        assert all(weight > 0 for number, weight in places if list(HOLDS)[number] is Strategy.FINAL)

    def of(self, strategy):
        number = list(HOLDS).index(strategy)
        return Counter({(*row[:-3], *row[-2:]): count for row, count in self.stage.rows.items() if row[-3] == number})

    def check(self, results, size, watermark, *, at_once=()):
        """Check each output for results that can change, and those that are final at once."""
        event_time = -END if watermark == BEGINNING else watermark + GRACE
        for strategy in HOLDS:
            expected = shown(results, is_outer, size, strategy, event_time=event_time, delay=GRACE)
            assert self.of(strategy) == expected_rows([*at_once, *expected]), strategy

    def check_end(self):
        self.batch({}, END)
        assert self.of(Strategy.EVERY_UPDATE) == self.of(Strategy.WINDOW_END) == self.of(Strategy.FINAL)
        assert self.stage.store.tables == {}, "rows are held back forever"


@pytest.mark.parametrize("join_type", [JoinType.LEFT, JoinType.RIGHT, JoinType.FULL])
@given(batches=disordered(EVENTS, GRACE).map(numbered))
def test_outer_results_of_streams_wait_as_long_as_their_output_says(join_type, batches):
    outputs, arrived = Outputs(stream_join(join_type), "l", "r"), []
    for events, watermark in batches:
        outputs.batch({"l": records(events, "l", (-SIZE, SIZE)), "r": records(events, "r")}, watermark)
        arrived += events
        results = of_streams(stream_of(arrived, "l"), stream_of(arrived, "r"), BY_KEY, join_type)
        pairs = [each for each in results if not is_outer(each)]
        outputs.check(tuple(filter(is_outer, results)), SIZE, watermark, at_once=pairs)
    outputs.check_end()


def table_of(events):
    """The table of the upserts of the right side, in the order of arrival."""
    updates = (event for event in events if event[1] == "r")
    return EvolvingTable(Record(t, key, None if value is None else (key, value)) for t, _, key, value in updates)


def upserts_of(events):
    """The upserts of the right side: the other columns of a row are in a tuple."""
    return upserts([(*event[:3], None if event[3] is None else event[3:]) for event in events], "r", RIGHT)


@pytest.mark.parametrize("join_type", [JoinType.INNER, JoinType.LEFT])
@given(batches=disordered(TABLE_EVENTS, GRACE))
def test_results_of_a_stream_and_a_table_wait_as_long_as_their_output_says(join_type, batches):
    left = JoinInput(values("lk", "lv"), ("lk",), Contents.RECORDS, preserved=join_type.of_left)
    right = JoinInput(RIGHT, ("rk",), Contents.TABLE, upserted=True)
    outputs, arrived = Outputs(TemporalJoin(left, right, versions=True, closes=True), "l", "r"), []
    for events, watermark in batches:
        outputs.batch({"l": records(events, "l"), "r": upserts_of(events)}, watermark)
        arrived += events
        joined = of_stream_and_table(stream_of(arrived, "l"), table_of(arrived), lambda record: record.v[0], join_type)
        outputs.check(joined, 0, watermark)
    outputs.check_end()


@given(
    batches=disordered(st.tuples(st.integers(0, 12), st.sampled_from("lrt"), st.sampled_from("AB")), GRACE).map(
        numbered
    )
)
def test_outer_results_that_meet_a_table_are_final_when_both_joins_are(batches):
    """A final row is in the result of all events; a row that waits for a partner does so behind the second join."""
    first = stream_join(JoinType.LEFT)
    left = JoinInput(values_of(first.output), ("lk",), Contents.RESULTS, preserved=True, lag=first.lag, reach=first.lag)
    right = JoinInput(values("tk", "tv"), ("tk",), Contents.TABLE, upserted=True)
    second = TemporalJoin(left, right, versions=True, closes=True)
    outputs, finals = Outputs(second, Stage(first, "l", "r"), "t"), Counter()
    for events, watermark in batches:
        dated = upserts([(*event[:3], event[3:]) for event in events], "t", values("tk", "tv"))
        outputs.batch({"l": records(events, "l", (-SIZE, SIZE)), "r": records(events, "r"), "t": dated}, watermark)
        finals |= outputs.of(Strategy.FINAL)
        lazy, eager = outputs.of(Strategy.WINDOW_END), outputs.of(Strategy.EVERY_UPDATE)
        assert lazy <= eager
        assert all(None in row for row in eager - lazy), "a result with partners waits"
    outputs.check_end()
    assert finals <= outputs.of(Strategy.EVERY_UPDATE)


def test_rows_of_two_tables_have_no_time_until_which_they_can_change():
    sides = (JoinInput(schema, tuple(schema.names[:1]), Contents.TABLE) for schema in (values("lk", "lv"), RIGHT))
    with pytest.raises(ValueError, match="results of a join of two tables have no time"):
        TemporalJoin(*sides, versions=True, closes=True)
