"""The reference interpreter agrees with itself: what is computed record by record is what the definitions say."""

from hypothesis import given
from hypothesis import strategies as st

from dual_streaming import aggregation, table_operators
from dual_streaming.joins import (
    Band,
    JoinType,
    Side,
    of_stream_and_table,
    of_stream_and_table_eagerly,
    of_streams,
    of_streams_eagerly,
    of_tables,
)
from dual_streaming.streams import Record, equivalent, facts, ordered, prefix, stream, without_outdated
from dual_streaming.tables import EvolvingTable, table_of

TIMES = st.integers(0, 12)
VALUES = st.sampled_from("ABC")
FACTS = st.lists(st.tuples(TIMES, VALUES), max_size=12).map(facts)
CHANGELOGS = st.lists(st.builds(Record, TIMES, VALUES, st.none() | st.integers(0, 3)), max_size=12).map(stream)
BY_VALUE = Band(lambda record: record.v, lambda record: record.v, 3)


def last_by_time(changelog):
    """The updates of which no later one has the same time and key; the order of the others does not matter."""
    return {(each.t, each.k): each.record for each in changelog}


@given(CHANGELOGS, st.randoms(use_true_random=False))
def test_a_table_does_not_depend_on_the_order_of_updates_of_other_times_or_keys(changelog, chance):
    updates = list(last_by_time(changelog).values())
    table = EvolvingTable(updates)
    chance.shuffle(updates)
    assert EvolvingTable(updates) == table == table_of(changelog)
    assert table_of(table.changelog) == table


@given(CHANGELOGS, TIMES)
def test_a_version_has_the_last_update_of_each_key_up_to_its_time(changelog, time):
    expected = {}
    for (at, key), update in sorted(last_by_time(changelog).items()):
        if at <= time:
            expected[key] = update.v
    assert table_of(changelog).values(time) == {key: value for key, value in expected.items() if value is not None}


@given(FACTS, st.integers(1, 6), st.integers(1, 6))
def test_algorithm_5_is_definition_64_for_every_prefix_of_an_unordered_stream(records, size, advance):
    group = aggregation.hopping(size, min(size, advance), aggregation.by_value)
    for length in range(len(records) + 1):
        so_far = prefix(records, length)
        assert aggregation.incrementally(so_far, group, aggregation.count) == aggregation.aggregate(so_far, group, len)


@given(FACTS)
def test_algorithm_4_is_definition_64_for_ordered_streams(records):
    in_order = ordered(records)
    found = aggregation.ordered_only(in_order, aggregation.by_value, aggregation.count)
    assert found == aggregation.aggregate(records, aggregation.by_value, len)


@given(FACTS, FACTS, st.sampled_from(JoinType), st.randoms(use_true_random=False))
def test_an_eager_join_ends_at_definition_67_in_any_order(left, right, join_type, chance):
    arrivals = [*((Side.LEFT, each) for each in left), *((Side.RIGHT, each) for each in right)]
    chance.shuffle(arrivals)
    eager = of_streams_eagerly(arrivals, BY_VALUE, join_type)
    assert equivalent(eager, of_streams(left, right, BY_VALUE, join_type))


@given(FACTS, CHANGELOGS, st.sampled_from([JoinType.INNER, JoinType.LEFT]), st.randoms(use_true_random=False))
def test_an_eager_join_with_a_table_ends_at_definition_69_in_any_order(records, changelog, join_type, chance):
    updates = stream(last_by_time(changelog).values())
    arrivals = [*((Side.LEFT, each) for each in records), *((Side.RIGHT, each) for each in updates)]
    chance.shuffle(arrivals)
    eager = of_stream_and_table_eagerly(arrivals, lambda record: record.v, join_type)
    final = sorted((each.t, each.k, each.v) for each in without_outdated(eager) if each.v is not None)
    expected = of_stream_and_table(records, table_of(updates), lambda record: record.v, join_type)
    assert [key[:2] for key in final] == sorted((each.t, each.k) for each in expected)
    assert {each[1]: each[2] for each in final} == {each.k: each.v for each in expected}


@given(CHANGELOGS, CHANGELOGS, st.sampled_from(JoinType), TIMES)
def test_a_join_of_tables_joins_each_version(left, right, join_type, time):
    tables = table_of(left), table_of(right)
    keys = (lambda record: record.k, lambda record: record.k)
    one, other = (table.values(time) for table in tables)
    expected = {(key, key): (one[key], other[key]) for key in one.keys() & other.keys()}
    if join_type.of_left:
        expected |= {(key, None): (one[key], None) for key in one.keys() - other.keys()}
    if join_type.of_right:
        expected |= {(None, key): (None, other[key]) for key in other.keys() - one.keys()}
    assert of_tables(*tables, keys, join_type).values(time) == expected


@given(CHANGELOGS, TIMES)
def test_operators_on_tables_are_applied_to_each_version(changelog, time):
    table = table_of(changelog)
    doubled = table_operators.map_values(table, lambda record: 2 * record.v)
    assert doubled.values(time) == {key: 2 * value for key, value in table.values(time).items()}
    large = table_operators.keep(table, lambda record: record.v > 1)
    assert large.values(time) == {key: value for key, value in table.values(time).items() if value > 1}
    sums = table_operators.aggregate(
        table, lambda record: record.v % 2, lambda members: sum(each.v for each in members)
    )
    values = list(table.values(time).values())
    assert sums.values(time) == {rest: sum(v for v in values if v % 2 == rest) for rest in {v % 2 for v in values}}
