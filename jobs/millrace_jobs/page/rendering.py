"""The page as HTML: the verdict first, then the figures by which to see why."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from millrace_jobs.page.charts import bars, heat_legend, heat_map, line_chart, text_table
from millrace_jobs.page.elements import document, element
from millrace_jobs.page.findings import RunFinding, Severity
from millrace_jobs.page.lookup_box import LookupResult, lookup_box
from millrace_jobs.page.view import PageView

SIGNS = {Severity.FAILURE: "✕", Severity.WARNING: "!", Severity.NOTE: "i", Severity.WELL: "✓"}
_CLASSES = {each: each.name.lower() for each in Severity}


def render(view: PageView, result: LookupResult | None = None) -> bytes:
    """Return the page as an HTML document in UTF-8; ``result`` is that of a look-up that was asked for."""
    verdict, *others = view.findings
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{SIGNS[verdict.severity]} {view.name}: {verdict.title.lower()}"),
        element("link", rel="icon", href="data:,"),
        element("link", rel="stylesheet", href="page.css"),
        element("script", src="page.js", defer=True),
    )
    main = element(
        "main",
        verdict_section(verdict, others),
        figures(view),
        lookup_box(view, result),
        _messages(view),
        id="main",
    )
    body = element(
        "body",
        element("a", "Skip to the figures", href="#charts", class_="skip"),
        _header(view),
        main,
        element("p", role="status", id="announce", class_="quiet"),
    )
    return document(element("html", head, body, lang="en"))


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


def verdict_section(verdict: RunFinding, others: Sequence[RunFinding]) -> Element:
    """Return the first finding in large, and the others below it."""
    more = [
        element(
            "li",
            element("b", f"{each.title}: "),
            f"{each.reason}.",
            element("span", f" {_capitalized(each.remedy)}.", class_="remedy") if each.remedy else None,
            class_=_CLASSES[each.severity],
        )
        for each in others
    ]
    return element(
        "section",
        element(
            "div",
            element("span", SIGNS[verdict.severity], class_="sign", aria_hidden="true"),
            element(
                "div",
                element("h2", verdict.title, id="verdict-title"),
                element("p", f"{_capitalized(verdict.reason)}."),
                element("p", element("b", "What to do: "), f"{verdict.remedy}.", class_="remedy")
                if verdict.remedy
                else None,
            ),
            class_=f"verdict {_CLASSES[verdict.severity]}",
        ),
        element("ul", more, class_="findings") if more else None,
        id="verdict",
        aria_labelledby="verdict-title",
        data_live=True,
    )


def _capitalized(text: str) -> str:
    """Return a sentence that begins with a capital, unless it begins with the name of a field or an algorithm."""
    first = text.split(" ", 1)[0]
    return text if "." in first or ":" in first or first == "auto" else text[:1].upper() + text[1:]


def section(name: str, title: str, *children: Element | None) -> Element:
    """Return a section that the page's script keeps up to date."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *children, id=name, aria_labelledby=f"{name}-title", data_live=True)


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
        "charts", "Batches", element("div", [line_chart(each) for each in view.charts], class_="charts"), table
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
    return section("load", "Load of the workers", element("div", left, _hot_keys(view), class_="two"))


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
    return section("plan", "Plan", _pairs(view.plan), element("p", view.why_plan), table)


def _steps(view: PageView) -> Element | None:
    if not view.steps:
        return None
    table = bars(view.steps, ("step", "time", "share"), "Steps of the newest batch")
    note = element("p", view.steps_note, class_="note") if view.steps_note else None
    return section("steps", "Newest batch", element("h3", view.steps_title), table, note)


def _state(view: PageView) -> Element | None:
    if not view.state:
        return None
    title = "Both sides of the join, and what waits" if len(view.sources.rows) > 1 else "The source, and what waits"
    table = text_table(view.sources, title) if view.sources.rows else None
    return section("state", "State and event time", _pairs(view.state), element("h3", title), table)


def _pairs(pairs: Sequence[tuple[str, str]]) -> Element:
    return element("dl", [element("div", element("dt", name), element("dd", text)) for name, text in pairs])


def _messages(view: PageView) -> Element | None:
    if not view.messages:
        return None
    rows = [element("li", element("time", time), f" {text}") for time, text in view.messages]
    return section("messages", "Messages, newest first", element("ol", rows, class_="messages"))
