"""Problems of when results are emitted, found without Spark, each at its line of the file."""

import pytest

from .documents import MINIMAL, changed, problems

TIMED = MINIMAL.replace("at TIMESTAMP", "at TIMESTAMP, late TIMESTAMP\n      watermark: {column: at, delay: 1s}")


def grouped_by(column, text=MINIMAL):
    return text.replace("GROUP BY cell", f"GROUP BY cell, window({column}, '1 minute')")


@pytest.mark.parametrize(
    ("text", "line", "emit", "expected"),
    [
        (MINIMAL, 12, "OnWindowClose", "spec.emit: emit OnWindowClose needs a window or a join, and the SQL has none; "
         "add GROUP BY window(column, '10 minutes') to the SQL, or write emit: OnUpdate"),
        (grouped_by("at"), 12, "OnWindowClose", 'spec.emit: emit OnWindowClose needs a watermark, and "trips" has none; '
         "add watermark: {column: ..., delay: 30s} to the source, or write emit: OnUpdate"),
        (TIMED, 13, "OnWindowEnd", "spec.emit: emit OnWindowEnd needs a window or a join, and the SQL has none; "
         "add GROUP BY window(column, '10 minutes') to the SQL, or write emit: OnUpdate"),
    ],
)  # fmt: skip
def test_a_strategy_without_what_it_needs_is_refused(tmp_path, text, line, emit, expected):
    assert problems(tmp_path, changed(text, line, f"  emit: {emit}")) == [f"{line}: {expected}"]


@pytest.mark.parametrize("emit", ["OnWindowEnd", "OnWindowClose"])
def test_the_window_is_over_the_column_of_the_watermark(tmp_path, emit):
    assert problems(tmp_path, changed(grouped_by("late", TIMED), 13, f"  emit: {emit}")) == [
        '11: spec.query.sql: the window is over "late", but the watermark of "trips" is on "at" '
        "(line 1, column 61 of the SQL); use one column for both, or write emit: OnUpdate"
    ]


@pytest.mark.parametrize("over", ["at + INTERVAL 1 HOUR", "CAST(at AS DATE)", "date_trunc('hour', at)", "now()"])
def test_windows_over_what_is_no_column_of_a_watermark_never_close(tmp_path, over):
    [problem] = problems(tmp_path, changed(grouped_by(over, TIMED), 13, "  emit: OnWindowClose"))
    assert problem.startswith("11: spec.query.sql: the windows are over ")
    assert "which is not the column of a watermark, so they are never final under emit OnWindowClose" in problem
    assert problems(tmp_path, grouped_by(over, TIMED)) == []


@pytest.mark.parametrize(
    ("inner", "window", "closes"),
    [
        ("SELECT at AS t, cell FROM trips", "window(t, '1 hour')", True),
        ("SELECT * FROM (SELECT at AS t, cell FROM trips) y", "window(t, '1 hour')", True),
        ("SELECT at AS t, cell FROM trips UNION ALL SELECT late, cell FROM trips", "window(t, '1 hour')", True),
        ("SELECT window AS t, cell FROM trips GROUP BY window(at, '1 minute'), cell", "window(t, '1 hour')", True),
        ("SELECT window_time(w) AS t, cell FROM (SELECT window AS w, cell FROM trips GROUP BY window(at, '1 minute'), cell)",
         "window(t, '1 hour')", True),
        ("SELECT at + INTERVAL 1 HOUR AS t, cell FROM trips", "window(t, '1 hour')", False),
        ("SELECT late AS t, cell FROM trips", "window(t, '1 hour')", False),
        ("SELECT late AS t, cell FROM trips UNION ALL SELECT at, cell FROM trips", "window(t, '1 hour')", False),
        ("SELECT window.end AS t, cell FROM trips GROUP BY window(at, '1 minute'), cell", "window(t, '1 hour')", False),
        ("SELECT late AS t, cell FROM trips", "session_window(t, '1 hour')", False),
    ],
)  # fmt: skip
def test_event_time_is_followed_through_subqueries(tmp_path, inner, window, closes):
    name = window.partition("(")[0]
    sql = f"SELECT cell, {name}.start AS since, count(*) AS trips FROM ({inner}) x GROUP BY {window}, cell"
    sql_line = next(number for number, line in enumerate(TIMED.splitlines(), 1) if "GROUP BY cell" in line)
    text = changed(TIMED, sql_line, f'    sql: "{sql}"')
    found = problems(tmp_path, changed(text, 13, "  emit: OnWindowClose"))
    assert len(found) == (0 if closes else 1), found
    assert closes or "the windows are over t, which is not the column of a watermark" in found[0]


GROUPS = grouped_by("at", TIMED)
TO_TABLE = "table: {bootstrapServers: k, topic: t}"


@pytest.mark.parametrize(
    ("text", "sink", "expected"),
    [
        (TIMED, "files: {path: final}", "emit: emit OnWindowClose needs a window or a join, and the SQL has none; "
         "add GROUP BY window(column, '10 minutes') to the SQL, or write emit: OnUpdate"),
        (GROUPS, "console: {}", "sink: spec.sink is the same place, where the results would be mixed; "
         "write to another folder, topic or table"),
        (GROUPS, "files: {path: data, format: csv}", 'sink.files.path: source trips reads the files in "data", '
         "so every result would come back as a record; write to another folder"),
        (GROUPS, TO_TABLE, "sink.table.key: the query groups by WINDOW(at, '1 minute') and does not select it, so rows "
         "of the table would collide; add WINDOW(at, '1 minute') to the SELECT list, or group by less"),
    ],
)  # fmt: skip
def test_an_additional_output_is_checked_like_the_first(tmp_path, text, sink, expected):
    output = f"  additionalOutputs: {{final: {{emit: OnWindowClose, sink: {{{sink}}}}}}}"
    assert problems(tmp_path, changed(text, 13, output)) == [f"13: spec.additionalOutputs.final.{expected}"]


def test_additional_outputs_do_not_mix_their_results(tmp_path):
    outputs = "{a: {emit: OnUpdate, sink: {files: {path: out}}}, b: {emit: OnWindowEnd, sink: {files: {path: out/}}}}"
    (problem,) = problems(tmp_path, changed(GROUPS, 13, f"  additionalOutputs: {outputs}"))
    assert problem.startswith("13: spec.additionalOutputs.b.sink: spec.additionalOutputs.a.sink is the same place")


def test_what_both_outputs_cannot_do_is_said_once(tmp_path):
    output = "  additionalOutputs: {final: {emit: OnWindowClose, sink: {files: {path: final}}}}"
    assert len(problems(tmp_path, changed(GROUPS.replace("count(*)", "count(fares)"), 13, output))) == 1


@pytest.mark.parametrize(
    ("groups", "closes"),
    [
        ("window(at, '1 hour'), ROLLUP(cell)", True),
        ("window(at, '1 hour'), CUBE(cell, fare)", True),
        ("window(at, '1 hour'), GROUPING SETS ((cell), ())", True),
        ("GROUPING SETS ((window(at, '1 hour'), cell), (window(at, '1 hour')))", True),
        ("window(at, '1 hour'), cell GROUPING SETS ((window(at, '1 hour'), cell), (window(at, '1 hour')))", True),
        ("CUBE(window(at, '1 hour'), cell)", False),
        ("ROLLUP(window(at, '1 hour'), cell)", False),
        ("window(at, '1 hour'), cell WITH ROLLUP", False),
        ("window(at, '1 hour'), cell WITH CUBE", False),
        ("GROUPING SETS ((window(at, '1 hour'), cell), (cell))", False),
        ("window(at, '1 hour'), cell GROUPING SETS ((window(at, '1 hour'), cell), (cell))", False),
        ("GROUPING SETS (ROLLUP(window(at, '1 hour'), cell), (window(at, '1 hour')))", False),
    ],
)
def test_each_grouping_set_needs_an_event_time(tmp_path, groups, closes):
    """The groups of a set without a window never close; a run with --once would end without them."""
    text = TIMED.replace("GROUP BY cell", f"GROUP BY {groups}")
    found = problems(tmp_path, changed(text, 13, "  emit: OnWindowClose"))
    said = "not every grouping set has an event time, so its groups are never final under emit OnWindowClose"
    assert found == [] if closes else (len(found) == 1 and said in found[0])
    assert problems(tmp_path, text) == []
