"""The box of the page that looks rows of the result table up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import BoundedSemaphore
from urllib.parse import parse_qs
from xml.etree.ElementTree import Element

from millrace_api.errors import MillraceError
from millrace_jobs.page.view import PageView
from millrace_support.lookups import Lookup, TableAnswer, cell_text, look_up_at
from millrace_support.pages.elements import element
from millrace_support.pages.tables import Table, text_table

SHOWN_ROWS = 50
"""Most rows of a page of the table."""

LOOKUP_SECONDS = 3.0
"""Seconds that a look-up may hold its thread of the server."""

_slots = BoundedSemaphore(2)
"""Look-ups at one time: less than the server's threads, so that page and metrics have some left."""


@dataclass(frozen=True)
class LookupResult:
    """The rows that a key or prefix has, or why there are none."""

    written: str
    is_prefix: bool
    answer: TableAnswer | None = None
    problem: str = ""


def looked_up(parameters: str, url: str) -> LookupResult | None:
    """Look up what the query part of the page's URL asks for, at the URL of look-ups; None if it asks for nothing."""
    given: Mapping[str, list[str]] = {}
    with suppress(ValueError):  # more fields than the form has
        given = parse_qs(parameters, max_num_fields=8, keep_blank_values=True)
    if "key" not in given:
        return None
    written, is_prefix = given["key"][0], given.get("by") == ["prefix"]
    lookup = Lookup((written,) if written else (), prefix=is_prefix and bool(written), limit=None)
    if lookup.is_page:
        lookup = Lookup(lookup.keys, prefix=lookup.prefix, limit=SHOWN_ROWS)
    if not _slots.acquire(blocking=False):
        return LookupResult(written, is_prefix, problem="Others are being looked up; try again.")
    try:
        return LookupResult(written, is_prefix, look_up_at(url, lookup, timeout=LOOKUP_SECONDS))
    except MillraceError as error:
        return LookupResult(written, is_prefix, problem=str(error))
    finally:
        _slots.release()


def lookup_box(view: PageView, result: LookupResult | None) -> Element | None:
    """Return the form with the rows that were found, or how else to look rows up; None for a query without a table."""
    title = element("h2", "Look up rows", id="lookup-title")
    if view.look_up_by:
        how = element("p", "In a terminal, ", element("code", view.look_up_by), " shows the row of a key.")
        return element("section", title, how, id="lookup", aria_labelledby="lookup-title")
    if not view.key:
        return None
    written = "" if result is None else result.written
    is_prefix = result is not None and result.is_prefix
    choice = element(
        "select",
        element("option", "has this key", value="key"),
        element("option", "begins with it", value="prefix", selected=is_prefix),
        name="by",
        aria_label="how the key is compared",
    )
    form = element(
        "form",
        element("label", f"Key ({', '.join(view.key)})", for_="key"),
        element("input", id="key", name="key", value=written, autocomplete="off", spellcheck="false"),
        choice,
        element("button", "Look up"),
        method="get",
        action="#lookup",
        role="search",
    )
    return element("section", title, form, _found(result), id="lookup", aria_labelledby="lookup-title")


def _found(result: LookupResult | None) -> Element | None:
    if result is None:
        hint = "Several columns are separated by commas. Without a key, the first rows of the table are shown."
        return element("p", hint, class_="note")
    if result.answer is None:
        return element("p", result.problem, class_="problem", role="alert")
    rows = [row for row in result.answer.rows if row is not None]
    batch = result.answer.batch
    when = "before the first batch" if batch is None else f"as of batch {batch}"
    if not rows:
        asked = f" begins with {result.written}" if result.is_prefix else f" has the key {result.written}"
        text = f"No row{asked}, {when}." if result.written else f"The table has no rows, {when}."
        return element("p", text, role="status")
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = tuple(tuple(cell_text(row.get(name)) for name in names) for row in rows)
    found = f"{'1 row' if len(rows) == 1 else f'{len(rows)} rows'} {when}"
    return text_table(Table(tuple(names), cells), found + (", and there are more" if result.answer.next else ""))
