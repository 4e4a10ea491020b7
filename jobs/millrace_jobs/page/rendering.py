"""The page as HTML: the verdict first, then the figures by which to see why."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from millrace_jobs.page.charts import bars, heat_legend, heat_map, line_chart
from millrace_jobs.page.lookup_box import LookupResult, lookup_box
from millrace_jobs.page.view import PageView
from millrace_support.pages.elements import element
from millrace_support.pages.tables import text_pairs, text_table
from millrace_support.pages.verdict import page_document, section, verdict_section

_LOST = "the run has ended, or its port is closed. Its terminal or log says why."
"""What the page says when it gets no answer any more."""


def render(view: PageView, result: LookupResult | None = None) -> bytes:
    """Return the page as an HTML document in UTF-8; ``result`` is that of a look-up that was asked for."""
    main = element(
        "main",
        verdict_section(view.findings),
        figures(view),
        lookup_box(view, result),
        _messages(view),
        id="main",
    )
    body = (element("a", "Skip to the figures", href="#charts", class_="skip"), _header(view), main)
    return page_document(view.findings[0], view.name, body, lost=_LOST)


def figures(view: PageView) -> list[Element | None]:
    """Return the sections with figures."""
    return [_charts(view), _load(view), _plan(view), _steps(view), _state(view)]


def _header(view: PageView) -> Element:
    facts = [element("span", element("span", f"{name} ", class_="label"), text) for name, text in view.facts]
    return element(
        "header",
        element("h1", view.name),
        element("p", f"As of {view.as_of} UTC. Reload the page for newer figures.", id="updates"),
        element("p", facts, id="facts", class_="facts", data_live=True),
    )


def _charts(view: PageView) -> Element:
    if not view.charts:
        return section("charts", "Batches", element("p", "No batch has finished.", class_="absent"))
    table = element(
        "details",
        element("summary", view.batches_title, id="batches-summary"),
        text_table(view.batches, "The newest batches, the newest first"),
        id="batches",
    )
    return section(
        "charts",
        "Batches",
        element("div", [line_chart(each) for each in view.charts], class_="charts"),
        table,
        as_of=view.figures_as_of,
    )


def _load(view: PageView) -> Element:
    """Return the load of the workers, and the shares of hot keys."""
    if view.heat is None:
        return section("load", "Load of the workers", element("p", view.no_heat, class_="absent"), _hot_keys(view))
    newest = element(
        "details",
        element("summary", f"Batch {view.heat.batches[-1]} as a table", id="loads-summary"),
        element(
            "ol",
            [element("li", f"{load:,}") for load in view.heat.newest],
            start=0,
            class_="loads",
            aria_label=view.heat.title,
        ),
        id="loads",
    )
    earlier = [element("div", element("h3", each.title), heat_map(each)) for each in view.earlier_heat]
    left = element("div", earlier, element("h3", view.heat.title), heat_map(view.heat), heat_legend(), newest)
    both = element("div", left, _hot_keys(view), class_="two")
    return section("load", "Load of the workers", both, as_of=view.figures_as_of)


def _hot_keys(view: PageView) -> Element | None:
    if not view.hot_keys:
        return None
    return element(
        "div",
        element("h3", "Hottest keys"),
        bars(view.hot_keys, ("key", "share"), "Shares of the hottest keys"),
        element(
            "p", f"{view.hot_keys_note} Names of keys are not shown: the driver knows their hashes only.", class_="note"
        ),
    )


def _plan(view: PageView) -> Element:
    if not view.plan:
        return section("plan", "Plan", element("p", "No batch has a plan yet.", class_="absent"))
    table = (
        text_table(view.candidates, "Predicted batch time by algorithm", marked="current")
        if view.candidates.rows
        else None
    )
    why = element("p", view.why_plan)
    return section("plan", "Plan", text_pairs(view.plan), why, table, as_of=view.figures_as_of)


def _steps(view: PageView) -> Element | None:
    if not view.steps:
        return None
    table = bars(view.steps, ("step", "time", "share"), "Steps of the newest batch")
    note = element("p", view.steps_note, class_="note") if view.steps_note else None
    title = element("h3", view.steps_title)
    return section("steps", "Newest batch", title, table, note, as_of=view.figures_as_of)


def _state(view: PageView) -> Element | None:
    if not view.state:
        return None
    title = "Both sides of the join, and what waits" if len(view.sources.rows) > 1 else "The source, and what waits"
    table = text_table(view.sources, title) if view.sources.rows else None
    children = text_pairs(view.state), element("h3", title), table
    return section("state", "State and event time", *children, as_of=view.figures_as_of)


def _messages(view: PageView) -> Element | None:
    if not view.messages:
        return None
    rows = [element("li", element("time", time), f" {text}") for time, text in view.messages]
    return section("messages", "Messages, newest first", element("ol", rows, class_="messages"))
