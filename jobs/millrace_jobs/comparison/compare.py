"""A comparison from its beginning to its end: the runs of both versions one after the other, and the report.

The old version runs first and decides the batches; the new one follows it. Where they seem to differ, or the new one
seems slower, the old version runs a second time: what differs between its own two runs is no fault of the new one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_api.model.values import Duration
from millrace_jobs.comparison.changed_fields import changed_fields, require_same_records
from millrace_jobs.comparison.findings import FindingKind, OutputComparison, ResultFinding, compare_output
from millrace_jobs.comparison.kept_results import KeptFolder, KeptOutput
from millrace_jobs.comparison.report import BEGINNING, VersionFigures, VersionsReport
from millrace_jobs.comparison.rows import FinalRows, final_rows
from millrace_jobs.comparison.speed import SpeedRatio, speed_of
from millrace_jobs.comparison.start import continue_from, copy_snapshot, start_of
from millrace_jobs.comparison.version_run import VersionOutcome, VersionTask
from millrace_jobs.disk import process_folder
from millrace_jobs.process.signals import end_child, start_child

MOST_BYTES = 1 << 30
"""Bytes of the results of both versions that are compared in memory, where there is no lower limit."""

_POLL_SECONDS = 0.1
_END_SECONDS = 10.0

_PATIENCE = 2.0
_START_SECONDS = 120.0
"""A later run may take this many times as long as the first one, times the bound, and so many seconds more."""

Say = Callable[[str], None]


class TooSlowError(MillraceError):
    """The new version was ended, since it took much longer than the old one may."""


@dataclass(frozen=True)
class ComparedVersion:
    """A version of a query: the file that has it, and what was read there."""

    file: Path
    query: StreamQuery


@dataclass(frozen=True)
class ComparisonHints:
    """What to write instead, in the words of those who asked for the comparison."""

    records: str = "write a lower --records"
    snapshot: str = "compare from an older snapshot, or with --from beginning"


@dataclass(frozen=True)
class VersionsRequest:
    """What is to be compared, and how exactly.

    Attributes:
        old: the version that runs now.
        new: the version that is to take its place.
        connections: files with Connections.
        start: the name of a snapshot, or BEGINNING; None for the newest snapshot that the new version can continue.
        records: the number of records after which a comparison ends.
        within: the longest time that the run of the old version may take; None for no limit.
        ignored: columns that may differ.
        tolerance: the relative difference of floats that does not count.
        bound: how many times as long as the old version the new one may take.
        examples: the number of differing rows to show.
        command: the command that runs a task, followed by the task's file.
        in_pod: whether the files are the operator's, and both versions run in a pod: in its memory, and for a bounded
            time.
        most_bytes: bytes of the results of both versions that are compared in memory.
        hints: what to write instead.
    """

    old: ComparedVersion
    new: ComparedVersion
    connections: Sequence[Path]
    start: str | None
    records: int
    within: Duration | None
    ignored: frozenset[str]
    tolerance: float
    bound: float
    examples: int
    command: Sequence[str]
    in_pod: bool = False
    most_bytes: int = MOST_BYTES
    hints: ComparisonHints = ComparisonHints()


def compare(request: VersionsRequest, say: Say) -> VersionsReport:
    """Run both versions, and compare their results; ``say`` takes a line about what happens.

    Raises:
        SnapshotGoneError: the snapshot was removed before it was copied.
        TooSlowError: the new version was ended, since it took much too long.
        MillraceError: the versions cannot be compared.
    """
    require_same_records(request.old.query, request.new.query)
    folder, lock = process_folder("millrace-compare-")
    try:
        return _Comparison(request, folder, lock, say).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Comparison:
    """A comparison in a temporary folder; ``lock`` is the descriptor by which that is in use."""

    def __init__(self, request: VersionsRequest, folder: Path, lock: int, say: Say) -> None:
        self._request, self._folder, self._lock, self._say = request, folder, lock, say
        self._snapshot, self._why = start_of(request.old.query, request.new.query, request.start)
        self._start = folder / "start"
        self._first_seconds = 0.0

    def run(self) -> VersionsReport:
        request = self._request
        if self._why:
            self._say(self._why)
        if self._snapshot is not None:
            copy_snapshot(request.old.query, self._snapshot, self._start)
        first = self._task("old", request.old, is_first=True)
        old = self._run(first, "old", None)
        if not old.rows:
            start = "the snapshot" if self._snapshot else "the beginning of its sources"
            hint = request.hints.snapshot if self._snapshot else "let some arrive"
            raise MillraceError(Problem(f"the old version has read no record from {start} on", hint))
        later = self._task("new", request.new)
        new = self._run(later, "new", old)
        if new.rows != old.rows:
            message = f"the new version has read {new.rows:,} records, and the old one {old.rows:,}"
            raise MillraceError(Problem(message, "compare when no file of the sources is replaced or removed"))
        self._require_bounded(first, later)
        outputs, speed = self._compared(first, later), speed_of_runs(old, new)
        unsteady: tuple[OutputComparison, ...] = ()
        if speed.exceeds(request.bound) or not all(each.is_equal for each in outputs):
            self._say("running the old version a second time: what differs in its own two runs does not count")
            again = self._task("again", request.old)
            repeated = self._run(again, "old", old)
            unsteady = tuple(each for each in self._compared(first, again) if not each.is_equal)
            speed = min(
                speed, speed_of_runs(repeated, new), key=lambda each: each.low
            )  # either may have been disturbed
        return VersionsReport(
            start=self._snapshot or BEGINNING,
            note=self._why,
            records=old.rows,
            changes=tuple(changed_fields(request.old.query, request.new.query)),
            old=VersionFigures.of(old.batches),
            new=VersionFigures.of(new.batches),
            outputs=outputs,
            unsteady=unsteady,
            speed=speed,
            bound=request.bound,
        )

    def _task(self, name: str, version: ComparedVersion, *, is_first: bool = False) -> VersionTask:
        """Prepare the folder of a run: its checkpoint, and for a later run what the first one's sources remember."""
        request, folder = self._request, self._folder / name
        folder.mkdir()
        task = VersionTask(
            file=str(version.file.absolute()),
            query=version.query.name,
            name=request.old.query.name,
            connections=[str(file.absolute()) for file in request.connections],
            folder=str(folder),
            ends=str(self._folder / "ends"),
            is_first=is_first,
            records=request.records,
            seconds=None if request.within is None else request.within.seconds,
            from_beginning=self._snapshot is None,
            in_pod=request.in_pod,
        )
        if self._snapshot is not None:
            continue_from(self._start, task.checkpoint)
        if not is_first:
            remembered = self._folder / "old" / "checkpoint" / "sources"
            if remembered.exists():
                shutil.copytree(remembered, task.checkpoint / "sources", dirs_exist_ok=True)
        return task

    def _run(self, task: VersionTask, name: str, before: VersionOutcome | None) -> VersionOutcome:
        """Run a task in a process of its own. Raises MillraceError if it fails."""
        if before is not None:
            seconds = sum(batch.seconds for batch in before.batches)
            self._say(
                f"running the {name} version: {before.rows:,} records, for which the old one took {seconds:.0f} s"
            )
        file, log = Path(task.folder, "task.json"), Path(task.folder, "output")
        task.write(file)
        with log.open("wb") as output:
            command = [*self._request.command, str(file)]
            process = start_child(command, os.environ, quiet=False, pass_fds=[self._lock], output=output.fileno())
        began = time.monotonic()
        try:
            self._wait(process, task, announced=before is not None)
            if process.poll() is None:
                raise _too_slow(name, time.monotonic() - began, self._first_seconds)
        finally:
            end_child(process, _END_SECONDS)
        if before is None:
            self._first_seconds = time.monotonic() - began
        try:
            outcome = VersionOutcome.read(task.outcome_file)
        except FileNotFoundError:
            last = "".join(log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[-1:]).strip()
            message = f"the run of the {name} version has died: {last or f'status {process.returncode}'}"
            raise MillraceError(Problem(message, "run it by millrace run --once, which shows why")) from None
        if outcome.problems:
            place = f"the {name} version cannot be compared: "
            problems = [replace(each, message=f"{place}{each.message}") for each in outcome.problems]
            raise MillraceError(*problems)
        return outcome

    def _wait(self, process: subprocess.Popen[bytes], task: VersionTask, *, announced: bool) -> None:
        """Wait for the end of a run, or in a pod until a later run has taken too long."""
        request, until = self._request, float("inf")
        if request.in_pod and not task.is_first:
            until = time.monotonic() + longest_seconds(self._first_seconds, request.bound)
        while process.poll() is None and time.monotonic() < until:
            if not announced and task.waiting_file.exists():
                self._say(_announcement(task))
                announced = True
            time.sleep(_POLL_SECONDS)

    def _require_bounded(self, *tasks: VersionTask) -> None:
        size, most = sum(task.results.size for task in tasks), self._request.most_bytes
        if size > most:
            message = f"the results are {size >> 20:,} MiB, and at most {most >> 20:,} MiB are compared in memory"
            raise MillraceError(Problem(message, self._request.hints.records))

    def _compared(self, old: VersionTask, new: VersionTask) -> tuple[OutputComparison, ...]:
        request = self._request
        return compare_results(
            old.results,
            new.results,
            ignored=request.ignored,
            tolerance=request.tolerance,
            examples=request.examples,
        )


def longest_seconds(first: float, bound: float) -> float:
    """Return the seconds that a later run may take, for those of the first one and the bound of their ratio."""
    return _PATIENCE * max(bound, 1.0) * first + _START_SECONDS


def _too_slow(name: str, seconds: float, first: float) -> MillraceError:
    message = f"the {name} version was ended after {seconds:.0f} s: the old one took {first:.0f} s for the same records"
    if name == "new":
        return TooSlowError(Problem(message, "compare its plan with that of the old one by millrace explain"))
    return MillraceError(Problem(message, "compare again when the node is less busy"))


def _announcement(task: VersionTask) -> str:
    """Return how much the first run will read, before it begins."""
    parts = []
    for name, found in json.loads(task.waiting_file.read_text(encoding="utf-8")).items():
        known = found["records"]
        parts.append(f"{name} has {known:,} records" if known is not None else f"{name} has {found['units']:,} files")
    bound = f"at most {task.records:,} records are read"
    limit = "" if task.seconds is None else f", for at most {task.seconds:g} s"
    return f"running the old version: {', '.join(parts)}; {bound}{limit}, and then by the new one"


def compare_results(
    old: KeptFolder, new: KeptFolder, *, ignored: Collection[str], tolerance: float, examples: int
) -> tuple[OutputComparison, ...]:
    """Compare the results of two runs, output by output; see ``compare_output``."""
    results = [
        {each.field: (_rows_of(folder, number, each), each.columns) for number, each in enumerate(folder.outputs)}
        for folder in (old, new)
    ]
    found = []
    for field in dict.fromkeys([*results[0], *results[1]]):
        if field not in results[1]:
            gone = ResultFinding(FindingKind.OUTPUT_GONE, "the new version has no such output")
            found.append(OutputComparison(field, findings=(gone,)))
        elif field not in results[0]:
            added = ResultFinding(FindingKind.OUTPUT_ADDED, "the new version adds this output")
            found.append(OutputComparison(field, findings=(added,)))
        else:
            pair = (results[0][field], results[1][field])
            found.append(compare_output(field, *pair, ignored=ignored, tolerance=tolerance, examples=examples))
    return tuple(found)


def _rows_of(folder: KeptFolder, number: int, output: KeptOutput) -> FinalRows:
    return final_rows(folder.batches(number), output, folder.empty())


def speed_of_runs(old: VersionOutcome, new: VersionOutcome) -> SpeedRatio:
    """Compare the batches with records, which are the same in both."""
    times = [[batch.seconds for batch in outcome.batches if batch.rows] for outcome in (old, new)]
    if [b.rows for b in old.batches if b.rows] != [b.rows for b in new.batches if b.rows]:
        return SpeedRatio(0)
    return speed_of(*times)
