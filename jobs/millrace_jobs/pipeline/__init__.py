"""The data path of a query in Spark: source, decode, route, combine, merge, emit.

Imports sources, sinks, plan, aggregates and what is below them; imported by checkpoint, display, run and pod.
"""
