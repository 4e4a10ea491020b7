"""The aggregates of SQL: how each is combined on a worker, merged in Spark's state store, and finished.

An aggregate call is split into *parts*. A worker reduces the input column of a part (``reduce``). Spark merges the
reduced values by key in its state store (``merge``, a Spark SQL aggregate). Finally, ``finish`` turns the merged parts
into the value that Spark's own aggregate would give. Merging is associative and commutative, so any routing of the
records gives the same answer. ``initial`` is the part of a single record, for plans without routing.

An aggregator of the query's own has one part: its state, which only the operators on tables merge and finish.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_api.sql.merged_parts import AVERAGED_DIGITS
from millrace_jobs.aggregates.in_sql import SqlAggregator
from millrace_jobs.aggregates.reducing import Reduce

TypeOf = Callable[[str], str]
"""Function that returns Spark's type, as text, of a SQL expression over the source, which may be an aggregate call."""


@dataclass(frozen=True)
class Part:
    """One mergeable component of an aggregate: column ``name`` of the partial results.

    ``input`` is the SQL of the column that it is reduced from; it is empty for ``rows``, which needs no column. No SQL
    function merges means. For a mean, ``weight`` names the part with the number of values behind each mean, and the
    merged column has the sum of squared deviations of the means from their common mean.

    The part of an ``aggregator`` is its state, reduced from ``arguments``, which are SQL; it has no other SQL.
    ``fraction`` is that of a percentile, and ``limit`` the number of rows of a list.
    """

    name: str
    reduce: Reduce
    input: str
    initial: str
    merge: str
    weight: str = ""
    aggregator: SqlAggregator | None = None
    arguments: tuple[str, ...] = ()
    fraction: float = 0
    limit: int = 1


@dataclass(frozen=True)
class BuiltinAggregate:
    """An aggregate call of the query, split into parts; ``finish`` is a Spark SQL expression over the merged parts.

    ``after`` is the start of the last window, in microseconds since 1970, of which the state lacks records: there the
    value is NULL. None if it has all records of each window.
    """

    call: str
    parts: tuple[Part, ...]
    finish: str
    after: int | None = None

    def counting_after(self, start: int | None) -> BuiltinAggregate:
        """Return the aggregate with values only in windows that start after ``start``; None for all windows."""
        if start is None:
            return self
        finish = f"CASE WHEN window.start > timestamp_micros({start}L) THEN {self.finish} END"
        return replace(self, finish=finish, after=start)


def compile_aggregate(
    call: exp.Expr,
    index: int,
    type_of: TypeOf,
    *,
    tables: bool = False,
    own: Mapping[str, SqlAggregator] | None = None,
) -> BuiltinAggregate | str:
    """Split one aggregate call into parts, or return a text that says why it cannot be split.

    Args:
        call: the parsed call, possibly with ``FILTER (WHERE ...)``.
        index: number of the call in the query, which makes the names of its parts unique.
        type_of: asks Spark for the type of an expression.
        tables: whether operators on tables aggregate the rows, which compare structs and can take rows back, where
            workers cannot.
        own: the query's own aggregators, by name.
    """
    function = call.this if isinstance(call, exp.Filter) else call
    if isinstance(function, exp.AnonymousAggFunc) and own:
        if function is not call:
            return f"{to_sql(call)} has a FILTER, which aggregators of the query's own do not take"
        return _own(function, own[function.name], f"a{index}")
    chosen = ""
    if tables and isinstance(function, exp.ArgMax | exp.ArgMin) and function.args.get("count") is not None:
        return _list(call, function, f"a{index}", type_of)
    if tables and isinstance(function, exp.ArgMax | exp.ArgMin):
        function, chosen = _largest_pair(function), ".what"
    split = (_TABLE_SPLITTERS.get(type(function)) if tables else None) or _SPLITTERS.get(type(function))
    if split is None:
        mergeable = f"; builtin: {own_one} in query.aggregates has one" if (own_one := _library_has(function)) else ""
        return f"{to_sql(call)} is not one of the aggregates with a mergeable partial result{mergeable}"
    if isinstance(function.this, exp.Distinct):
        if tables and isinstance(function, exp.Count):
            return _count_distinct(call, function, f"a{index}", type_of)
        if tables and isinstance(function, exp.Sum | exp.Avg) and len(function.this.expressions) == 1:
            return _sum_distinct(call, function, f"a{index}", type_of)
        return f"{to_sql(call)} needs all values of a key in one place"
    if function.expressions:
        return f"{to_sql(call)} has more than one argument"
    value = _input(call, function)
    has_order = tables and isinstance(function, exp.Max | exp.Min) and _is_struct(type_of(value))
    if value and not has_order and not is_scalar(type_of(value)):
        return f"{to_sql(call)} is over {type_of(value)}, which workers cannot compare or add"
    if isinstance(function, exp.Avg) and _digits(type_of(value)) > AVERAGED_DIGITS:
        return f"the average of a {type_of(value).upper()} can be merged exactly only up to {AVERAGED_DIGITS} digits"
    if isinstance(function, exp.Quantile | exp.ApproxQuantile) and _fraction(function) is None:
        return f"{to_sql(call)} has a percentage that is not a number from 0 to 1"
    parts, finish = split(function, value, f"a{index}", type_of)
    return BuiltinAggregate(to_sql(call), parts, f"CAST({finish}{chosen} AS {type_of(to_sql(call))})")


def _library_has(function: exp.Expr) -> str:
    """Return the aggregator of Millrace's own that does what a function of Spark does; empty if there is none."""
    if isinstance(function, exp.Quantile | exp.ApproxQuantile | exp.Median):
        return "Quantiles"
    return "TopK" if isinstance(function, exp.ApproxTopK | exp.Mode) else ""


def _own(call: exp.AnonymousAggFunc, aggregator: SqlAggregator, name: str) -> BuiltinAggregate:
    arguments = tuple(to_sql(argument) for argument in call.expressions)
    return BuiltinAggregate(
        to_sql(call), (Part(name, "state", "", "", "", aggregator=aggregator, arguments=arguments),), name
    )


_NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double"}
_SCALARS = _NUMBERS | {"boolean", "string", "date", "timestamp", "binary"}


def is_scalar(spark_type: str) -> bool:
    """Return whether workers can group by, compare and ship values of this type."""
    return spark_type in _SCALARS or spark_type.startswith("decimal")


def is_ordered(spark_type: str) -> bool:
    """Return whether operators on tables can sort values of this type: scalars, and structs of them."""
    return is_scalar(spark_type) or _is_struct(spark_type)


def _is_struct(spark_type: str) -> bool:
    """Return whether a type is a struct of values that have an order."""
    return spark_type.startswith("struct<") and re.search(r"\b(array|map)<|\b(variant|interval)\b", spark_type) is None


def _largest_pair(function: exp.ArgMax | exp.ArgMin) -> exp.Expr:
    """Return ``max_by(what, by)`` as a maximum of pairs, the same for ``min_by``; of equal ``by``, ``what`` decides."""
    what, by = to_sql(function.this), to_sql(function.expression)
    pair = parse_expression(f"CASE WHEN ({by}) IS NOT NULL THEN named_struct('by', {by}, 'what', {what}) END")
    return exp.Max(this=pair) if isinstance(function, exp.ArgMax) else exp.Min(this=pair)


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def _digits(spark_type: str) -> int:
    """Return the number of digits of a DECIMAL type; 0 for other types."""
    found = _DECIMAL.fullmatch(spark_type)
    return int(found[1]) if found else 0


def _is_number(spark_type: str) -> bool:
    return spark_type in _NUMBERS or spark_type.startswith("decimal")


def _input(call: exp.Expr, function: exp.Expr) -> str:
    """Return the input as SQL: NULL, which every aggregate skips, for records that FILTER excludes."""
    star = isinstance(function.this, exp.Star)
    value = "1L" if star else to_sql(function.this)
    if isinstance(call, exp.Filter):
        return f"CASE WHEN {to_sql(call.expression.this)} THEN {value} END"
    return "" if star else value


def part_type(reduce: str, kind: pa.DataType) -> pa.DataType:
    """Return the type of a merged part, as in the state of Spark's own aggregate; ``kind`` is that of its input."""
    if reduce in ("rows", "count"):
        return pa.int64()
    if reduce == "has_nan":
        return pa.bool_()
    if reduce == "sum":
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(38, kind.precision + 10), kind.scale)
        return pa.int64() if pa.types.is_integer(kind) else pa.float64()
    return kind


Split = tuple[tuple[Part, ...], str]


def _part(name: str, reduce: Reduce, value: str, initial: str | None = None, merge: str = "sum") -> Part:
    return Part(name, reduce, value, initial or value, f"{merge}({name})")


def _as_double(value: str, type_of: TypeOf) -> str:
    return value if type_of(value) == "double" else f"CAST({value} AS DOUBLE)"


def _count_part(name: str, value: str) -> Part:
    if not value:
        return _part(name, "rows", "", "1L")
    return _part(name, "count", value, f"CASE WHEN ({value}) IS NULL THEN 0L ELSE 1L END")


def _count(_: exp.Expr, value: str, name: str, __: TypeOf) -> Split:
    return (_count_part(name, value),), f"coalesce({name}, 0L)"


def _sum(_: exp.Expr, value: str, name: str, type_of: TypeOf) -> Split:
    summed = value if _is_number(type_of(value)) else _as_double(value, type_of)
    return (_part(name, "sum", summed),), name


def _avg(_: exp.Expr, value: str, name: str, type_of: TypeOf) -> Split:
    """Split an average into a sum and a count.

    For a DECIMAL, Spark's own average divides the sum, which has 10 more digits, and is exact to 4 more decimal places.
    The division in SQL leaves 28 more decimal places here, minus the digits of the input. Rounding them gives the same
    value if a group has fewer than 10^(24 - digits of the input) records.
    """
    kind, total, count = type_of(value), f"{name}_sum", f"{name}_count"
    parts = (_part(total, "sum", value if _digits(kind) else _as_double(value, type_of)), _count_part(count, value))
    if _digits(kind):
        precision, scale = _DECIMAL.findall(kind)[0]
        total = f"CAST({total} AS DECIMAL({int(precision) + 10}, {scale}))"
    return parts, f"try_divide({total}, {count})"


def _min(_: exp.Expr, value: str, name: str, __: TypeOf) -> Split:
    return (_part(name, "min", value, merge="min"),), name


def _max(_: exp.Expr, value: str, name: str, type_of: TypeOf) -> Split:
    largest = _part(name, "max", value, merge="max")
    if type_of(value) not in ("float", "double"):
        return (largest,), name
    # Spark orders NaN above every number; Arrow's maximum ignores it.
    nan = _part(f"{name}_nan", "has_nan", value, f"isnan({value})", "max")
    return (largest, nan), f"CASE WHEN {nan.name} THEN double('NaN') ELSE {name} END"


def _moments(value: str, name: str, type_of: TypeOf) -> tuple[tuple[Part, ...], str, str]:
    """Return the parts of central moments, the SQL of the count, and the SQL of the summed squared deviations.

    The squared deviations are the sum of those within the partial results and those between their means (Chan, Golub,
    LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979). This avoids cancellation
    when the mean is large relative to the deviations. Means whose squares are beyond a double cannot be merged, so the
    deviations of such a value are NaN, as those of an infinite one, however the records are cut.
    """
    number = _as_double(value, type_of)
    square = f"({number}) * ({number})"
    zero = f"CASE WHEN ({number}) IS NOT NULL THEN {square} - {square} END"  # NaN for NaN and what has no finite square
    count, mean, within = f"{name}_count", f"{name}_mean", f"{name}_within"
    parts = (
        _count_part(count, value),
        Part(mean, "mean", number, number, "", weight=count),
        _part(within, "squared_deviations", number, zero),
    )
    return parts, count, f"CASE WHEN {count} > 0L THEN {within} + {mean} END"


def _variance(*, root: bool, correction: int) -> Callable[[exp.Expr, str, str, TypeOf], Split]:
    """Return the split of a variance or, with ``root``, a deviation; ``correction`` is 1 for those of a sample."""

    def split(_: exp.Expr, value: str, name: str, type_of: TypeOf) -> Split:
        parts, count, deviations = _moments(value, name, type_of)
        divisor = f"{count} - {correction}L" if correction else count
        variance = f"({deviations}) / nullif({divisor}, 0L)"
        return parts, f"sqrt({variance})" if root else variance

    return split


def _approx_count_distinct(function: exp.Expr, value: str, name: str, _: TypeOf) -> Split:
    """Split into one part: the set of distinct values, so that Spark merges its own HyperLogLog++ from them."""
    accuracy = function.args.get("accuracy")
    merge = f"approx_count_distinct({name}{', ' + to_sql(accuracy) if accuracy is not None else ''})"
    return (Part(name, "distinct", value, value, merge),), f"coalesce({name}, 0L)"


def _count_distinct(call: exp.Expr, count: exp.Count, name: str, type_of: TypeOf) -> BuiltinAggregate | str:
    """Split into one part, whose values operators on tables count; of several arguments, the value is their struct."""
    arguments = [to_sql(each) for each in count.this.expressions]
    for argument in arguments:
        if not is_scalar(type_of(argument)):
            return f"{to_sql(call)} is over {type_of(argument)}, which operators cannot compare"
    value = arguments[0]
    if len(arguments) > 1:
        fields = ", ".join(f"'value{number}', {argument}" for number, argument in enumerate(arguments))
        complete = " AND ".join(f"({argument}) IS NOT NULL" for argument in arguments)
        value = f"CASE WHEN {complete} THEN named_struct({fields}) END"
    value = _input(call, exp.Count(this=parse_expression(value)))
    return BuiltinAggregate(
        to_sql(call), (_part(name, "none", value, merge="count_distinct"),), f"coalesce({name}, 0L)"
    )


def _sum_distinct(call: exp.Expr, function: exp.Sum | exp.Avg, name: str, type_of: TypeOf) -> BuiltinAggregate | str:
    """Split a sum or an average of distinct values into parts whose values operators on tables count.

    The sum of an average of integers is that of decimals, which is exact and has no end.
    """
    (argument,) = function.this.expressions
    value, averages = to_sql(argument), isinstance(function, exp.Avg)
    kind = type_of(value)
    if not is_scalar(kind):
        return f"{to_sql(call)} is over {kind}, which operators cannot add"
    if averages and _digits(kind) > AVERAGED_DIGITS:
        return f"the average of a {kind.upper()} can be merged exactly only up to {AVERAGED_DIGITS} digits"
    if not _is_number(kind):
        value = f"CAST({value} AS DOUBLE)"
    elif averages and kind.endswith("int"):
        value = f"CAST({value} AS DECIMAL(20, 0))"
    value = _input(call, exp.Sum(this=parse_expression(value)))
    total = _part(f"{name}_sum" if averages else name, "none", value, merge="sum_distinct")
    if not averages:
        return BuiltinAggregate(to_sql(call), (total,), f"CAST({name} AS {type_of(to_sql(call))})")
    count = _part(f"{name}_count", "none", value, merge="count_distinct")
    whole = total.name if _digits(kind) else f"CAST({total.name} AS DOUBLE)"
    finish = f"CAST(try_divide({whole}, {count.name}) AS {type_of(to_sql(call))})"
    return BuiltinAggregate(to_sql(call), (total, count), finish)


_LONGEST_LIST = 100
"""Most rows of ``max_by`` and ``min_by``, of which each group has a place for all."""


def _list(call: exp.Expr, function: exp.ArgMax | exp.ArgMin, name: str, type_of: TypeOf) -> BuiltinAggregate | str:
    """Split ``max_by(what, by, k)`` into one part, the first rows of which operators on tables find."""
    count = function.args["count"]
    if not (isinstance(count, exp.Literal) and count.is_int and 1 <= int(count.name) <= _LONGEST_LIST):
        return f"{to_sql(call)} has a number of rows that is not one from 1 to {_LONGEST_LIST}"
    value = _input(call, _largest_pair(function))
    for each in (function.this, function.expression):
        kind = type_of(to_sql(each))
        if not is_ordered(kind):
            return f"{to_sql(call)} is over {kind}, which operators cannot compare"
    merge = "top" if isinstance(function, exp.ArgMax) else "bottom"
    return BuiltinAggregate(
        to_sql(call), (Part(name, "none", value, value, f"{merge}({name})", limit=int(count.name)),), name
    )


def _approx_of_table(_: exp.Expr, value: str, name: str, __: TypeOf) -> Split:
    """Split an approximate count of rows that can be taken back: the number of distinct hashes of 64 bits."""
    hashed = f"CASE WHEN ({value}) IS NOT NULL THEN xxhash64({value}) END"
    return (_part(name, "none", hashed, merge="approx_count_distinct"),), f"coalesce({name}, 0L)"


def _fraction(function: exp.Expr) -> float | None:
    """Return the share of rows that a percentile asks for; None if it is not a number from 0 to 1."""
    if isinstance(function, exp.Median):
        return 0.5
    share = function.args["quantile"]
    if not isinstance(share, exp.Literal) or share.is_string or not 0 <= float(share.name) <= 1:
        return None
    return float(share.name)


def _percentile(function: exp.Expr, value: str, name: str, type_of: TypeOf) -> Split:
    number, merge = _as_double(value, type_of), f"percentile({name})"
    return (Part(name, "none", number, number, merge, fraction=_fraction(function) or 0),), name


def _percentile_approx(function: exp.Expr, value: str, name: str, _: TypeOf) -> Split:
    return (Part(name, "none", value, value, f"percentile_approx({name})", fraction=_fraction(function) or 0),), name


def _deviation(function: str) -> Callable[[exp.Expr, str, str, TypeOf], Split]:
    """Return the split of a variance or deviation whose rows can be taken back: one part, which operators finish."""

    def split(_: exp.Expr, value: str, name: str, type_of: TypeOf) -> Split:
        return (_part(name, "none", _as_double(value, type_of), merge=function),), name

    return split


_SPLITTERS: dict[type[exp.Expr], Callable[[exp.Expr, str, str, TypeOf], Split]] = {
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Avg: _avg,
    exp.Min: _min,
    exp.Max: _max,
    exp.Stddev: _variance(root=True, correction=1),
    exp.StddevSamp: _variance(root=True, correction=1),
    exp.StddevPop: _variance(root=True, correction=0),
    exp.Variance: _variance(root=False, correction=1),
    exp.VariancePop: _variance(root=False, correction=0),
    exp.ApproxDistinct: _approx_count_distinct,
}

_TABLE_SPLITTERS: dict[type[exp.Expr], Callable[[exp.Expr, str, str, TypeOf], Split]] = {
    exp.Stddev: _deviation("stddev_samp"),
    exp.StddevSamp: _deviation("stddev_samp"),
    exp.StddevPop: _deviation("stddev_pop"),
    exp.Variance: _deviation("var_samp"),
    exp.VariancePop: _deviation("var_pop"),
    exp.ApproxDistinct: _approx_of_table,
    exp.Quantile: _percentile,
    exp.Median: _percentile,
    exp.ApproxQuantile: _percentile_approx,
}
