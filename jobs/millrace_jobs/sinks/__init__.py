"""Sinks: the destinations of a query's results.

Imports no source; ``sink_factory`` is the entrance, and ``base`` is the interface that ``run`` uses.
"""
