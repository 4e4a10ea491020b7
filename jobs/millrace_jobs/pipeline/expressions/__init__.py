"""SQL expressions that Arrow computes exactly as Spark does, so that a replica needs no round trip through the JVM.

``compiler`` has the entry points and dispatches to one module per family of expressions. When Arrow's semantics differ
from Spark's (NaN, three-valued logic, letter case, evaluation order), the compiled program follows Spark. An expression
that cannot follow Spark exactly is left to Spark.
"""
