"""Emission of groups by every strategy: against the reference interpreter, and in batches with rows that go again."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import MemoryStore, Replayed, changes_from
from dual_streaming import aggregation
from dual_streaming.emission import Emitted, Strategy, emitted
from dual_streaming.streams import facts
from millrace_jobs.changes import BEGINNING, FOREVER, OUTPUT, changes_of
from millrace_jobs.queries.tables.operators.aggregate import GroupedAggregate, MergedPart
from millrace_jobs.queries.tables.operators.closing import CLOSING
from millrace_jobs.queries.tables.operators.emission import Emission
from millrace_jobs.queries.tables.operators.interface import OperatorChain

KEYS = pa.schema([("key", pa.string()), (CLOSING, pa.int64())])
COUNTED = GroupedAggregate(
    KEYS, (MergedPart("n", "sum", pa.int64()),), CLOSING, of_table=False, versions=False, final=False
)
GROUPS = changes_of(pa.schema([*KEYS, ("n", pa.int64())]))
TICK = 10
"""Microseconds of one unit of the figures' time, which have halves."""

STRATEGIES = (Strategy.EVERY_UPDATE, Strategy.WINDOW_END, Strategy.FINAL)


def ahead_of(delay):
    """How long before a window closes each strategy emits it first."""
    return (None, delay, 0)


class Run:
    """Windowed counts with one output for each strategy, and the changes of each, with the time of each new row."""

    def __init__(self, size, delay):
        emission = Emission(COUNTED.output, tuple(KEYS.names), ahead_of(delay))
        self.size, self.delay = size, delay
        self.operator, self.store, self.wake = OperatorChain(COUNTED, emission), MemoryStore(), None
        self.outputs = [[] for _ in STRATEGIES]
        self.replayed = [Replayed() for _ in STRATEGIES]

    def advance(self, now):
        if self.wake is not None and self.wake <= now - self.delay:
            self._process([], now)

    def arrive(self, now, time, key):
        end = time // self.size * self.size + self.size
        self._process([(key, end, 1, time, time + 1, 1)], now)

    def _process(self, rows, now):
        changes = changes_from(rows, self.operator.inputs[0])
        result = self.operator.process(self.store, [changes], now - self.delay)
        assert result.late == 0
        assert result.wake is None or result.wake > now - self.delay
        self.wake = result.wake
        for table in result.changes:
            (number,) = set(table.column(OUTPUT).to_pylist())
            self.replayed[number].apply([table.drop_columns([OUTPUT])])
            self.outputs[number] += [
                Emitted(now, (row["key"], row[CLOSING] - self.size), row["n"])
                for row in table.to_pylist()
                if row["millrace_weight"] > 0
            ]


@given(
    size=st.integers(1, 7),
    delay=st.integers(0, 9),
    arrivals=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.sampled_from("ab")), max_size=20),
)
def test_every_strategy_emits_what_the_reference_does_when_it_does(size, delay, arrivals):
    arrivals = sorted(
        ((now, max(now - min(back, delay), 0), key) for now, back, key in arrivals), key=lambda each: each[0]
    )
    run = Run(size, delay)
    until = 40
    for tick in range(until + 1):
        run.advance(tick)
        for now, time, key in arrivals:
            if now == tick:
                run.arrive(now, time, key)
    records = facts((time, key) for _, time, key in arrivals)
    timed = [(now, record) for (now, _, _), record in zip(arrivals, records, strict=True)]
    for strategy, output in zip(STRATEGIES, run.outputs, strict=True):
        expected = emitted(
            timed,
            aggregation.tumbling(size, aggregation.by_value),
            aggregation.count,
            lambda key: key[1] + size,
            strategy,
            delay=delay,
            until=until,
        )
        assert Counter(output) == Counter(expected)
    tables = [{row[:-2] for row in replayed.rows.values()} for replayed in run.replayed]
    assert tables[0] == tables[1] == tables[2]
    assert (run.store.tables, run.wake) == ({}, None)


def test_figures_5_10_and_5_11_have_their_latencies_in_units_of_time():
    """A window of 5 and a delay of 3: a latency of 4.5 by the watermark, and none with every update."""
    run = Run(5 * TICK, 3 * TICK)
    arrivals = [5, 15, 25, 35]
    for now in range(0, 10 * TICK, 5):
        if now % TICK == 0:  # a watermark is generated at every unit
            run.advance(now)
        if now in arrivals:
            run.arrive(now, now, "k")
    latencies = [(output[-1].at - arrivals[-1]) / TICK for output in run.outputs]
    assert latencies == [0, 1.5, 4.5]
    assert [len(output) for output in run.outputs] == [4, 1, 1]


@pytest.mark.parametrize(("name", "arrival"), [("a", 6), ("b", 7), ("c", 8.5), ("d", 9), ("e", 14), ("f", 7.5)])
def test_figure_5_12_only_final_results_wait_for_a_common_watermark(name, arrival):
    run = Run(5 * TICK, 10 * TICK)
    for now in range(0, 16 * TICK, 5):
        run.advance(now)
        if now == arrival * TICK:
            run.arrive(now, 4 * TICK, name)
    assert [output[-1].at / TICK for output in run.outputs] == [arrival, arrival, 15]


@given(
    batches=st.lists(
        st.tuples(
            st.integers(0, 8),
            st.dictionaries(st.integers(0, 5), st.none() | st.integers(0, 3), max_size=4),
        ),
        max_size=12,
    ),
    slots=st.sampled_from([1, 64]),
)
def test_an_output_is_the_table_of_the_groups_that_were_due(batches, slots):
    """Groups come, change and go until they close; the changes of an output are those of its table, and no others."""
    closing = {key: 4 * key if key else None for key in range(6)}
    emission = Emission(GROUPS, tuple(KEYS.names), ahead_of(delay=6), slots)
    store, watermark = MemoryStore(), BEGINNING
    groups: dict[int, int] = {}
    replayed = [Replayed() for _ in emission.ahead]
    for step, updates in [*batches, (100, {})]:
        watermark = max(watermark, 0) + step if step else watermark
        rows = []
        for key, value in updates.items():
            is_open = closing[key] is None or closing[key] > watermark
            if is_open and groups.get(key) != value:
                rows += [(str(key), closing[key], groups[key], BEGINNING, FOREVER, -1)] if key in groups else []
                rows += [(str(key), closing[key], value, BEGINNING, FOREVER, 1)] if value is not None else []
                groups = {each: n for each, n in {**groups, key: value}.items() if n is not None}
        result = emission.process(store, [changes_from(rows, GROUPS)], watermark)
        for number, ahead in enumerate(emission.ahead):
            due = [key for key in closing if ahead is None or (closing[key] or FOREVER) <= watermark + ahead]
            expected = {str(key): groups[key] for key in due if key in groups}
            found = [table.drop_columns([OUTPUT]) for table in result.changes if table[OUTPUT][0].as_py() == number]
            replayed[number].apply(found)
            assert {row[0]: row[2] for row in replayed[number].rows.values()} == expected
        assert result.wake is None or result.wake > watermark
        held = [row for rows in store.all_rows("output-1/slot").values() for row in rows]
        assert all(row[CLOSING] is None or row[CLOSING] > watermark + 6 for row in held)
    assert 0 in groups or not store.tables


def test_a_longer_wait_does_not_hide_changes_of_rows_that_were_emitted():
    """The delay of a watermark may be changed: a row that was emitted is still taken back."""
    store, group = MemoryStore(), ("a", 100)
    before, after = (Emission(GROUPS, tuple(KEYS.names), (ahead,)) for ahead in (50, 10))

    def changes(*rows):
        return [changes_from([(*group, n, BEGINNING, FOREVER, weight) for n, weight in rows], GROUPS)]

    (first,) = before.process(store, changes((1, 1)), 60).changes
    (second,) = after.process(store, changes((1, -1), (2, 1)), 70).changes
    assert first.column("n").to_pylist() == [1]
    assert second.column("n").to_pylist() == [1, 2]
    assert not store.tables
