"""Findings on a run in order of urgency: what is wrong, why, and what to do about it. The first one is the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm
from millrace_api.model.sources import CorruptPolicy
from millrace_api.model.streamquery import Spec
from millrace_jobs.page.history import RunSnapshot, problem_of
from millrace_jobs.pending import CallKind, PendingCall
from millrace_jobs.pipeline.incomplete import required_columns
from millrace_support.http_server import ProbeResult
from millrace_support.pages.verdict import PageFinding, Severity, by_urgency
from millrace_support.run_record import BatchDetails, BatchFigures
from millrace_support.terminal_texts import count_text

RECENT = 5
"""Batches with records that say how the run is now."""

WARM = 3
"""Batches with records after which a run counts as started: the first ones wait for processes and compilers."""

TREND = 12
"""Batches over which a lag must have grown."""

SKEWED = 0.5
"""Load of the busiest worker over the mean, less 1, from which a load counts as skewed."""

SLOW_SINK_SECONDS = 1.0
"""Seconds of a batch, beyond those of its tasks, from which they count as those of the sink and not of Spark."""

MAX_PENDING = 3
"""Calls that last of which the page has a finding."""

OVERDUE_INTERVALS, OVERDUE_SECONDS = 3, 30.0
"""A batch is overdue after so many intervals, and not before so many seconds."""


_OUTCOMES = {"finished": "Finished", "drained": "Stopped"}
"""Titles of the ends of a run; one that has failed has a finding with the reason."""


def findings(
    run: RunSnapshot,
    spec: Spec,
    failing: MillraceError | None,
    alive: ProbeResult,
    now: float,
    *,
    timed: bool = True,
    pending: Sequence[PendingCall] = (),
) -> list[PageFinding]:
    """Return the findings on a run, the most urgent first; there is at least one.

    Args:
        run: the run as it is known.
        spec: the spec of its query.
        failing: why the query was started again, until it computes.
        alive: the result of the probe of liveness.
        now: seconds since 1970.
        timed: whether batches are to be in time: false where a run reads what exists and ends, for which it takes
            batches of many intervals.
        pending: the calls that last now, the longest first.
    """
    found = [
        *_failures(run, failing, alive),
        *((_waits(pending) or (_pace(run, spec, now) if timed else ())) if not run.outcome else ()),
        *_records(run, spec),
    ]
    worst = max((each.severity for each in found), default=Severity.WELL)
    if run.outcome in _OUTCOMES:
        found.append(_ended(run))
    elif worst < Severity.WARNING:
        found.append(_state(run, now, timed=timed))
    return by_urgency(found)


def _failures(run: RunSnapshot, failing: MillraceError | None, alive: ProbeResult) -> Iterator[PageFinding]:
    if run.failure is not None:
        yield PageFinding(Severity.FAILURE, "Failed", run.failure.reason, run.failure.remedy)
    elif failing is not None:
        reason, remedy = problem_of(failing)
        yield PageFinding(Severity.FAILURE, "Failing and starting again", reason, remedy)
    elif not alive.ok:
        remedy = "look at the log of the run, then start it again: committed batches stay"
        yield PageFinding(Severity.FAILURE, "Hung", alive.text, remedy)


def _waits(pending: Sequence[PendingCall]) -> list[PageFinding]:
    """Return the findings on calls that last, which say why a batch does; what earlier batches took does not."""
    return [PageFinding(Severity.WARNING, _title(call), f"{call}", _remedy(call)) for call in pending[:MAX_PENDING]]


def _title(call: PendingCall) -> str:
    if call.kind is CallKind.SERVER:
        return f"Waiting for {call.what.partition(' at ')[0]}"
    return "Own code does not return" if call.is_one_call else "Own code takes long"


def _remedy(call: PendingCall) -> str:
    if call.hint:
        return call.hint
    if call.kind is CallKind.SERVER:
        return "check whether it runs and can be reached; the run goes on once it answers"
    if call.is_one_call:
        return "see what it waits for there; if it never returns, correct it and start the run again: nothing is lost"
    return "make it faster, or give it fewer records by maxRecordsPerBatch or maxFilesPerBatch of the source"


def _pace(run: RunSnapshot, spec: Spec, now: float) -> Iterator[PageFinding]:
    """Yield the findings on the time that batches take, and on the records that wait."""
    silence = now - run.last_sign
    interval = spec.batch_interval.seconds
    recent = [each for each in run.batches if each.rows][-RECENT:]
    imbalance = statistics.median([each.imbalance or 0.0 for each in recent] or [0.0])
    if (
        run.batches
        and not run.is_idle
        and not run.step
        and silence > max(OVERDUE_INTERVALS * interval, OVERDUE_SECONDS)
    ):
        yield PageFinding(
            Severity.WARNING,
            "A batch takes long",
            f"no batch has finished for {seconds_text(silence)}; the interval is {seconds_text(interval)}, "
            f"and the last batch took {seconds_text(run.batches[-1].seconds)}. The figures below, also those of the "
            "lag, are older"
            + (f". In the batch before, {_skew(run.newest, imbalance)}" if imbalance >= SKEWED else ""),
            (f"{_even_out(spec)}; if that is not it, " if imbalance >= SKEWED and not _is_auto(spec) else "")
            + "see whether own code, the sink or a source waits for something; right after a start or a change of "
            "plan, a batch takes longer",
        )
        return  # what earlier batches took says nothing of what this one waits for
    if not recent:
        return
    typical = statistics.median(each.utilization for each in recent)
    waiting, grown = run.batches[-1].waiting, _growth(run.batches)
    if typical > 1 and len(recent) >= WARM:
        late = sum(each.utilization > 1 for each in recent)
        yield PageFinding(
            Severity.WARNING,
            "Falling behind" if grown > 0 else "Batches are late",
            f"{late} of the last {len(recent)} batches took longer than their interval of "
            f"{seconds_text(recent[-1].interval)}, the median {seconds_text(_median_seconds(recent))} (W {typical:.2f})"
            + (f"; {count_text(waiting)} {_unit(spec)} wait" if waiting else "")
            + (f"; {_skew(run.newest, imbalance)}" if imbalance >= SKEWED else ""),
            _faster(run.newest, spec, imbalance),
        )
    elif grown > 0:
        span = seconds_text(run.batches[-1].ended - run.batches[-TREND].ended)
        yield PageFinding(
            Severity.WARNING,
            "Lag is growing",
            f"{count_text(waiting)} {_unit(spec)} wait, {count_text(grown)} more than {span} ago, although batches "
            f"take {typical:.0%} of their interval",
            _faster(run.newest, spec, imbalance),
        )
    elif waiting > statistics.median(each.taken for each in recent) and _falls(run.batches):
        yield PageFinding(
            Severity.NOTE, "Catching up", f"{count_text(waiting)} {_unit(spec)} wait, and their number falls"
        )
    if imbalance >= SKEWED and typical <= 1:
        yield PageFinding(Severity.NOTE, "Load is skewed", _skew(run.newest, imbalance), _even_out(spec))


def _median_seconds(batches: list[BatchFigures]) -> float:
    return statistics.median(each.seconds for each in batches)


def _growth(batches: tuple[BatchFigures, ...]) -> int:
    """Return by how much the lag has grown over the last batches; 0 if it has not grown steadily."""
    if len(batches) < TREND:
        return 0
    lags = [each.waiting for each in batches[-TREND:]]
    third = TREND // 3
    means = [sum(lags[first : first + third]) for first in range(0, TREND, third)]
    taken = statistics.median(each.taken for each in batches[-TREND:])  # in the unit of the lag: files, offsets
    is_growing = means[0] < means[1] < means[2] and lags[-1] - lags[0] > max(taken / 2, 1)
    return lags[-1] - lags[0] if is_growing else 0


def _falls(batches: tuple[BatchFigures, ...]) -> bool:
    """Return whether fewer records wait than some batches before."""
    return batches[-1].waiting < batches[-RECENT:][0].waiting


def _faster(newest: BatchDetails | None, spec: Spec, imbalance: float) -> str:
    """Return what would make batches faster, by what takes most of their time."""
    if newest is not None and newest.task_seconds is not None:
        written = newest.work - newest.task_seconds  # at least: tasks run side by side
        if written > max(newest.seconds * 2 / 3, SLOW_SINK_SECONDS):
            return (
                f"all tasks together took {seconds_text(newest.task_seconds)} to read and compute; the other "
                f"{seconds_text(written)} are those of the sink, or of tasks that wait for executors: look first at "
                "what spec.sink writes to"
            )
    if imbalance >= SKEWED and not _is_auto(spec):
        return _even_out(spec)
    if newest is not None and newest.work < newest.seconds / 2:
        return (
            f"steps that do not depend on the number of records take {seconds_text(newest.seconds - newest.work)}: "
            f"write a longer spec.batchInterval than {seconds_text(newest.interval)}"
        )
    return (
        f"give the query more cores (spec.parallelism.max is {spec.parallelism.max}, "
        f"spec.executors.max {spec.executors.max}), or write a longer spec.batchInterval"
    )


def _skew(newest: BatchDetails | None, imbalance: float) -> str:
    share = hottest_share(newest)
    key = "" if share is None else f", and the hottest key has {share:.0%} of the records"
    return f"the busiest worker has {1 + imbalance:.1f} times the mean load{key}"


def _is_auto(spec: Spec) -> bool:
    return spec.partitioner.algorithm is Algorithm.AUTO


def _even_out(spec: Spec) -> str:
    if _is_auto(spec):
        return "none is needed while batches are in time: auto compares what the other algorithms would cost"
    return (
        f"spec.partitioner.algorithm is {spec.partitioner.algorithm}: write auto, "
        "which splits hot keys where that makes batches shorter"
    )


def hottest_share(newest: BatchDetails | None) -> float | None:
    """Return the share of the records that the hottest key of a batch has; None if keys were not counted."""
    hot = None if newest is None else newest.hot_records
    return hot.counts[0] / hot.whole if hot is not None and hot.counts else None


def _records(run: RunSnapshot, spec: Spec) -> Iterator[PageFinding]:
    """Yield the findings on records that are in no result."""
    last = run.batches[-TREND:]
    if run.rejected:
        newest = sum(each.rejected for each in last)
        yield PageFinding(
            _severity(newest > 0),
            "Records are rejected",
            f"{_share(run.rejected, run.rows + run.rejected)} of this run {_form(run.rejected, 'do', 'does')} not "
            f"decode; of the last {len(last)} batch{_form(len(last), 'es', '')}, "
            f"{_share(newest, newest + sum(each.rows for each in last))}",
            _rejected_remedy(spec),
        )
    if run.late:
        delays = " or ".join(
            f"spec.sources.{name}.watermark.delay than {source.watermark.delay}"
            for name, source in spec.sources.items()
            if source.watermark is not None
        )
        yield PageFinding(
            _severity(any(each.late for each in last)),
            "Records are late",
            f"the windows of {_share(run.late, run.rows)} of this run had closed, "
            f"{sum(each.late for each in last):,} of them in the last {len(last)} batches",
            f"write a longer {delays}, which keeps windows open longer" if delays else "",
        )
    if run.incomplete:
        columns = {name: required_columns(spec, name) for name in spec.sources}
        named = ", ".join(f"{' or '.join(each)} of {name}" for name, each in columns.items() if each)
        yield PageFinding(
            _severity(any(each.incomplete for each in last)),
            "Records have no key or time",
            f"{_share(run.incomplete, run.rows)} of this run {_form(run.incomplete, 'are', 'is')} in no result: "
            f"{named or 'a column'} is NULL",
            "correct what writes them, or replace NULL in the query by coalesce",
        )


def _severity(is_recent: bool) -> Severity:
    return Severity.WARNING if is_recent else Severity.NOTE


def _share(part: int, whole: int) -> str:
    """Return a number of records with its share of all of them."""
    share = f"{part / whole:.2%}" if whole else "-"
    return f"{part:,} record{'' if part == 1 else 's'} ({'less than 0.01%' if share == '0.00%' else share})"


def _form(count: int, plural: str, singular: str) -> str:
    return singular if count == 1 else plural


def _rejected_remedy(spec: Spec) -> str:
    for name, source in spec.sources.items():
        corrupt, field = source.corrupt_records, f"spec.sources.{name}"
        if corrupt.policy is CorruptPolicy.DEAD_LETTER:
            place = f"the topic {corrupt.topic}" if corrupt.topic is not None else str(corrupt.path)
            return f"read them in {place}, then correct {field}.schema or what writes the records"
        if corrupt.policy is CorruptPolicy.DROP:
            return f"write {field}.corruptRecords: {{policy: DeadLetter, path: FOLDER}} to keep and read them"
    return "compare spec.sources with the records"


def _ended(run: RunSnapshot) -> PageFinding:
    reason = f"{count_text(run.rows)} records were read in {seconds_text(run.last_sign - run.began)}"
    return PageFinding(Severity.WELL, _OUTCOMES[run.outcome], reason)


def _state(run: RunSnapshot, now: float, *, timed: bool) -> PageFinding:
    """Return the finding for a run without warnings."""
    if run.is_idle and (not run.batches or not run.batches[-1].waiting):
        since = "" if not run.batches else f"; the last batch ended {seconds_text(now - run.batches[-1].ended)} ago"
        return PageFinding(Severity.WELL, "Waiting for data", f"every record that arrived has been read{since}")
    if run.step:
        return PageFinding(Severity.WELL, "Starting", f"{run.step}, {seconds_text(now - run.began)} after the start")
    if not run.batches:
        reason = (
            f"the first batch is running, {seconds_text(now - run.last_sign)} after Spark was ready; it takes longest, "
            "since processes start and code is compiled"
        )
        return PageFinding(Severity.WELL, "Starting", reason)
    recent = [each for each in run.batches if each.rows][-RECENT:] or list(run.batches[-RECENT:])
    if not timed:
        left = f"{count_text(run.batches[-1].waiting)} wait" if run.batches[-1].waiting else "no record waits"
        return PageFinding(Severity.WELL, "Reading what exists", f"{count_text(run.rows)} records were read, {left}")
    typical = statistics.median(each.utilization for each in recent)
    if typical > 1:
        reason = f"the first {WARM} batches take longer, since processes start and code is compiled"
        return PageFinding(Severity.WELL, "Starting", reason)
    lag = run.batches[-1].waiting
    reason = f"batches take {typical:.0%} of their interval" + ("" if lag else ", and no record waits")
    return PageFinding(Severity.WELL, "Keeping up", reason)


def _unit(spec: Spec) -> str:
    """Return what a lag counts: files, offsets of Kafka and the like, not always records."""
    return "files" if all(source.files is not None for source in spec.sources.values()) else "records"


def seconds_text(seconds: float) -> str:
    """Format a duration: ``84 ms``, ``1.5 s``, ``12 s``, ``2 min 05 s``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    hours = whole // 3600
    return f"{hours} h {whole % 3600 // 60:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
