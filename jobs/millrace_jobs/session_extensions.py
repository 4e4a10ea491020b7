"""A new session of Spark, without the functions on vectors of Spark's MLlib until a query uses them.

Spark applies every extension that a jar on its class path provides. Of its own jars only MLlib's does: to register
functions on vectors, it starts Scala's reflection, which takes a tenth of the JVM's processor time of a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

_PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
_COMPANION = "org$apache$spark$sql$classic$SparkSession$$"
"""Prefix of the Scala object's private methods in the byte code."""


def new_session(settings: Mapping[str, str]) -> SparkSession:
    """Return the session of this process, as ``SparkSession.builder.getOrCreate`` does; make it if there is none.

    Args:
        settings: Spark settings; ``spark.sql.extensions`` names extensions, which are applied.
    """
    current = SparkSession._instantiatedSession
    if current is None or current.sparkContext._jsc is None:
        context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        if _only_mllib_provides(context._jvm):
            return SparkSession(context, _java_session(context, settings))
    return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def register_vector_functions() -> None:
    """Register MLlib's functions on vectors for all sessions of this process, unless that was done before."""
    context = SparkContext._active_spark_context
    if context is not None:
        virtual_machine: Any = context._jvm
        virtual_machine.org.apache.spark.sql.ml.InternalFunctionRegistration().apply(None)


def _only_mllib_provides(virtual_machine: Any) -> bool:
    """Return whether no jar but Spark's MLlib provides extensions."""
    loader = virtual_machine.java.lang.Thread.currentThread().getContextClassLoader()
    found, names = loader.getResources(_PROVIDERS), []
    while found.hasMoreElements():
        names.append(found.nextElement().toString())
    return all("/spark-mllib_" in name for name in names)


def _java_session(context: SparkContext, settings: Mapping[str, str]) -> Any:
    """Return a new session of the JVM with the extensions that the settings name."""
    virtual_machine: Any = context._jvm
    classic = virtual_machine.org.apache.spark.sql.classic
    companion = getattr(getattr(classic, "SparkSession$"), "MODULE$")
    spark = context._jsc.sc()
    extensions = virtual_machine.org.apache.spark.sql.SparkSessionExtensions()
    getattr(companion, f"{_COMPANION}applyExtensions")(spark, extensions)
    scala, none = virtual_machine.PythonUtils, getattr(getattr(virtual_machine.scala, "None$"), "MODULE$")
    options = scala.toScalaMap(dict(settings))
    return classic.SparkSession(spark, none, none, extensions, options, scala.toScalaMap({}))
