"""Sources of records, read as slices of Arrow batches; each kind is a connector in a folder of its own.

Knows no Spark, no plan and no sink. ``base`` has the interface that ``pipeline`` uses, and ``connector``,
the entrance, that of the folders, which are found by entry point.
"""
