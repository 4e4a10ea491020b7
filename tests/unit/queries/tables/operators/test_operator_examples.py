"""The worked examples of paper 002, chapter 5, through the operators: what each arrival changes, and all versions.

``test_worked_examples`` has the same examples for the reference interpreter. Names are the paper's. The second emit
strategy of section 5.3, from the end of the window on, is that of ``test_emission``.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from change_tables import changes_from
from dual_streaming.joins import JoinType
from millrace_jobs.changes import BEGINNING, FOREVER, changes_of
from millrace_jobs.queries.tables.operators.aggregate import GroupedAggregate, MergedPart
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import MATCH_FROM, MATCH_TO, Contents, JoinInput
from millrace_jobs.queries.tables.operators.upserts import UpsertedTable
from millrace_jobs.windows import Window
from staged_tables import Stage, rows_in

OPEN = FOREVER
COUNT = (MergedPart("n", "sum", pa.int64()),)
SIDES = ("left", "right")


def changed(stage, source, rows, watermark=BEGINNING):
    """Process rows of one source, and return the removed rows and then the added ones, each in order."""
    schema = stage.operator.inputs[stage.inputs.index(source)]
    found = rows_in(stage.batch({source: changes_from(rows, schema)}, watermark))
    return sorted(found, key=lambda row: (row[-1], repr(row)))


def removed(*row):
    return (*row, -1)


def added(*row):
    return (*row, 1)


def test_example_14_an_evolving_table():
    schema = pa.schema([("k", pa.string()), ("v", pa.float64())])
    table = Stage(UpsertedTable(schema, ("k",), versions=True), "updates")

    def update(t, k, v):
        return changed(table, "updates", [(k, v, t, OPEN, 1 if v is not None else -1)])

    assert update(1, "A", 7.2) == [added("A", 7.2, 1, OPEN)]
    assert update(3, "A", 8.9) == [removed("A", 7.2, 1, OPEN), added("A", 7.2, 1, 3), added("A", 8.9, 3, OPEN)]
    assert update(4, "B", 4.7) == [added("B", 4.7, 4, OPEN)]
    assert update(2, "C", 3.3) == [added("C", 3.3, 2, OPEN)]
    assert update(3, "A", None) == [removed("A", 8.9, 3, OPEN)]
    assert update(0, "B", 9.9) == [added("B", 9.9, 0, 4)]
    assert update(1, "A", 2.8) == [removed("A", 7.2, 1, 3), added("A", 2.8, 1, 3)]
    assert {t: dict(rows) for t, rows in table.versions(range(5)).items()} == {
        0: dict.fromkeys([("B", 9.9)], 1),
        1: dict.fromkeys([("A", 2.8), ("B", 9.9)], 1),
        2: dict.fromkeys([("A", 2.8), ("B", 9.9), ("C", 3.3)], 1),
        3: dict.fromkeys([("B", 9.9), ("C", 3.3)], 1),
        4: dict.fromkeys([("B", 4.7), ("C", 3.3)], 1),
    }


def clicks(*, final=False):
    keys = pa.schema([("country", pa.string())])
    return Stage(GroupedAggregate(keys, COUNT, None, of_table=False, versions=True, final=final), "clicks")


def click(stage, t, country, watermark=BEGINNING):
    return changed(stage, "clicks", [(country, 1, t, t + 1, 1)], watermark)


COUNTS = {
    0: Counter([("GER", 1)]),
    1: Counter([("GER", 2), ("US", 1)]),
    2: Counter([("GER", 2), ("US", 2)]),
}


def test_example_15_aggregation_of_a_record_stream():
    table = clicks()
    assert click(table, 0, "GER") == [added("GER", 1, 0, OPEN)]
    assert click(table, 1, "GER") == [removed("GER", 1, 0, OPEN), added("GER", 1, 0, 1), added("GER", 2, 1, OPEN)]
    assert click(table, 1, "US") == [added("US", 1, 1, OPEN)]
    assert click(table, 2, "US") == [removed("US", 1, 1, OPEN), added("US", 1, 1, 2), added("US", 2, 2, OPEN)]
    assert table.versions(range(3)) == COUNTS


@pytest.mark.parametrize(
    ("time", "windows"), [(9, {0, 3, 6, 9}), (10, {3, 6, 9}), (11, {3, 6, 9}), (12, {3, 6, 9, 12})]
)
def test_example_16_hopping_windows(time, windows):
    """Of records that are routed; for operators on tables, Spark's ``window`` puts them into windows."""
    assert set(Window("at", size=10, slide=3).starts(np.array([time]))[1]) == windows


def test_example_17_windowed_aggregation():
    keys = pa.schema([("country", pa.string()), ("end", pa.int64())])
    table = Stage(GroupedAggregate(keys, COUNT, "end", of_table=False, versions=True, final=False), "clicks")

    def click(t, country):
        return changed(table, "clicks", [(country, t // 2 * 2 + 2, 1, t, t + 1, 1)])

    assert click(0, "GER") == [added("GER", 2, 1, 0, OPEN)]
    assert click(1, "GER") == [removed("GER", 2, 1, 0, OPEN), added("GER", 2, 1, 0, 1), added("GER", 2, 2, 1, OPEN)]
    assert click(1, "US") == [added("US", 2, 1, 1, OPEN)]
    assert click(2, "US") == [added("US", 4, 1, 2, OPEN)]
    assert table.versions(range(3)) == {
        0: Counter([("GER", 2, 1)]),
        1: Counter([("GER", 2, 2), ("US", 2, 1)]),
        2: Counter([("GER", 2, 2), ("US", 2, 1), ("US", 4, 1)]),
    }


def test_example_18_aggregation_of_an_unordered_stream():
    """The last click is late: its version is new, and the later one is corrected, which algorithm 4 does not do."""
    table = clicks()
    click(table, 0, "GER")
    click(table, 1, "GER")
    assert click(table, 2, "US") == [added("US", 1, 2, OPEN)]
    assert table.versions(range(3)) == {
        0: Counter([("GER", 1)]),
        1: Counter([("GER", 2)]),
        2: Counter([("GER", 2), ("US", 1)]),
    }
    assert click(table, 1, "US") == [removed("US", 1, 2, OPEN), added("US", 1, 1, 2), added("US", 2, 2, OPEN)]
    assert table.versions(range(3)) == COUNTS  # algorithm 4 leaves the US at 1 in version 2


WITHIN = 6
LEFT = [(1, "A1"), (2, "A2"), (3, "C3"), (5, "E4"), (9, "B5")]
RIGHT = [(2, "B1"), (4, "D2"), (6, "E3"), (7, "E4"), (8, "A5")]
BY_TIME = sorted(
    [(t, "right", name) for t, name in RIGHT] + [(t, "left", name) for t, name in LEFT], key=lambda e: e[0]
)
INNER = [(6, "E4-E3"), (7, "E4-E4"), (8, "A2-A5")]
ONLY_LEFT = [(1, "A1-⊥"), (3, "C3-⊥"), (9, "B5-⊥")]
ONLY_RIGHT = [(2, "⊥-B1"), (4, "⊥-D2")]
JOINED = {
    JoinType.INNER: INNER,
    JoinType.LEFT: INNER + ONLY_LEFT,
    JoinType.RIGHT: INNER + ONLY_RIGHT,
    JoinType.FULL: INNER + ONLY_LEFT + ONLY_RIGHT,
}


def named(side, *, banded=False):
    match = [(name, pa.int64()) for name in (MATCH_FROM, MATCH_TO)] if banded else []
    return pa.schema([(f"{side}_letter", pa.string()), (f"{side}_name", pa.string()), *match])


def streams_joined(join_type, *, final=False):
    """The join of records that are named by their letter and their number, as in figures 5.4 to 5.7."""
    left = JoinInput(
        named("left", banded=True), ("left_letter",), Contents.RECORDS, preserved=join_type.of_left,
        reach=WITHIN, span=WITHIN,
    )  # fmt: skip
    right = JoinInput(named("right"), ("right_letter",), Contents.RECORDS, preserved=join_type.of_right)
    return Stage(TemporalJoin(left, right, versions=False, final=final), *SIDES)


def arrive(stage, t, side, name, watermark=BEGINNING):
    """Process one record, and return its changes as ``(time, result)``, a removed one with a minus before it."""
    match = (t - WITHIN, t + WITHIN + 1) if side == "left" else ()
    found = changed(stage, side, [(name[0], name, *match, t, t + 1, 1)], watermark)
    return [
        (start, "-" * (weight < 0) + f"{one or '⊥'}-{other or '⊥'}") for _, one, _, other, start, _, weight in found
    ]


def joined(stage):
    return sorted((start, f"{one or '⊥'}-{other or '⊥'}") for _, one, _, other, start, _ in stage.rows.elements())


@pytest.mark.parametrize("join_type", JoinType)
def test_example_19_stream_stream_join_figure_5_4(join_type):
    """Of final results, inner ones come with their second record, and others with the watermark that excludes a partner."""
    stage = streams_joined(join_type, final=True)
    emitted = [result for t, side, name in BY_TIME for result in arrive(stage, t, side, name, t)]
    assert [each for each in emitted if "⊥" not in each[1]] == INNER
    stage.batch({}, 100)
    assert joined(stage) == sorted(JOINED[join_type])
    assert -1 not in stage.weights


def test_example_19_an_outer_result_is_final_when_the_watermark_has_passed_its_band():
    stage = streams_joined(JoinType.LEFT, final=True)
    arrive(stage, 1, "left", "A1")
    stage.batch({}, 7)
    assert joined(stage) == []
    stage.batch({}, 8)
    assert joined(stage) == [(1, "A1-⊥")]


TABLE = [(2, "A", 1), (3, "B", 2), (4, "B", 3), (6, "A", None)]
LOOKED_UP = [(1, "A"), (3, "B"), (4, "A"), (5, "B"), (6, "A")]


def stream_with_table(join_type, *, final=False):
    left = JoinInput(pa.schema([("letter", pa.string())]), ("letter",), Contents.RECORDS, preserved=join_type.of_left)
    schema = pa.schema([("key", pa.string()), ("version", pa.int64())])
    right = JoinInput(schema, ("key",), Contents.TABLE, upserted=True)
    return Stage(TemporalJoin(left, right, versions=True, final=final), "stream", "table")


def look_up(stage, t, letter):
    """Process a record of the stream, and return its changes as ``(time, version, weight)``."""
    found = changed(stage, "stream", [(letter, t, t + 1, 1)])
    return [(start, version, weight) for _, _, version, start, _, weight in found]


def update(stage, t, key, version):
    found = changed(stage, "table", [(key, version, t, OPEN, 1 if version is not None else -1)])
    return [(start, number, weight) for _, _, number, start, _, weight in found]


@pytest.mark.parametrize("join_type", [JoinType.INNER, JoinType.LEFT])
def test_example_20_stream_table_join_figure_5_5(join_type):
    """In order of time, an update before a record of the same time, each record has its result at once."""
    stage = stream_with_table(join_type)
    arrivals = sorted([(t, 0, *row) for t, *row in TABLE] + [(t, 1, letter) for t, letter in LOOKED_UP])
    emitted = []
    for t, is_record, *row in arrivals:
        emitted += look_up(stage, t, *row) if is_record else update(stage, t, *row)
    inner = [(3, 2, 1), (4, 1, 1), (5, 3, 1)]
    alone = [(1, None, 1), (6, None, 1)] if join_type is JoinType.LEFT else []
    assert emitted == sorted(inner + alone)


@pytest.mark.parametrize("join_type", [JoinType.INNER, JoinType.LEFT])
def test_a_late_update_of_figure_5_5_corrects_the_result_of_an_earlier_record(join_type):
    """The update of B from 2 to 3 at time 4 comes after the record at time 5 (after example 22)."""
    stage = stream_with_table(join_type)
    update(stage, 3, "B", 2)
    assert look_up(stage, 3, "B") == [(3, 2, 1)]
    assert look_up(stage, 5, "B") == [(5, 2, 1)]
    assert update(stage, 4, "B", 3) == [(5, 2, -1), (5, 3, 1)]


@pytest.mark.parametrize(
    ("join_type", "expected"),
    [
        (
            JoinType.LEFT,
            ["A1-⊥@1", "A2-⊥@2", "C3-⊥@3", "E4-⊥@5", "-E4-⊥@5 E4-E3@6", "E4-E4@7", "-A2-⊥@2 A2-A5@8", "B5-⊥@9"],
        ),
        (JoinType.RIGHT, ["⊥-B1@2", "⊥-D2@4", "E4-E3@6", "E4-E4@7", "A2-A5@8"]),
    ],
)
def test_example_21_eager_join_figure_5_6(join_type, expected):
    """A result without a partner is emitted at once; where the figure replaces it by its key, it is removed."""
    stage = streams_joined(join_type)
    steps = [arrive(stage, t, side, name) for t, side, name in BY_TIME]
    assert [" ".join(f"{result}@{t}" for t, result in step) for step in steps if step] == expected
    assert joined(stage) == sorted(JOINED[join_type])


UNORDERED = [
    *[(1, "left", "A1"), (2, "right", "B1"), (3, "left", "C3"), (2, "left", "A2"), (6, "right", "E3")],
    *[(4, "right", "D2"), (8, "right", "A5"), (7, "right", "E4"), (9, "left", "B5"), (5, "left", "E4")],
]


@pytest.mark.parametrize(
    ("join_type", "expected"),
    [
        (JoinType.INNER, ["A2-A5@8", "E4-E3@6 E4-E4@7"]),
        (JoinType.LEFT, ["A1-⊥@1", "C3-⊥@3", "A2-⊥@2", "-A2-⊥@2 A2-A5@8", "B5-⊥@9", "E4-E3@6 E4-E4@7"]),
        (JoinType.RIGHT, ["⊥-B1@2", "⊥-E3@6", "⊥-D2@4", "A2-A5@8", "⊥-E4@7", "-⊥-E3@6 -⊥-E4@7 E4-E3@6 E4-E4@7"]),
        (
            JoinType.FULL,
            [
                *["A1-⊥@1", "⊥-B1@2", "C3-⊥@3", "A2-⊥@2", "⊥-E3@6", "⊥-D2@4", "-A2-⊥@2 A2-A5@8"],
                *["⊥-E4@7", "B5-⊥@9", "-⊥-E3@6 -⊥-E4@7 E4-E3@6 E4-E4@7"],
            ],
        ),
    ],
)
def test_example_22_unordered_streams_figure_5_7(join_type, expected):
    stage = streams_joined(join_type)
    steps = [arrive(stage, t, side, name) for t, side, name in UNORDERED]
    assert [" ".join(f"{result}@{t}" for t, result in step) for step in steps if step] == expected
    assert joined(stage) == sorted(JOINED[join_type])


def tables_joined():
    left, right = (
        JoinInput(
            pa.schema([(f"{side}k", pa.string()), (side, pa.string())]), (f"{side}k",), Contents.TABLE, upserted=True
        )
        for side in "ab"
    )
    return Stage(TemporalJoin(left, right, versions=True), "a", "b")


def test_example_23_table_table_join_figure_5_8():
    stage = tables_joined()

    def update(version):
        found = changed(stage, version[0], [("k", version, int(version[1:]), OPEN, 1)])
        return [(one, other, start, end, weight) for _, one, _, other, start, end, weight in found]

    assert update("a1") == []
    assert update("b2") == [added("a1", "b2", 2, OPEN)]
    assert update("b3") == [removed("a1", "b2", 2, OPEN), added("a1", "b2", 2, 3), added("a1", "b3", 3, OPEN)]
    assert update("a5") == [removed("a1", "b3", 3, OPEN), added("a1", "b3", 3, 5), added("a5", "b3", 5, OPEN)]
    assert update("a6") == [removed("a5", "b3", 5, OPEN), added("a5", "b3", 5, 6), added("a6", "b3", 6, OPEN)]
    assert update("b6") == [removed("a6", "b3", 6, OPEN), added("a6", "b6", 6, OPEN)]
    versions = {t: [(row[1], row[3]) for row in rows] for t, rows in stage.versions(range(7)).items()}
    assert versions == {
        0: [], 1: [], 2: [("a1", "b2")], 3: [("a1", "b3")], 4: [("a1", "b3")], 5: [("a5", "b3")], 6: [("a6", "b6")]
    }  # fmt: skip


def test_example_23_two_updates_of_one_time_in_one_batch_give_one_version():
    stage = tables_joined()
    for updates in (["a5", "b3"], ["a6", "b6"]):
        rows = {
            name[0]: changes_from([("k", name, int(name[1:]), OPEN, 1)], changes_of(each.values))
            for name, each in zip(updates, (stage.operator.left, stage.operator.right), strict=True)
        }
        stage.batch(rows, BEGINNING)
    assert {(row[1], row[3], *row[-2:]) for row in stage.rows} == {("a5", "b3", 5, 6), ("a6", "b6", 6, OPEN)}


HALF = 2
"""Units of the operators in one of the figures' time, so that their halves are integers."""

WINDOW_END, ARRIVALS = 5 * HALF, [1, 3, 5, 7]
"""Records a to d arrive at 0.5, 1.5, 2.5 and 3.5, which are their event times too."""


def windows(*, final):
    keys = pa.schema([("key", pa.string()), ("end", pa.int64())])
    return Stage(GroupedAggregate(keys, COUNT, "end", of_table=False, versions=False, final=final), "records")


def emissions(stage, arrivals, delay):
    """Return when counts are added, in the figures' time: ``(processing time, key, count)``.

    Arrivals are ``(processing time, key, event time)``. A watermark comes every unit of time, and is ``delay`` behind.
    """
    output = []
    for now in range(20 * HALF):
        rows = [(key, WINDOW_END, 1, t, t + 1, 1) for at, key, t in arrivals if at == now]
        watermark = now // HALF * HALF - delay * HALF
        schema = stage.operator.inputs[0]
        found = rows_in(stage.batch({"records": changes_from(rows, schema)}, watermark))
        output += [(now / HALF, row[0], row[2]) for row in found if row[-1] > 0]
    assert stage.late == 0
    return output


def test_figure_5_10_a_watermark_of_5_arrives_at_8_and_the_latency_is_4_5():
    assert emissions(windows(final=True), [(at, "k", at) for at in ARRIVALS], delay=3) == [(8, "k", 4)]
    assert 8 - ARRIVALS[-1] / HALF == 4.5


def test_figure_5_11_every_update_has_no_latency_and_four_records_instead_of_one():
    emitted = emissions(windows(final=False), [(at, "k", at) for at in ARRIVALS], delay=3)
    assert emitted == [(0.5, "k", 1), (1.5, "k", 2), (2.5, "k", 3), (3.5, "k", 4)]


@pytest.mark.parametrize(("name", "arrival"), [("a", 6), ("b", 7), ("c", 8.5), ("d", 9), ("e", 14), ("f", 7.5)])
def test_figure_5_12_a_common_watermark_delays_each_window_by_another_time(name, arrival):
    """The delay is 10, so that the watermark of 5 comes at 15; the arrivals are chosen, as for the reference."""
    arrivals = [(int(arrival * HALF), name, 4 * HALF)]
    assert emissions(windows(final=True), arrivals, delay=10) == [(15, name, 1)]
    assert emissions(windows(final=False), arrivals, delay=10) == [(arrival, name, 1)]
