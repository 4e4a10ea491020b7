"""The page of one query as HTML: the verdict, figures, conditions, what has happened, and the SQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from millrace_api.model.status import ConditionStatus, Phase
from millrace_support.pages.elements import element
from millrace_support.pages.tables import Table, text_pairs, text_table
from millrace_support.pages.verdict import PageFinding, Severity, page_document, section, verdict_section

from ..lifecycle.query_facts import age, count, figure, query_facts
from ..lifecycle.query_view import QueryView, change_of
from .fleet_view import LOST, SECONDS, page_header, with_notes
from .query_findings import query_findings

ROOT = "../../"
"""Relative URL of the fleet's page."""

_LINES = 200
"""Lines of SQL that are shown."""

_HOLDS = {ConditionStatus.TRUE: "yes", ConditionStatus.FALSE: "no", ConditionStatus.UNKNOWN: "unknown"}


def query_page(view: QueryView, notes: list[PageFinding], user: str, now: datetime, live: str) -> bytes:
    """Return the page as an HTML document in UTF-8.

    Args:
        view: the query.
        notes: what else is worth knowing, such as that figures are old.
        user: the user's name.
        now: the time of the page.
        live: relative URL of what the driver's own page shows; empty if there is no driver.
    """
    findings = with_notes(query_findings(view, now), notes)
    name = f"{view.namespace}/{view.name}"
    main = element(
        "main",
        verdict_section(findings),
        section("figures", "Now", text_pairs(list(_figures(view, now))), _live_link(view, live)),
        _conditions(view, now),
        _happened(view),
        section("facts-in-full", "In detail", text_pairs([(a, b) for a, b in query_facts(view, now) if a != "failed"])),
        _sql(view),
        id="main",
    )
    facts = [("phase", view.phase), ("age", age(view.created, now))]
    skip = element("a", "Skip to the figures", href="#figures", class_="skip")
    back = element("nav", element("a", "← Fleet", href=ROOT, id="to-fleet"), aria_label="up")
    body = (skip, back, page_header(name, user, facts, now, ROOT), main)
    return page_document(findings[0], name, body, lost=LOST, root=ROOT, seconds=SECONDS)


def driver_frame_page(namespace: str, name: str, user: str, now: datetime, source: str) -> bytes:
    """Return the page that has a driver's own page in a frame, as an HTML document in UTF-8.

    Args:
        namespace, name: the query.
        user: the user's name.
        now: the time of the page.
        source: relative URL of the driver's page, in the folder of the query's page.
    """
    full = f"{namespace}/{name}"
    warning = f"This page was written by the code of {full}. Never enter a token or password in it."
    root = f"../{ROOT}"
    body = (
        element("nav", element("a", "← Query", href=f"../{name}", id="to-query"), aria_label="up"),
        page_header(full, user, [], now, root),
        element(
            "main",
            element("p", warning, class_="foreign", role="note", id="foreign"),
            element("iframe", src=source, title=f"The driver of {full}", sandbox="", class_="foreign"),
            id="main",
        ),
    )
    verdict = PageFinding(Severity.NOTE, "the driver's page", "")
    return page_document(verdict, full, body, lost="", root=root, seconds=0)


def _figures(view: QueryView, now: datetime) -> Iterator[tuple[str, str]]:
    status = view.status
    plan, driver = status.plan, status.driver
    load = status.load if status.phase is Phase.RUNNING else None  # else it is that of an earlier run
    yield "W", "-" if load is None else figure(load.utilization)
    yield "records/s", "-" if load is None else count(load.input_rate)
    yield "records waiting", "-" if load is None else count(load.lag)
    ready = None if load is None else load.executors_ready
    if plan is not None:
        executors = str(plan.executors) if ready is None else f"{ready} of {plan.executors} ready"
        yield "executors", executors if plan.executors else "none, at rest"
        yield "algorithm", plan.algorithm.value
        yield "workers n, replicas m", f"{plan.parallelism}, {plan.replicas}"
    if load is not None and load.imbalance is not None:
        yield "imbalance of workers", f"{load.imbalance:.0%}"
    if driver is not None:
        yield "restarts of the driver", str(driver.restarts)
    if load is not None:
        yield "these figures are", f"{age(load.observed_time, now)} old"


def _live_link(view: QueryView, live: str) -> Element | None:
    if not live or view.status.driver is None:
        return None
    words = "What the driver shows of its batches"
    return element(
        "p", element("a", words, href=live, id="to-live"), ", for those who may get pods/proxy.", class_="note"
    )


def _conditions(view: QueryView, now: datetime) -> Element:
    rows = tuple(
        (
            each.type.value,
            _HOLDS[each.status],
            age(each.last_transition_time, now),
            each.reason,
            each.message,
        )
        for each in view.status.conditions
    )
    if not rows:
        return section("conditions", "Conditions", element("p", "None was reported yet.", class_="absent"))
    table = Table(("condition", "holds", "for", "reason", "message"), rows)
    return section("conditions", "Conditions", text_table(table, "Conditions"))


def _happened(view: QueryView) -> Element | None:
    """Return what has happened, the newest first, as far as the status remembers it."""
    rows = sorted(_events(view), reverse=True)
    if not rows:
        return None
    shown = [element("li", element("time", _written(time)), f" {text}") for time, text in rows]
    return section("messages", "What has happened, newest first", element("ol", shown, class_="messages"))


def _events(view: QueryView) -> Iterator[tuple[str, str]]:
    """Yield the times and texts of what the status remembers; a Kubernetes timestamp sorts as a text."""
    status = view.status
    for attempt in status.attempts:
        yield attempt.time, f"The driver failed, {attempt.reason}: {attempt.message or 'no message'}"
    if (last := status.last_scaling) is not None:
        yield last.time, f"Scaling decided {change_of(last)}, {last.reason}{': ' if last.message else ''}{last.message}"
    if (rejected := status.rejected) is not None:
        done = "was rolled back" if rejected.verdict is None else "is not followed"
        yield rejected.time, f"The spec {done}{': ' if rejected.message else ''}{rejected.message}"
    if status.driver is not None and status.driver.start_time is not None:
        yield status.driver.start_time, f"The driver {status.driver.pod} started"
    if status.revision_time is not None:
        yield status.revision_time, f"Revision {status.revision} of the spec was first followed"
    for each in status.conditions:
        said = f": {each.message}" if each.message else ""
        yield each.last_transition_time, f"{each.type.value} became {each.status.value}, now {each.reason}{said}"
    if view.created is not None:
        yield view.created, "The query was created"


def _written(time: str) -> str:
    try:
        return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return time


def _sql(view: QueryView) -> Element | None:
    """Return the text of the query, which stays closed until a reader opens it."""
    sql = ((view.body.get("spec") or {}).get("query") or {}).get("sql")
    if not isinstance(sql, str) or not sql.strip():
        return None
    lines = sql.rstrip().splitlines()
    shown = lines[:_LINES] + (["..."] if len(lines) > _LINES else [])
    text = element("pre", [part for line in shown for part in (element("code", line or " "), element("br"))])
    whole = element("details", element("summary", "SQL", id="sql-summary"), text, id="sql-text")
    return section("sql", "Query", whole)
