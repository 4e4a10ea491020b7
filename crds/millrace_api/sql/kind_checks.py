"""Checks of types, as far as they follow from declared columns and literals: numbers, texts, times and truth values.

Spark's own analyzer knows all types, and runs in ``millrace explain`` and at every start. What is unknown here passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Literal

from sqlglot import exp

from millrace_api.errors import Problem
from millrace_api.sql.dialect import problem_at, start_of, to_sql

Kind = Literal["number", "text", "boolean", "time", "date", "binary", "collection"]

KindOf = Callable[[exp.Column], Kind | None]
"""Function that returns the kind of a column; None if it is unknown."""

_SUMS = (exp.Sum, exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)
_CONDITIONS = (*_COMPARISONS, exp.And, exp.Or, exp.Not, exp.Between, exp.In, exp.Is, exp.Like, exp.Exists)
_FIXED: tuple[tuple[type[exp.Expr], Kind], ...] = (
    (exp.Boolean, "boolean"), (exp.Count, "number"), (exp.CountIf, "number"), (exp.LogicalOr, "boolean"),
    (exp.LogicalAnd, "boolean"), (exp.Array, "collection"), (exp.ArrayAgg, "collection"),
    (exp.ArrayUniqueAgg, "collection"),
)  # fmt: skip
_BOOLEANS = ("count_if", "bool_or", "bool_and", "every", "some")


def kind_of_type(spark_type: str) -> Kind | None:
    """Return the kind of a type such as ``DECIMAL(10,2)``; None for nested types."""
    name = spark_type.upper().partition("(")[0]
    if name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"):
        return "number"
    others: dict[str, Kind] = {"STRING": "text", "BOOLEAN": "boolean", "TIMESTAMP": "time", "DATE": "date",
                               "TIMESTAMP_NTZ": "time", "BINARY": "binary"}  # fmt: skip
    return others.get(name)


def kind_problems(text: str, nodes: Iterable[exp.Expr], kind_of_column: KindOf) -> Iterator[Problem]:
    """Yield the expressions that Spark refuses, or that fail for any record, because of their types.

    Args:
        text: the SQL.
        nodes: all nodes of the query.
        kind_of_column: gives the kinds of columns.
    """
    check = _KindCheck(kind_of_column)
    for node in nodes:
        found = check.problem(node)
        if found is not None:
            at, message, hint = found
            yield problem_at(text, at.meta.get("start", start_of(at)), message, hint)


def kind_of(node: exp.Expr, kind_of_column: KindOf) -> Kind | None:
    """Return the kind of an expression; None if it is unknown."""
    return _KindCheck(kind_of_column)._kind(node)


class _KindCheck:
    def __init__(self, kind_of_column: KindOf) -> None:
        self._of_column = kind_of_column

    def problem(self, node: exp.Expr) -> tuple[exp.Expr, str, str] | None:
        """Return what is wrong with one node: where, the message and the hint."""
        for condition in _conditions_of(node):
            kind = self._kind(condition)
            is_connected = isinstance(node, exp.Connector | exp.Not)
            if kind not in (None, "boolean") and not (is_connected and kind == "text"):
                message = f"the condition {to_sql(condition)} is a {kind}, not true or false"
                return condition, message, f"compare it, as in {to_sql(condition)} IS NOT NULL"
        if isinstance(node, _SUMS):
            return self._sum(node)
        if isinstance(node, _ARITHMETIC):
            return self._arithmetic(node)
        if isinstance(node, (*_COMPARISONS, exp.Between, exp.In, exp.Case)) or _is_coalesce(node):
            return self._mixed(node)
        return None

    def _sum(self, node: exp.Expr) -> tuple[exp.Expr, str, str] | None:
        value = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
        kind = self._kind(value)
        if kind == "text" and isinstance(value, exp.Column):
            hint = f"write {node.key}(CAST({to_sql(value)} AS DOUBLE)) if its texts are numbers, or try_cast"
            return node, f"{to_sql(node)} is over {to_sql(value)}, which is a text", hint
        is_time = kind == "time" and not isinstance(node, exp.Sum | exp.Avg)  # those take a time for its seconds
        if is_time or kind in ("boolean", "date", "binary", "collection"):
            hint = f"write count_if({to_sql(value)})" if kind == "boolean" else "aggregate a number"
            return node, f"{to_sql(node)} is over a {kind}", hint
        return None

    def _arithmetic(self, node: exp.Expr) -> tuple[exp.Expr, str, str] | None:
        kinds = [self._kind(node.this), self._kind(node.expression)]
        for kind, other in (kinds, reversed(kinds)):
            wrong = kind == "boolean" and other is not None
            wrong |= kind in ("time", "binary") and other == "number"
            multiplies = not isinstance(node, exp.Add | exp.Sub)
            wrong |= multiplies and kind in ("time", "date", "binary") and other is not None
            wrong |= kind == "date" and other == "number" and not isinstance(node, exp.Add | exp.Sub)
            if wrong:
                hint = "write an INTERVAL, such as INTERVAL 1 HOUR" if kind in ("time", "date") else "write a CAST"
                return node, f"{to_sql(node)} calculates with a {kind} and a {other}", hint
        return None

    def _mixed(self, node: exp.Expr) -> tuple[exp.Expr, str, str] | None:
        kinds = dict.fromkeys(filter(None, (self._kind(part) for part in _alike(node))))
        for one, other in pairwise(kind for kind in kinds if kind != "text"):
            if {one, other} != {"time", "date"}:
                return node, f"{to_sql(node)} mixes a {one} and a {other}", "write a CAST"
        return None

    def _kind(self, node: exp.Expr | None) -> Kind | None:
        if node is None:
            return None
        node = node.unnest()
        if isinstance(node, exp.Column):
            is_bound = node.table.lower() in ("window", "session_window") and node.name.lower() in ("start", "end")
            return "time" if is_bound else self._of_column(node)
        if isinstance(node, exp.Literal):
            return "text" if node.is_string else "number"
        for kind_of_node, kind in _FIXED:
            if isinstance(node, kind_of_node):
                return kind
        if isinstance(node, _CONDITIONS):
            return "boolean"
        if isinstance(node, exp.Cast):
            return kind_of_type(node.to.sql(dialect="spark"))
        if isinstance(node, exp.Max | exp.Min | exp.ArgMax | exp.ArgMin | exp.AnyValue | exp.First):
            return self._kind(node.this)
        if isinstance(node, exp.Upper | exp.Lower | exp.DPipe):
            return "text"
        if isinstance(node, exp.Sum | exp.Avg | exp.ApproxDistinct):
            return "number"
        if isinstance(node, exp.Filter):
            return self._kind(node.this)
        if isinstance(node, _ARITHMETIC):
            kinds = {self._kind(node.this), self._kind(node.expression)}
            return "number" if kinds <= {"number", "text"} and "number" in kinds else None
        if isinstance(node, exp.Anonymous) and node.name.lower() in _BOOLEANS[1:]:
            return "boolean"
        return None


def _conditions_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a node that have to be true or false."""
    if isinstance(node, exp.Where | exp.Having | exp.Not | exp.CountIf | exp.LogicalOr | exp.LogicalAnd):
        yield node.this
    elif isinstance(node, exp.And | exp.Or):
        yield from (node.this, node.expression)
    elif isinstance(node, exp.Join) and node.args.get("on") is not None:
        yield node.args["on"]
    elif isinstance(node, exp.If) and not isinstance(node.parent, exp.Case):
        yield node.this
    elif isinstance(node, exp.Case) and node.this is None:
        yield from (branch.this for branch in node.args["ifs"])
    elif isinstance(node, exp.Anonymous) and node.name.lower() in _BOOLEANS and node.expressions:
        yield node.expressions[0]


def _is_coalesce(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in ("coalesce", "nvl", "ifnull")


def _alike(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a node whose types have to fit together."""
    if isinstance(node, exp.Between):
        yield from (node.this, node.args["low"], node.args["high"])
    elif isinstance(node, exp.In):
        yield from (node.this, *node.expressions)
    elif isinstance(node, exp.Case):
        yield from (branch.args["true"] for branch in node.args["ifs"])
        if node.args.get("default") is not None:
            yield node.args["default"]
    elif isinstance(node, exp.Anonymous):
        yield from node.expressions
    else:
        yield from (node.this, node.expression)
