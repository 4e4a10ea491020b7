"""The path of a record through a batch: source, decode, route, combine, and the report of what the batch did.

Imports sources, plan, aggregates and what is below them; imported by queries, dedicated, display, run and pod.
"""
