"""Sinks: the destinations of a query's results, each kind a connector in a folder of its own.

Imports no source. ``outputs`` is the entrance, ``base`` the interface that ``run`` uses, and ``connector`` that of
the folders, which are found by entry point.
"""
