"""Projection of a source batch before routing: a replica filters it, then computes keys, event time and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from millrace_jobs.own_code.functions import ScalarFunction
from millrace_jobs.pipeline.expressions.programs import Program, evaluate

_ASSUMED_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Spark settings that the meaning of an expression depends on, with the values that compiled expressions assume."""

KEEP = "keep"
"""Column of a projection computed by Spark: whether the record passes the filter."""


@dataclass(frozen=True)
class Projection:
    """The filter and the columns of the blocks that workers get, as SQL over the source.

    ``schema`` has the types Spark gives these columns; ``keys`` is how many of them, from the first, are keys.
    ``setting`` is ``name=value`` of a Spark setting that changes the meaning of expressions; it is empty if all such
    settings have the values that compiled expressions assume. ``functions`` are those of the query's own.
    """

    where: str
    columns: tuple[tuple[str, str], ...]
    schema: pa.Schema
    keys: int
    setting: str = ""
    functions: tuple[ScalarFunction, ...] = ()


def deviating_setting(value_of: Callable[[str, str], str | None]) -> str:
    """Return ``name=value`` of a setting that differs from the assumed ones; empty if none does.

    ``value_of`` returns the value of a setting, or the given default.
    """
    for name, value in _ASSUMED_SETTINGS.items():
        if (value_of(name, value) or "").lower() != value.lower():
            return f"{name}={value_of(name, value)}"
    return ""


@dataclass(frozen=True)
class ArrowProjection:
    """A projection compiled to Arrow programs, run by the replica itself on the batches of its source."""

    where: Program | None
    columns: tuple[Program, ...]
    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Filter a source batch and compute the block columns."""
        if self.where is not None:
            mask = evaluate(self.where, batch)
            if isinstance(mask, pa.Scalar):
                batch = batch if mask.as_py() else batch.slice(0, 0)
            else:
                batch = batch.filter(mask)
        arrays = [self._column(program, batch, field) for program, field in zip(self.columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, program: Program, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        value = evaluate(program, batch)
        if isinstance(value, pa.Scalar):
            value = pa.repeat(value, batch.num_rows)
        return value if value.type == field.type else value.cast(field.type)


@dataclass(frozen=True)
class SparkProjection:
    """A projection that Spark has already computed, except that records that fail the filter are still there."""

    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the block columns out of a batch from Spark."""
        kept = batch.filter(batch.column(KEEP))
        arrays = [kept.column(field.name).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
