"""Sources of records: files, replays, generators and Kafka topics, read as slices of Arrow batches.

Knows no Spark, no plan and no sink. ``source_factory`` is the entrance, ``base`` the interface that ``pipeline`` uses.
"""
