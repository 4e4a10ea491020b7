"""The report of a verified upgrade: a verdict, and why, short enough for the termination message of a pod."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from millrace_api.model.upgrade import UpgradeReport, UpgradeVerdict
from millrace_jobs.comparison.findings import OutputComparison
from millrace_jobs.comparison.report import BEGINNING, ComparisonVerdict, VersionsReport

MAX_CHARACTERS = 2048
"""Characters of a message."""

MAX_BYTES = 4096
"""Bytes of a report as JSON: Kubernetes cuts a longer termination message."""

_EXAMPLE = 600
"""Characters of the rows of one key that are shown."""

_VERDICTS = {
    ComparisonVerdict.DIFFERENT: UpgradeVerdict.DIFFERENT,
    ComparisonVerdict.UNSTEADY: UpgradeVerdict.UNSTEADY,
    ComparisonVerdict.SLOWER: UpgradeVerdict.SLOWER,
    ComparisonVerdict.EQUAL: UpgradeVerdict.EQUAL,
}
"""The verdicts of comparisons; of several that hold, the first one here is reported."""


def upgrade_report(report: VersionsReport, note: str = "") -> UpgradeReport:
    """Return what a comparison has come to; ``note`` is one clause more about how it was made."""
    verdict = next(ours for theirs, ours in _VERDICTS.items() if theirs in report.verdicts)
    last = "; ".join(filter(None, (_extent(report), _speed(report), note)))
    room = MAX_CHARACTERS - len(last) - 2
    first = "; ".join(_differences(report)) or "the results are the same"
    return UpgradeReport(verdict=verdict, message=f"{_cut(first, room)}; {last}")


def not_compared(problem: str) -> UpgradeReport:
    """Return the report of versions that cannot be compared, with the reason."""
    return UpgradeReport(verdict=UpgradeVerdict.NOT_COMPARED, message=_cut(problem, MAX_CHARACTERS))


def too_slow(problem: str) -> UpgradeReport:
    """Return the report of a new version that did not come to its end."""
    return UpgradeReport(verdict=UpgradeVerdict.SLOWER, message=_cut(problem, MAX_CHARACTERS))


def fitted(report: UpgradeReport) -> str:
    """Return a report as JSON of at most MAX_BYTES, with as much of the message as fits."""
    room = len(report.message)
    while len((text := report.model_dump_json()).encode()) > MAX_BYTES:
        room = room * 3 // 4
        report = UpgradeReport(verdict=report.verdict, message=_cut(report.message, room))
    return text


def _differences(report: VersionsReport) -> Iterator[str]:
    """Yield what differs, the reasons of the verdict first."""
    unsteady = {each.field for each in report.unsteady}
    several = len(report.outputs) > 1
    differing = [each for each in report.outputs if not each.is_equal]
    for output in sorted(differing, key=lambda each: each.field in unsteady):
        place = f"{output.field}: " if several else ""
        if output.field in unsteady:
            place += "two runs of the old version differ, so nothing follows for the new one: "
        yield from (f"{place}{each.text}" for each in output.findings if not each.is_allowed)
    if report.is_slower:
        speed = report.speed
        bounds = f"{speed.low:.2f} to {speed.high:.2f} with 95 % confidence"
        yield f"the new version takes {speed.ratio:.2f} times as long ({bounds}), and {report.bound:g} is allowed"
    yield from _example(differing)
    for output in report.outputs:
        place = f"{output.field}: " if several else ""
        yield from (f"{place}{each.text}" for each in output.findings if each.is_allowed)


def _example(outputs: list[OutputComparison]) -> Iterator[str]:
    """Yield the first differing key, with the row of each version."""
    example = next((each for output in outputs for each in output.examples), None)
    if example is not None:
        rows = (("old", example.old), ("new", example.new))
        yield f"such as {', '.join(f'{name} {_row(row)}' for name, row in rows)}"


def _row(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "no row"
    return _cut(json.dumps(row, default=str, ensure_ascii=False), _EXAMPLE // 2)


def _extent(report: VersionsReport) -> str:
    start = "the beginning of the sources" if report.start == BEGINNING else f"the snapshot {report.start}"
    because = f" ({report.note})" if report.note else ""
    return f"{report.records:,} records in {report.old.batches:,} batches, from {start} on{_cut(because, 700)}"


def _speed(report: VersionsReport) -> str:
    if report.is_slower:
        return ""
    if not report.speed.is_known:
        return "times are not compared, for too few batches"
    speed = report.speed
    interval = f"{speed.low:.2f} to {speed.high:.2f} with 95 % confidence"
    return f"it takes {speed.ratio:.2f} times as long ({interval}), not surely more than the {report.bound:g} allowed"


def _cut(text: str, most: int) -> str:
    text = text.encode(errors="backslashreplace").decode()  # the name of a file need not be UTF-8
    return text if len(text) <= most else f"{text[: max(0, most - 3)]}..."
