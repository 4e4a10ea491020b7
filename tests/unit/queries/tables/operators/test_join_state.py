"""What a join keeps: nothing that is not needed any more, and everything that is, however the watermark jumps."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from change_tables import changes_from
from dual_streaming.joins import JoinType, of_tables
from dual_streaming.streams import Record
from dual_streaming.tables import EvolvingTable
from millrace_jobs.changes import BEGINNING, FOREVER
from millrace_jobs.queries.tables.operators import state
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import Contents, JoinInput
from millrace_jobs.queries.tables.operators.upserts import UpsertedTable
from staged_tables import END, Stage, records, upserts, values

BEFORE, AFTER = 40, 90
SQL = {JoinType.INNER: "JOIN", JoinType.LEFT: "LEFT JOIN", JoinType.RIGHT: "RIGHT JOIN", JoinType.FULL: "FULL JOIN"}


class LessThan:
    """The condition that one column is less than another; see ``PairCondition``."""

    def __init__(self, *columns):
        self.columns = columns

    def __call__(self, pairs):
        return pc.less(*(pairs.column(name) for name in self.columns)).to_numpy(zero_copy_only=False)


def band_join(join_type, *, final=False, condition=None):
    left = JoinInput(
        values("lk", "lv", banded=True),
        ("lk",),
        Contents.RECORDS,
        preserved=join_type.of_left,
        reach=BEFORE,
        span=AFTER,
    )
    right = JoinInput(values("rk", "rv"), ("rk",), Contents.RECORDS, preserved=join_type.of_right)
    return Stage(TemporalJoin(left, right, versions=False, final=final, condition=condition), "l", "r")


def table_join(join_type):
    left, right = (
        JoinInput(values(f"{side}k", f"{side}v"), (f"{side}k",), Contents.TABLE, upserted=True, preserved=preserved)
        for side, preserved in (("t", join_type.of_left), ("u", join_type.of_right))
    )
    return Stage(TemporalJoin(left, right, versions=True), "t", "u")


def run(stage, batches):
    for events, watermark in batches:
        rows = [(t, at, key, None if value is None else (value,)) for t, at, key, value in events]
        stage.batch(
            {
                "l": records(events, "l", (-BEFORE, AFTER)),
                "r": records(events, "r"),
                "t": upserts(rows, "t", values("tk", "tv")),
                "u": upserts(rows, "u", values("uk", "uv")),
            },
            watermark,
        )
    return stage


def many(seed, sources, *, keys, rows=600, length=2000, delay=60):
    """Return batches of many events with few keys, up to ``delay`` out of order, and with a watermark that jumps."""
    rng = np.random.default_rng(seed)
    times, late = rng.integers(0, length, rows), rng.integers(0, delay + 1, rows)
    # a table has one upsert of a key at one time
    keyed = {(int(t), sources[at], f"k{key}"): at for t, at, key in zip(times, rng.integers(0, len(sources), rows), rng.zipf(1.6, rows) % keys, strict=True)}  # fmt: skip
    events = [(*event, number) for number, event in enumerate(keyed)]
    events = [events[i] for i in np.argsort([event[0] + each for event, each in zip(events, late, strict=False)])]
    batches, latest = [], BEGINNING
    while events:
        size = int(rng.choice([1, 20, 150]))
        batches.append((events[:size], latest))
        if rng.random() < 0.7:  # the watermark stands, and then jumps
            latest = max(latest, max(event[0] for event in events[:size]) - delay)
        events = events[size:]
    return batches


def judged(batches, sql):
    """Return the rows that DuckDB has for all events, in tables by their sources."""
    with duckdb.connect() as connection:
        for source in {event[1] for events, _ in batches for event in events}:
            rows = [event for events, _ in batches for event in events if event[1] == source]
            table = pa.table(
                {name: [row[place] for row in rows] for name, place in (("t", 0), ("k", 2), ("v", 3))},
                pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.int64())]),
            )
            connection.register(source, table)
        return Counter(connection.execute(sql).fetchall())


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("join_type", JoinType)
@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 32), segment=st.sampled_from([1, 16, 1 << 14]), less=st.booleans())
def test_many_records_in_many_segments_are_joined_as_by_duckdb(join_type, final, seed, segment, less):
    batches = many(seed, "lr", keys=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "SEGMENT_ROWS", segment)
        condition = LessThan("lv", "rv") if less else None
        stage = run(band_join(join_type, final=final, condition=condition), [*batches, ([], END)])
    sql = f"""
        SELECT l.k, l.v, r.k, r.v, greatest(l.t, r.t) FROM l {SQL[join_type]} r
        ON l.k = r.k AND r.t BETWEEN l.t - {BEFORE} AND l.t + {AFTER} {"AND l.v < r.v" if less else ""}"""
    assert Counter({row[:-1]: n for row, n in stage.rows.items()}) == judged(batches, sql)
    assert not final or all(weight > 0 for weight in stage.weights)
    assert (stage.held, stage.wake, stage.late) == ([], None, 0)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("join_type", JoinType)
@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 32), segment=st.sampled_from([1, 16, 1 << 14]))
def test_many_versions_of_a_table_are_looked_up_as_by_duckdb(join_type, final, seed, segment):
    batches = many(seed, "rt", keys=12)
    left = JoinInput(values("rk", "rv"), ("rk",), Contents.RECORDS, preserved=join_type.of_left)
    right = JoinInput(values("tk", "tv"), ("tk",), Contents.TABLE, upserted=True, preserved=join_type.of_right)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "SEGMENT_ROWS", segment)
        stage = run(Stage(TemporalJoin(left, right, versions=True, final=final), "r", "t"), [*batches, ([], END)])
    joined = f"r ASOF {SQL[join_type]} t ON r.k = t.k AND r.t >= t.t"
    expected = judged(batches, f"SELECT r.k, r.v, t.k, t.v, coalesce(r.t, t.t) FROM {joined}")
    if final:  # the row that a key has now may still meet a record
        expected -= judged(batches, "SELECT NULL, NULL, k, max_by(v, t), max(t) FROM t GROUP BY k")
    assert Counter({row[:-1]: n for row, n in stage.rows.items()}) == expected
    assert not final or all(weight > 0 for weight in stage.weights)
    assert stage.wake is None, "what is valid now waits for no watermark"
    kept = [rows for name, rows in stage.store.all_rows("left/").items() if name[-1].isdigit()]
    # of the records, the last one that a row has met
    assert sum(map(len, kept)) <= (12 if join_type.of_right else 0)


@pytest.mark.parametrize("join_type", JoinType)
@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 32))
def test_the_latest_version_of_many_rows_is_joined_as_by_duckdb(join_type, seed):
    batches = many(seed, "tu", keys=40)
    stage = run(table_join(join_type), batches)
    newest = "(SELECT k, max_by(v, t) AS v FROM {0} GROUP BY k) {0}"
    sql = f"SELECT t.k, t.v, u.k, u.v FROM {newest.format('t')} {SQL[join_type]} {newest.format('u')} ON t.k = u.k"
    assert stage.latest == judged(batches, sql)


@pytest.mark.parametrize("join_type", JoinType)
@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 32))
def test_rows_of_one_key_with_different_partners_are_joined_in_every_version(join_type, seed):
    """The condition decides between partners that have ended, of which the last one is kept for each row."""
    batches = many(seed, "tu", keys=8, rows=60, length=200, delay=20)
    left, right = (
        JoinInput(values(f"{side}k", f"{side}v", f"{side}g"), (f"{side}g",), Contents.TABLE, preserved=preserved, checked=True)
        for side, preserved in (("t", join_type.of_left), ("u", join_type.of_right))
    )  # fmt: skip
    join = TemporalJoin(left, right, versions=True, condition=LessThan("tv", "uv"))
    rows = [Stage(UpsertedTable(values(f"{side}k", f"{side}v"), (f"{side}k",), versions=True), side) for side in "tu"]
    stage = Stage(join, *((each, lambda k, v, *_: (k, v, v % 2)) for each in rows))
    run(stage, [*batches, ([], 10_000)])
    events = [event for each, _ in batches for event in each]
    tables = [EvolvingTable(Record(t, key, (key, v)) for t, at, key, v in events if at == side) for side in "tu"]
    expected = of_tables(*tables, [lambda row: row.v[1] % 2] * 2, join_type, lambda one, other: one[1] < other[1])
    group = lambda row: (*row, row[1] % 2) if row else (None,) * 3  # noqa: E731
    for time, found in stage.versions(expected.times).items():
        assert found == Counter((*group(row.v[0]), *group(row.v[1])) for row in expected.at(time).values())


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize(("begin", "end"), [(5, 2), (BEGINNING + 1, BEGINNING + 1)], ids=["reversed", "unknown"])
def test_a_record_that_cannot_match_is_in_an_outer_result(begin, end, final):
    """Its matching period is empty, as where a range ends before it begins, or where event time is NULL."""
    stage = band_join(JoinType.FULL, final=final)
    schema = stage.operator.inputs[0]
    stage.batch({"l": changes_from([("A", 1, begin, end, 3, 4, 1)], schema), "r": records([(3, "r", "A", 2)], "r")}, 0)
    stage.batch({}, END)
    assert stage.rows == {("A", 1, None, None, 3, 4): 1, (None, None, "A", 2, 3, 4): 1}
    assert stage.held == []


def test_the_start_of_a_result_without_a_partner_is_known_after_its_last_partner_has_ended():
    stage = run(table_join(JoinType.LEFT), [([(0, "t", "A", 1), (0, "u", "A", 2), (5, "u", "A", None)], BEGINNING)])
    alone = ("A", 1, None, None, 5, FOREVER)
    assert stage.rows[alone] == 1
    run(stage, [([(60, "u", "A", 3)], 50), ([(55, "u", "A", 4)], 51)])
    assert set(stage.rows) == {
        ("A", 1, "A", 2, 0, 5), ("A", 1, None, None, 5, 55), ("A", 1, "A", 4, 55, 60), ("A", 1, "A", 3, 60, FOREVER)
    }  # fmt: skip


def test_no_partner_is_kept_for_a_row_that_has_ended():
    stage = run(table_join(JoinType.LEFT), [([(0, "t", "A", 1), (0, "u", "A", 2)], BEGINNING)])
    run(stage, [([(5, "u", "A", None), (6, "t", "A", None)], 1), ([(70, "t", "A", None), (70, "u", "A", None)], 60)])
    run(stage, [([(90, "t", "A", None), (90, "u", "A", None)], 80)])
    assert [row for rows in stage.store.all_rows("").values() for row in rows if row.get("uv") or row.get("tv")] == []


def test_a_record_that_is_behind_the_watermark_keeps_no_partner_once_it_is_emitted():
    operator = band_join(JoinType.LEFT, final=True).operator
    stage = Stage(replace(operator, left=replace(operator.left, checked=True)), "l", "r")
    run(stage, [([(3, "r", "A", 1)], 0), ([(4, "l", "A", 2)], END)])
    assert stage.rows == {("A", 2, "A", 1, 4, 5): 1}
    assert (stage.held, stage.wake) == ([], None)


def test_matching_periods_may_have_no_ends():
    stage = band_join(JoinType.FULL)
    schema = stage.operator.inputs[0]
    rows = [("A", 1, BEGINNING, FOREVER, 0, 1, 1), ("A", 2, BEGINNING, 5, FOREVER - 2, FOREVER - 1, 1)]
    stage.batch({"l": changes_from(rows, schema), "r": records([(4, "r", "A", 3), (FOREVER - 9, "r", "A", 4)], "r")}, 0)
    assert set(stage.rows) == {
        ("A", 1, "A", 3, 4, 5),
        ("A", 1, "A", 4, FOREVER - 9, FOREVER - 8),
        ("A", 2, "A", 3, FOREVER - 2, FOREVER - 1),
    }
    stage.batch({}, FOREVER - 1 - BEFORE)
    assert [row["lv"] for rows in stage.store.all_rows("left/").values() for row in rows if "lv" in row] == [1, 2]


@pytest.mark.parametrize("join_type", JoinType)
def test_batches_without_rows_change_nothing(join_type):
    for stage in (band_join(join_type), band_join(join_type, final=True), table_join(join_type)):
        outcome = stage.operator.process(stage.store, [schema.empty_table() for schema in stage.operator.inputs], 7)
        assert (list(outcome.changes), outcome.late, outcome.wake, stage.held) == ([], 0, None, [])


def test_the_lag_of_a_join_is_how_far_its_results_are_behind():
    hour = round(timedelta(hours=1) / timedelta(microseconds=1))
    stream = JoinInput(values("lk"), ("lk",), Contents.RECORDS)
    ranged = JoinInput(values("lk"), ("lk",), Contents.RECORDS, preserved=True, reach=hour, span=2 * hour)
    open_ended = JoinInput(values("lk"), ("lk",), Contents.RECORDS, preserved=True, span=None)
    behind = JoinInput(values("rk"), ("rk",), Contents.RESULTS, lag=5 * hour, reach=5 * hour)
    preserved = JoinInput(values("rk"), ("rk",), Contents.RECORDS, preserved=True)
    table = JoinInput(values("rk"), ("rk",), Contents.TABLE)
    lags = [
        TemporalJoin(left, right, versions=True).lag
        for left, right in [
            (stream, stream), (ranged, stream), (ranged, preserved), (ranged, behind), (stream, behind), (stream, preserved),
            (open_ended, stream), (table, table),
        ]
    ]  # fmt: skip
    assert lags == [0, 2 * hour, 2 * hour, 7 * hour, 5 * hour, 0, None, 0]
    assert TemporalJoin(table, table, versions=False).lag is None
