"""The verdict, with which every page begins: whether all is well, and if not, why and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from xml.etree.ElementTree import Element

from millrace_support.pages.elements import Child, document, element


class Severity(IntEnum):
    """How urgent a finding is."""

    WELL = 0
    NOTE = 1
    WARNING = 2
    FAILURE = 3


@dataclass(frozen=True)
class PageFinding:
    """One finding: a title of a few words, the reason with its figures, and a remedy, which may be empty."""

    severity: Severity
    title: str
    reason: str
    remedy: str = ""


SIGNS = {Severity.FAILURE: "✕", Severity.WARNING: "!", Severity.NOTE: "i", Severity.WELL: "✓"}
"""The sign of each severity, for readers who do not see colors."""

CLASSES = {each: each.name.lower() for each in Severity}
"""The class of each severity in the style sheet."""

_ORDER = (Severity.FAILURE, Severity.WARNING, Severity.WELL, Severity.NOTE)


def by_urgency(findings: Iterable[PageFinding]) -> list[PageFinding]:
    """Return findings, the most urgent first; notes come last, so that none of them is the verdict."""
    return sorted(findings, key=lambda each: _ORDER.index(each.severity))


def page_document(
    verdict: PageFinding,
    name: str,
    body: Iterable[Child],
    *,
    lost: str,
    root: str = "",
    seconds: int = 2,
    source: str = "",
) -> bytes:
    """Return a page as an HTML document in UTF-8.

    Args:
        verdict: the most urgent finding, which the title names.
        name: what the page is about.
        body: elements of the body.
        lost: what the script says when it gets no answer any more.
        root: relative URL of the folder that has the style and the script.
        seconds: time between two updates by the script; 0 for a page without a script.
        source: relative URL of the updates; by default, the page's own without the part behind ``?``.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{SIGNS[verdict.severity]} {name}: {verdict.title.lower()}"),
        element("link", rel="icon", href="data:,"),
        element("link", rel="stylesheet", href=f"{root}page.css"),
        element("script", src=f"{root}page.js", defer=True) if seconds else None,
    )
    announce = element("p", role="status", id="announce", class_="quiet")
    whole = element("body", body, announce, data_lost=lost, data_seconds=seconds, data_source=source or False)
    return document(element("html", head, whole, lang="en"))


def section(name: str, title: str, *children: Element | None, as_of: str = "") -> Element:
    """Return a section with a heading, which the script replaces when it has changed.

    ``as_of`` is the time of day in UTC of what it shows, if that is not the time of the page.
    """
    of = element("span", f" as of {as_of} UTC", class_="as-of") if as_of else None
    heading = element("h2", title, of, id=f"{name}-title")
    return element("section", heading, *children, id=name, aria_labelledby=f"{name}-title", data_live=True)


def verdict_section(findings: Sequence[PageFinding]) -> Element:
    """Return the section with the verdict, which is the first finding, and the other findings below it."""
    verdict, *others = findings
    more = [
        element(
            "li",
            element("b", f"{each.title}: "),
            f"{each.reason}.",
            element("span", " ", with_code(f"{capitalized(each.remedy)}."), class_="remedy") if each.remedy else None,
            class_=CLASSES[each.severity],
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
                element("p", f"{capitalized(verdict.reason)}."),
                element("p", element("b", "What to do: "), with_code(f"{verdict.remedy}."), class_="remedy")
                if verdict.remedy
                else None,
            ),
            class_=f"verdict {CLASSES[verdict.severity]}",
        ),
        element("ul", more, class_="findings") if more else None,
        id="verdict",
        aria_labelledby="verdict-title",
        data_live=True,
    )


def capitalized(text: str) -> str:
    """Return a sentence that begins with a capital, unless it begins with the name of a field or an algorithm."""
    first = text.split(" ", 1)[0]
    return text if "." in first or ":" in first or first == "auto" else text[:1].upper() + text[1:]


def with_code(text: str) -> list[Child]:
    """Return a text whose parts between backticks, such as commands, are elements of code."""
    return [element("code", part) if at % 2 else part for at, part in enumerate(text.split("`"))]
