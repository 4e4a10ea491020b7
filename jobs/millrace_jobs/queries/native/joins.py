"""Correction of Spark's own joins of streams, where their results are not those of SQL, or they cannot run.

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

An operator above such a join, such as another one or a GROUP BY, does not know by which event time to remove its state,
and fails in its first batch: every column that comes from a source's watermark is event time to Spark, and a join of
streams has those of both sides. Here, the operator has the one that its condition compares with the event time of the
other side, or that it groups by; the other ones become columns like any. That is safe: Spark's watermark of a join's
result is behind both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace_jobs.windows import EVENT_TIME

JavaObject = Any
"""An object of Spark's JVM."""

_OUTER = {"LEFT OUTER": (1,), "RIGHT OUTER": (0,), "FULL OUTER": (0, 1)}
"""Places of the inputs of a join whose columns are NULL in rows without a partner."""

_SOLVED = {"LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"}
"""Comparisons that Spark solves for the time until when rows are kept."""


def with_joins_of_sql(results: DataFrame) -> DataFrame:
    """Return the same query with joins of streams as SQL defines them."""
    correction = _Correction(results.sparkSession)
    analyzed = results._jdf.queryExecution().analyzed()
    chosen = _EventTimeChoice(results.sparkSession).of_plan(analyzed)
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
        self._rules = [_scala_object(catalyst.optimizer, name) for name in rules]
        self._constraints = _scala_object(catalyst.optimizer, "InferFiltersFromConstraints")
        self._sets = _scala_object(catalyst.expressions, "ExpressionSet")

    def as_rows(self, plan: JavaObject) -> DataFrame:
        """Return the DataFrame of a plan."""
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame  # the only one with a JVM behind it

        datasets = _scala_object(self._jvm.org.apache.spark.sql.classic, "Dataset")
        return ClassicDataFrame(datasets.ofRows(self._spark._jsparkSession, plan), self._spark)

    def of_plan(self, plan: JavaObject) -> JavaObject | None:
        """Return the corrected plan, or None if no streams are joined in it."""
        children = list(_items_of(plan.children()))
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
        return list(_items_of(self._constraints.splitConjunctivePredicates(condition)))

    def _never_null(self, parts: list[JavaObject], plan: JavaObject) -> Iterator[JavaObject]:
        """Yield what is not NULL where all parts of a condition hold: columns, and keys made of them."""
        conditions = self._sets.apply(self._jvm.PythonUtils.toSeq(parts))
        for check in _items_of(self._constraints.constructIsNotNullConstraints(conditions, plan.output())):
            yield check.child()
        for part in parts:
            if part.nodeName() == "EqualTo":
                yield from (each for each in (part.left(), part.right()) if each.children().nonEmpty())

    def _unsolved(self, comparison: JavaObject) -> JavaObject:
        """Return a comparison in a form that the optimizer leaves as it is: whether a CASE that asks it is not NULL."""
        literals = self._expressions.Literal
        null = literals(None, self._jvm.org.apache.spark.sql.types.DataTypes.BooleanType)
        condition = self._expressions.If(comparison, literals(True, null.dataType()), null)
        return self._expressions.AtLeastNNonNulls(1, self._jvm.PythonUtils.toSeq([condition]))


def _is_misread(part: JavaObject, plan: JavaObject) -> bool:
    """Whether Spark would take a part of a condition for a limit on event time that it is not."""
    columns = part.references()
    is_timed = [column.metadata().contains(EVENT_TIME) for column in _items_of(columns)]
    if part.nodeName() in _SOLVED and any(is_timed) and not all(is_timed):
        return True
    if plan.nodeName() != "Join" or plan.joinType().sql() not in ("LEFT OUTER", "RIGHT OUTER", "FULL OUTER"):
        return False  # elsewhere, the optimizer evaluates a part that is about one side before the join
    return bool(is_timed) and any(columns.subsetOf(side.outputSet()) for side in (plan.left(), plan.right()))


@dataclass(frozen=True)
class _Above:
    """What stands above a plan: the ids of the columns that are read from it, and the conditions of inner joins."""

    columns: frozenset[int]
    conditions: tuple[JavaObject, ...] = ()


@dataclass(frozen=True)
class _Chosen:
    """A plan, and those of its columns that are others than before, by their former ids."""

    plan: JavaObject
    changed: dict[int, JavaObject]


class _EventTimeChoice:
    """The choice of event times in logical plans."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: JavaObject = spark._jvm
        self._jvm, catalyst = jvm, jvm.org.apache.spark.sql.catalyst
        self._plans, self._expressions = catalyst.plans.logical, catalyst.expressions
        self._ids = _scala_object(catalyst.expressions, "NamedExpression")
        self._constraints = _scala_object(catalyst.optimizer, "InferFiltersFromConstraints")

    def of_plan(self, plan: JavaObject) -> JavaObject | None:
        """Return the plan in which no stateful operator reads two event times, or None if that is so already."""
        chosen = self._chosen(plan, _Above(frozenset(_id(each) for each in _items_of(plan.output()))))
        return None if chosen.plan.fastEquals(plan) else chosen.plan

    def _chosen(self, plan: JavaObject, above: _Above) -> _Chosen:
        if not plan.isStreaming():
            return _Chosen(plan, {})
        below = self._below(plan, above)
        inputs = [self._chosen(child, below) for child in _items_of(plan.children())]
        times = [[each for each in _items_of(one.plan.output()) if _is_event_time(each)] for one in inputs]
        changed = {old: new for one in inputs for old, new in one.changed.items()}
        rebuilt = self._rebuilt(plan, [one.plan for one in inputs], changed)
        if plan.nodeName() in ("Join", "Aggregate", "Distinct") and any(len(each) > 1 for each in times):
            for place, candidates in enumerate(times):
                kept = self._kept(rebuilt, place, candidates, below)
                inputs[place] = self._without(inputs[place].plan, [one for one in candidates if _id(one) not in kept])
            more = {old: new for one in inputs for old, new in one.changed.items()}
            rebuilt = self._rebuilt(rebuilt, [one.plan for one in inputs], more)
        pairs = zip(_items_of(plan.output()), _items_of(rebuilt.output()), strict=True)
        return _Chosen(rebuilt, {_id(old): new for old, new in pairs
                                 if _id(old) != _id(new) or _is_event_time(old) != _is_event_time(new)})  # fmt: skip

    def _below(self, plan: JavaObject, above: _Above) -> _Above:
        """Return what stands above the inputs of a plan."""
        kind = plan.nodeName()
        if kind in ("Project", "Aggregate"):
            items = plan.projectList() if kind == "Project" else plan.aggregateExpressions()
            read = {_id(each) for item in _items_of(items) if _id(item) in above.columns
                    for each in _items_of(item.references())}  # fmt: skip
            groups = plan.groupingExpressions() if kind == "Aggregate" else self._sequence([])
            grouped = {_id(each) for group in _items_of(groups) for each in _items_of(group.references())}
            return _Above(frozenset(read | grouped))
        if kind == "Distinct":
            return _Above(frozenset(_id(each) for each in _items_of(plan.output())))
        columns = above.columns | {_id(each) for each in _items_of(plan.references())}
        conditions = above.conditions if kind in ("Filter", "Join", "SubqueryAlias") else ()
        if kind == "Filter":
            conditions = (*conditions, *_items_of(self._constraints.splitConjunctivePredicates(plan.condition())))
        elif kind == "Join" and plan.joinType().sql() != "INNER":
            conditions = ()
        if kind == "Join" and plan.condition().isDefined():
            parts = _items_of(self._constraints.splitConjunctivePredicates(plan.condition().get()))
            conditions = (*conditions, *parts)
        return _Above(columns, conditions)

    def _kept(self, plan: JavaObject, place: int, candidates: Sequence[JavaObject], below: _Above) -> set[int]:
        """Return the ids of the candidates of one input that stay event time: the best one with its copies."""
        if len(candidates) < 2:
            return {_id(each) for each in candidates}
        if plan.nodeName() == "Join":
            others = {_id(each) for number, child in enumerate(_items_of(plan.children())) if number != place
                      for each in _items_of(child.output()) if _is_event_time(each)}  # fmt: skip
            compared = [ids for ids in map(_references, below.conditions) if ids & others]
            uses = {_id(each): sum(_id(each) in ids for ids in compared) for each in candidates}
        else:
            groups = plan.groupingExpressions() if plan.nodeName() == "Aggregate" else plan.output()
            keys = {_id(each) for each in _items_of(groups) if each.nodeName() == "AttributeReference"}
            uses = {_id(each): int(_id(each) in keys) for each in candidates}
        empty = set(_can_be_absent(_items_of(plan.children()), place))
        windows = {_id(each) for each in candidates if each.dataType().typeName() == "struct"}
        best = max(candidates, key=lambda each: (uses[_id(each)], _id(each) in windows, _id(each) not in empty,
                                                 _id(each) in below.columns))  # fmt: skip
        return {_id(best)}

    def _without(self, plan: JavaObject, times: Iterable[JavaObject]) -> _Chosen:
        """Return a plan in which some columns are no event time."""
        # the same values under a new id
        masked = {_id(each): self._alias(each, each, self._ids.newExprId()) for each in times}
        if not masked:
            return _Chosen(plan, {})
        items = [masked.get(_id(each), each) for each in _items_of(plan.output())]
        projected = self._plans.Project(self._sequence(items), plan)
        return _Chosen(projected, {old: each.toAttribute() for old, each in masked.items()})

    def _alias(self, value: JavaObject, column: JavaObject, new_id: JavaObject) -> JavaObject:
        """Return a value with the name of a column that was event time."""
        metadata = self._jvm.org.apache.spark.sql.types.MetadataBuilder().withMetadata(column.metadata())
        # without any metadata, the optimizer would take the column for the one that it renames
        marked = self._jvm.scala.Some(metadata.remove(EVENT_TIME).putBoolean("millrace.value", True).build())
        return self._expressions.Alias(value, column.name(), new_id, column.qualifier(), marked, self._sequence([]))

    def _rebuilt(
        self, plan: JavaObject, children: Sequence[JavaObject], changed: Mapping[int, JavaObject]
    ) -> JavaObject:
        """Return a plan over other inputs, some of whose columns have changed."""
        rebuilt = plan.withNewChildren(self._sequence(children))
        if not changed:
            return rebuilt
        replaced = {}
        for expression in _items_of(rebuilt.expressions()):
            for leaf in _items_of(expression.collectLeaves()):
                new = changed.get(_id(leaf)) if leaf.nodeName() == "AttributeReference" else None
                if new is not None:
                    replaced[leaf] = leaf.withExprId(new.exprId()).withMetadata(new.metadata())
        for item in _items_of(rebuilt.expressions()):
            if item.nodeName() == "Alias" and _is_event_time(item) and _references(item) & changed.keys():
                value = item.child().transform(self._rule(replaced))
                replaced[item] = self._alias(value, item, item.exprId())
        return rebuilt.transformExpressions(self._rule(replaced)) if replaced else rebuilt

    def _rule(self, replaced: Mapping[JavaObject, JavaObject]) -> JavaObject:
        """Return the partial function by which Scala replaces expressions, which a map is."""
        entries = self._jvm.java.util.HashMap()
        for old, new in replaced.items():
            entries.put(old, new)
        return self._jvm.PythonUtils.toScalaMap(entries)

    def _sequence(self, items: Iterable[JavaObject]) -> JavaObject:
        return self._jvm.PythonUtils.toSeq(list(items))


def _can_be_absent(children: Iterable[JavaObject], place: int) -> Iterator[int]:
    """Yield the ids of columns of an input that are NULL in rows of an outer join without a partner."""
    plan = list(children)[place]
    below = list(_items_of(plan.children()))
    outer = _OUTER.get(plan.joinType().sql(), ()) if plan.nodeName() == "Join" else ()
    for number, child in enumerate(below):
        if number in outer:
            yield from (_id(each) for each in _items_of(child.output()))
        else:
            yield from _can_be_absent(below, number)


def _is_event_time(column: JavaObject) -> bool:
    return bool(column.metadata().contains(EVENT_TIME))


def _references(expression: JavaObject) -> set[int]:
    return {_id(each) for each in _items_of(expression.references())}


def _id(column: JavaObject) -> int:
    return int(column.exprId().id())


def _items_of(scala_items: JavaObject) -> Iterator[JavaObject]:
    items = scala_items.iterator()
    while items.hasNext():
        yield items.next()


def _scala_object(package: JavaObject, name: str) -> JavaObject:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
