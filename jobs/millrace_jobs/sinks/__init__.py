"""Sinks: the destinations of a query's results."""
