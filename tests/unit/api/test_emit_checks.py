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
        (TIMED, 13, "OnWindowEnd", "spec.emit: emit OnWindowEnd needs a window, and the SQL has none; "
         "add GROUP BY window(column, '10 minutes') to the SQL, or write emit: OnUpdate"),
    ],
)  # fmt: skip
def test_what_the_strategy_needs(tmp_path, text, line, emit, expected):
    assert problems(tmp_path, changed(text, line, f"  emit: {emit}")) == [f"{line}: {expected}"]


@pytest.mark.parametrize("emit", ["OnWindowEnd", "OnWindowClose"])
def test_the_window_is_over_the_column_of_the_watermark(tmp_path, emit):
    assert problems(tmp_path, changed(grouped_by("late", TIMED), 13, f"  emit: {emit}")) == [
        '11: spec.query.sql: the window is over "late", but the watermark of "trips" is on "at" '
        "(line 1, column 61 of the SQL); use one column for both, or write emit: OnUpdate"
    ]
