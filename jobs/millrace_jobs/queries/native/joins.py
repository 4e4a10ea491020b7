"""Correction of Spark's own join of two streams, where its results are not those of SQL.

- *NULL in keys.* SQL says that NULL is equal to nothing, but Spark's operator takes it for a key like others. The
  optimizer hides that where it can: from ``l.id = r.id`` it infers that only rows with an id match, and removes the
  others before the join. It infers nothing for a FULL JOIN, nor from a key such as ``nullif(id, 0)``, which is NULL for
  columns that are not. Nor does the watermark ever pass a row without an event time: such a row of an outer join would
  stay in the state, and never be emitted. Here, the condition says what follows from it: from ``a = b``, that neither
  is NULL. The operator checks a part that is about one side alone before it looks for partners. A row that fails it is
  emitted at once without a partner, or dropped, and takes no state.
- *How long rows are kept.* Spark solves every comparison in the condition for the time until when a row can find a
  partner, even if it does not compare event times. By ``l.n > 1`` in an outer join, no row is ever removed, so that
  those without a partner are never emitted. By ``r.at < l.due``, rows of ``l`` are removed by their event time when
  ``due`` is still to come, and partners are lost. Here, such comparisons are written so that Spark solves none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from millrace_jobs.queries.native.event_times import EVENT_TIME, EventTimes, JavaObject, items_of, scala_object

_SOLVED = {"LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"}
"""Comparisons that Spark solves for the time until when rows are kept."""


def with_joins_of_sql(results: DataFrame) -> DataFrame:
    """Return the same query with joins of streams as SQL defines them."""
    correction = _Correction(results.sparkSession)
    analyzed = results._jdf.queryExecution().analyzed()
    chosen = EventTimes(results.sparkSession).of_plan(analyzed)
    corrected = correction.of_plan(analyzed if chosen is None else chosen) or chosen
    return results if corrected is None else correction.as_rows(corrected)


class _Correction:
    """The correction of logical plans."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm: JavaObject = spark._jvm
        self._jvm, catalyst = jvm, jvm.org.apache.spark.sql.catalyst
        self._plans, self._expressions = catalyst.plans.logical, catalyst.expressions
        rules = ("ReplaceExpressions", "RewriteWithExpression")  # by which the optimizer replaces BETWEEN and others
        self._rules = [scala_object(catalyst.optimizer, name) for name in rules]
        self._constraints = scala_object(catalyst.optimizer, "InferFiltersFromConstraints")
        self._sets = scala_object(catalyst.expressions, "ExpressionSet")

    def as_rows(self, plan: JavaObject) -> DataFrame:
        """Return the DataFrame of a plan."""
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame  # the only one with a JVM behind it

        datasets = scala_object(self._jvm.org.apache.spark.sql.classic, "Dataset")
        return ClassicDataFrame(datasets.ofRows(self._spark._jsparkSession, plan), self._spark)

    def of_plan(self, plan: JavaObject) -> JavaObject | None:
        """Return the corrected plan, or None if no streams are joined in it."""
        children = list(items_of(plan.children()))
        corrected = [self.of_plan(child) for child in children]
        if any(child is not None for child in corrected):
            children = [old if new is None else new for old, new in zip(children, corrected, strict=True)]
            plan = plan.withNewChildren(self._jvm.PythonUtils.toSeq(children))
        elif plan.nodeName() != "Join" or not all(child.isStreaming() for child in children):
            return None
        if plan.nodeName() == "Join" and plan.condition().isDefined():
            condition = self._jvm.scala.Some(self._corrected(plan.condition().get(), plan))
            return self._plans.Join(plan.left(), plan.right(), plan.joinType(), condition, plan.hint())
        if plan.nodeName() == "Filter":  # the optimizer makes it part of the join below
            return self._plans.Filter(self._corrected(plan.condition(), plan), plan.child())
        return plan

    def _corrected(self, condition: JavaObject, plan: JavaObject) -> JavaObject:
        """Return the condition of a join or a filter, which means the same to Spark as in SQL."""
        parts = self._parts(condition, plan)
        checks = list(self._never_null(parts, plan))
        kept = [self._unsolved(part) if _is_misread(part, plan) else part for part in parts]
        return reduce(self._expressions.And, [*kept, *map(self._expressions.IsNotNull, checks)])

    def _parts(self, condition: JavaObject, plan: JavaObject) -> list[JavaObject]:
        """Return the parts of a conjunction, with BETWEEN as two of them where it compares columns themselves."""
        simple = plan
        for rule in self._rules:
            simple = rule.apply(simple)
        if simple.nodeName() == plan.nodeName():  # otherwise below a projection, which computes what is compared
            condition = simple.condition().get() if plan.nodeName() == "Join" else simple.condition()
        return list(items_of(self._constraints.splitConjunctivePredicates(condition)))

    def _never_null(self, parts: list[JavaObject], plan: JavaObject) -> Iterator[JavaObject]:
        """Yield what is not NULL where all parts of a condition hold: columns, and keys made of them."""
        conditions = self._sets.apply(self._jvm.PythonUtils.toSeq(parts))
        for check in items_of(self._constraints.constructIsNotNullConstraints(conditions, plan.output())):
            yield check.child()
        for part in parts:
            if part.nodeName() == "EqualTo":
                yield from (each for each in (part.left(), part.right()) if each.children().nonEmpty())

    def _unsolved(self, comparison: JavaObject) -> JavaObject:
        """Return a comparison in a form that the optimizer leaves as it is: whether a CASE that asks it is not NULL."""
        literals = self._expressions.Literal
        null = literals(None, self._jvm.org.apache.spark.sql.types.DataTypes.BooleanType)
        asked = self._expressions.If(comparison, literals(True, null.dataType()), null)
        return self._expressions.AtLeastNNonNulls(1, self._jvm.PythonUtils.toSeq([asked]))


def _is_misread(part: JavaObject, plan: JavaObject) -> bool:
    """Whether Spark would take a part of a condition for a limit on event time that it is not."""
    columns = part.references()
    is_timed = [column.metadata().contains(EVENT_TIME) for column in items_of(columns)]
    if part.nodeName() in _SOLVED and any(is_timed) and not all(is_timed):
        return True
    if plan.nodeName() != "Join" or plan.joinType().sql() not in ("LEFT OUTER", "RIGHT OUTER", "FULL OUTER"):
        return False  # elsewhere, the optimizer evaluates a part that is about one side before the join
    return bool(is_timed) and any(columns.subsetOf(side.outputSet()) for side in (plan.left(), plan.right()))
