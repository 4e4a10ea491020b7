"""The verdict of a comparison, and the report in both formats."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from millrace_jobs.comparison.report import ComparisonVerdict, VersionsReport, as_json, as_text
from millrace_jobs.comparison.speed import SpeedRatio

from .reports import EQUAL, FAST, MORE, OTHER, SLOW, report


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        (report(), [ComparisonVerdict.EQUAL]),
        (report(MORE), [ComparisonVerdict.EQUAL]),
        (report(OTHER), [ComparisonVerdict.DIFFERENT]),
        (report(OTHER, SLOW), [ComparisonVerdict.DIFFERENT, ComparisonVerdict.SLOWER]),
        (report(OTHER, FAST, (OTHER,)), [ComparisonVerdict.UNSTEADY]),
        (report(EQUAL, replace(SLOW, batches=3)), [ComparisonVerdict.EQUAL]),
    ],
)
def test_a_verdict_names_all_that_speaks_against_the_new_version(
    given: VersionsReport, verdicts: list[ComparisonVerdict]
) -> None:
    assert list(given.verdicts) == verdicts
    assert given.is_equal == (verdicts == [ComparisonVerdict.EQUAL])
    assert json.loads(as_json(given))["verdict"] == verdicts
    assert list(as_text(given))[-1] == f"verdict: {' and '.join(verdicts)}"


def test_the_report_shows_both_rows_and_the_late_records() -> None:
    text = "\n".join(as_text(report(OTHER, SLOW)))
    assert "10 records in 2 batches, from the snapshot half on" in text
    assert "changed: spec.query.sql: ..." in text
    assert '    old  {"city": "ä", "n": 1}\n    new  {"city": "ä", "n": 2}' in text
    assert "late records: 0 of the old version, 2 of the new one" in text
    assert "2.00 times (1.60 to 2.40 with 95 % confidence), more than 1.5" in text
    found = json.loads(as_json(report(OTHER)))
    assert found["outputs"][0]["equal"] is False
    assert found["outputs"][0]["examples"] == [{"old": {"city": "ä", "n": 1}, "new": {"city": "ä", "n": 2}}]
    assert found["old"] == {"batches": 2, "seconds": 1.5, "late": 0, "rejected": 1}


def test_too_few_batches_are_said() -> None:
    assert "speed: not compared: 2 batches after warm-up, and it takes 6" in list(as_text(report(speed=SpeedRatio(2))))
