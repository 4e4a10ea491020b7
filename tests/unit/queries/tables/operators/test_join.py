"""The join of changes against the reference interpreter, for any disorder within the grace and any cut into batches."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import Replay, changes_from, disordered
from dual_streaming.joins import (
    Band,
    JoinType,
    always,
    having_partner,
    having_row,
    of_stream_and_table,
    of_streams,
    of_tables,
    rows_having_row,
)
from dual_streaming.streams import Record, facts
from dual_streaming.tables import EvolvingTable
from millrace_jobs.changes import BEGINNING, FOREVER, NO_TIME, changes_of
from millrace_jobs.partitioners.registry import make
from millrace_jobs.queries.tables.operators.join import Kept, TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import MATCH_FROM, MATCH_TO, Contents, JoinInput
from millrace_jobs.queries.tables.operators.splitting import NOT_SPLIT, Split

GRACE, BAND = 4, 2
KEYS = st.sampled_from([*"AB", None])
BY_KEY = Band(lambda record: record.v[0], lambda record: record.v[0], BAND)


def values(prefix, *, banded=False):
    match = [pa.field(MATCH_FROM, pa.int64()), pa.field(MATCH_TO, pa.int64())] if banded else []
    return pa.schema([pa.field(f"{prefix}k", pa.string()), pa.field(f"{prefix}v", pa.int64()), *match])


def side(prefix, contents, *, banded=False, **options):
    return JoinInput(values(prefix, banded=banded), (f"{prefix}k",), contents, **options)


def records(events, which, *, banded=False):
    """Rows of the events of one side, each ``(time, side, key, value)``."""
    match = lambda t: (t - BAND, t + BAND + 1) if banded else ()  # noqa: E731
    rows = [(key, value, *match(t), t, t + 1, 1) for t, at, key, value in events if at == which]
    return changes_from(rows, changes_of(values(which, banded=banded)))


def upserts(events, which):
    rows = [(key, value, t, FOREVER, -1 if value is None else 1) for t, at, key, value in events if at == which]
    return changes_from(rows, changes_of(values(which)))


def numbered(batches):
    """Give every record a value of its own, so that results tell which records they join."""
    number = iter(range(10**6))
    return [([(t, at, key, next(number)) for t, at, key in events], watermark) for events, watermark in batches]


def splitting(algorithm, workers, pairs):
    return Split(pairs, make(algorithm, workers=workers, replica=0, replicas=1, seed=0, parameters={}).route)


SPLITS = st.lists(
    st.just(NOT_SPLIT)
    | st.builds(
        splitting, st.sampled_from(["shuffle", "pkg", "wchoices", "prompt"]), st.integers(1, 4), st.integers(0, 3)
    ),
    max_size=3,
)
"""Settings that take turns from batch to batch, of all sizes of chunks."""


class LessThan:
    """The condition that ``lv`` is less than ``rv``; see ``PairCondition``."""

    columns = ("lv", "rv")

    def __call__(self, pairs):
        return pc.less(*(pairs.column(name) for name in self.columns)).fill_null(False).to_numpy(zero_copy_only=False)

    @staticmethod
    def of_values(left, right):
        """Return whether it holds for the values of a left and a right record."""
        return left[1] < right[1]


CONDITIONS = st.sampled_from([None, LessThan()])


def meant(condition):
    """Return the condition as the interpreter has it."""
    return always if condition is None else condition.of_values


STREAMS = disordered(st.tuples(st.integers(0, 12), st.sampled_from("lr"), KEYS), GRACE).map(numbered)
JOINS = [JoinType.INNER, JoinType.LEFT, JoinType.RIGHT, JoinType.FULL]


def stream_of(batches, which):
    events = sorted((e for each, _ in batches for e in each if e[1] == which), key=lambda e: e[0])
    return facts((t, (key, value)) for t, _, key, value in events)


def expected_results(results):
    none = (None, None)
    return Counter((*(one or none), *(other or none), t, t + 1) for _, t, _, (one, other) in results)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("join_type", JOINS)
@given(batches=STREAMS, splits=SPLITS, condition=CONDITIONS)
def test_a_join_of_two_streams_is_definition_67(join_type, final, batches, splits, condition):
    left = side("l", Contents.RECORDS, banded=True, preserved=join_type.of_left, reach=BAND)
    right = side("r", Contents.RECORDS, preserved=join_type.of_right)
    replay = Replay(TemporalJoin(left, right, versions=False, final=final, condition=condition), splits)
    for events, watermark in batches:
        replay.batch([records(events, "l", banded=True), records(events, "r")], watermark)
        assert not (final and any(weight < 0 for _, weight in replay.emitted)), "a final result was taken back"
    replay.end()
    assert replay.late == 0
    band = BY_KEY._replace(condition=meant(condition))
    assert replay.rows == expected_results(
        of_streams(stream_of(batches, "l"), stream_of(batches, "r"), band, join_type)
    )
    assert not [name for name in replay.store.tables if name[-1].isdigit()], "the state has rows left"


@pytest.mark.parametrize("final", [False, True])
def test_a_record_without_an_event_time_has_no_partner_and_is_never_late(final):
    left = side("l", Contents.RECORDS, banded=True, preserved=True, reach=BAND)
    replay = Replay(TemporalJoin(left, side("r", Contents.RECORDS), versions=False, final=final))
    for number, watermark in enumerate([BEGINNING, 100, 200]):
        row = ("A", number, NO_TIME, NO_TIME, NO_TIME, NO_TIME + 1, 1)
        given_rows = [changes_from([row], changes_of(values("l", banded=True))), records([(300, "r", "A", 1)], "r")]
        replay.batch(given_rows, watermark)
    assert replay.late == 0
    assert {row[:4] for row in replay.rows} == {("A", number, None, None) for number in range(3)}


TABLE_EVENTS = st.tuples(
    st.integers(0, 12), st.sampled_from("lr"), st.sampled_from("AB"), st.none() | st.integers(0, 3)
)


def without_nulls(batches):
    """Give the records of the stream a value where they have none; for a table that is a delete."""
    return [([(t, at, key, 0 if value is None and at == "l" else value) for t, at, key, value in events], watermark)
            for events, watermark in batches]  # fmt: skip


def evolving(batches, which, *, primary=lambda key, value: key):
    """The table of the upserts of one side, in the order of arrival."""
    updates = [e for each, _ in batches for e in each if e[1] == which]
    return EvolvingTable(Record(t, key, None if value is None else (key, value)) for t, _, key, value in updates)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("join_type", JOINS)
@given(batches=disordered(TABLE_EVENTS, GRACE).map(without_nulls), splits=SPLITS, condition=CONDITIONS)
def test_a_join_of_a_stream_and_a_table_is_definitions_68_and_69(join_type, final, batches, splits, condition):
    left = side("l", Contents.RECORDS, preserved=join_type.of_left)
    right = side("r", Contents.TABLE, upserted=True, preserved=join_type.of_right)
    replay = Replay(TemporalJoin(left, right, versions=True, final=final, condition=condition), splits)
    for events, watermark in batches:
        replay.batch([records(events, "l"), upserts(events, "r")], watermark)
        assert not (final and any(weight < 0 for _, weight in replay.emitted)), "a final result was taken back"
    replay.end()
    joined = of_stream_and_table(
        stream_of(batches, "l"), evolving(batches, "r"), lambda record: record.v[0], join_type, meant(condition)
    )
    if final:  # the row that a key has now may still meet a record
        last = {each.k: each.t for each in evolving(batches, "r").changelog}
        joined = [each for each in joined if each.v[0] is not None or each.t < last[each.k[2]]]
    assert replay.rows == expected_results(joined)


def versions_of(rows, times):
    """The rows of each version, from rows with periods."""
    return {t: Counter({row[:-2]: weight for row, weight in rows.items() if row[-2] <= t < row[-1]}) for t in times}


@pytest.mark.parametrize("join_type", JOINS)
@given(batches=disordered(TABLE_EVENTS, GRACE), splits=SPLITS, condition=CONDITIONS)
def test_a_join_of_two_tables_is_definition_74_in_every_version(join_type, batches, splits, condition):
    left = side("l", Contents.TABLE, upserted=True, preserved=join_type.of_left)
    right = side("r", Contents.TABLE, upserted=True, preserved=join_type.of_right)
    replay = Replay(TemporalJoin(left, right, versions=True, condition=condition), splits)
    for events, watermark in batches:
        replay.batch([upserts(events, "l"), upserts(events, "r")], watermark)
    keys = [lambda r: r.k] * 2
    table = of_tables(evolving(batches, "l"), evolving(batches, "r"), keys, join_type, meant(condition))
    none = (None, None)
    reference = {
        t: Counter((*(record.v[0] or none), *(record.v[1] or none)) for record in table.at(t).values())
        for t in range(14)
    }
    assert versions_of(replay.rows, range(14)) == reference


@pytest.mark.parametrize("join_type", JOINS)
@given(batches=disordered(TABLE_EVENTS, GRACE), splits=SPLITS, condition=CONDITIONS)
def test_the_latest_version_of_a_join_of_two_tables_is_that_of_definition_74(join_type, batches, splits, condition):
    left = side("l", Contents.TABLE, upserted=True, preserved=join_type.of_left)
    right = side("r", Contents.TABLE, upserted=True, preserved=join_type.of_right)
    replay = Replay(TemporalJoin(left, right, versions=False, condition=condition), splits)
    for events, watermark in batches:
        replay.batch([upserts(events, "l"), upserts(events, "r")], watermark)
    keys = [lambda r: r.k] * 2
    table = of_tables(evolving(batches, "l"), evolving(batches, "r"), keys, join_type, meant(condition))
    none = (None, None)
    latest = Counter((*(record.v[0] or none), *(record.v[1] or none)) for record in table.latest.values())
    assert Counter({row[:-2]: weight for row, weight in replay.rows.items()}) == latest


EXISTS = {True: Kept.WITH_PARTNER, False: Kept.WITHOUT_PARTNER}


@pytest.mark.parametrize("exists", EXISTS)
@pytest.mark.parametrize("final", [False, True])
@given(batches=STREAMS, splits=SPLITS, condition=CONDITIONS)
def test_a_semi_or_anti_join_of_two_streams_has_the_records_with_or_without_a_partner(
    exists, final, batches, splits, condition
):
    left = side("l", Contents.RECORDS, banded=True, preserved=True, reach=BAND)
    right = side("r", Contents.RECORDS)
    join = TemporalJoin(left, right, versions=False, final=final, condition=condition, kept=EXISTS[exists])
    replay = Replay(join, splits)
    for events, watermark in batches:
        replay.batch([records(events, "l", banded=True), records(events, "r")], watermark)
        assert not ((final or exists) and any(weight < 0 for _, weight in replay.emitted))
    replay.end()
    band = BY_KEY._replace(condition=meant(condition))
    expected = having_partner(stream_of(batches, "l"), stream_of(batches, "r"), band, exists=exists)
    assert replay.rows == Counter((*each.v, each.t, each.t + 1) for each in expected)
    assert not [name for name in replay.store.tables if name[-1].isdigit()], "the state has rows left"


@pytest.mark.parametrize("exists", EXISTS)
@pytest.mark.parametrize("final", [False, True])
@given(batches=disordered(TABLE_EVENTS, GRACE).map(without_nulls), condition=CONDITIONS)
def test_a_semi_or_anti_join_with_a_table_is_by_the_version_at_the_time_of_the_record(
    exists, final, batches, condition
):
    left = side("l", Contents.RECORDS, preserved=True)
    right = side("r", Contents.TABLE, upserted=True)
    join = TemporalJoin(left, right, versions=True, final=final, condition=condition, kept=EXISTS[exists])
    replay = Replay(join)
    for events, watermark in batches:
        replay.batch([records(events, "l"), upserts(events, "r")], watermark)
        assert not (final and any(weight < 0 for _, weight in replay.emitted)), "a final result was taken back"
    replay.end()
    table = evolving(batches, "r")
    expected = having_row(
        stream_of(batches, "l"), table, lambda record: record.v[0], exists=exists, condition=meant(condition)
    )
    assert replay.rows == Counter((*each.v, each.t, each.t + 1) for each in expected)


@pytest.mark.parametrize("exists", EXISTS)
@pytest.mark.parametrize("versions", [False, True])
@given(batches=disordered(TABLE_EVENTS, GRACE), condition=CONDITIONS)
def test_a_semi_or_anti_join_of_two_tables_is_right_in_every_version(exists, versions, batches, condition):
    left = side("l", Contents.TABLE, upserted=True, preserved=True)
    right = side("r", Contents.TABLE, upserted=True)
    replay = Replay(TemporalJoin(left, right, versions=versions, condition=condition, kept=EXISTS[exists]))
    for events, watermark in batches:
        replay.batch([upserts(events, "l"), upserts(events, "r")], watermark)
    tables = evolving(batches, "l"), evolving(batches, "r")
    table = rows_having_row(*tables, [lambda r: r.k] * 2, exists=exists, condition=meant(condition))
    times = range(14) if versions else [FOREVER - 1]
    expected = {t: Counter(record.v for record in table.at(t).values()) for t in times}
    assert versions_of(replay.rows, times) == expected


def test_an_update_of_a_table_leaves_the_results_of_earlier_records():
    """Their version is cut, which takes it back and adds it again with an end."""
    replay = Replay(TemporalJoin(side("l", Contents.RECORDS), side("r", Contents.TABLE, upserted=True), versions=True))
    replay.batch([records([(3, "l", "A", 1)], "l"), upserts([(1, "r", "A", 2)], "r")], 0)
    replay.batch([records([], "l"), upserts([(5, "r", "A", 3)], "r")], 0)
    assert replay.emitted == [(("A", 1, "A", 2, 3, 4), 1)]


@pytest.mark.parametrize("stream", ["l", "r", None])
@given(batches=disordered(TABLE_EVENTS, GRACE), split=st.builds(splitting, st.just("shuffle"), st.just(3), st.just(0)))
def test_an_update_of_a_table_emits_the_same_whoever_matches_the_rows(stream, batches, split):
    table = lambda which: side(which, Contents.TABLE, upserted=True)  # noqa: E731
    join = TemporalJoin(
        *(side(which, Contents.RECORDS) if which == stream else table(which) for which in "lr"), versions=True
    )
    replays = Replay(join), Replay(join, [split])
    for events, watermark in batches:
        for replay in replays:
            given_rows = [(records if which == stream else upserts)(events, which) for which in "lr"]
            replay.batch(given_rows, watermark)
    assert added_and_removed(replays[0]) == added_and_removed(replays[1])


def added_and_removed(replay):
    """How often each row was added, and how often removed; equal rows may come as one with a larger weight."""
    found = Counter()
    for row, weight in replay.emitted:
        found[row, weight > 0] += abs(weight)
    return found
