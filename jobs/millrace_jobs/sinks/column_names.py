"""Columns of results by their exact names, which may have any characters."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the conventional name


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes it literally."""
    return "`" + name.replace("`", "``") + "`"


def named(name: str) -> Column:
    """Return the column with exactly this name."""
    return F.col(quoted(name))
