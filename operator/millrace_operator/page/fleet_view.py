"""The page of the fleet as HTML: the verdict on all queries that a user sees, and a table of them, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode
from xml.etree.ElementTree import Element

from millrace_support.pages.elements import element
from millrace_support.pages.verdict import CLASSES, SIGNS, PageFinding, Severity, page_document, verdict_section

from ..lifecycle.conditions import shortened
from ..lifecycle.query_facts import age, count, figure
from .fleet import FleetRow

ROWS = 100
"""Queries on one page of the table."""

SECONDS = 5
"""Seconds between two updates of a page that is open and visible."""

LOST = "the operator has ended, its port is closed, or your login has expired. Reload the page."
"""What a page says when it gets no answer any more."""

FEW = 10
"""Queries up to which there is no box to find one."""

_REASON = 140
"""Characters of a finding's reason in the table; the query's own page has all of it."""

_FULL = 1.5
"""W that fills its bar."""

_COLUMNS = (
    ("W", "number"),
    ("lag", "number wide"),
    ("records/s", "number wide"),
    ("executors", "number wide"),
    ("plan n/m", "plan wide"),
    ("age", "number wide"),
)


@dataclass(frozen=True)
class FleetRequest:
    """What a reader asks for: queries whose namespace and name have a text, and a page of the table, from 1."""

    find: str = ""
    page: int = 1

    def url(self, page: int | None = None) -> str:
        """Return the relative URL of this, or of another page of it."""
        fields = {"find": self.find, "page": self.page if page is None else page}
        given = {name: value for name, value in fields.items() if value not in ("", 1)}
        return f"./?{urlencode(given)}" if given else "./"


def fleet_page(
    rows: Sequence[FleetRow], notes: Sequence[PageFinding], asked: FleetRequest, user: str, now: datetime
) -> bytes:
    """Return the page as an HTML document in UTF-8.

    Args:
        rows: the queries that the user sees, worst first.
        notes: what else is worth knowing, such as that figures are old.
        asked: what the reader asks for.
        user: the user's name.
        now: the time of the page.
    """
    findings = with_notes([fleet_verdict(rows)], notes)
    if findings[0].severity >= Severity.WARNING:  # where figures are old, or queries missing, not all is well
        findings = [each for each in findings if each.severity > Severity.WELL]
    find = _find(asked) if asked.find or len(rows) > FEW else None
    main = element("main", verdict_section(findings), find, _queries(rows, asked, now), id="main")
    body = (
        element("a", "Skip to the queries", href="#queries", class_="skip"),
        page_header("Fleet", user, _facts(rows), now),
        main,
    )
    return page_document(findings[0], "fleet", body, lost=LOST, seconds=SECONDS, source=asked.url())


def with_notes(findings: Sequence[PageFinding], notes: Sequence[PageFinding]) -> list[PageFinding]:
    """Return findings with notes on the operator: trouble first, and the rest in the order that it has."""
    return sorted((*findings, *notes), key=lambda each: -max(each.severity, Severity.NOTE))


def page_header(title: str, user: str, facts: Sequence[tuple[str, str]], now: datetime, root: str = "") -> Element:
    """Return the header of a page, with its facts and the button that logs the user out."""
    shown = [element("span", element("span", f"{name} ", class_="label"), text) for name, text in facts]
    login = element("form", f"{user} ", element("button", "Log out"), method="post", action=f"{root}logout", id="login")
    return element(
        "header",
        element("h1", title),
        element("p", f"As of {now.astimezone(UTC):%H:%M:%S} UTC. Reload the page for newer figures.", id="updates"),
        element("p", shown, id="facts", class_="facts", data_live=True),
        login,
    )


def fleet_verdict(rows: Sequence[FleetRow]) -> PageFinding:
    """Return whether a fleet is well, and if not, which query is the worst, and why."""
    if not rows:
        reason = "there are no StreamQueries in the namespaces whose queries you may list"
        remedy = "`kubectl auth can-i list streamqueries -n NAMESPACE` says what you may"
        return PageFinding(Severity.NOTE, "No queries", reason, remedy)
    by = Counter(row.finding.severity for row in rows)
    bad, worst = by[Severity.FAILURE] + by[Severity.WARNING], rows[0]
    if bad:
        title = f"{bad:,} of {_queries_text(len(rows))} need{'s' if bad == 1 else ''} attention"
        where = f"the worst is {worst.namespace}/{worst.name}"
        reason = f"{where}, {worst.finding.title.lower()}: {shortened(worst.finding.reason, 300)}"
        return PageFinding(worst.finding.severity, title, reason, worst.finding.remedy)
    suspended = sum(row.is_suspended for row in rows)
    parts = {
        "running": by[Severity.WELL] - suspended,
        "starting or stopping": by[Severity.NOTE],
        "suspended": suspended,
    }
    reason = ", ".join(f"{number:,} {text}" for text, number in parts.items() if number)
    title = f"All {_queries_text(len(rows))} are well" if len(rows) > 1 else "The only query is well"
    return PageFinding(Severity.WELL, title, reason)


def _queries_text(number: int) -> str:
    return f"{number:,} quer{'y' if number == 1 else 'ies'}"


def _facts(rows: Sequence[FleetRow]) -> list[tuple[str, str]]:
    return [
        ("queries", f"{len(rows):,}"),
        ("namespaces", f"{len({row.namespace for row in rows}):,}"),
        ("records/s", count(sum(row.rate or 0.0 for row in rows))),
        ("records waiting", count(sum(row.lag or 0 for row in rows))),
    ]


def _queries(rows: Sequence[FleetRow], asked: FleetRequest, now: datetime) -> Element:
    found = [row for row in rows if asked.find.lower() in f"{row.namespace}/{row.name}".lower()]
    pages = max((len(found) + ROWS - 1) // ROWS, 1)
    page = min(max(asked.page, 1), pages)
    shown = found[(page - 1) * ROWS : page * ROWS]
    none = f"No query has {asked.find} in its namespace or name." if asked.find else "There are no queries to show."
    return element(
        "section",
        element("h2", "Queries, worst first", id="queries-title"),
        _table(shown, now) if shown else element("p", none, class_="absent"),
        _paging(asked, page, pages, len(found)),
        id="queries",
        aria_labelledby="queries-title",
        data_live=True,
    )


def _find(asked: FleetRequest) -> Element:
    return element(
        "form",
        element("label", "Namespace or name", for_="find"),
        element("input", id="find", name="find", value=asked.find, type="search", maxlength=200, autocomplete="off"),
        element("button", "Find"),
        method="get",
        action="./",
        role="search",
        class_="find",
    )


def _paging(asked: FleetRequest, page: int, pages: int, number: int) -> Element | None:
    if pages == 1:
        return None
    first = (page - 1) * ROWS + 1
    links = [("Worse", page - 1), ("Better", page + 1)]
    return element(
        "nav",
        element("span", f"{first:,} to {min(first + ROWS - 1, number):,} of {number:,}"),
        [element("a", text, href=asked.url(to), id=f"to-{text.lower()}") for text, to in links if 1 <= to <= pages],
        aria_label="pages of the table",
        class_="paging",
    )


def _table(rows: Sequence[FleetRow], now: datetime) -> Element:
    head = element(
        "tr",
        element("th", "query", scope="col", role="columnheader"),
        element("th", "verdict", scope="col", role="columnheader"),
        *(element("th", name, scope="col", role="columnheader", class_=kind) for name, kind in _COLUMNS),
        role="row",
    )
    body = [_row(row, now) for row in rows]
    caption = element("caption", "Queries, worst first", class_="quiet")
    groups = element("thead", head, role="rowgroup"), element("tbody", body, role="rowgroup")
    return element("table", caption, *groups, class_="fleet", role="table")  # in a narrow window, its style hides roles


def _row(row: FleetRow, now: datetime) -> Element:
    finding = row.finding
    sign = element("span", SIGNS[finding.severity], class_="sign", aria_hidden="true")
    link = element("a", row.name, href=query_url(row.namespace, row.name), id=f"query-{row.namespace}-{row.name}")
    name = element("span", element("small", f"{row.namespace}/"), element("wbr"), link)
    texts = (count(row.lag), count(row.rate), row.executors, row.plan, age(row.created, now))
    return element(
        "tr",
        element("th", element("span", sign, name, class_="name"), scope="row", role="rowheader"),
        element("td", element("b", finding.title), f": {shortened(finding.reason, _REASON)}", role="cell"),
        element("td", _busy(row), figure(row.busy), class_="number busy", role="cell"),
        *(element("td", text, class_=kind, role="cell") for text, (_, kind) in zip(texts, _COLUMNS[1:], strict=True)),
        class_=CLASSES[finding.severity],
        role="row",
    )


def _busy(row: FleetRow) -> Element | None:
    """Return W as a bar with a mark where batches take their whole interval."""
    if row.busy is None:
        return None
    return element(
        "svg",
        element("rect", width="100%", height="100%", class_="track"),
        element("rect", width=f"{min(row.busy / _FULL, 1.0):.1%}", height="100%", class_="fill"),
        element("rect", x=f"{1 / _FULL:.1%}", width=1, height="100%", class_="mark"),
        width=60,
        height=8,
        aria_hidden="true",
    )


def query_url(namespace: str, name: str) -> str:
    """Return the URL of a query's page, relative to that of the fleet."""
    return f"queries/{quote(namespace, safe='')}/{quote(name, safe='')}"
