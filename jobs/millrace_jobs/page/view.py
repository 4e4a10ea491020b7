"""The figures of the page, formatted: what it shows of a run, before any HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.page.findings import findings, seconds_text
from millrace_jobs.page.heat_map import HeatMap, heat_maps
from millrace_jobs.page.history import RunSnapshot
from millrace_jobs.page.line_charts import UNKNOWN, LineChart, line_charts
from millrace_jobs.pending import CallKind, PendingCall
from millrace_support.http_server import Probe
from millrace_support.pages.tables import Table
from millrace_support.pages.verdict import PageFinding
from millrace_support.run_record import AlgorithmPrediction, BatchDetails, BatchFigures, HottestKeys
from millrace_support.terminal_texts import count_text

_OLD_SECONDS = 5.0
"""From which age on the page says how old its figures are, if that is longer than two intervals and two batches."""

SHOWN_IN_TABLE = 30
"""Batches in the table of figures."""

_STEPS = {
    "latestOffset": "find new records",
    "walCommit": "log the plan",
    "getBatch": "get the batch",
    "queryPlanning": "plan the query",
    "addBatch": "compute and write",
    "commitOffsets": "commit",
}
"""Names of the steps that Spark measures, in order."""


@dataclass(frozen=True)
class RunFacts:
    """What the page knows of a run beside its history.

    ``failing`` returns why the query was started again, until it computes, and ``pending`` the calls that last now.
    ``timed`` is whether batches are to be in time, which those of a run that reads what exists and ends are not.
    ``key`` has the names of the key's columns of a table that can be looked up, and ``lookups`` is the URL of the
    look-ups; empty if the page may not look rows up.
    """

    query: StreamQuery
    alive: Probe
    failing: Callable[[], MillraceError | None] = lambda: None
    pending: Callable[[], Sequence[PendingCall]] = tuple
    timed: bool = True
    key: tuple[str, ...] = ()
    lookups: str = ""


@dataclass(frozen=True)
class Bar:
    """A bar from ``start`` to ``start + length``, both shares of the whole, with a label and its figures as texts."""

    label: str
    start: float
    length: float
    texts: tuple[str, ...]


@dataclass(frozen=True)
class PageView:
    """All that the page shows; what a run does not have is empty.

    ``as_of`` is the time of the page, and ``figures_as_of`` that of its figures, if they are older.
    """

    name: str
    as_of: str
    facts: tuple[tuple[str, str], ...]
    findings: tuple[PageFinding, ...]
    charts: tuple[LineChart, ...]
    batches: Table
    batches_title: str
    plan: tuple[tuple[str, str], ...]
    why_plan: str
    candidates: Table
    heat: HeatMap | None
    no_heat: str
    hot_keys: tuple[Bar, ...]
    hot_keys_note: str
    steps: tuple[Bar, ...]
    steps_title: str
    steps_note: str
    state: tuple[tuple[str, str], ...]
    sources: Table
    key: tuple[str, ...]
    look_up_by: str
    messages: tuple[tuple[str, str], ...]
    earlier_heat: tuple[HeatMap, ...] = ()
    figures_as_of: str = ""


@dataclass(frozen=True)
class Extent:
    """How many rows the table of batches has, and the times that are marked in charts."""

    rows: int = SHOWN_IN_TABLE
    marks: tuple[float, ...] = ()


def page_view(run: RunSnapshot, facts: RunFacts, now: float, extent: Extent = Extent()) -> PageView:
    """Return what the page shows of a run ``now``, in seconds since 1970."""
    spec = facts.query.spec
    report = run.newest
    listed = run.batches[-extent.rows :]
    *earlier, heat = heat_maps(run) or (None,)
    hot, hot_note = _hot_keys(report)
    pending = facts.pending()
    is_known = bool(run.outcome) or all(each.kind is not CallKind.SERVER for each in pending)
    ended = _clock(run.batches[-1].ended, seconds=True) if run.batches else ""
    return PageView(
        name=facts.query.name,
        as_of=_clock(now, seconds=True),
        facts=_run_facts(run, facts, now),
        findings=tuple(findings(run, spec, facts.failing(), facts.alive(), now, timed=facts.timed, pending=pending)),
        charts=line_charts(run.batches, extent.marks, lag_is_known=is_known, as_of=ended),
        batches=_batch_table(listed),
        batches_title=_batches_title(listed),
        plan=_plan(report),
        why_plan=_why_plan(run, facts),
        candidates=_candidate_table(run.predictions, report),
        heat=heat,
        no_heat="" if heat is not None else _no_heat(report),
        hot_keys=hot,
        hot_keys_note=hot_note,
        steps=() if report is None else steps_of(report),
        steps_title="" if report is None else f"Batch {report.batch}: {seconds_text(report.seconds)}",
        steps_note=_steps_note(report),
        state=_state(run),
        sources=_source_table(facts.query, report, lag_is_known=is_known),
        key=facts.key,
        look_up_by=f"millrace get {facts.query.name} KEY" if facts.key and not facts.lookups else "",
        messages=tuple((f"{each.time:%H:%M:%S}", each.text) for each in reversed(run.messages)),
        earlier_heat=tuple(each for each in earlier if each is not None),
        figures_as_of=ended if _is_old(run, spec.batch_interval.seconds, now) else "",
    )


def _clock(moment: float, *, seconds: bool = False) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):{'%H:%M:%S' if seconds else '%H:%M'}}"


def _run_facts(run: RunSnapshot, facts: RunFacts, now: float) -> tuple[tuple[str, str], ...]:
    pairs = {
        "running for": seconds_text(max(now - run.began, 0)),
        "batch": _newest_batch(run, facts.query.spec.batch_interval.seconds, now),
        "interval": seconds_text(facts.query.spec.batch_interval.seconds),
        "results": run.output,
    }
    return tuple((name, text) for name, text in pairs.items() if text)


def _newest_batch(run: RunSnapshot, interval: float, now: float) -> str:
    """Return the number of the newest batch, and if it ended some time ago, how old the page's figures are."""
    if not run.batches:
        return "none yet"
    newest = run.batches[-1]
    if not _is_old(run, interval, now):
        return str(newest.batch)
    return f"{newest.batch}, ended {seconds_text(now - newest.ended)} ago"


def _is_old(run: RunSnapshot, interval: float, now: float) -> bool:
    """Return whether the newest batch of a run that goes on ended so long ago that its figures are not those of now."""
    if not run.batches or run.outcome:
        return False
    newest = run.batches[-1]
    return now - newest.ended > max(_OLD_SECONDS, 2 * max(interval, newest.seconds))


def _batches_title(listed: Sequence[BatchFigures]) -> str:
    count = sum(each.batches for each in listed)
    if count == len(listed):
        return f"The last {count} batches as a table"
    return f"{count:,} batches as a table of {len(listed)} rows: sums of records, the most of all else"


def _batch_table(batches: Sequence[BatchFigures]) -> Table:
    columns = ("batch", "ended", "records", "per second", "seconds", "W", "lag", "latency", "late", "rejected", "plan")
    rows = tuple(
        (
            str(each.batch) if each.batches == 1 else f"to {each.batch}",
            _clock(each.ended, seconds=True),
            f"{each.rows:,}",
            count_text(each.rate),
            f"{each.seconds:.2f}",
            f"{each.utilization:.2f}",
            f"{each.waiting:,}",
            "-" if each.median is None else seconds_text(each.median),
            f"{each.late:,}",
            f"{each.rejected:,}",
            each.algorithm,
        )
        for each in reversed(batches)
    )
    return Table(columns, rows)


def _plan(report: BatchDetails | None) -> tuple[tuple[str, str], ...]:
    plan = None if report is None else report.plan
    if plan is None:
        return ()
    return (
        ("algorithm", plan.algorithm),
        ("workers (n)", str(plan.workers)),
        ("replicas (m)", str(plan.replicas)),
        ("epoch", str(plan.epoch)),
    )


def _why_plan(run: RunSnapshot, facts: RunFacts) -> str:
    wanted = facts.query.spec.partitioner.algorithm
    if run.chooses and run.switch is not None:
        after = "" if run.switch.batch is None else f" (after batch {run.switch.batch})"
        return run.switch.text.removeprefix("auto: ").capitalize() + f"{after}."
    if run.chooses and run.predictions:
        return (
            "auto compares the algorithms below again and again, and switches once two comparisons agree that it pays."
        )
    if run.chooses:
        return "auto compares the algorithms once two batches with records have finished."
    if run.plan_origin:
        return run.plan_origin
    if wanted is Algorithm.AUTO:
        return "The query has nothing to place, so auto has no choice: Spark's own plan runs it."
    if run.predictions:
        return (
            f"spec.partitioner.algorithm is {wanted}. Below is what a batch would take under the others, as predicted."
        )
    return f"spec.partitioner.algorithm is {wanted}."


def _candidate_table(predictions: Sequence[AlgorithmPrediction], newest: BatchDetails | None) -> Table:
    if not predictions:
        return Table((), ())
    running = "" if newest is None or newest.plan is None else newest.plan.algorithm
    found = sorted(predictions, key=lambda each: each.seconds)
    now = next((each.seconds for each in found if each.algorithm == running), None)
    first = found[0]
    columns = ("algorithm", "batch, predicted", "beside now", f"busiest {first.bearer} above mean", first.parts)
    rows = tuple(
        (
            each.algorithm,
            _predicted(each.seconds),
            "-"
            if now is None or not now
            else "runs now"
            if each.algorithm == running
            else f"{each.seconds / now - 1:+.0%}",
            f"{each.imbalance:.0%}",
            f"{each.aggregation_cost:,.0f}",
        )
        for each in found
    )
    names = [each.algorithm for each in found]
    return Table(columns, rows, names.index(running) if running in names else None)


def _predicted(seconds: float) -> str:
    """Format a predicted time so that small differences between algorithms are visible."""
    return f"{seconds:.2f} s" if seconds >= 1 else seconds_text(seconds)


def _no_heat(report: BatchDetails | None) -> str:
    if report is None:
        return "No batch has finished."
    if report.plan is not None and report.plan.algorithm == "native":
        return "Spark's own plan runs the batches (native): no record is placed on a worker."
    return "The newest batches have placed no record on a worker."


def _hot_keys(newest: BatchDetails | None) -> tuple[tuple[Bar, ...], str]:
    """Return the shares of the hottest keys of the newest batch, or of the pairs that they make in a join."""
    if newest is None:
        return (), ""
    if (matches := newest.hot_matches) is not None:
        return _shares(matches), f"Shares of the {matches.whole:,} matches of batch {newest.batch}."
    if (hot := newest.hot_records) is None:
        return (), ""
    about = "" if hot.is_exact else "about "
    return _shares(hot), f"Shares of the records of batch {newest.batch}, which has {about}{hot.keys:,} keys."


def _shares(hot: HottestKeys) -> tuple[Bar, ...]:
    shares = [(number, count / hot.whole) for number, count in enumerate(hot.counts, 1)]
    return tuple(Bar(_ordinal(number), 0.0, min(share, 1.0), (f"{share:.1%}",)) for number, share in shares)


def _ordinal(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"


def steps_of(report: BatchDetails) -> tuple[Bar, ...]:
    """Return the steps of a batch one after the other; what Spark does not name comes last."""
    if not report.seconds:
        return ()
    named = [(label, report.steps[name]) for name, label in _STEPS.items() if name in report.steps]
    rest = report.seconds - sum(seconds for _, seconds in named)
    bars, start = [], 0.0
    for label, seconds in [*named, ("other", max(rest, 0.0))]:
        length = min(seconds / report.seconds, 1 - start)
        bars.append(Bar(label, start, length, (seconds_text(seconds), f"{seconds / report.seconds:.0%}")))
        start += length
    return tuple(bars)


def _steps_note(newest: BatchDetails | None) -> str:
    if newest is None or newest.task_seconds is None:
        return ""
    return (
        f"All tasks of compute and write took {seconds_text(newest.task_seconds)}, added up; "
        "what that does not account for is the sink's, and Spark's."
    )


def _state(run: RunSnapshot) -> tuple[tuple[str, str], ...]:
    report = run.newest
    if report is None:
        return ()
    watermark = report.watermark
    return (
        ("state", "not counted" if report.state_rows is None else f"{report.state_rows:,} rows"),
        ("memory of the state", bytes_text(report.state_bytes)),
        ("state partitions", "-" if report.state_partitions is None else str(report.state_partitions)),
        ("watermark", "-" if watermark is None else f"{watermark.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("behind the newest event", "-" if report.watermark_delay is None else seconds_text(report.watermark_delay)),
        ("records read", f"{run.rows:,}"),
        ("late", f"{run.late:,}"),
        ("rejected", f"{run.rejected:,}"),
        ("without key or time", f"{run.incomplete:,}"),
    )


def bytes_text(number: int) -> str:
    """Format a size: ``640 B``, ``12.5 KiB``, ``1.2 GiB``."""
    size, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):  # noqa: B007 - the last one is used below
        if size < 1024:
            break
        size /= 1024
    else:
        unit = "TiB"
    return f"{number} B" if unit == "B" else f"{size:.1f} {unit}"


def _source_table(query: StreamQuery, report: BatchDetails | None, *, lag_is_known: bool) -> Table:
    """Return the sources that stream, which are both sides of a join, and what waits in each."""
    if report is None:
        return Table((), ())
    rows = []
    for name, source in query.spec.sources.items():
        if source.is_static:
            continue
        behind = report.behind.get(name, {})
        worst = max(behind, key=lambda part: behind[part], default=None)
        rows.append(
            (
                name,
                source.kind,
                f"{report.taken_from.get(name, 0):,}",
                f"{report.waiting_in.get(name, 0):,}" if lag_is_known else UNKNOWN,
                "-" if worst is None or not lag_is_known else f"{worst}: {behind[worst]:,}",
                "-" if source.watermark is None else str(source.watermark.delay),
            )
        )
    columns = ("source", "kind", f"taken by batch {report.batch}", "waiting", "longest lag in", "watermark delay")
    return Table(columns, tuple(rows))
