"""String functions: letter case and substrings."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millrace_jobs.pipeline.expressions.compiled import Compile, Compiled, Rule, call, is_integer
from millrace_jobs.pipeline.programs import is_constant

_MAX_INT = 2**31 - 1


def letters(function: str) -> Rule:
    """Return the rule for ``upper`` or ``lower``."""

    def rule(node: exp.Expr, compile_: Compile) -> Compiled | None:
        text = node.this.unnest()
        inner = compile_(text)
        if inner is None or inner.type != pa.string():
            return None
        if isinstance(text, exp.Upper | exp.Lower) and not is_constant(inner.program):
            # Spark's optimizer replaces lower(upper(x)) with lower(x), even where they differ.
            return rule(text, compile_)
        return call(function, pa.string(), inner)

    return rule


def substring(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``substring(text, position[, length])`` with literal numbers; characters are code points.

    Positions count from 1, and 0 means 1. Negative positions count from the end and may lie before the start of the
    text: in ``substring('ab', -3, 2)`` the first of the two characters is missing.
    """
    text, position = compile_(node.this), _integer(node.args["start"], compile_)
    length = _MAX_INT
    if node.args.get("length") is not None:
        given = _integer(node.args["length"], compile_)
        if given is None:
            return None
        length = max(given, 0)
    if text is None or text.type != pa.string() or position is None:
        return None
    start = position - 1 if position > 0 else position
    stop: int | None = start + length
    if stop is not None and (stop > _MAX_INT or (start < 0 <= stop)):
        stop = None
    return Compiled(("slice", text.program, start, start if length == 0 else stop), pa.string(), text.raises)


def _integer(node: exp.Expr, compile_: Compile) -> int | None:
    """Return the value of a literal INT; None for anything else."""
    compiled = compile_(node)
    if compiled is None or not compiled.is_literal or not is_integer(compiled.type) or compiled.value is None:
        return None
    value = int(compiled.value)
    return value if abs(value) <= _MAX_INT else None
