"""One aggregation in SQL for two engines: Spark, and DuckDB as the independent answer.

DuckDB has no ``window()``. Its query unnests a record into the starts of the windows that contain it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Hop:
    """A hopping window in seconds, or a tumbling one if ``slide`` equals ``size``."""

    column: str
    size: int
    slide: int
    start: int = 0

    @property
    def spark(self) -> str:
        start = [self.start] if self.start else []
        lengths = [f"'{seconds} seconds'" for seconds in (self.size, self.slide, *start)]
        return f"window({', '.join([self.column, *lengths])})"

    def unnested(self, table: str, where: str) -> str:
        """Return DuckDB's table of (record, window) pairs, with ``window_start`` in microseconds."""
        size, slide, start = (seconds * 1_000_000 for seconds in (self.size, self.slide, self.start))
        at = f"epoch_us({self.column})"
        last = f"{at} - ((({at} - {start}) % {slide}) + {slide}) % {slide}"
        starts = f"unnest(range({last}, {at} - {size}, -{slide}))"
        return f"(SELECT *, {starts} AS window_start FROM {table} WHERE {self.column} IS NOT NULL AND ({where}))"


@dataclass(frozen=True)
class Both:
    """An expression that the engines write differently."""

    spark: str
    duckdb: str


@dataclass(frozen=True)
class Estimate:
    """An ``approx_count_distinct``, which DuckDB counts exactly."""

    column: str

    @property
    def spark(self) -> str:
        return f"approx_count_distinct({self.column})"

    @property
    def duckdb(self) -> str:
        return f"count(DISTINCT {self.column})"


def decimal_average(column: str, scale: int) -> Both:
    """``avg`` of a DECIMAL that is never negative: Spark gives four digits more, rounded half up; DuckDB a double."""
    units = f"(sum({column}) * {10**scale})::HUGEINT * 10000"
    rounded = f"(2 * {units} + count({column})) // (2 * count({column}))"
    # a product, since DuckDB divides decimals as doubles
    return Both(f"avg({column})", f"({rounded})::DECIMAL(28, 0) * 1e-{scale + 4}::DECIMAL({scale + 4}, {scale + 4})")


Expression = str | Both | Estimate


@dataclass(frozen=True)
class Question:
    """A query ``SELECT window, keys, values FROM events WHERE ... GROUP BY window, keys HAVING ...``."""

    values: Mapping[str, Expression]
    keys: Mapping[str, Expression] = field(default_factory=dict)
    window: Hop | None = None
    where: str = ""
    having: str = ""

    @property
    def spark(self) -> str:
        items = [f"{_of(item, 'spark')} AS {name}" for name, item in (*self.keys.items(), *self.values.items())]
        groups = [_of(key, "spark") for key in self.keys.values()]
        if self.window is not None:
            items = ["window.start AS window_start", "window.end AS window_end", *items]
            groups = [self.window.spark, *groups]
        text = f"SELECT {', '.join(items)} FROM events"
        text += f" WHERE {self.where}" if self.where else ""
        text += f" GROUP BY {', '.join(groups)}" if groups else ""
        return text + (f" HAVING {self.having}" if self.having else "")

    @property
    def duckdb(self) -> str:
        items = [f"{_of(item, 'duckdb')} AS {name}" for name, item in (*self.keys.items(), *self.values.items())]
        table = f"(SELECT * FROM events WHERE {self.where or 'true'})"
        if self.window is not None:
            end = f"make_timestamp(window_start + {self.window.size * 1_000_000})"
            items = ["make_timestamp(window_start) AS window_start", f"{end} AS window_end", *items]
            table = self.window.unnested("events", self.where or "true")
        groups = [str(number + 1) for number in range(self.key_columns)]
        text = f"SELECT {', '.join(items)} FROM {table}"
        text += f" GROUP BY {', '.join(groups)}" if groups else ""
        return text + (f" HAVING {self.having}" if self.having else "")

    @property
    def key_columns(self) -> int:
        """Number of leading columns that identify a group."""
        return len(self.keys) + (2 if self.window else 0)

    @property
    def estimates(self) -> set[str]:
        """Names of the values that are estimates."""
        return {name for name, item in self.values.items() if isinstance(item, Estimate)}


def _of(item: Expression, engine: str) -> str:
    return item if isinstance(item, str) else str(getattr(item, engine))
