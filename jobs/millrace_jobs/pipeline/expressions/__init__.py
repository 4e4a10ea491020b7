"""SQL expressions that Arrow computes exactly as Spark does, so that a replica needs no round trip through the JVM.

``compiler`` has the entry points, and dispatches to one module per family of expressions. Where Arrow's meaning differs
from Spark's (NaN, three-valued logic, capitals, the order of evaluation) the compiled program follows Spark; what it
cannot follow exactly is left to Spark.
"""
