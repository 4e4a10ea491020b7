"""What a query is: compiled from its spec and SQL, and run as one of three kinds, each with a folder of its own.

``execution.Execution`` is what callers ask; ``compile`` chooses the kind. ``native`` is Spark's own plan, ``routed`` an
aggregation whose records are placed on workers, and ``tables`` the operators on tables, which joins and held results
need. Imports pipeline, sinks, sources, selection, aggregates and what is below; imported by checkpoint, dedicated, run.
"""
