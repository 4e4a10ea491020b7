"""Tables of texts, and pairs of a name and a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from millrace_support.pages.elements import element


@dataclass(frozen=True)
class Table:
    """A table of texts; ``marked`` is the number of the row that stands out, if one does."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: int | None = None


def text_table(table: Table, caption: str, *, marked: str = "") -> Element:
    """Return a table of texts; a cell that begins with a digit or a sign is a number, and aligned as one."""
    head = element(
        "tr", [element("th", name, scope="col", class_=_kind(table, at)) for at, name in enumerate(table.columns)]
    )
    body = []
    for number, row in enumerate(table.rows):
        cells = [
            element("th", text, scope="row") if at == 0 else element("td", text, class_=_kind(table, at))
            for at, text in enumerate(row)
        ]
        body.append(element("tr", cells, class_=marked if number == table.marked else False))
    made = element("table", element("caption", caption, class_="quiet"), element("thead", head), element("tbody", body))
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _kind(table: Table, at: int) -> str | bool:
    texts = [row[at] for row in table.rows if row[at] not in ("", "-", "NULL", "runs now")]
    return "number" if at and texts and all(text.lstrip("+-−")[:1].isdigit() for text in texts) else False


def text_pairs(pairs: Sequence[tuple[str, str]]) -> Element:
    """Return a list of names, each with its text."""
    return element("dl", [element("div", element("dt", name), element("dd", text)) for name, text in pairs])
