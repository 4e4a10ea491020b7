"""Groups of joins whose results are taken back, against the groups of what the joins have emitted so far."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import disordered
from dual_streaming.joins import JoinType
from millrace_jobs.changes import FOREVER
from millrace_jobs.queries.tables.operators.aggregate import CountedPart, GroupedAggregate
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import Contents, JoinInput
from staged_tables import END, Stage, records, upserts, values

GRACE, BAND = 4, 2
TABLE = values("rk", "rv")
EVENTS = disordered(
    st.tuples(st.integers(0, 12), st.sampled_from("lr"), st.sampled_from("AB"), st.none() | st.integers(0, 3)), GRACE
)


def groups_of(join, *, versions):
    """Return the stage of the groups of a join by the key of its left side, which reads that of the join."""
    settles_after = None if join.operator.lag is None else 0 if versions else join.operator.lag
    parts = (
        CountedPart("least", "min", pa.int64(), settles_after),
        CountedPart("most", "max", pa.int64(), settles_after),
        CountedPart("values", "count_distinct", pa.int64()),
    )
    operator = GroupedAggregate(
        pa.schema([("lk", pa.string())]), parts, None, of_table=False, versions=versions, final=False, slots=2,
        checked=True, input_lag=join.operator.lag if versions else 0,
    )  # fmt: skip
    return Stage(operator, (join, lambda lk, lv, rk, rv, start: (lk, lv, rv, rv)))


def expected(join, until=FOREVER):
    """Return the groups of the results of a join up to a time."""
    groups = {}
    for lk, lv, _, rv, start, _ in join.rows.elements():
        if start <= until:
            groups.setdefault(lk, []).append((lv, rv))
    return {
        (
            key,
            min((one for one, _ in pairs if one is not None), default=None),
            max((other for _, other in pairs if other is not None), default=None),
            len({other for _, other in pairs} - {None}),
        )
        for key, pairs in groups.items()
    }


@pytest.mark.parametrize("join_type", [JoinType.LEFT, JoinType.RIGHT, JoinType.FULL])
@given(batches=EVENTS)
def test_extremes_of_an_outer_join_of_streams_are_those_of_its_rows(join_type, batches):
    left = JoinInput(values("lk", "lv", banded=True), ("lk",), Contents.RECORDS, preserved=join_type.of_left, reach=BAND,
                     span=BAND)  # fmt: skip
    right = JoinInput(values("rk", "rv"), ("rk",), Contents.RECORDS, preserved=join_type.of_right, span=0)
    join = Stage(TemporalJoin(left, right, versions=False), "l", "r")
    groups = groups_of(join, versions=False)
    for events, watermark in [*batches, ([], END)]:
        groups.batch({"l": records(events, "l", (-BAND, BAND)), "r": records(events, "r")}, watermark)
        assert set(groups.latest) == expected(join)
    kept = groups.store.all_rows("least/slot").values()
    assert sum(map(len, kept)) <= len(groups.latest), "a value that cannot be taken back was kept beside the least one"


@pytest.mark.parametrize("versions", [False, True])
@given(batches=EVENTS)
def test_extremes_of_a_stream_with_a_table_are_those_of_its_rows(versions, batches):
    left = JoinInput(values("lk", "lv"), ("lk",), Contents.RECORDS, preserved=True)
    right = JoinInput(TABLE, ("rk",), Contents.TABLE, upserted=True)
    join = Stage(TemporalJoin(left, right, versions=True), "l", "r")
    groups = groups_of(join, versions=versions)
    for events, watermark in [*batches, ([], END)]:
        rows = [(*event, value if value is None else (value,)) for *event, value in events]
        groups.batch({"l": records(events, "l"), "r": upserts(rows, "r", TABLE)}, watermark)
        if not versions:
            assert set(groups.latest) == expected(join)
        for time in range(max(watermark, 0), 14) if versions else ():
            assert set(groups.versions([time])[time]) == expected(join, time)
