"""The reference interpreter against the worked examples of paper 002, chapter 5, to which the names refer."""

import pytest

from dual_streaming.aggregation import (
    aggregate,
    by_value,
    count,
    hopping,
    incrementally,
    ordered_only,
    tumbling,
)
from dual_streaming.joins import (
    Band,
    JoinType,
    Side,
    by_time,
    of_stream_and_table,
    of_stream_and_table_eagerly,
    of_streams,
    of_streams_eagerly,
    of_tables,
)
from dual_streaming.streams import Record, equivalent, facts, prefix, stream
from dual_streaming.tables import EvolvingTable, table_of

CLICKS = facts([(0, "GER"), (1, "GER"), (1, "US"), (2, "US")])
UNORDERED_CLICKS = facts([(0, "GER"), (1, "GER"), (2, "US"), (1, "US")])

LEFT = facts([(1, "A"), (2, "A"), (3, "C"), (5, "E"), (9, "B")])
RIGHT = facts([(2, "B"), (4, "D"), (6, "E"), (7, "E"), (8, "A")])
WITHIN_6 = Band(lambda record: record.v, lambda record: record.v, 6)


def contents(table):
    """Each version of a table: its records' times and values by key, and its modified keys."""
    return {
        time: ({key: (each.t, each.v) for key, each in table.at(time).items()}, table.modified(time))
        for time in table.times
    }


def results(joined):
    """The results of a join as the figures print them, with their times."""
    return sorted((each.t, "-".join(value or "⊥" for value in each.v)) for each in joined)


def test_example_14_an_evolving_table():
    table = EvolvingTable()
    assert (table.generation, table.at(0)) == (0, {})
    table.update(Record(1, "A", 7.2))
    assert contents(table) == {1: ({"A": (1, 7.2)}, {"A"})}
    table.update(Record(3, "A", 8.9))
    assert table.values(2) == {"A": 7.2}
    assert table.modified(2) == set()
    assert table.values(3) == {"A": 8.9}
    table.update(Record(4, "B", 4.7))
    assert table.values(4) == {"A": 8.9, "B": 4.7}
    table.update(Record(2, "C", 3.3))
    assert [table.values(time).get("C") for time in range(5)] == [None, None, 3.3, 3.3, 3.3]
    table.update(Record(3, "A", None))
    assert [table.values(time).get("A") for time in range(5)] == [None, 7.2, 7.2, None, None]
    table.update(Record(0, "B", 9.9))
    assert [table.values(time).get("B") for time in range(5)] == [9.9, 9.9, 9.9, 9.9, 4.7]
    table.update(Record(1, "A", 2.8))
    assert table.generation == 7
    assert contents(table) == {
        0: ({"B": (0, 9.9)}, {"B"}),
        1: ({"A": (1, 2.8), "B": (0, 9.9)}, {"A"}),
        2: ({"A": (1, 2.8), "B": (0, 9.9), "C": (2, 3.3)}, {"C"}),
        3: ({"B": (0, 9.9), "C": (2, 3.3)}, {"A"}),
        4: ({"B": (4, 4.7), "C": (2, 3.3)}, {"B"}),
    }
    assert table_of(table.changelog) == table


COUNTS = {
    0: ({"GER": (0, 1)}, {"GER"}),
    1: ({"GER": (1, 2), "US": (1, 1)}, {"GER", "US"}),
    2: ({"GER": (1, 2), "US": (2, 2)}, {"US"}),
}


def test_example_15_aggregation_of_a_record_stream():
    assert contents(aggregate(CLICKS, by_value, len)) == COUNTS
    assert contents(ordered_only(CLICKS, by_value, count)) == COUNTS


@pytest.mark.parametrize(
    ("time", "windows"), [(9, {0, 3, 6, 9}), (10, {3, 6, 9}), (11, {3, 6, 9}), (12, {3, 6, 9, 12})]
)
def test_example_16_hopping_windows(time, windows):
    assert hopping(10, 3, lambda _: {"k"})(facts([(time, "k")])[0]) == {("k", start) for start in windows}


def test_example_17_windowed_aggregation():
    assert contents(aggregate(CLICKS, tumbling(2, by_value), len)) == {
        0: ({("GER", 0): (0, 1)}, {("GER", 0)}),
        1: ({("GER", 0): (1, 2), ("US", 0): (1, 1)}, {("GER", 0), ("US", 0)}),
        2: ({("GER", 0): (1, 2), ("US", 0): (1, 1), ("US", 2): (2, 1)}, {("US", 2)}),
    }


def test_example_18_aggregation_of_an_unordered_stream():
    assert equivalent(CLICKS, UNORDERED_CLICKS)
    for length in range(5):
        same = equivalent(prefix(CLICKS, length), prefix(UNORDERED_CLICKS, length))
        tables = [incrementally(prefix(each, length), by_value, count) for each in (CLICKS, UNORDERED_CLICKS)]
        assert (tables[0] == tables[1]) == same == (length != 3)
    assert contents(incrementally(prefix(UNORDERED_CLICKS, 3), by_value, count)) == {
        0: ({"GER": (0, 1)}, {"GER"}),
        1: ({"GER": (1, 2)}, {"GER"}),
        2: ({"GER": (1, 2), "US": (2, 1)}, {"US"}),
    }
    assert contents(incrementally(UNORDERED_CLICKS, by_value, count)) == COUNTS


def test_example_18_the_wrong_result_of_algorithm_4():
    """It looks up the last version and updates only that of the record's time.

    The print shows a count of 1 for the US at time 1, which is what a look-up in T1 gives; definition 65 looks up the last
    version. Either way T2 stays at 1, where 2 is right.
    """
    wrong = ordered_only(UNORDERED_CLICKS, by_value, count)
    assert wrong.values(2) == {"GER": 2, "US": 1}
    assert wrong != aggregate(CLICKS, by_value, len)


INNER = [(6, "E-E"), (7, "E-E"), (8, "A-A")]
ONLY_LEFT = [(1, "A-⊥"), (3, "C-⊥"), (9, "B-⊥")]
ONLY_RIGHT = [(2, "⊥-B"), (4, "⊥-D")]
JOINED = {
    JoinType.INNER: INNER,
    JoinType.LEFT: INNER + ONLY_LEFT,
    JoinType.RIGHT: INNER + ONLY_RIGHT,
    JoinType.FULL: INNER + ONLY_LEFT + ONLY_RIGHT,
}


@pytest.mark.parametrize("join_type", JoinType)
def test_example_19_stream_stream_join_figure_5_4(join_type):
    joined = of_streams(LEFT, RIGHT, WITHIN_6, join_type)
    assert results(joined) == sorted(JOINED[join_type])
    assert {each.k for each in joined} >= {(1, 4), (3, 2), (3, 3)}


@pytest.mark.parametrize("join_type", [JoinType.INNER, JoinType.LEFT])
def test_example_20_stream_table_join_figure_5_5(join_type):
    records = facts([(1, "A"), (3, "B"), (4, "A"), (5, "B"), (6, "A")])
    table = EvolvingTable([Record(2, "A", "1"), Record(3, "B", "2"), Record(4, "B", "3"), Record(6, "A", None)])
    joined = of_stream_and_table(records, table, lambda record: record.v, join_type)
    inner = [(3, "B-2"), (4, "A-1"), (5, "B-3")]
    assert results(joined) == sorted(inner + ([(1, "A-⊥"), (6, "A-⊥")] if join_type is JoinType.LEFT else []))


def test_a_late_update_of_figure_5_5_corrects_the_result_of_an_earlier_record():
    """The update of B from 2 to 3 at time 4 comes after the record at time 5 (after example 22)."""
    updates = stream([Record(3, "B", "2"), Record(4, "B", "3")])
    (record,) = facts([(5, "B")])
    arrivals = [(Side.RIGHT, updates[0]), (Side.LEFT, record), (Side.RIGHT, updates[1])]
    joined = of_stream_and_table_eagerly(arrivals, lambda each: each.v)
    assert [(each.t, each.k, each.v) for each in joined] == [(5, 0, ("B", "2")), (5, 0, ("B", "3"))]


@pytest.mark.parametrize(
    ("join_type", "expected"),
    [
        (
            JoinType.LEFT,
            [
                (1, (0, None), "A-⊥"),
                (2, (1, None), "A-⊥"),
                (3, (2, None), "C-⊥"),
                (5, (3, None), "E-⊥"),
                (6, (3, None), "E-E"),
                (7, (3, 3), "E-E"),
                (8, (1, None), "A-A"),
                (9, (4, None), "B-⊥"),
            ],
        ),
        (
            JoinType.RIGHT,
            [
                (2, (None, 0), "⊥-B"),
                (4, (None, 1), "⊥-D"),
                (6, (3, 2), "E-E"),
                (7, (3, 3), "E-E"),
                (8, (1, 4), "A-A"),
            ],
        ),
    ],
)
def test_example_21_eager_join_figure_5_6(join_type, expected):
    """The figure's keys, but for the prose's "A5 gets the same key <1, ⊥>": A2 is record 1 of its stream."""
    eager = of_streams_eagerly(by_time(LEFT, RIGHT), WITHIN_6, join_type)
    assert [(each.t, each.k, "-".join(value or "⊥" for value in each.v)) for each in eager] == expected
    assert equivalent(eager, of_streams(LEFT, RIGHT, WITHIN_6, join_type))


UNORDERED_LEFT = facts([(1, "A"), (3, "C"), (2, "A"), (9, "B"), (5, "E")])
UNORDERED_RIGHT = facts([(2, "B"), (6, "E"), (4, "D"), (8, "A"), (7, "E")])
ARRIVALS = [
    *[(Side.LEFT, UNORDERED_LEFT[0]), (Side.RIGHT, UNORDERED_RIGHT[0]), (Side.LEFT, UNORDERED_LEFT[1])],
    *[(Side.LEFT, UNORDERED_LEFT[2]), (Side.RIGHT, UNORDERED_RIGHT[1]), (Side.RIGHT, UNORDERED_RIGHT[2])],
    *[(Side.RIGHT, UNORDERED_RIGHT[3]), (Side.RIGHT, UNORDERED_RIGHT[4])],
    *[(Side.LEFT, UNORDERED_LEFT[3]), (Side.LEFT, UNORDERED_LEFT[4])],
]
A1, C3, A2, B5 = (1, (0, None), "A-⊥"), (3, (1, None), "C-⊥"), (2, (2, None), "A-⊥"), (9, (3, None), "B-⊥")
B1, E3, D2, E4 = (2, (None, 0), "⊥-B"), (6, (None, 1), "⊥-E"), (4, (None, 2), "⊥-D"), (7, (None, 4), "⊥-E")


@pytest.mark.parametrize(
    ("join_type", "expected"),
    [
        (JoinType.INNER, [(8, (2, 3), "A-A"), (6, (4, 1), "E-E"), (7, (4, 4), "E-E")]),
        (
            JoinType.LEFT,
            [A1, C3, A2, (8, (2, None), "A-A"), B5, (6, (4, 1), "E-E"), (7, (4, 4), "E-E")],
        ),
        (
            JoinType.RIGHT,
            [B1, E3, D2, (8, (2, 3), "A-A"), E4, (6, (None, 1), "E-E"), (7, (None, 4), "E-E")],
        ),
        (
            JoinType.FULL,
            [A1, B1, C3, A2, E3, D2, (8, (2, None), "A-A"), E4, B5, (6, (None, 1), "E-E"), (7, (None, 4), "E-E")],
        ),
    ],
)
def test_example_22_unordered_streams_figure_5_7(join_type, expected):
    eager = of_streams_eagerly(ARRIVALS, WITHIN_6, join_type)
    assert [(each.t, each.k, "-".join(value or "⊥" for value in each.v)) for each in eager] == expected
    assert equivalent(eager, of_streams(LEFT, RIGHT, WITHIN_6, join_type))


def test_example_23_table_table_join_figure_5_8():
    """Versions 1, 5 and 6 join versions 2, 3 and 6: the result has versions 2, 3, 5 and 6."""
    left = EvolvingTable([Record(1, "k", "a1"), Record(5, "k", "a5"), Record(6, "k", "a6")])
    right = EvolvingTable([Record(2, "k", "b2"), Record(3, "k", "b3"), Record(6, "k", "b6")])
    joined = of_tables(left, right, (lambda record: record.k, lambda record: record.k))
    assert {time: joined.values(time) for time in joined.times} == {
        2: {("k", "k"): ("a1", "b2")},
        3: {("k", "k"): ("a1", "b3")},
        5: {("k", "k"): ("a5", "b3")},
        6: {("k", "k"): ("a6", "b6")},
    }


def test_tables_become_changelogs_and_back():
    changelog = stream([Record(4, "a", 1), Record(2, "a", 7), Record(2, "b", 3), Record(3, "a", None)])
    assert table_of(table_of(changelog).changelog) == table_of(changelog)
