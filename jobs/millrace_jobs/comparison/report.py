"""The report of a comparison, as text and as JSON, and its verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from millrace_jobs.comparison.findings import OutputComparison
from millrace_jobs.comparison.speed import LEAST_BATCHES, SpeedRatio
from millrace_jobs.comparison.version_run import ComparedBatch

BEGINNING = "beginning"
"""The start of a comparison that reads the sources from their beginning."""


class ComparisonVerdict(StrEnum):
    """What a comparison has found."""

    EQUAL = "equal"
    DIFFERENT = "different"
    SLOWER = "slower"
    UNSTEADY = "unsteady"
    """The old version has other results each time, so nothing follows from those of the new one."""


@dataclass(frozen=True)
class VersionFigures:
    """What a version has done with the records."""

    batches: int
    seconds: float
    late: int
    rejected: int

    @classmethod
    def of(cls, batches: Sequence[ComparedBatch]) -> Self:
        """Add up the batches of a run."""
        return cls(
            len(batches),
            round(sum(batch.seconds for batch in batches), 3),
            sum(batch.late for batch in batches),
            sum(batch.rejected for batch in batches),
        )


@dataclass(frozen=True)
class VersionsReport:
    """The report of a comparison.

    Attributes:
        start: the snapshot that it began with, or BEGINNING.
        note: why it did not begin with a snapshot, if there is one.
        records: the number of records that each version has read.
        changes: the fields that differ, in words.
        old: figures of the old version.
        new: figures of the new version.
        outputs: the comparison of each output.
        unsteady: the outputs in which two runs of the old version differ.
        speed: the seconds of the new version for a batch over those of the old one.
        bound: what this ratio may be.
    """

    start: str
    note: str
    records: int
    changes: tuple[str, ...]
    old: VersionFigures
    new: VersionFigures
    outputs: tuple[OutputComparison, ...]
    unsteady: tuple[OutputComparison, ...]
    speed: SpeedRatio
    bound: float

    @property
    def is_slower(self) -> bool:
        """Whether the new version takes longer than it may."""
        return self.speed.exceeds(self.bound)

    @property
    def verdicts(self) -> tuple[ComparisonVerdict, ...]:
        """All that holds; EQUAL alone if the new version may take the place of the old one."""
        unsteady = {each.field for each in self.unsteady}
        found = []
        if any(not each.is_equal and each.field not in unsteady for each in self.outputs):
            found.append(ComparisonVerdict.DIFFERENT)
        if unsteady:
            found.append(ComparisonVerdict.UNSTEADY)
        if self.is_slower:
            found.append(ComparisonVerdict.SLOWER)
        return tuple(found) or (ComparisonVerdict.EQUAL,)

    @property
    def is_equal(self) -> bool:
        """Whether the new version computes the same, and as fast as it should."""
        return self.verdicts == (ComparisonVerdict.EQUAL,)


def as_json(report: VersionsReport) -> str:
    """Return the report as a JSON document."""
    content: dict[str, Any] = asdict(report)
    for name, outputs in (("outputs", report.outputs), ("unsteady", report.unsteady)):
        for document, output in zip(content[name], outputs, strict=True):
            document["equal"] = output.is_equal
    return json.dumps({"verdict": report.verdicts, **content}, indent=2, default=str, ensure_ascii=False)


def as_text(report: VersionsReport) -> Iterator[str]:
    """Yield the lines of the report."""
    start = "the beginning of the sources" if report.start == BEGINNING else f"the snapshot {report.start}"
    yield f"{report.records:,} records in {report.old.batches:,} batches, from {start} on"
    for change in report.changes:
        yield f"changed: {change}"
    for output in report.outputs:
        yield from _of_output(output)
    for output in report.unsteady:
        yield f"{output.field}: two runs of the old version differ, too: its results depend on more than its records"
        yield from (f"  {finding.text}" for finding in output.findings)
    yield from _of_late(report)
    yield _of_speed(report)
    yield f"verdict: {' and '.join(report.verdicts)}"


def _of_output(output: OutputComparison) -> Iterator[str]:
    counts = f"{output.old_rows:,} rows of the old version (digest {output.old_digest})"
    if (output.new_rows, output.new_digest) == (output.old_rows, output.old_digest):
        yield f"{output.field}: {counts}, and the same of the new one"
    else:
        yield f"{output.field}: {counts}, {output.new_rows:,} of the new one (digest {output.new_digest})"
    if output.tolerated:
        yield f"  {output.tolerated:,} of them differ in floats, within the tolerance"
    yield from (f"  {finding.text}" for finding in output.findings)
    for example in output.examples:
        for name, row in (("old", example.old), ("new", example.new)):
            if row is not None:
                yield f"    {name}  {_row(row)}"


def _row(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False)


def _of_late(report: VersionsReport) -> Iterator[str]:
    for what, old, new in (
        ("late records", report.old.late, report.new.late),
        ("records that do not decode", report.old.rejected, report.new.rejected),
    ):
        if old or new:
            yield f"{what}: {old:,} of the old version, {new:,} of the new one"


def _of_speed(report: VersionsReport) -> str:
    speed = report.speed
    if not speed.is_known:
        return f"speed: not compared: {speed.batches} batches after warm-up, and it takes {LEAST_BATCHES}"
    times = f"{speed.old:.3g} s a batch in the old version, {speed.new:.3g} s in the new one"
    ratio = f"{speed.ratio:.2f} times ({speed.low:.2f} to {speed.high:.2f} with 95 % confidence)"
    judged = f"more than {report.bound:g}" if report.is_slower else f"not surely more than {report.bound:g}"
    return f"speed: {times}: {ratio}, {judged}"
