"""What a query's SQL may be to Spark: one query over its sources that, where a policy says so, stays within the SQL.

The checks before Spark read the text by another parser. Where the two differ, as in comments, Spark could find a
command where that one found a SELECT, and it carries commands out at once. So its plan is checked before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.outside import XSD_OPTION, OutsideFunction, outside_problem
from millrace_jobs.confinement import confinement

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_STATEMENTS = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.CompoundBody")
"""Classes of plans that are no query. EXECUTE IMMEDIATE is none of them, and is carried out by the analysis itself."""

_OWN_LEAVES = frozenset({"CTERelationRef", "LocalRelation", "LogicalRDD", "OneRowRelation", "Range"})
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

_XML = frozenset({"SchemaOfXml", "XmlToStructs", "XmlToStructsEvaluator", "SchemaOfXmlEvaluator"})
"""Classes of expressions with the options of an XML reader."""


def check_scope(spark: SparkSession, sql: str) -> None:
    """Check that Spark takes a text for one query over the sources, which it may use; nothing of it is carried out.

    Raises:
        MillraceError: it does not.
        AnalysisException, ParseException: Spark does not accept the SQL.
    """
    session: Any = spark._jsparkSession.sessionState()
    jvm: Any = spark._jvm
    parsed = session.sqlParser().parsePlan(sql)
    if _is_statement(spark, parsed) or not _begins_as_query(session, sql):
        raise _not_a_query()
    without_effect = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    plan = session.executePlan(parsed, without_effect).analyzed()
    for part in _with_subqueries(spark, plan):
        for node in _tree(spark, part):
            if _is_statement(spark, node):
                raise _not_a_query()
        for leaf in _list(spark, part.collectLeaves()):
            if _class(leaf) not in _OWN_LEAVES:
                message = f"the SQL reads {' '.join(leaf.simpleString(10).split())}, which is none of the sources"
                raise MillraceError(Problem(message, "read sources only", field="spec.query.sql"))
    _check_functions(spark, plan)


def check_functions(frame: DataFrame) -> None:
    """Check that the plan of a query, with all that Millrace has made of its SQL, uses only functions that it may.

    Raises:
        MillraceError: it uses another one that reaches outside the SQL.
    """
    if confinement() is not None:
        _check_functions(frame.sparkSession, frame._jdf.queryExecution().analyzed())


def _check_functions(spark: SparkSession, plan: Any) -> None:
    confined = confinement()
    if confined is None:
        return
    for part in _with_subqueries(spark, plan):
        for node in _tree(spark, part):
            expressions = (each for top in _list(spark, node.expressions()) for each in _tree(spark, top))
            for each in (node, *expressions):
                found = _functions_of(each)
                if found and not any(one in confined.functions for one in found):
                    problem = outside_problem(found[0])
                    raise MillraceError(
                        Problem(f"{problem.message}, which is not allowed here", problem.hint, field="spec.query.sql")
                    )


def _functions_of(node: Any) -> tuple[OutsideFunction, ...]:
    name = _class(node)
    if name in _XML and XSD_OPTION in str(node.options().toString()).lower():
        return (OutsideFunction.XML_SCHEMA_FILE,)
    return _OUTSIDE.get(name, ())


def _with_subqueries(spark: SparkSession, plan: Any) -> list[Any]:
    return [plan, *_list(spark, plan.subqueriesAll())]


def _tree(spark: SparkSession, root: Any) -> Iterator[Any]:
    """Yield a node of a plan or an expression, and all nodes below it."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        yield node
        nodes += _list(spark, node.children())


def _list(spark: SparkSession, sequence: Any) -> Iterable[Any]:
    jvm: Any = spark._jvm
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(sequence))


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _is_statement(spark: SparkSession, node: Any) -> bool:
    gateway = spark.sparkContext._gateway
    return any(is_instance_of(gateway, node, name) for name in _STATEMENTS)


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
