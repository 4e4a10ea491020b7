"""A small table of figures, which shows itself in terminals and notebooks and becomes Arrow, pandas or Polars."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class FigureTable:
    """Figures in rows and columns.

    >>> table = FigureTable(("algorithm", "imbalance"), [("hash", 1.5), ("pkg", 0.01)], title="two workers")
    >>> table["imbalance"]
    [1.5, 0.01]
    >>> table.rows[0]
    ('hash', 1.5)
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    title: str = ""

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]], title: str = "") -> FigureTable:
        """Return the table of records that all have the same names."""
        columns = tuple(records[0]) if records else ()
        return cls(columns, [tuple(record[name] for name in columns) for record in records], title)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self.columns:
            raise KeyError(f"there is no column {column!r}; write one of: {', '.join(self.columns)}")
        place = self.columns.index(column)
        return [row[place] for row in self.rows]

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table, which Polars reads by ``polars.from_arrow``."""
        import pyarrow as pa

        return pa.table({name: self[name] for name in self.columns})

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.columns))

    def __repr__(self) -> str:
        shown = [self.columns, *([shown_figure(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[place]) for row in shown) for place in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in shown
        ]
        return "\n".join([*([self.title] if self.title else []), *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        return html_table(self.columns, self.rows, self.title)


def shown_figure(value: Any) -> str:
    """Return a figure as text: whole numbers with separators, others with four significant digits."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> str:
    """Return rows as an HTML table, numbers to the right."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    side = "right" if isinstance(value, int | float) else "left"
    return f'<td style="text-align: {side}">{html.escape(shown_figure(value))}</td>'
