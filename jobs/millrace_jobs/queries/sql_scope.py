"""What a query's SQL may be to Spark: one query over its sources that, where a policy says so, stays within the SQL.

The checks before Spark read the text by another parser. Where the two differ, as in comments, Spark could find a
command where that one found a SELECT, and it carries commands out at once. So its plan is checked before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.outside import XSD_OPTION, OutsideFunction, outside_problem
from millrace_jobs.confinement import confinement

_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\] ")
_POSITION = re.compile(r"line (\d+)[, ]+pos(?:ition)? (\d+)")

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_STATEMENTS = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.CompoundBody")
"""Classes of plans that are no query. EXECUTE IMMEDIATE is none of them, and is carried out by the analysis itself."""

_OWN_LEAVES = frozenset({"CTERelationRef", "LocalRelation", "LogicalRDD", "OneRowRelation", "Range", "UnionLoopRef"})
"""Classes of leaves of a plan that are sources, which are views of data in memory, or values of the SQL itself."""

_AVRO, _PROTOBUF = "org.apache.spark.sql.avro", "org.apache.spark.sql.protobuf"
_REFLECTION = (OutsideFunction.REFLECT, OutsideFunction.JAVA_METHOD, OutsideFunction.TRY_REFLECT)
_OUTSIDE: dict[str, tuple[OutsideFunction, ...]] = {
    "AvroDataToCatalyst": (OutsideFunction.FROM_AVRO,),
    "CallMethodViaReflection": _REFLECTION,
    "CatalystDataToProtobuf": (OutsideFunction.TO_PROTOBUF,),
    "FromAvro": (OutsideFunction.FROM_AVRO,),
    "FromProtobuf": (OutsideFunction.FROM_PROTOBUF,),
    "ProtobufDataToCatalyst": (OutsideFunction.FROM_PROTOBUF,),
    "SchemaOfAvro": (OutsideFunction.SCHEMA_OF_AVRO,),
    "ScriptTransformation": (OutsideFunction.TRANSFORM_USING,),
    "ToProtobuf": (OutsideFunction.TO_PROTOBUF,),
    "TryReflect": (OutsideFunction.TRY_REFLECT,),
}
"""Classes of nodes that reach outside the SQL, each with the functions that make it: one of them has to be allowed."""

_XML = frozenset({"SchemaOfXml", "XmlToStructs"})
"""Classes of expressions with the options of an XML reader."""

_XML_OPTIONS = {"from_xml": 2, "schema_of_xml": 1}
"""Position of the options among the arguments of these functions."""

_COMPUTED_NAMES = frozenset({"ExpressionWithUnresolvedIdentifier", "PlanWithUnresolvedIdentifier"})
"""Classes of what ``IDENTIFIER(...)`` is in a parsed plan."""


def check_scope(spark: SparkSession, sql: str) -> None:
    """Check that Spark takes a text for one query over the sources, which it may use; nothing of it is carried out.

    Raises:
        MillraceError: it does not.
        AnalysisException, ParseException: Spark does not accept the SQL.
    """
    session: Any = spark._jsparkSession.sessionState()
    jvm: Any = spark._jvm
    known: dict[str, bool] = {}
    parsed = session.sqlParser().parsePlan(sql)
    if _is_statement(spark, parsed, known) or not _begins_as_query(session, sql):
        raise _not_a_query()
    _require_allowed(parsed, _called)
    without_effect = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    plan = session.executePlan(parsed, without_effect).analyzed()
    for node in _plans(plan):
        if _is_statement(spark, node, known):
            raise _not_a_query()
        if node.children().isEmpty() and _class(node) not in _OWN_LEAVES:
            message = f"the SQL reads {' '.join(node.simpleString(10).split())}, which is not one of the sources"
            raise MillraceError(Problem(message, "read sources only", field="spec.query.sql"))
    _require_allowed(plan, _resolved)


def check_functions(frame: DataFrame) -> None:
    """Check that the plan of a query, with all that Millrace has made of its SQL, uses only functions that it may.

    Raises:
        MillraceError: it uses another one that reaches outside the SQL.
    """
    _require_allowed(frame._jdf.queryExecution().analyzed(), _resolved)


def sql_problem(error: AnalysisException | ParseException) -> Problem:
    """Return Spark's own message with its place in the SQL, but without error class, plan and stack."""
    text, _, rest = str(error).partition(" SQLSTATE:")
    message = _ERROR_CLASS.sub("", text).split("\n== SQL")[0].split(";\n")[0]
    place = _POSITION.search(rest or text)
    at = f" at line {place.group(1)}, column {int(place.group(2)) + 1}" if place else ""
    reason = " ".join(message.split()).rstrip(".;")
    return Problem(f"Spark does not accept the SQL{at}: {reason}", field="spec.query.sql")


def _require_allowed(plan: Any, functions_of: Callable[[Any], tuple[OutsideFunction, ...]]) -> None:
    """Raise MillraceError if a plan has a function that its confinement does not allow."""
    confined = confinement()
    if confined is None:
        return
    for node in _plans(plan):
        expressions = (each for top in _list(node.expressions()) for each in _tree(top))
        for each in (node, *expressions):
            found = functions_of(each)
            if found and not any(one in confined.functions for one in found):
                problem = outside_problem(found[0])
                message = f"{problem.message}, which is not allowed here"
                raise MillraceError(Problem(message, problem.hint, field="spec.query.sql"))


def _called(node: Any) -> tuple[OutsideFunction, ...]:
    """Return what a node of a parsed plan is by its name: the analysis computes constants, which are then gone."""
    kind = _class(node)
    if kind in _COMPUTED_NAMES:
        return (OutsideFunction.IDENTIFIER,)
    if kind != "UnresolvedFunction":
        return ()
    name = _name(node)
    if name in _XML_OPTIONS:
        options = _list(node.arguments())[_XML_OPTIONS[name] :]
        plain = all(_is_plain_option(part) for option in options for part in _tree(option))
        return () if plain else (OutsideFunction.XML_SCHEMA_FILE,)
    return (OutsideFunction(name),) if name in frozenset(OutsideFunction) else ()


def _is_plain_option(part: Any) -> bool:
    """Return whether a part of ``map('mode', 'FAILFAST')`` is written out and does not name a schema."""
    if _class(part) == "Literal":
        return str(part.toString()).lower() != XSD_OPTION
    return _class(part) == "UnresolvedFunction" and _name(part) == "map"


def _name(function: Any) -> str:
    return str(_list(function.nameParts())[-1]).lower()


def _resolved(node: Any) -> tuple[OutsideFunction, ...]:
    """Return the functions one of which has made a node of an analyzed plan, if they reach outside the SQL."""
    name = _class(node)
    if name in _XML and XSD_OPTION in str(node.options().toString()).lower():
        return (OutsideFunction.XML_SCHEMA_FILE,)
    return _OUTSIDE.get(name, ())


def _plans(plan: Any) -> Iterator[Any]:
    """Yield all nodes of a plan, and of the plans of its subqueries and CTEs."""
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        yield node
        nodes += [*_list(node.children()), *_list(node.subqueries())]
        if _class(node) == "UnresolvedWith":
            nodes += _list(node.innerChildren())


def _tree(root: Any) -> Iterator[Any]:
    """Yield an expression, and all expressions below it."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        yield node
        nodes += _list(node.children())


def _list(sequence: Any) -> list[Any]:
    """Return the entries of a Scala sequence; to look up Scala's converters takes a hundred times as long."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _is_statement(spark: SparkSession, node: Any, known: dict[str, bool]) -> bool:
    """Return whether a plan is no query; ``known`` has the answers by class, since each takes milliseconds."""
    kind = str(node.getClass().getName())
    if kind not in known:
        gateway = spark.sparkContext._gateway
        known[kind] = any(is_instance_of(gateway, node, name) for name in _STATEMENTS)
    return known[kind]


def _begins_as_query(session: Any, sql: str) -> bool:
    """Return whether Spark's grammar has a query at the start of a text that it takes for one statement."""
    try:
        session.sqlParser().parseQuery(sql)
    except ParseException:
        return False
    return True


def _not_a_query() -> MillraceError:
    message = "the SQL is a command or a script to Spark, perhaps by a comment that ends in a backslash"
    return MillraceError(Problem(message, "write one SELECT statement", field="spec.query.sql"))
