"""Sources of records, read as slices of Arrow batches; each kind is a connector in a folder of its own.

Knows no Spark, no plan and no sink. ``source_factory`` is the entrance, ``base`` the interface that ``pipeline`` uses,
and ``connector`` that of the folders, which are found by entry point.
"""
