"""What a record says of a period of a run: its batches, what was found and decided when, and how it was at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.page.findings import (
    OVERDUE_INTERVALS,
    OVERDUE_SECONDS,
    WARM,
    findings,
    seconds_text,
)
from millrace_jobs.page.heat_map import heat_maps
from millrace_jobs.page.history import RunHistory, RunSnapshot
from millrace_jobs.page.view import Bar, Extent, PageView, RunFacts, page_view, steps_of
from millrace_support.http_server import ProbeResult
from millrace_support.pages.verdict import PageFinding, Severity, by_urgency
from millrace_support.run_record import (
    BatchDetails,
    BatchFigures,
    BatchLine,
    BatchPlan,
    DecisionLine,
    EndLine,
    FailureLine,
    IdleLine,
    MessageLine,
    RecordLine,
    RunLine,
    StartedLine,
    StepLine,
)

MAX_POINTS = 240
"""Points of a line, and rows of the table of batches: of more batches, neighbors are combined."""

MAX_ENTRIES = 400
"""Entries of the timeline."""

_COLUMNS = 96
"""Columns of the heat maps together."""

SILENT_SECONDS = 300.0
"""Seconds without a sample, and at least two steps, after which a driver counts as silent."""

_ALIVE = ProbeResult(True, "running")


class EntryKind(StrEnum):
    """What an entry of the timeline is about, the first to be kept first."""

    DECISION = "decision"
    RUN = "run"
    VERDICT = "verdict"
    MESSAGE = "message"


@dataclass(frozen=True)
class TimelineEntry:
    """What happened at a time, in seconds since 1970; ``severity`` is that of a verdict or failure, else None."""

    time: float
    kind: EntryKind
    title: str
    text: str
    severity: Severity | None = None


@dataclass(frozen=True)
class RunReport:
    """A run over a period.

    ``view`` has the figures: lines and tables of the whole period, and what is said of the newest batch as of its end.
    ``slowest`` has the steps of the batch that took longest for its interval, without the first ones after a start.
    ``omitted`` entries of the timeline were left out, messages first. ``origin`` says where the figures are from, and
    ``millrace`` is the version that recorded them. ``dropped`` batches are not in the record any more.
    """

    view: PageView
    first: float
    last: float
    batches: int
    timeline: tuple[TimelineEntry, ...]
    omitted: int
    slowest: tuple[Bar, ...]
    slowest_title: str
    origin: str
    millrace: str
    dropped: int = 0


def replayed(lines: Sequence[RecordLine], since: float | None = None, until: float | None = None) -> RunReport:
    """Return the report of a record, or of a part of its time.

    Args:
        lines: the events, of which the first one is a ``RunLine``.
        since: beginning of the period, in seconds since 1970; None for that of the record.
        until: its end; None for that of the record.

    Raises:
        MillraceError: the record has nothing in this period.
    """
    known = [line for line in lines if until is None or line.time <= until]
    within = [line for line in known if since is None or line.time >= since]
    if not within:
        message = "the record has nothing in this period"
        first, last = lines[0].time, lines[-1].time
        hint = f"it goes from {moment_text(first)} to {moment_text(last)}: write --since and --until in between"
        raise MillraceError(Problem(message, hint))
    is_cut = until is not None and len(known) < len(lines)
    is_sampled = any(isinstance(line, RunLine) and line.origin for line in known)
    last = until if until is not None and (is_cut or is_sampled) else within[-1].time
    replay = _Replay(within[0].time if since is None else since)
    for line in known:
        replay.add(line)
    entries = [*replay.entries, *_ending(known, is_cut=is_cut)]
    kept = _kept(entries)
    run = replay.history.snapshot()
    facts = replay.facts(run)
    shown = replace(run, batches=thinned(replay.batches), began=replay.since)
    *earlier, heat = heat_maps(replace(run, batches=thinned(replay.batches, _COLUMNS)), _COLUMNS) or (None,)
    marks = tuple(each.time for each in kept if each.kind is EntryKind.DECISION)
    view = page_view(shown, facts, last, Extent(MAX_POINTS, marks))
    slowest = replay.slowest
    return RunReport(
        view=replace(
            view,
            findings=tuple(replay.findings_at_end(run, last)),
            heat=heat,
            earlier_heat=tuple(each for each in earlier if each is not None),
        ),
        first=replay.since,
        last=last,
        batches=sum(each.batches for each in replay.batches),
        timeline=kept,
        omitted=len(entries) - len(kept),
        slowest=() if slowest is None else steps_of(slowest),
        slowest_title="" if slowest is None else f"Batch {slowest.batch}: {seconds_text(slowest.seconds)}",
        origin=replay.started.origin,
        millrace=replay.started.millrace,
        dropped=sum(line.dropped for line in known if isinstance(line, RunLine)),
    )


class _Replay:
    """The history of a run, event by event, with what was found and decided since a time."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.history = RunHistory(clock=lambda: since)
        self.entries: list[TimelineEntry] = []
        self.batches: list[BatchFigures] = []
        self.slowest: BatchDetails | None = None
        self.started: RunLine
        self._query: StreamQuery
        self._plan: BatchPlan | None = None
        self._verdict: PageFinding | None = None
        self._since_start = 0
        self._before: RecordLine | None = None

    def facts(self, run: RunSnapshot) -> RunFacts:
        """Return what the page knows of the run beside its history."""
        failing = run.failing
        error = None if failing is None else MillraceError(Problem(failing.reason, failing.remedy))
        return RunFacts(self._query, lambda: _ALIVE, failing=lambda: error, timed=self.started.timed)

    def findings(self, run: RunSnapshot, now: float) -> list[PageFinding]:
        """Return what was found at a time."""
        facts = self.facts(run)
        return findings(run, self._query.spec, facts.failing(), _ALIVE, now, timed=facts.timed)

    def findings_at_end(self, run: RunSnapshot, end: float) -> list[PageFinding]:
        """Return what is found at the end of the period, or of the samples, and whether they end early."""
        newest = self.started.newest
        if newest is None:
            return self.findings(run, end)
        found = self.findings(run, newest)
        if end - newest <= max(2 * self.started.step, SILENT_SECONDS):
            return found
        silent = PageFinding(
            Severity.WARNING,
            f"No figures since {datetime.fromtimestamp(newest, UTC):%H:%M:%S}",
            f"{self.started.origin} has no sample of the driver for the last {seconds_text(end - newest)}; the figures "
            "below are older",
            f"check with kubectl describe sq {self._query.name} that the driver runs, and that its pod is scraped",
        )
        return by_urgency([silent, *(each for each in found if each.severity is not Severity.WELL)])

    def add(self, line: RecordLine) -> None:
        """Take an event in."""
        is_shown = line.time >= self.since
        if is_shown and self._is_overdue(line):
            self._find(line.time)
        if isinstance(line, RunLine):
            self.started, self._query = line, StreamQuery.model_validate(line.query)
        self.history.add(line)
        entries = list(self._entries(line))
        if isinstance(line, BatchLine):
            self._add_batch(line, is_shown=is_shown)
        if is_shown:
            self.entries += entries
        if isinstance(line, BatchLine | IdleLine | FailureLine | StartedLine | EndLine):
            self._find(line.time, is_shown=is_shown)
        self._before = line

    def _is_overdue(self, line: RecordLine) -> bool:
        """Whether a batch may have been found to take long in the time between the last event and this one.

        No batch ran before the start of a run, and nothing is known between samples or combined batches.
        """
        if self._before is None or not self.batches or self.started.origin or isinstance(line, RunLine):
            return False
        if isinstance(line, BatchLine) and line.figures.batches > 1:
            return False
        return line.time - self._before.time > max(OVERDUE_INTERVALS * self.batches[-1].interval, OVERDUE_SECONDS)

    def _find(self, now: float, *, is_shown: bool = True) -> None:
        verdict = self.findings(self.history.snapshot(), now)[0]
        before, self._verdict = self._verdict, verdict
        if is_shown and (before is None or before.title != verdict.title or not self._has_verdict()):
            text = f"{verdict.reason[:1].upper()}{verdict.reason[1:]}."
            self.entries.append(TimelineEntry(now, EntryKind.VERDICT, verdict.title, text, verdict.severity))

    def _has_verdict(self) -> bool:
        return any(each.kind is EntryKind.VERDICT for each in self.entries)

    def _add_batch(self, line: BatchLine, *, is_shown: bool) -> None:
        self._plan = line.details.plan
        self._since_start += line.figures.batches
        if not is_shown:
            return
        self.batches.append(line.figures)
        ratio = line.details.seconds / line.details.interval
        is_slowest = self.slowest is None or ratio > self.slowest.seconds / self.slowest.interval
        if self._since_start > WARM and is_slowest:
            self.slowest = line.details

    def _entries(self, line: RecordLine) -> Iterator[TimelineEntry]:
        match line:
            case RunLine():
                if self._before is not None and not _is_end(self._before):
                    text = (
                        f"It left no end in the record: its process was killed after {moment_text(self._before.time)}."
                    )
                    yield TimelineEntry(line.time, EntryKind.RUN, "The run before had ended", text)
                start = ("Start", f"Millrace {line.millrace} starts the query.")
                if line.origin:
                    start = ("First sample", "What was before it in this period is not known.")
                yield TimelineEntry(line.time, EntryKind.RUN, *start)
                self._since_start = 0
            case StepLine():
                yield TimelineEntry(line.time, EntryKind.MESSAGE, "Start", f"{line.text[:1].upper()}{line.text[1:]}.")
            case StartedLine() if not self.started.origin:  # samples do not say when
                text = f"After {seconds_text(line.time - self.started.time)}, Spark is ready for the first batch."
                yield TimelineEntry(line.time, EntryKind.RUN, "Started", text)
            case BatchLine() if line.details.plan is not None and line.details.plan != self._plan:
                yield _change(line, self._plan, line.details.plan)
            case DecisionLine():
                after = "" if line.batch is None else f" after batch {line.batch}"
                text = line.text.removeprefix(f"{line.by}: ")
                title = f"Decision of {line.by}" if line.by == "auto" else f"Decision of the {line.by}"
                yield TimelineEntry(line.time, EntryKind.DECISION, title + after, f"{text[:1].upper()}{text[1:]}.")
            case MessageLine():
                yield TimelineEntry(line.time, EntryKind.MESSAGE, "", line.text)
            case EndLine():
                text = f"The run has {'ended after it was asked to' if line.outcome == 'drained' else line.outcome}."
                yield TimelineEntry(line.time, EntryKind.RUN, "End", text)


def _change(line: BatchLine, before: BatchPlan | None, plan: BatchPlan) -> TimelineEntry:
    now = plan_text(plan)
    text = f"First plan: {now}." if before is None else f"{plan_text(before)} became {now}."
    if before is not None and (before.epoch, before.algorithm) == (plan.epoch, plan.algorithm):
        text = f"Executors of the plan came or went: {text}"
    return TimelineEntry(line.time, EntryKind.DECISION, f"Plan of batch {line.details.batch}", text)


def plan_text(plan: BatchPlan) -> str:
    """Return a plan as ``pkg, n=4, m=2, epoch 3``."""
    return f"{plan.algorithm}, n={plan.workers}, m={plan.replicas}, epoch {plan.epoch}"


def _is_end(line: RecordLine) -> bool:
    """Whether a run ends with a line: one that fails writes its reason first."""
    return isinstance(line, EndLine) or (isinstance(line, FailureLine) and line.is_final)


def _ending(lines: Sequence[RecordLine], *, is_cut: bool) -> list[TimelineEntry]:
    """Return what a record says by its end, if it is not the end of a run."""
    started = next(line for line in reversed(lines) if isinstance(line, RunLine))
    if is_cut or started.origin or _is_end(lines[-1]):
        return []
    text = "The record has no end of the run: it still goes on, or its process was killed."
    return [TimelineEntry(lines[-1].time, EntryKind.RUN, "End of the record", text)]


def _kept(entries: Sequence[TimelineEntry]) -> tuple[TimelineEntry, ...]:
    """Return at most ``MAX_ENTRIES``: those of the first kinds, and of a kind the newest."""
    order = list(EntryKind)
    ranked = sorted(range(len(entries)), key=lambda number: (order.index(entries[number].kind), -number))
    return tuple(entries[number] for number in sorted(ranked[:MAX_ENTRIES]))


def thinned(batches: Sequence[BatchFigures], points: int = MAX_POINTS) -> tuple[BatchFigures, ...]:
    """Return at most so many points, each of some neighbors; the last one is as it was."""
    if len(batches) <= points:
        return tuple(batches)
    *older, last = batches
    size = -(-len(older) // (points - 1))
    return (*(_combined(older[first : first + size]) for first in range(0, len(older), size)), last)


def _combined(batches: Sequence[BatchFigures]) -> BatchFigures:
    first, *later = batches
    for each in later:
        first = first.combined_with(each)
    return first


def moment_text(time: float) -> str:
    """Format a time in seconds since 1970: ``2026-11-28 20:15:00 UTC``."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} UTC"
