"""The layout of the state of queries: what is new in it, and that earlier checkpoints go on as they are."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.state_layout import continue_from, held_aggregates, recorded_aggregates, windows_after
from millrace_jobs.queries.tables.operators.interface import stream_join_buckets
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.relations import Grouping, Join, Scan, Selection, emits_at_once
from millrace_jobs.queries.tables.table_query import TableQuery

VIEWS, CLICKS = (Scan(name, (), "at", ()) for name in ("views", "clicks"))
USERS = Scan("users", (), "at", ("id",))


def join(left, right, kind="inner"):
    return Join(left, right, kind, {"left": ("k",), "right": ("k",)}, None, final=True, lag={"left": 0, "right": 0})


def compiled(relation, partitions=2):
    begun = {"stream_join_buckets": stream_join_buckets(partitions), "wakes": not emits_at_once(relation)}
    tables = TableQuery("", relation, (), Contents.RECORDS, False, 0, {}, (), partitions, None, **begun)
    return CompiledQuery(tables, StructType(), aggregates=False)


@pytest.mark.parametrize(
    ("relation", "buckets"),
    [
        (join(VIEWS, CLICKS), 4),
        (Grouping(join(VIEWS, CLICKS), (), None, None, (), final=True, lag=0), 4),
        (join(join(VIEWS, CLICKS), VIEWS), 4),
        (join(VIEWS, USERS), None),
        (VIEWS, None),
    ],
)
def test_only_joins_of_streams_have_fewer_buckets(relation, buckets):
    found = compiled(relation).execution.layout()
    assert (found["buckets"], found.get("buckets of joins of streams")) == (16, buckets)


@pytest.mark.parametrize(
    ("relation", "timers"),
    [
        (join(VIEWS, CLICKS), False),
        (Selection(join(Selection(VIEWS, "a"), CLICKS), "b"), False),
        (join(VIEWS, CLICKS, "left"), True),
        (join(join(VIEWS, CLICKS), VIEWS), True),
        (Grouping(join(VIEWS, CLICKS), (), None, None, (), final=True, lag=0), True),
        (join(VIEWS, USERS), True),
    ],
)
def test_only_the_inner_join_of_two_streams_alone_needs_no_timers(relation, timers):
    assert compiled(relation).execution.layout().get("timers", True) == timers


@pytest.mark.parametrize(("partitions", "buckets"), [(1, 2), (4, 8), (8, None), (64, None)])
def test_joins_of_streams_have_two_buckets_for_each_partition_of_the_state(partitions, buckets):
    assert compiled(join(VIEWS, CLICKS), partitions).execution.layout().get("buckets of joins of streams") == buckets


def test_an_earlier_checkpoint_keeps_the_buckets_that_it_began_with():
    query = compiled(join(VIEWS, CLICKS), partitions=4)
    now = query.execution.layout()
    assert continue_from(query, "SELECT 1", now)[0].execution.layout() == now
    before = {**now, "first number of partitions": 2}
    del before["buckets of joins of streams"], before["timers"]
    continued, note = continue_from(query, "SELECT 1", before)
    assert (continued.execution.layout(), note) == (before, None)
    began = continued.execution
    assert (began.partitions, began.stream_join_buckets, began.wakes) == (2, 16, True)


def grouped(ahead=(), after=None):
    aggregation = SimpleNamespace(
        keys=(), parts=(), has_states=False, aggregates=(SimpleNamespace(call="COUNT(*)", after=after),)
    )
    routed = Routed("views", None, None, SimpleNamespace(schema=pa.schema([])), aggregation, ahead, 2)
    return CompiledQuery(routed, StructType(), aggregates=True)


def test_the_state_of_groups_has_its_aggregates_in_order_unless_an_earlier_version_began_it():
    now = grouped().execution.layout()
    assert held_aggregates(now) == ("COUNT(*)",)
    assert continue_from(grouped(), "SELECT 1", now)[0].execution.in_order
    before = {name: value for name, value in now.items() if name != "columns"}
    continued = continue_from(grouped(), "SELECT 1", before)[0].execution
    assert (continued.in_order, continued.layout(), held_aggregates(before)) == (False, before, ())
    assert recorded_aggregates(before) == ("COUNT(*)",)  # with which it is compiled, so that no part is lost


def test_a_state_that_lacks_records_says_of_which_windows():
    now = grouped(after=60).execution.layout()
    assert windows_after(now) == (60,)
    assert windows_after(grouped().execution.layout()) == windows_after(None) == ()


def test_operators_on_tables_have_always_had_the_aggregates_in_order():
    by_tables = grouped((None, 0)).execution.layout()
    assert "columns" not in by_tables
    assert held_aggregates(by_tables) == ("COUNT(*)",)


def test_no_state_of_another_kind_has_aggregates_to_find():
    for layout in (None, {"text": "SELECT 1"}, compiled(VIEWS).execution.layout()):
        assert held_aggregates(layout) == recorded_aggregates(layout) == ()
