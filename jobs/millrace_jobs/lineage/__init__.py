"""Lineage: events in OpenLineage's format about the datasets that a run reads and writes.

It knows no Spark. A run describes itself by ``events``, and ``sender`` delivers that in a thread of its own.
"""
