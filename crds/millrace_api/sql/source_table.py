"""A source as the checks of SQL see it."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_api.sql.schema_ddl import Column


@dataclass(frozen=True)
class SourceTable:
    """A source's columns (None if unknown), and its watermark column (None without one).

    ``keys`` is the primary key of a source that is read as a table. ``static``: it is read once, and does not stream.
    """

    columns: tuple[Column, ...] | None
    watermark: str | None = None
    keys: tuple[str, ...] = ()
    static: bool = False

    def column(self, name: str) -> Column | None:
        """Return the column of this name in any case, if there is one."""
        return next((each for each in self.columns or () if each.name.lower() == name.lower()), None)
