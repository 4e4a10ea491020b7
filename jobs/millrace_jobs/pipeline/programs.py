"""Compiled expressions as replicas run them: plain data, evaluated by Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Program = tuple[Any, ...]
"""``("field", name)``, ``("literal", value, type)`` or ``("call", function, *programs)``; picklable."""


def evaluate(program: Program, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    """Run a program over one batch; literals come out as scalars."""
    kind, *rest = program
    if kind == "field":
        return batch.column(rest[0])
    if kind == "literal":
        return pa.scalar(rest[0], rest[1])
    function, *arguments = rest
    values = [evaluate(argument, batch) for argument in arguments]
    if function == "cast_double":
        return pc.cast(values[0], pa.float64(), safe=False)  # to the nearest, as Spark does beyond 2^53
    return pc.call_function(function, values)
