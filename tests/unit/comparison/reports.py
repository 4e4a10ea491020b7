"""Reports of comparisons that have found nothing, differences, or a slower version."""

from __future__ import annotations

from dataclasses import replace

from millrace_jobs.comparison.findings import Example, FindingKind, OutputComparison, ResultFinding
from millrace_jobs.comparison.report import VersionFigures, VersionsReport
from millrace_jobs.comparison.speed import SpeedRatio
from millrace_jobs.comparison.version_run import ComparedBatch

EQUAL = OutputComparison("spec", 3, 3, "0f", "0f")
OTHER = replace(
    EQUAL,
    new_digest="0e",
    findings=(ResultFinding(FindingKind.VALUES, "n: 1 row of 3 in both versions differ", "n", 1),),
    examples=(Example({"city": "ä", "n": 1}, {"city": "ä", "n": 2}),),
)
MORE = replace(EQUAL, findings=(ResultFinding(FindingKind.COLUMN_ADDED, "m: the new version adds this column", "m"),))
SLOW, FAST = SpeedRatio(12, 1.0, 2.0, 2.0, 1.6, 2.4), SpeedRatio(12, 1.0, 1.4, 1.4, 1.2, 1.6)


def report(
    output: OutputComparison = EQUAL, speed: SpeedRatio = FAST, unsteady: tuple[OutputComparison, ...] = ()
) -> VersionsReport:
    """A report of a comparison from the snapshot ``half`` on."""
    old = VersionFigures.of([ComparedBatch(0, 10, 1.0, 0, 1), ComparedBatch(1, 0, 0.5, 0, 0)])
    new = VersionFigures.of([ComparedBatch(0, 10, 1.0, 2, 1)])
    return VersionsReport("half", "", 10, ("spec.query.sql: ...",), old, new, (output,), unsteady, speed, 1.5)
