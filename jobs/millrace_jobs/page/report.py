"""The report of a run as one HTML file that needs no other: for a write-up of an incident, to read, send and print."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from xml.etree.ElementTree import Element

from millrace_jobs.page.charts import bars
from millrace_jobs.page.findings import WARM, seconds_text
from millrace_jobs.page.rendering import figures
from millrace_jobs.page.replay import EntryKind, RunReport, TimelineEntry, moment_text
from millrace_support.pages.elements import document, element
from millrace_support.pages.verdict import SIGNS, section, verdict_section


def render_report(report: RunReport) -> bytes:
    """Return the report as an HTML document in UTF-8."""
    view = report.view
    style = files("millrace_support.pages").joinpath("assets", "page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{view.name}: report of {moment_text(report.last)}"),
        element("link", rel="icon", href="data:,"),
        _style_element(style),
    )
    main = element(
        "main",
        verdict_section(view.findings),
        _timeline(report),
        figures(view),
        _slowest(report),
        id="main",
    )
    body = element(
        "body",
        element("a", "Skip to the figures", href="#charts", class_="skip"),
        _header(report),
        main,
    )
    return document(element("html", head, body, lang="en"))


def _style_element(style: str) -> Element:
    """Return the style with its line breaks, which texts do not keep, as the digest of the policy is of both."""
    made = Element("style")
    made.text = style
    return made


def _policy(style: str) -> str:
    """Return the Content-Security-Policy: this style, and nothing else, neither from elsewhere nor from the page."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _header(report: RunReport) -> Element:
    pairs = {
        "from": moment_text(report.first),
        "to": moment_text(report.last),
        "period": seconds_text(report.last - report.first),
        "batches": f"{report.batches:,}" + (f", {report.dropped:,} others were dropped" if report.dropped else ""),
        **{name: text for name, text in report.view.facts if name in ("interval", "results")},
        "figures": report.origin or f"the record of the run, by Millrace {report.millrace}",
    }
    facts = [element("span", element("span", f"{name} ", class_="label"), text) for name, text in pairs.items()]
    return element(
        "header",
        element("h1", report.view.name),
        element("p", "Report. The verdict is that of its end.", id="updates"),
        element("p", facts, id="facts", class_="facts"),
    )


def _timeline(report: RunReport) -> Element:
    omitted = f"{report.omitted:,} entries were left out, messages first." if report.omitted else ""
    rows = [_entry(each) for each in report.timeline]
    head = element("tr", [element("th", name, scope="col") for name in ("UTC", "what", "")])
    table = element(
        "table",
        element("caption", "What was found and decided, and what the run said", class_="quiet"),
        element("thead", head, class_="quiet"),
        element("tbody", rows),
        class_="timeline",
    )
    return section("timeline", "What happened", table, element("p", omitted, class_="note") if omitted else None)


def _entry(entry: TimelineEntry) -> Element:
    severity = "" if entry.severity is None else entry.severity.name.lower()
    sign = "" if entry.severity is None else f"{SIGNS[entry.severity]} "
    what = entry.title or ("message" if entry.kind is EntryKind.MESSAGE else "")
    return element(
        "tr",
        element("td", element("time", moment_text(entry.time).removesuffix(" UTC"))),
        element("th", sign, what, scope="row"),
        element("td", entry.text),
        class_=f"is-{entry.kind} {severity}".strip(),
    )


def _slowest(report: RunReport) -> Element | None:
    if not report.slowest:
        return None
    table = bars(report.slowest, ("step", "time", "share"), "Steps of the slowest batch")
    title = f"Slowest batch, without the first {WARM} of a start"
    return section("slowest", title, element("h3", report.slowest_title), table)
