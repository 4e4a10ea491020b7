"""Which aggregates of a query may move, leave and return on a checkpoint, and the verdicts on changes."""

from contextlib import nullcontext

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.changes import ChangeVerdict, CheckpointChange
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.validation.evolution import compare
from millrace_jobs.checkpoint.evolution import check_changes, check_layout
from millrace_jobs.queries.native.native import Native

from .changed_queries import FILES, SQL, a_query, changed

KAFKA = {
    "kafka": {"bootstrapServers": "a:9092", "topic": "trips"},
    "schema": "at TIMESTAMP, city STRING, fare DOUBLE",
}


def with_sql(sql, source=FILES, **more):
    return a_query(source, query={"sql": sql}, **more)


SAVED = ("count(*) AS trips, sum(fare) AS fare", "count(*) AS trips, sum(fare) AS fare, max(fare) AS most")
IN_ORDER = {"columns": "in the order of the aggregates"}


def layout_of(*aggregates, **more):
    return {"aggregates": list(aggregates)} | (more or IN_ORDER)


HELD = layout_of("COUNT(*)", "SUM(Fare)", "MAX(fare)")


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("sum(fare) AS fare, count(*) AS trips, max(fare) AS most", []),
        ("max(fare) AS most, count(*) AS trips", ["SUM(fare) is no longer in the results"]),
        ("-- one\nmax(fare) - count(*) AS d", ["SUM(fare) is no longer in the results"]),
        ("count(*) AS trips", ["SUM(fare) is no longer in the results", "MAX(fare) is no longer in the results"]),
    ],
)
@pytest.mark.parametrize("layout", [HELD, {**HELD, "merge": "operators on tables"}])
def test_aggregates_that_have_columns_in_the_state_may_move_and_leave(log, select, said, layout):
    before, now = (with_sql(SQL.replace(SAVED[0], each)) for each in (SAVED[1], select))
    remarks = check_changes(before, now, log, layout)
    assert [remark.removeprefix("spec.query.sql: ").partition(";")[0] for remark in remarks] == said


def test_an_aggregate_returns_if_the_state_has_it(log):
    before, now = with_sql(SQL), with_sql(SQL.replace(*SAVED))
    (remark,) = check_changes(before, now, log, HELD)
    assert remark == "spec.query.sql: MAX(fare) has returned, with the values of all records"
    (remark,) = check_changes(before, now, log, layout_of("COUNT(*)", "SUM(fare)"))
    assert remark.startswith("spec.query.sql: MAX(fare) is new: it counts in windows that start after the newest one")
    some = {"windows after": [None, None, 0]}  # after a crash, or when it returns: windows before 1970 lack records
    assert check_changes(before, now, log, HELD | some) == (remark,)


@pytest.mark.parametrize(
    "layout",
    [None, {"aggregates": ["COUNT(*)", "SUM(fare)"]}, {"GROUP BY": "city"}, {"operators on tables": "SELECT"}],
    ids=["unknown", "columns as selected", "native", "tables"],
)
def test_without_columns_by_aggregate_none_moves_or_leaves(log, layout):
    for select in ("sum(fare) AS fare, count(*) AS trips", "count(*) AS trips"):
        with pytest.raises(MillraceError, match=CheckpointChange.SQL.value):
            check_changes(a_query(), with_sql(SQL.replace(SAVED[0], select)), log, layout)


def test_a_column_of_an_aggregate_in_the_state_stays_in_the_schema(log):
    now = with_sql(
        "SELECT window.start AS since, city, count(*) AS trips FROM trips GROUP BY window(at, '10 minutes'), city",
        source=changed(FILES, "schema", value="at TIMESTAMP, city STRING"),
    )
    with pytest.raises(
        MillraceError, match=r"goes on counting SUM\(fare\), and the schema no longer has the column fare"
    ):
        check_changes(a_query(), now, log, layout_of("COUNT(*)", "SUM(fare)"))


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (with_sql(SQL.replace(SAVED[0], "count(*) AS trips")), None),
        (with_sql(SQL.replace(*SAVED)), None),
        (with_sql(SQL.replace(*SAVED).replace("fare > 0", "fare > 1")), ChangeVerdict.IN_SHADOW),
        (with_sql(SQL.replace("'10 minutes'", "'20 minutes'")), ChangeVerdict.IN_SHADOW),
        (with_sql(SQL.replace("count(*) AS trips, sum", "collect_set(fare) AS trips, sum")), ChangeVerdict.IN_SHADOW),
        (with_sql(SQL.replace("count(*) AS trips", "count(DISTINCT fare) AS trips")), ChangeVerdict.IN_SHADOW),
        (a_query(emit="OnWindowClose"), ChangeVerdict.IN_SHADOW),
        (a_query(changed(FILES, "schema", value="at TIMESTAMP, city STRING, fare FLOAT")), ChangeVerdict.IN_SHADOW),
        (a_query(changed(FILES, "files", "path", value="b/*.csv")), ChangeVerdict.NOT),
        (a_query(changed(KAFKA, "kafka", "topic", value="rides")), ChangeVerdict.NOT),
    ],
)
def test_without_a_look_at_the_checkpoint_there_is_a_verdict(now, verdict):
    before = a_query(KAFKA) if now.spec.sources["trips"].kafka is not None else a_query()
    forbidden, _ = compare(before, now)
    assert {each.verdict for each in forbidden} == ({verdict} if verdict else set())
    assert all(each.verdict.advice for each in forbidden)


def test_where_rows_are_held_back_an_aggregate_without_a_merge_does_not_move():
    sql = SQL.replace(SAVED[0], "count(*) AS trips, stddev(fare) AS spread")
    moved = sql.replace("count(*) AS trips, stddev(fare) AS spread", "stddev(fare) AS spread, count(*) AS trips")
    for emit, number in (("OnUpdate", 0), ("OnWindowEnd", 1)):
        forbidden, _ = compare(with_sql(sql, emit=emit), with_sql(moved, emit=emit))
        assert len(forbidden) == number


NESTED = SQL.replace(SAVED[0], "abs(abs(sum(fare))) + count(*) AS both")


def test_aggregates_of_spark_s_own_columns_stay_in_the_order_in_which_spark_finds_them(log):
    level_by_level = SQL.replace(SAVED[0], "count(*) AS trips, sum(fare) AS fare")
    with pytest.raises(MillraceError, match=r"list of aggregates SUM\(fare\), COUNT\(\*\), not with COUNT\(\*\), SUM"):
        check_changes(with_sql(NESTED), with_sql(level_by_level), log, {"GROUP BY": "city"})
    assert check_changes(with_sql(NESTED), with_sql(level_by_level), log, HELD) == ()


def test_having_may_come_and_go_unless_that_moves_columns_without_names(log):
    older = {"aggregates": ["COUNT(*)", "SUM(fare)"]}
    for sql, layout in ((SQL, older), (NESTED, HELD)):
        assert check_changes(with_sql(sql), with_sql(sql.replace(" HAVING count(*) > 1", "")), log, layout) == ()
    with pytest.raises(MillraceError, match="with another use of HAVING: Spark keeps the columns of its state"):
        check_changes(with_sql(NESTED), with_sql(NESTED.replace(" HAVING count(*) > 1", "")), log, older)


def test_names_count_as_spark_reads_them_with_and_without_quotes(log):
    odd = {**FILES, "schema": "at TIMESTAMP, city STRING, fare DOUBLE, `a b` INT, `a-b` INT, a INT, b INT"}
    several, one = (with_sql(SQL.replace(SAVED[0], each), odd) for each in ("sum(`a b`), sum(`A-b`)", "sum(`a-B`)"))
    layout = layout_of("SUM(`a b`)", "SUM(`a-b`)", "COUNT(*)")
    (remark,) = check_changes(several, one, log, layout)
    assert "SUM(`a b`) is no longer in the results" in remark
    with pytest.raises(MillraceError, match=r"the state has no values of SUM\(a - b\)"):
        check_changes(
            several, with_sql(SQL.replace(SAVED[0], "sum(a - b)").replace("fare > 0", "fare > 1"), odd), log, layout
        )


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("aggregates", ["SUM(`v`)"], ["SUM(v)"], True),
        ("aggregates", ["SUM(`V`) FILTER(WHERE N > 1)"], ["SUM(v) FILTER(WHERE `n` > 1)"], True),
        ("aggregates", ["SUM(`a-b`)"], ["SUM(a - b)"], False),
        ("aggregates", ["SUM(v)", "COUNT(*)"], ["COUNT(*)", "SUM(v)"], False),
        ("keys", ["`City`"], ["city"], True),
        ("keys", ["city = 'A'"], ["city = 'a'"], False),
        ("states", ["Total: double"], ["total: double"], False),
    ],
)
def test_entries_of_layouts_are_compared_as_sql(log, name, one, other, same):
    with nullcontext() if same else pytest.raises(MillraceError, match=f"the state's {name} was"):
        check_layout({name: one}, {name: other}, log)


@pytest.mark.parametrize("name", ["fare", "`Fare`", "`a b`", "`a-b`", "`current_date`"])
def test_checkpoints_record_names_of_native_queries_without_quotes(name):
    plain = name.strip("`").lower()
    parsed = parsed_query(f"SELECT max({name}) FROM trips GROUP BY {name}")
    assert Native(parsed, "").layout() == {"FROM": "trips", "GROUP BY": plain, "list of aggregates": f"MAX({plain})"}


@pytest.mark.parametrize("call", ["try_sum(fare)", "std(fare)", "any(fare > 1)", "every(fare > 1)"])
def test_aggregates_that_only_spark_knows_keep_their_places_in_its_plan(log, call):
    first, moved = (with_sql(f"SELECT {items} FROM trips") for items in (f"{call}, count(*)", f"count(*), {call}"))
    native = Native(parsed_query(first.spec.query.sql), "").layout()
    assert native["list of aggregates"] == "COUNT(*)"  # as earlier checkpoints have it
    with pytest.raises(MillraceError, match="was made with list of aggregates"):
        check_changes(first, moved, log, native)
    assert Native(parsed_query(f"SELECT {call} FROM trips"), "").layout() == {}


def test_columns_that_from_renames_belong_to_the_state(log):
    first, changed_names = (
        with_sql(f"SELECT sum(x) FROM trips AS t({names}) GROUP BY city") for names in ("x, y, city", "y, x, city")
    )
    native = Native(parsed_query(first.spec.query.sql), "").layout()
    assert native["FROM"] == "trips"  # as earlier checkpoints have it
    with pytest.raises(MillraceError, match=r"was made with FROM trips AS t\(x, y, city\)"):
        check_changes(first, changed_names, log, native)
