"""A simulated micro-batch job on a simulated cluster, seeded and much faster than a real one.

Imports ``millrace_operator.scaling`` for shapes of jobs and metrics, and nothing else of Millrace.
"""
