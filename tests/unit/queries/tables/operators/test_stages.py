"""Operators that read each other's results, against the reference interpreter, for any disorder and cut into batches.

Every stage is also checked for its promise: no change is further behind the watermark before it than the stage's lag.
"""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from change_tables import disordered
from dual_streaming import aggregation, table_operators
from dual_streaming.joins import Band, JoinType, of_stream_and_table, of_streams, of_tables
from dual_streaming.streams import Record, facts
from dual_streaming.tables import EvolvingTable
from millrace_jobs.changes import BEGINNING
from millrace_jobs.queries.tables.operators.aggregate import GroupedAggregate, MergedPart
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import Contents, JoinInput
from millrace_jobs.queries.tables.operators.upserts import UpsertedTable
from staged_tables import END, Stage, records, upserts, values

GRACE, BAND, SIZE = 4, 2, 6
VERSIONS = range(20)
AROUND = (-BAND, BAND)
BY_KEY = Band(lambda record: record.v[0], lambda record: record.v[0], BAND)
PARTS = (MergedPart("n", "sum", pa.int64()), MergedPart("total", "sum", pa.int64()))
TYPES = st.sampled_from(JoinType)
OUTER = st.sampled_from([JoinType.INNER, JoinType.LEFT])
SLOTS = st.sampled_from([1, 64])

few = settings(max_examples=50)


def numbered(batches):
    """Number the values of records, so that results tell which records they join."""
    number = iter(range(10**6))
    return [([(t, at, key, next(number)) for t, at, key in events], watermark) for events, watermark in batches]


def streams(sources):
    return disordered(
        st.tuples(st.integers(0, 12), st.sampled_from(sources), st.sampled_from([*"AB", None])), GRACE
    ).map(numbered)


ROWS = st.none() | st.tuples(st.sampled_from([*"AB", None]), st.integers(0, 3))


@st.composite
def streams_and_tables(draw, sources, tables, keys="xyz"):
    """Draw batches of records with a key A or B, and of upserts with one of the keys and a row ``(group, number)``."""
    key, value = st.sampled_from(keys), ROWS
    events = st.sampled_from([*sources, *tables]).flatmap(
        lambda at: st.tuples(
            st.integers(0, 12), st.just(at), key if at in tables else st.sampled_from([*"AB", None]), value
        )
    )
    batches = draw(disordered(events, GRACE))
    number = iter(range(10**6))
    return [
        ([(t, at, k, v if at in tables else next(number)) for t, at, k, v in each], watermark)
        for each, watermark in batches
    ]


def stream_of(batches, source):
    """The stream of a source with values ``(key, value)``."""
    return facts(
        (t, (key, value))
        for t, at, key, value in sorted((e for each, _ in batches for e in each), key=lambda e: e[0])
        if at == source
    )


def table_of(batches, source):
    """The table of a source with values ``(key, group, number)``."""
    return EvolvingTable(
        Record(t, key, None if value is None else (key, *value))
        for each, _ in batches
        for t, at, key, value in each
        if at == source
    )


def of_both(record, *widths):
    """The values of a joined record as one row."""
    return tuple(
        each for side, width in zip(record.v, widths, strict=True) for each in (side if side else (None,) * width)
    )


def results(joined, *widths):
    return Counter((*of_both(each, *widths), each.t, each.t + 1) for each in joined)


def contents_of(table, *widths):
    return {t: Counter(of_both(record, *widths) for record in table.at(t).values()) for t in VERSIONS}


def band_join(join_type, *, final):
    """The join of l and r, whose result has the columns lk, lv, rk and rv."""
    left = JoinInput(
        values("lk", "lv", banded=True), ("lk",), Contents.RECORDS, preserved=join_type.of_left, reach=BAND, span=BAND
    )
    right = JoinInput(values("rk", "rv"), ("rk",), Contents.RECORDS, preserved=join_type.of_right)
    return Stage(TemporalJoin(left, right, versions=False, final=final), "l", "r")


def joined_by_band(batches, join_type):
    """What ``band_join`` has to result in, as a stream with values ``(lk, lv, rk, rv)``."""
    joined = of_streams(stream_of(batches, "l"), stream_of(batches, "r"), BY_KEY, join_type)
    return facts((each.t, of_both(each, 2, 2)) for each in joined)


def contents(stage, *, final):
    """What the rows of a stream of results are."""
    operator = stage.operator
    changes = operator.left.preserved or operator.right.preserved
    return Contents.RESULTS if changes and not final else Contents.RECORDS


def with_versions(stage, *, final, preserved):
    """The join of the results of ``band_join`` with the versions of t."""
    lag = stage.operator.lag
    left = JoinInput(
        values("lk", "lv", "rk", "rv"), ("lk",), contents(stage, final=final), preserved=preserved,
        lag=lag, reach=lag, checked=True,
    )  # fmt: skip
    right = JoinInput(values("tk", "tgroup_k", "tv"), ("tk",), Contents.TABLE, upserted=True)
    return Stage(TemporalJoin(left, right, versions=True, final=final), stage, "t")


def grouped(given, key, *, of_table, final=False, slots=64, **options):
    """Count the rows of each key and sum up their numbers; ``given`` is a stage with the shape ``(key, 1, number)``."""
    lag = (given[0] if isinstance(given, tuple) else given).operator.lag
    operator = GroupedAggregate(
        pa.schema([(key, pa.string())]), PARTS, None, of_table=of_table, versions=True, final=final, slots=slots,
        checked=True, input_lag=lag, **options,
    )  # fmt: skip
    return Stage(operator, given)


def upserted(source):
    """The table of a source, with its primary key, a group and a number."""
    schema = values(f"{source}k", f"{source}group_k", f"{source}v")
    return Stage(UpsertedTable(schema, (f"{source}k",), versions=True), source)


def run(stage, batches, *, until=END):
    """Run a stage, and then let the watermark pass everything; a source's name is its letter."""
    for events, watermark in [*batches, ([], until)] if until is not None else batches:
        sources = {
            "l": records(events, "l", AROUND),
            **{name: records(events, name) for name in "rx"},
            **{name: upserts(events, name, values(f"{name}k", f"{name}group_k", f"{name}v")) for name in "tu"},
        }
        stage.batch(sources, watermark)
    return stage


def counted(rows):
    numbers = [row[-1] for row in rows if row[-1] is not None]
    return (len(rows), sum(numbers) if numbers else None)


@pytest.mark.parametrize("final", [False, True])
@few
@given(batches=streams("lrx"), first=TYPES, second=TYPES)
def test_the_results_of_a_join_can_be_joined(batches, first, second, final):
    """A corrected result is corrected in the next join too, and state is kept for results that wait."""
    inner = band_join(first, final=final)
    lag = inner.operator.lag
    left = JoinInput(
        values("lk", "lv", "rk", "rv", banded=True), ("lk",), contents(inner, final=final), preserved=second.of_left,
        lag=lag, reach=BAND + lag, span=BAND, checked=True,
    )  # fmt: skip
    right = JoinInput(values("xk", "xv"), ("xk",), Contents.RECORDS, preserved=second.of_right)
    around = lambda *row: (*row[:-1], row[-1] - BAND, row[-1] + BAND + 1)  # noqa: E731
    outer = Stage(TemporalJoin(left, right, versions=False, final=final), (inner, around), "x")
    run(outer, batches)
    assert not final or all(weight > 0 for weight in outer.weights), "a final result was taken back"
    expected = of_streams(joined_by_band(batches, first), stream_of(batches, "x"), BY_KEY, second)
    assert outer.rows == results(expected, 4, 2)
    assert (inner.held, inner.wake, outer.held, outer.wake) == ([], None, [], None)
    assert (inner.late, outer.late) == (0, 0)


@pytest.mark.parametrize("final", [False, True])
@few
@given(batches=streams_and_tables("lr", "t", keys="AB"), first=TYPES, second=OUTER)
def test_the_results_of_a_join_meet_the_versions_of_a_table(batches, first, second, final):
    """An outer result is emitted or taken back when the watermark has passed it; its version must still be known."""
    outer = run(with_versions(band_join(first, final=final), final=final, preserved=second.of_left), batches)
    assert not final or all(weight > 0 for weight in outer.weights), "a final result was taken back"
    expected = of_stream_and_table(
        joined_by_band(batches, first), table_of(batches, "t"), lambda record: record.v[0], second
    )
    assert outer.rows == results(expected, 4, 3)
    assert not [name for name in outer.held if name.startswith("left/")]


@pytest.mark.parametrize("final", [False, True])
def test_a_version_is_known_as_long_as_a_result_of_its_time_can_be_taken_back_or_wait(final):
    """The version at time 3 has ended at 4, before the watermark of 5 with which its slot is rewritten."""
    first, second = ("A", 1), ("A", 2)
    batches = [
        ([(3, "l", "A", 7), (0, "t", "A", first), (4, "t", "A", second)], BEGINNING),
        ([(9, "t", "A", first)], 5),
        ([] if final else [(5, "r", "A", 8)], 6 if final else 5),
    ]
    stage = run(with_versions(band_join(JoinType.LEFT, final=final), final=final, preserved=False), batches, until=None)
    alone, pair = ("A", 7, None, None, "A", "A", 1, 3, 4), ("A", 7, "A", 8, "A", "A", 2, 5, 6)
    assert stage.rows == {alone if final else pair: 1}
    assert stage.weights == ([1] if final else [1, -1, 1])


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("final_join", [False, True])
@few
@given(batches=streams("lr"), join_type=TYPES, slots=SLOTS)
def test_groups_of_the_results_of_a_join_are_right_in_all_versions(batches, join_type, slots, final_join, final):
    join = band_join(join_type, final=final_join)
    stage = run(
        grouped((join, lambda lk, lv, rk, rv, t: (lk, 1, rv)), "lk", of_table=False, final=final, slots=slots), batches
    )
    expected = aggregation.aggregate(
        joined_by_band(batches, join_type), lambda record: {record.v[0]}, lambda group: counted([r.v for r in group])
    )
    assert stage.versions(VERSIONS) == {
        t: Counter((key, *record.v) for key, record in expected.at(t).items()) for t in VERSIONS
    }
    assert stage.late == 0


@pytest.mark.parametrize("versions", [False, True])
@few
@given(batches=streams("lr"), join_type=TYPES, final_join=st.booleans(), final=st.booleans())
def test_windows_of_the_results_of_a_join_are_right(batches, join_type, final_join, final, versions):
    join = band_join(join_type, final=final_join)
    keys = pa.schema([("lk", pa.string()), ("end", pa.int64())])
    operator = GroupedAggregate(
        keys, PARTS, "end", of_table=False, versions=versions, final=final, checked=True, input_lag=join.operator.lag
    )
    end = lambda t: t // SIZE * SIZE + SIZE  # noqa: E731
    stage = run(Stage(operator, (join, lambda lk, lv, rk, rv, t: (lk, end(t), 1, rv))), batches)
    assert not final or all(weight > 0 for weight in stage.weights), "a final window was taken back"
    expected = aggregation.aggregate(
        joined_by_band(batches, join_type),
        lambda record: {(record.v[0], end(record.t))},
        lambda group: counted([r.v for r in group]),
    )
    for t in VERSIONS if versions else [VERSIONS[-1]]:
        assert stage.versions([t])[t] == Counter((*key, *record.v) for key, record in expected.at(t).items())
    assert (stage.store.tables, stage.wake, stage.late) == ({}, None, 0)


def groups_of(table):
    """The reference of ``grouped`` by the group of a table's rows: values ``(group, count, sum)``."""
    return table_operators.aggregate(
        table, lambda record: record.v[1], lambda rows: (rows[0].v[1], *counted([r.v for r in rows]))
    )


@pytest.mark.parametrize("final", [False, True])
@few
@given(batches=streams_and_tables("x", "t"), join_type=OUTER, slots=SLOTS)
def test_a_stream_meets_the_versions_of_groups_of_a_table(batches, join_type, slots, final):
    groups = grouped((upserted("t"), lambda k, group, v, t: (group, 1, v)), "tk", of_table=True, slots=slots)
    left = JoinInput(values("xk", "xv"), ("xk",), Contents.RECORDS, preserved=join_type.of_left)
    right = JoinInput(values("tk", "n", "total"), ("tk",), Contents.TABLE, checked=True)
    stage = run(Stage(TemporalJoin(left, right, versions=True, final=final), "x", groups), batches)
    table = groups_of(table_of(batches, "t"))
    assert stage.rows == results(
        of_stream_and_table(stream_of(batches, "x"), table, lambda record: record.v[0], join_type), 2, 3
    )


@few
@given(batches=streams_and_tables("", "tu", keys="AB"), join_type=TYPES, slots=SLOTS)
def test_groups_of_a_table_are_joined_with_a_table_in_every_version(batches, join_type, slots):
    groups = grouped((upserted("t"), lambda k, group, v, t: (group, 1, v)), "tk", of_table=True, slots=slots)
    left = JoinInput(values("tk", "n", "total"), ("tk",), Contents.TABLE, preserved=join_type.of_left, checked=True)
    right = JoinInput(
        values("uk", "ugroup_k", "uv"), ("uk",), Contents.TABLE, upserted=True, preserved=join_type.of_right
    )
    stage = run(Stage(TemporalJoin(left, right, versions=True), groups, "u"), batches, until=None)
    expected = of_tables(
        groups_of(table_of(batches, "t")), table_of(batches, "u"), [lambda record: record.k] * 2, join_type
    )
    assert stage.versions(VERSIONS) == contents_of(expected, 3, 3)


@pytest.mark.parametrize("many", [False, True], ids=["by foreign key", "many to many"])
@few
@given(batches=streams_and_tables("", "tu", keys="AB"), join_type=TYPES)
def test_tables_can_be_joined_by_other_columns_than_their_keys(batches, join_type, many):
    left = JoinInput(
        values("tk", "tgroup_k", "tv"), ("tgroup_k",), Contents.TABLE, preserved=join_type.of_left, checked=True
    )
    right = JoinInput(
        values("uk", "ugroup_k", "uv"), ("ugroup_k" if many else "uk",), Contents.TABLE, upserted=not many,
        preserved=join_type.of_right, checked=many,
    )  # fmt: skip
    operator = TemporalJoin(left, right, versions=True)
    stage = run(Stage(operator, upserted("t"), upserted("u") if many else "u"), batches, until=None)
    keys = [lambda record: record.v[1], lambda record: record.v[1] if many else record.k]
    expected = of_tables(table_of(batches, "t"), table_of(batches, "u"), keys, join_type)
    assert stage.versions(VERSIONS) == contents_of(expected, 3, 3)


@few
@given(batches=streams_and_tables("", "t"))
def test_selections_of_the_changes_of_a_table_are_definitions_71_and_72(batches):
    """A SELECT over changes keeps their weights; what it drops or changes is dropped or changed in all versions."""
    table = upserted("t")
    operator = GroupedAggregate(
        values("tk", "tv"), (MergedPart("n", "sum", pa.int64()),), None, of_table=True, versions=True, final=False,
        checked=True,
    )  # fmt: skip
    large = Stage(operator, (table, lambda k, group, v, t: (k, 10 * v, 1) if v > 1 else None))
    run(large, batches, until=None)
    kept = table_operators.keep(table_of(batches, "t"), lambda record: record.v[2] > 1)
    expected = table_operators.map_values(kept, lambda record: (record.k, 10 * record.v[2], 1))
    assert large.versions(VERSIONS) == {t: Counter(record.v for record in expected.at(t).values()) for t in VERSIONS}


@pytest.mark.parametrize("with_table", [False, True])
@few
@given(batches=streams_and_tables("lrx", "t", keys="AB"), join_type=TYPES)
def test_final_results_are_the_last_state_of_eager_ones(batches, join_type, with_table):
    stages = []
    for final in (False, True):
        join = band_join(join_type, final=final)
        stages.append(run(with_versions(join, final=final, preserved=True) if with_table else join, batches))
    eager, final = stages
    assert eager.rows == final.rows
    assert all(weight > 0 for weight in final.weights)


@few
@given(batches=streams_and_tables("lr", "t", keys="AB"), join_type=TYPES, data=st.data())
def test_the_cut_into_batches_does_not_change_the_result(batches, join_type, data):
    """A change of plan in mid-stream changes what is in a batch, and nothing else that an operator sees."""
    arrivals = [event for events, _ in batches for event in events]
    stages = []
    for _ in range(2):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(arrivals)), max_size=5)))
        latest, cut = [BEGINNING], []
        for begin, end in zip([0, *cuts], [*cuts, len(arrivals)], strict=True):
            cut.append((arrivals[begin:end], max(latest) - GRACE if len(latest) > 1 else BEGINNING))
            latest += [event[0] for event in arrivals[begin:end]]
        stages.append(run(with_versions(band_join(join_type, final=False), final=False, preserved=True), cut))
    one, other = stages
    assert one.rows == other.rows
