"""Compiled expressions as replicas run them: plain data, evaluated by Arrow."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.pipeline.letter_case import lower, upper

Program = tuple[Any, ...]
"""A compiled expression as a nested tuple, which can be pickled.

- ``("field", name)``, ``("literal", value, type)``, ``("cast", program, type)``
- ``("call", function, *programs)``: an Arrow function, or ``upper`` or ``lower``
- ``("among", program, values, type)``: whether a value is one of ``values``, none of which is NULL
- ``("slice", program, start, stop)``: a substring by code points, as in Python
- ``("checked", program, sql, hint)``: reports the expression where Arrow finds an error
- ``("guard", condition, program)``: a value that raises no error, and has no meaning, where the condition is false
"""

_OWN = {"upper": upper, "lower": lower}


def evaluate(program: Program, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    """Run a program over one batch; literals come out as scalars.

    Raises:
        MillraceError: the expression has no value for a record, due to an overflow or a division by zero.
    """
    kind, *rest = program
    match kind:
        case "field":
            return batch.column(rest[0])
        case "literal":
            return pa.scalar(rest[0], rest[1])
        case "cast":
            # An unsafe cast rounds to the nearest DOUBLE beyond 2^53, as Spark does.
            return pc.cast(evaluate(rest[0], batch), rest[1], safe=rest[1] != pa.float64())
        case "among":
            return _among(evaluate(rest[0], batch), pa.array(rest[1], rest[2]))
        case "slice":
            return pc.utf8_slice_codeunits(evaluate(rest[0], batch), start=rest[1], stop=rest[2])
        case "checked":
            return _checked(rest[0], rest[1], rest[2], batch)
        case "guard":
            return _guarded(rest[0], rest[1], batch)
    function, *arguments = rest
    values = [evaluate(argument, batch) for argument in arguments]
    return _OWN[function](*values) if function in _OWN else pc.call_function(function, values)


def is_constant(program: Program) -> bool:
    """Whether a program has no fields, so that its value is the same for all records."""
    return program[0] != "field" and all(is_constant(part) for part in program if isinstance(part, tuple) and part)


def _among(value: pa.Array | pa.Scalar, options: pa.Array) -> pa.Array | pa.Scalar:
    found = pc.is_in(value, value_set=options)
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def _checked(program: Program, sql: str, hint: str, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    try:
        return evaluate(program, batch)
    except pa.ArrowInvalid as error:
        problem = f"the query failed: {error} in a record: {sql}"
        raise MillraceError(Problem(problem, f"{hint}, or leave such records out by WHERE")) from None


def _guarded(condition: Program, program: Program, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    """Evaluate all records first, since few have an error; if one does, only those where the condition is true."""
    with suppress(MillraceError):
        return evaluate(program, batch)
    wanted = evaluate(condition, batch)
    if isinstance(wanted, pa.Scalar):
        wanted = pa.repeat(wanted, batch.num_rows)
    value = evaluate(program, batch.filter(wanted))
    if isinstance(value, pa.Scalar):
        return value
    position = pc.subtract(pc.cumulative_sum(wanted.cast(pa.int64())), 1)
    return value.take(pc.if_else(wanted, position, pa.scalar(None, pa.int64())))
