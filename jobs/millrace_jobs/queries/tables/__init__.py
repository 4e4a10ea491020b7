"""Queries by operators on tables: joins, evolving tables, and groups that are held back or still change.

SQL becomes a tree of ``relations`` (``compile``, ``translation``, ``grouping``), and this the stages of a Spark plan
(``build``, ``stages``), each of which runs one of ``operators``.
"""
