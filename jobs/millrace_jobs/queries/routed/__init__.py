"""Queries whose records are placed on workers: one aggregation of one source, in SQL or by a Python class."""
